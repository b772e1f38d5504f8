"""The backend on Redis and Valkey: one Lua script per verb."""

from .engine import check_url
from .store import RedisStore

__all__ = ["RedisStore", "check_url"]
