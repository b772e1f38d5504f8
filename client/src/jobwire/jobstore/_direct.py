"""`redis://` and its kin: straight to the engine, with the server's store as a library.

It comes with `pip install 'jobwire[redis]'`. No server needs to run: every verb works off a little of what has expired.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import TypeVar
from urllib.parse import urlsplit

from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError
from jobwire_server.store.open import check_engine_url, open_store

from jobwire.v1 import store_pb2

from ._errors import JobStoreError
from ._verbs import Verbs, refusal

_Answer = TypeVar("_Answer")


class DirectVerbs(Verbs):
    """The verbs of a `Store`. Made by `open_direct`."""

    def __init__(self, store: Store, stack: AsyncExitStack) -> None:
        self._store = store
        self._stack = stack

    async def create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        """Store.Create."""
        return await _answer(self._store.create(request))

    async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse:
        """Store.Get."""
        return await _answer(self._store.get(request))

    async def update(self, request: store_pb2.UpdateRequest) -> store_pb2.UpdateResponse:
        """Store.Update."""
        return await _answer(self._store.update(request))

    async def delete(self, request: store_pb2.DeleteRequest) -> store_pb2.DeleteResponse:
        """Store.Delete."""
        return await _answer(self._store.delete(request))

    async def exists(self, request: store_pb2.ExistsRequest) -> store_pb2.ExistsResponse:
        """Store.Exists."""
        return await _answer(self._store.exists(request))

    async def list_ids(self, request: store_pb2.ListIdsRequest) -> store_pb2.ListIdsResponse:
        """Store.ListIds."""
        return await _answer(self._store.list_ids(request))

    async def close(self) -> None:
        """Waits for what is under way, then lets go of the connections."""
        await self._stack.aclose()


def check_direct(url: str) -> None:
    """Raises JobStoreError for a URL that can never work, as far as it alone can tell."""
    try:
        check_engine_url(url)
        parts = urlsplit(url)
        if not (parts.path.strip("/") if parts.scheme == "unix" else parts.hostname):
            raise ValueError(f"{parts.scheme}:// must name a {'socket' if parts.scheme == 'unix' else 'host'}")
    except ValueError as error:
        raise JobStoreError(f"JOB_STORE_URL: {error}") from None


async def open_direct(url: str) -> DirectVerbs:
    """The store at an engine's URL. Its number of partitions is the engine's, or 1 if it has none yet.

    Raises JobStoreError if the engine refuses us, StoreUnavailableError if it does not answer.
    """
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(open_store(url))
        except ValueError as error:
            raise JobStoreError(f"JOB_STORE_URL: {error}") from None
        except StoreError as error:
            raise refusal(error.reason_name, error.message, error.metadata) from None
        return DirectVerbs(store, stack.pop_all())


async def _answer(call: Awaitable[_Answer]) -> _Answer:
    try:
        return await call
    except StoreError as error:
        raise refusal(error.reason_name, error.message, error.metadata) from error
