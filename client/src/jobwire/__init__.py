"""jobwire: the client of a gRPC job queue and job-state store.

    async with jobwire.connect("127.0.0.1:50051") as client:
        job = await client.create(queue="interactive", kind="ocr.page", payload=b"...", ttl=3600)

`connect` (asyncio) and `connect_sync` (plain scripts) give a client, `Worker` runs jobs. Records are the contract's own
messages (`jobwire.v1`), errors are `JobwireError`s. Log lines go to the logger `jobwire.worker`.

FORKING. gRPC does not survive a fork: connect in the process that makes the calls, after forking. Importing this
package or `jobwire.v1.store_pb2` alone loads no gRPC.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobwire.v1.job_pb2 import Job, JobError, JobStatus
    from jobwire.v1.store_pb2 import ClaimedJob, CreateRequest, LeaseRef, QueueRef

    from ._client import Client, connect
    from ._connection import Settled
    from ._context import JobContext
    from ._errors import (
        Aborted,
        AlreadyExists,
        DeadlineExceeded,
        EtagMismatch,
        FailedPrecondition,
        IllegalTransition,
        InvalidArgument,
        JobwireError,
        LeaseLost,
        NotFound,
        PermissionDenied,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        Unimplemented,
    )
    from ._outcome import NonRetryable, Release, Retry
    from ._requests import new_job
    from ._stream import ClaimStream, SyncClaimStream
    from ._sync_client import SyncClient, connect_sync
    from ._worker import Worker

# Loaded when first used: a program that embeds the store needs the messages only, and gRPC costs memory and forks.
_HOMES = {
    "jobwire.v1.job_pb2": ("Job", "JobError", "JobStatus"),
    "jobwire.v1.store_pb2": ("ClaimedJob", "CreateRequest", "LeaseRef", "QueueRef"),
    "jobwire._client": ("Client", "connect"),
    "jobwire._connection": ("Settled",),
    "jobwire._context": ("JobContext",),
    "jobwire._errors": (
        "Aborted",
        "AlreadyExists",
        "DeadlineExceeded",
        "EtagMismatch",
        "FailedPrecondition",
        "IllegalTransition",
        "InvalidArgument",
        "JobwireError",
        "LeaseLost",
        "NotFound",
        "PermissionDenied",
        "ResourceExhausted",
        "Unauthenticated",
        "Unavailable",
        "Unimplemented",
    ),
    "jobwire._outcome": ("NonRetryable", "Release", "Retry"),
    "jobwire._requests": ("new_job",),
    "jobwire._stream": ("ClaimStream", "SyncClaimStream"),
    "jobwire._sync_client": ("SyncClient", "connect_sync"),
    "jobwire._worker": ("Worker",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Aborted",
    "AlreadyExists",
    "ClaimStream",
    "ClaimedJob",
    "Client",
    "CreateRequest",
    "DeadlineExceeded",
    "EtagMismatch",
    "FailedPrecondition",
    "IllegalTransition",
    "InvalidArgument",
    "Job",
    "JobContext",
    "JobError",
    "JobStatus",
    "JobwireError",
    "LeaseLost",
    "LeaseRef",
    "NonRetryable",
    "NotFound",
    "PermissionDenied",
    "QueueRef",
    "Release",
    "ResourceExhausted",
    "Retry",
    "Settled",
    "SyncClaimStream",
    "SyncClient",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Worker",
    "connect",
    "connect_sync",
    "new_job",
]


if not TYPE_CHECKING:  # else every misspelt name would pass a type checker

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return value
