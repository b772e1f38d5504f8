"""The seven verbs over any backend."""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from jobwire._requests import duration
from jobwire.v1 import job_pb2, store_pb2

from . import _values as values
from ._errors import JobNotFoundError
from ._opened import Opened
from ._record import JobRecord, JobStatus, Json
from ._telemetry import observed

_TO_CONTRACT = {
    JobStatus.PENDING: job_pb2.JOB_STATUS_PENDING,
    JobStatus.RUNNING: job_pb2.JOB_STATUS_RUNNING,
    JobStatus.SUCCEEDED: job_pb2.JOB_STATUS_SUCCEEDED,
    JobStatus.FAILED: job_pb2.JOB_STATUS_FAILED,
    JobStatus.CANCELLED: job_pb2.JOB_STATUS_CANCELLED,
}
_FROM_CONTRACT = {status: ours for ours, status in _TO_CONTRACT.items()}


class AgentJobStore:
    """A `JobStore` for one agent. Made by `make_job_store`; opens its backend when first used."""

    def __init__(self, opened: Opened, agent: str, tenant: str) -> None:
        self.agent = agent
        self.tenant = tenant
        self._opened = opened

    async def __aenter__(self) -> Self:
        """Opens the backend and asks whether it answers: raises StoreUnavailableError, or JobStoreError for a URL that
        can never work.
        """
        await self.exists("startup")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def create(
        self, job_id: str, payload: Json = None, *, ttl_seconds: float, status: JobStatus = JobStatus.PENDING
    ) -> JobRecord:
        """As `JobStore.create`."""
        with self._observed("create", job_id):
            job = job_pb2.Job(
                namespace=self.agent,
                tenant=self.tenant,
                payload=_content("payload", payload),
                content_type=values.CONTENT_TYPE,
                status=_TO_CONTRACT[values.check_status(status)],
                ttl=duration(values.check_ttl(ttl_seconds)),
            )
            request = store_pb2.CreateRequest(job_id=values.check_id(job_id), request_id=uuid.uuid4().hex, job=job)
            verbs = await self._opened.verbs(self)
            answer = (await verbs.create(request)).job
            answer.payload = job.payload
            return _record(answer)

    async def get(self, job_id: str) -> JobRecord | None:
        """As `JobStore.get`."""
        with self._observed("get", job_id):
            request = store_pb2.GetRequest(namespace=self.agent, id=values.check_id(job_id), view=job_pb2.JOB_VIEW_FULL)
            verbs = await self._opened.verbs(self)
            try:
                return _record((await verbs.get(request)).job)
            except JobNotFoundError:
                return None

    async def update(
        self,
        job_id: str,
        *,
        status: JobStatus | None = None,
        payload: Json = None,
        result: Json = None,
        error: str | None = None,
        ttl_seconds: float | None = None,
        etag: str | None = None,
    ) -> JobRecord:
        """As `JobStore.update`."""
        with self._observed("update", job_id):
            request = store_pb2.UpdateRequest(
                namespace=self.agent,
                id=values.check_id(job_id),
                etag=values.check_etag(etag),
                request_id=uuid.uuid4().hex,
                view=job_pb2.JOB_VIEW_FULL,
                status=job_pb2.JOB_STATUS_UNSPECIFIED if status is None else _TO_CONTRACT[values.check_status(status)],
                payload=None if payload is None else values.encode("payload", payload),
                content_type=None if payload is None else values.CONTENT_TYPE,
                result=None if result is None else values.encode("result", result),
                error=None if error is None else job_pb2.JobError(message=values.check_error(error)),
                ttl=None if ttl_seconds is None else duration(values.check_ttl(ttl_seconds)),
            )
            verbs = await self._opened.verbs(self)
            return _record((await verbs.update(request)).job)

    async def delete(self, job_id: str, *, etag: str | None = None) -> bool:
        """As `JobStore.delete`."""
        with self._observed("delete", job_id):
            request = store_pb2.DeleteRequest(
                namespace=self.agent, id=values.check_id(job_id), etag=values.check_etag(etag)
            )
            verbs = await self._opened.verbs(self)
            return (await verbs.delete(request)).existed

    async def exists(self, job_id: str) -> bool:
        """As `JobStore.exists`."""
        with self._observed("exists", job_id):
            request = store_pb2.ExistsRequest(namespace=self.agent, id=values.check_id(job_id))
            verbs = await self._opened.verbs(self)
            return (await verbs.exists(request)).exists

    async def list_ids(self, *, limit: int = 100) -> list[str]:
        """As `JobStore.list_ids`."""
        with self._observed("list_ids", ""):
            request = store_pb2.ListIdsRequest(namespace=self.agent, limit=values.check_limit(limit))
            verbs = await self._opened.verbs(self)
            return list((await verbs.list_ids(request)).ids)

    async def close(self) -> None:
        """As `JobStore.close`."""
        await self._opened.close(self)

    def _observed(self, verb: str, job_id: str) -> AbstractContextManager[None]:
        return observed(verb, system=self._opened.system, agent=self.agent, job_id=job_id)


def _content(name: str, value: Json) -> bytes:
    return b"" if value is None else values.encode(name, value)


def _record(job: job_pb2.Job) -> JobRecord:
    return JobRecord(
        job_id=job.id,
        status=_FROM_CONTRACT[job.status],
        payload=values.decode(job.id, "payload", job.payload),
        result=values.decode(job.id, "result", job.result),
        error=job.error.message if job.HasField("error") else None,
        created_at=job.create_time.ToMilliseconds() / 1_000,
        updated_at=job.update_time.ToMilliseconds() / 1_000,
        etag=job.etag,
    )
