"""Reads that wait for a job to change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.errors import draining, not_found
from jobwire_server.store.times import duration_ms

from . import pace

_ENDED = {job_pb2.JOB_STATUS_SUCCEEDED, job_pb2.JOB_STATUS_FAILED, job_pb2.JOB_STATUS_CANCELLED}


class Watches:
    """The waiting reads of this replica: one event each, set when its job may have changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._draining = False
        self._events: dict[tuple[str, str], set[asyncio.Event]] = {}

    async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse:
        """Store.Get with a wait: the job once it is as awaited, or as it is when the time is up.

        Raises:
            StoreError: as Store.Get; JOB_NOT_FOUND also if the job is replaced meanwhile; DRAINING.
        """
        now = asyncio.get_running_loop().time
        until = now() + duration_ms(request.wait) / 1_000
        look = store_pb2.GetRequest()
        look.CopyFrom(request)
        look.view = job_pb2.JOB_VIEW_BASIC
        first = ""
        with self._watching(request) as changed:
            while True:
                changed.clear()
                answer = await self._get(look, first)
                first = first or _incarnation(answer)
                if now() >= until or _is_awaited(answer.job, request.after_version):
                    break
                if self._draining:
                    raise draining()
                try:
                    async with asyncio.timeout_at(min(until, now() + pace.LOOK_SECONDS)):
                        await changed.wait()
                except TimeoutError:
                    pass
        return await self._get(request, first) if request.view == job_pb2.JOB_VIEW_FULL else answer

    def changed(self, namespace: str, job_id: str) -> None:
        """The job has a new version, or is gone."""
        for event in self._events.get((namespace, job_id), ()):
            event.set()

    def changed_everything(self) -> None:
        """Any job may have changed."""
        for events in self._events.values():
            for event in events:
                event.set()

    def drain(self) -> None:
        """Ends every wait with DRAINING."""
        self._draining = True
        self.changed_everything()

    async def _get(self, request: store_pb2.GetRequest, incarnation: str) -> store_pb2.GetResponse:
        answer = await self._store.get(request, watch=True)
        if incarnation not in ("", _incarnation(answer)):
            raise not_found(answer.job.namespace, answer.job.id)
        return answer

    @contextmanager
    def _watching(self, request: store_pb2.GetRequest) -> Iterator[asyncio.Event]:
        name = (request.namespace or limits.DEFAULT_NAMESPACE, request.id)
        event = asyncio.Event()
        self._events.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            self._events[name].discard(event)
            if not self._events[name]:
                del self._events[name]


def _incarnation(answer: store_pb2.GetResponse) -> str:
    # An etag is "<nonce>.<revision>"; another nonce is another job under the same id.
    return answer.job.etag.rpartition(".")[0]


def _is_awaited(job: job_pb2.Job, after_version: int) -> bool:
    return job.status in _ENDED or 0 < after_version < job.version
