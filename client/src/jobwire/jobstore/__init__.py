"""JobStore: job state that survives a restart and is shared by replicas, in place of a module's dict.

    from jobwire.jobstore import JobStatus, make_job_store

    job_store = make_job_store()  # reads JOB_STORE_URL

    await job_store.create(job_id, {"request": request}, ttl_seconds=3600)
    await job_store.update(job_id, status=JobStatus.RUNNING)
    record = await job_store.get(job_id)  # None if there is none

The same code runs on a dict (`memory://`), on Redis or Valkey (`redis://`, with `pip install 'jobwire[redis]'`) and
through a jobwire server (`grpc://`); see `make_job_store`. A store opens when it is first used; `close()` it when the
process ends, or hold it open with `async with job_store: ...`, which also tells whether its backend answers.
"""

from __future__ import annotations

from ._errors import (
    EtagMismatchError,
    InvalidJobError,
    JobConflictError,
    JobNotFoundError,
    JobStoreError,
    StoreUnavailableError,
)
from ._make import make_job_store
from ._protocol import JobStore
from ._record import JobRecord, JobStatus, Json

__all__ = [
    "EtagMismatchError",
    "InvalidJobError",
    "JobConflictError",
    "JobNotFoundError",
    "JobRecord",
    "JobStatus",
    "JobStore",
    "JobStoreError",
    "Json",
    "StoreUnavailableError",
    "make_job_store",
]
