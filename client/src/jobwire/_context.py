"""What a handler sees of its job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Unpack

from jobwire.v1 import job_pb2, store_pb2

from ._client import Client
from ._limits import NOTE_BYTES
from ._requests import NewJob


class JobContext:
    """One attempt of a job, given to its handler. Usable from the event loop and from a plain function's thread."""

    def __init__(
        self,
        job: job_pb2.Job,
        lease: store_pb2.LeaseRef,
        client: Client,
        report: Callable[[job_pb2.Progress], None],
    ) -> None:
        self.job = job
        """The job as it was claimed, payload included; `job.attempt` counts from 1."""
        self.lease = lease
        """The lease. Its token is a secret: whoever has it can settle the job."""
        self.cancelled = False
        """Whether to stop: somebody cancelled the job, the lease is lost, or the worker must end. A coroutine is
        cancelled as well; a plain function has to look here from time to time. Of a cancelled job, whatever is raised
        leaves it CANCELLED; what is returned all the same is its result.
        """
        self._client = client
        self._report = report
        self._loop = asyncio.get_running_loop()

    @property
    def payload(self) -> bytes:
        """The job's payload."""
        return self.job.payload

    def progress(self, fraction: float, note: str = "") -> None:
        """Tells how far the job is: 0 to 1, and a note for people (cut at 1,024 bytes).

        Goes out with the next heartbeat, within a second or so; of several only the newest. What was not sent when the
        job ends is dropped.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"a fraction is between 0 and 1, not {fraction}")
        text = note.encode("utf-8", "backslashreplace")[:NOTE_BYTES].decode("utf-8", "ignore")
        self._report(job_pb2.Progress(fraction=fraction, note=text))

    async def create_child(self, **job: Unpack[NewJob]) -> job_pb2.Job:
        """Creates a child of this job while its lease is held, else raises LeaseLost. Keywords: see `jobwire.new_job`.

        Namespace and tenant are this job's. An attempt may run again: with a `dedup_key`, which is scoped to the
        family, or a `job_id` of `<this id>/<suffix>`, it meets the children it has instead of making more.
        """
        child: NewJob = {
            "tenant": self.job.tenant,
            **job,
            "namespace": self.job.namespace,
            "parent": self.job.id,
            "parent_token": self.lease.token,
        }
        return await self._client.create(**child)

    def create_child_sync(self, **job: Unpack[NewJob]) -> job_pb2.Job:
        """As `create_child`, for plain functions; blocks their thread, never to be called on the event loop."""
        return asyncio.run_coroutine_threadsafe(self.create_child(**job), self._loop).result()
