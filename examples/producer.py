"""Submits pages to read and waits for what was read: `python examples/producer.py [server]`."""

from __future__ import annotations

import asyncio
import sys

import jobwire


async def main(server: str) -> None:
    """Twenty pages, one of them twice, then their results."""
    async with jobwire.connect(server) as client:
        jobs = await asyncio.gather(
            *(
                client.create(
                    queue="interactive",
                    kind="ocr.page",
                    payload=f"page {number}",
                    dedup_key=f"report-7/page-{number}",  # submitting it again answers the same job
                    ttl=3600,
                )
                for number in [*range(20), 0]
            )
        )
        for job in jobs:
            done = await client.get(job.id, full=True, wait=60)
            print(done.id, jobwire.JobStatus.Name(done.status), done.result.decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
