"""Submits a job, once however often it runs, and waits for its result."""

import asyncio

import jobwire


async def main() -> None:
    async with jobwire.connect("127.0.0.1:50051") as client:
        job = await client.create(
            queue="interactive",
            kind="text.count",
            payload="to be or not to be",
            dedup_key="hamlet",
            ttl=3600,
        )
        done = await client.get(job.id, full=True, wait=30)
        print(jobwire.JobStatus.Name(done.status), done.result.decode())


asyncio.run(main())
