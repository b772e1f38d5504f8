"""The backend on Redis and Valkey: one Lua script per verb."""

from .store import RedisStore

__all__ = ["RedisStore"]
