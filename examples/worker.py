"""Works until it gets SIGTERM or Ctrl-C, then finishes what it has begun and gives back the rest."""

import jobwire

worker = jobwire.Worker("127.0.0.1:50051", queues=["interactive", "batch"], concurrency=10)


@worker.handler("text.count")
async def count(job: jobwire.JobContext) -> str:
    return f"{len(job.payload.split())} words"


worker.run()
