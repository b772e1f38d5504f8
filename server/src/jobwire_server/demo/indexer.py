"""A worker process of the demo: counts the words of each job's payload."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import jobwire
from jobwire.v1 import store_pb2

from .folder import count_words
from .journal import COMPLETED, DELIVERED, Journal

QUEUE = "demo"
KIND = "index.piece"
CONCURRENCY = 4
LEASE_SECONDS = 2.0


class Witness(jobwire.Client):
    """A client that writes down which completions the server accepted."""

    def __init__(self, target: str, journal: Journal) -> None:
        super().__init__(target)
        self._journal = journal

    async def settle(self, settlement: store_pb2.Settlement) -> jobwire.Settled:
        """As it is, and written down."""
        answer = await super().settle(settlement)
        if settlement.HasField("complete"):
            self._journal.write(COMPLETED, settlement.complete.lease.id)
        return answer


async def index(target: str, name: str, journal: Journal, pause: float) -> None:
    """Works until SIGTERM."""
    async with Witness(target, journal) as client:
        worker = jobwire.Worker(
            client, queues=QUEUE, concurrency=CONCURRENCY, worker_id=name, lease_duration=LEASE_SECONDS
        )

        @worker.handler(KIND)
        def count(job: jobwire.JobContext) -> str:
            journal.write(DELIVERED, job.job.id)
            time.sleep(pause)
            return json.dumps(count_words(job.payload))

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.serve()


if __name__ == "__main__":
    _, target, name, journal, pause = sys.argv
    asyncio.run(index(target, name, Journal(Path(journal)), float(pause)))
