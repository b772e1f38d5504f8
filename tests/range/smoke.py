"""What an installation must be able to do, run by its own interpreter: `python smoke.py <server>`.

Uses nothing but the client and its dependencies.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import jobwire


async def main(target: str) -> None:
    """A job's whole life, through the worker, and a few answers besides."""
    async with jobwire.connect(target) as client:
        worker = jobwire.Worker(client, queues="smoke", concurrency=2)

        @worker.handler("double")
        async def double(job: jobwire.JobContext) -> bytes:
            return job.payload * 2

        working = asyncio.create_task(worker.serve())
        created = [await client.create(queue="smoke", kind="double", payload=bytes([n]), ttl=60) for n in range(5)]
        for number, job in enumerate(created):
            done = await client.get(job.id, full=True, wait=20)
            assert done.status == jobwire.JobStatus.JOB_STATUS_SUCCEEDED, done
            assert done.result == bytes([number, number]), done
        worker.stop()
        await working
        assert await client.batch_get(["nothing"]) == [None]
    with jobwire.connect_sync(target) as plain:
        assert plain.delete(created[0].id)
        assert not plain.exists(created[0].id)
    print("ok", version("grpcio"), version("protobuf"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
