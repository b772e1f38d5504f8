"""Opens a store by its URL (`JOBWIRE_STORE_URL`).

(unset), embedded:///path   a valkey-server of our own, its data in that folder
memory://                   this process only
redis://, rediss://, unix:///path[?db=n]   a Redis >= 6.2 or Valkey >= 7.2
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from .base import Store
from .memory import MemoryStore
from .redis import RedisStore, check_url

Fsync = Literal["everysec", "always"]


def check_engine_url(url: str) -> None:
    """Raises ValueError for a URL of an engine that can never work, as far as the URL alone can tell."""
    scheme = url.partition("://")[0].lower()
    if scheme.removesuffix("+sentinel").removesuffix("+cluster") not in ("redis", "rediss", "unix"):
        raise ValueError("an engine's URL must begin with redis://, rediss:// or unix://")
    if "+" in scheme:
        raise ValueError(f"{scheme}:// is not served by this release")
    check_url(url)


@contextlib.asynccontextmanager
async def open_store(
    url: str = "",
    *,
    partitions: int | None = None,
    prefix: str = "jobwire",
    data_dir: Path | str | None = None,
    fsync: Fsync = "everysec",
) -> AsyncIterator[Store]:
    """The store at `url`, closed at the end of the block; an embedded engine runs as long as the block.

    `partitions` is permanent for a deployment; None takes what the engine holds, or 1. `data_dir` and `fsync` are for
    the embedded engine: its folder where the URL names none, and how often its log reaches the disk.

    Raises ValueError for a URL or setting that can never work, `EngineStartError` if the embedded engine does not
    start, `StoreError` (ENGINE_UNAVAILABLE) if an engine does not answer.
    """
    scheme = url.partition("://")[0].lower() if url else "embedded"
    async with contextlib.AsyncExitStack() as stack:
        if scheme == "memory":
            if url.lower() != "memory://":
                raise ValueError("memory:// takes neither host nor path")
            store: Store = MemoryStore(partitions=partitions or 1)
        elif scheme == "embedded":
            # Imported here: a library user of the store needs no engine of ours.
            from .redis.embedded import EmbeddedEngine  # noqa: PLC0415

            engine = EmbeddedEngine(unquote(urlsplit(url).path) or data_dir, fsync)
            await engine.start()
            stack.push_async_callback(engine.stop)
            store = await RedisStore.connect(engine.url, prefix=prefix, partitions=partitions)
        elif scheme in ("redis", "rediss", "unix"):
            store = await RedisStore.connect(url, prefix=prefix, partitions=partitions)
        elif scheme.removesuffix("+sentinel").removesuffix("+cluster") in ("redis", "rediss"):
            raise ValueError(f"{scheme}:// is not served by this release")
        else:
            raise ValueError("the store URL must begin with embedded://, memory://, redis://, rediss:// or unix://")
        stack.push_async_callback(store.close)
        yield store
