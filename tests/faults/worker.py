"""A worker process of the fault tests. It records what it was given, and what of its work was accepted.

python -m tests.faults.worker <server> <name> <history file> <seconds a job takes>
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import jobwire
from jobwire.v1 import store_pb2

from tests.history.recorder import Call, Outcome, Recorder

LEASE_SECONDS = 2.0

_CALLS = {"complete": Call.COMPLETE, "fail": Call.FAIL, "release": Call.RELEASE}


class Witness(jobwire.Client):
    """A client that records its settlements."""

    def __init__(self, target: str, recorder: Recorder) -> None:
        super().__init__(target)
        self._recorder = recorder

    async def settle(self, settlement: store_pb2.Settlement) -> jobwire.Settled:
        """As it is, and recorded."""
        verb = str(settlement.WhichOneof("verb"))
        request = getattr(settlement, verb)
        began, outcome, answer = time.monotonic(), Outcome.UNKNOWN, None
        try:
            answer = await super().settle(settlement)
            outcome = Outcome.OK
        except (jobwire.FailedPrecondition, jobwire.NotFound, jobwire.InvalidArgument):
            outcome = Outcome.REFUSED
            raise
        finally:
            content = request.result.decode() if verb == "complete" else ""
            repeated = answer is not None and answer.repeated_call
            self._recorder.write(
                _CALLS[verb], request.lease.id, began, token=request.lease.token, outcome=outcome, content=content,
                repeated=repeated,
            )  # fmt: skip
        return answer


async def main(target: str, name: str, history: Path, pause: float) -> None:
    """Works until it is killed."""
    recorder = Recorder(history, name)
    async with Witness(target, recorder) as client:
        worker = jobwire.Worker(client, queues="q", concurrency=8, worker_id=name, lease_duration=LEASE_SECONDS)

        @worker.handler()
        async def handle(context: jobwire.JobContext) -> str:
            job = context.job
            recorder.write(
                Call.DELIVERED, job.id, time.monotonic(), token=context.lease.token, attempt=job.attempt,
                lease=LEASE_SECONDS,
            )  # fmt: skip
            await asyncio.sleep(pause)
            return f"{name}:{job.attempt}"

        await worker.serve()


if __name__ == "__main__":
    _, target, name, history, pause = sys.argv
    asyncio.run(main(target, name, Path(history), float(pause)))
