"""What a backend does: six verbs of the contract, in its own messages, for jobs that are state only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jobwire.v1 import store_pb2

from ._errors import (
    EtagMismatchError,
    InvalidJobError,
    JobConflictError,
    JobNotFoundError,
    JobStoreError,
    StoreUnavailableError,
)


class Verbs(Protocol):
    """An open backend. Every verb raises `JobStoreError` and nothing else for what the contract knows."""

    async def create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse: ...

    async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse: ...

    async def update(self, request: store_pb2.UpdateRequest) -> store_pb2.UpdateResponse: ...

    async def delete(self, request: store_pb2.DeleteRequest) -> store_pb2.DeleteResponse: ...

    async def exists(self, request: store_pb2.ExistsRequest) -> store_pb2.ExistsResponse: ...

    async def list_ids(self, request: store_pb2.ListIdsRequest) -> store_pb2.ListIdsResponse: ...

    async def close(self) -> None: ...


_BY_REASON: Mapping[str, type[JobStoreError]] = {
    "JOB_EXISTS": JobConflictError,
    "JOB_NOT_FOUND": JobNotFoundError,
    "FIELD_INVALID": InvalidJobError,
    "ENGINE_UNAVAILABLE": StoreUnavailableError,
    "ENGINE_FULL": StoreUnavailableError,
    "OVERLOADED": StoreUnavailableError,
    "DRAINING": StoreUnavailableError,
}


def refusal(reason: str, message: str, metadata: Mapping[str, str]) -> JobStoreError:
    """The error for a reason of `jobwire.v1.ErrorReason`, without its prefix."""
    if reason == "ETAG_MISMATCH":
        return EtagMismatchError(message, metadata.get("etag", ""))
    return _BY_REASON.get(reason, JobStoreError)(message)
