"""Reads pages until SIGTERM or Ctrl-C: `python examples/worker.py [server]`."""

from __future__ import annotations

import asyncio
import logging
import sys

import jobwire

worker = jobwire.Worker(
    sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051", queues=["interactive", "batch"], concurrency=10
)


@worker.handler("ocr.page")
async def ocr(job: jobwire.JobContext) -> str:
    """A coroutine: may wait for others, and is cancelled when the job is taken away."""
    for step in range(4):
        await asyncio.sleep(0.05)
        job.progress((step + 1) / 4)
    return job.payload.decode().upper()


@worker.handler("thumbnail")
def thumbnail(job: jobwire.JobContext) -> bytes:
    """A plain function: runs in a thread."""
    if not job.payload:
        raise jobwire.NonRetryable("an empty page has no thumbnail")
    return job.payload[:16]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    worker.run()
