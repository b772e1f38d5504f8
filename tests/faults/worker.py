"""A worker process of the fault tests. It records what it was given, and what of its work was accepted.

python -m tests.faults.worker <target> <name> <history file> <seconds a job takes> <seconds of a lease> <concurrency>

Kinds of jobs: "flaky" fails once, "deadly" kills its worker, "held" runs until the file named by its payload exists;
all but "deadly" succeed in the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import jobwire
from jobwire._endpoint import Endpoint
from jobwire.v1 import job_pb2, store_pb2

from tests.history.recorder import Call, Outcome, Recorder
from tests.wait import wait_until

LEASE_SECONDS = 2.0
# The job's receipt should be back by then, so that the death counts as a loss.
DEADLY_SECONDS = 0.3

_CALLS = {"complete": Call.COMPLETE, "fail": Call.FAIL, "release": Call.RELEASE}


class Witness(jobwire.Client):
    """A client that records its settlements, and its worker's heartbeats."""

    def __init__(self, target: str, recorder: Recorder) -> None:
        super().__init__(target)
        self.endpoint = WitnessEndpoint(target, recorder=recorder)
        self._recorder = recorder

    async def settle(self, settlement: store_pb2.Settlement) -> jobwire.Settled:
        """As it is, and recorded."""
        verb = str(settlement.WhichOneof("verb"))
        request = getattr(settlement, verb)
        content = request.result.decode() if verb == "complete" else ""
        began, outcome = time.monotonic(), Outcome.UNKNOWN
        answer: jobwire.Settled | None = None

        def write(outcome: Outcome) -> None:
            self._recorder.write(
                _CALLS[verb], request.lease.id, began, token=request.lease.token, outcome=outcome, content=content,
                repeated=answer is not None and answer.repeated_call,
                final=isinstance(answer, store_pb2.FailResponse) and answer.status == job_pb2.JOB_STATUS_FAILED,
            )  # fmt: skip

        write(Outcome.SENT)
        try:
            answer = await super().settle(settlement)
            outcome = Outcome.OK
        except (jobwire.FailedPrecondition, jobwire.NotFound, jobwire.InvalidArgument):
            outcome = Outcome.REFUSED
            raise
        finally:
            write(outcome)
        return answer


@dataclass(frozen=True, kw_only=True)
class WitnessEndpoint(Endpoint):
    """An endpoint whose blocking channels, those of a worker's leases, record heartbeats."""

    recorder: Recorder

    def channel(self) -> grpc.Channel:
        """As it is, and recorded."""
        return grpc.intercept_channel(super().channel(), Heartbeats(self.recorder))


class Heartbeats(grpc.UnaryUnaryClientInterceptor):
    """Records the heartbeats that were answered; others prove nothing."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: object, request: Any) -> Any:
        """As it is, and recorded."""
        began = time.monotonic()
        call = continuation(details, request)
        if isinstance(request, store_pb2.HeartbeatRequest) and call.exception() is None:
            for beat, result in zip(request.leases, call.result().results, strict=True):
                if result.state != store_pb2.LEASE_STATE_CANCEL_REQUESTED:  # extended, but not by its whole duration
                    held = result.state == store_pb2.LEASE_STATE_HELD
                    self._recorder.write(
                        Call.HEARTBEAT, beat.lease.id, began, token=beat.lease.token,
                        outcome=Outcome.OK if held else Outcome.REFUSED,
                    )  # fmt: skip
        return call


def granted(job: jobwire.Job) -> float:
    """When the engine granted the lease. A worker may be frozen at any point between that and its handler."""
    return time.monotonic() - (time.time() - job.start_time.ToMilliseconds() / 1_000)


async def main(target: str, name: str, history: Path, pause: float, lease: float, concurrency: int) -> None:
    """Works until it is killed, or drains when asked to."""
    recorder = Recorder(history, name)
    async with Witness(target, recorder) as client:
        worker = jobwire.Worker(client, queues="q", concurrency=concurrency, worker_id=name, lease_duration=lease)

        awaited: dict[str, asyncio.Task[None]] = {}

        @worker.handler()
        async def handle(context: jobwire.JobContext) -> str:
            job = context.job
            recorder.write(
                Call.DELIVERED, job.id, granted(job), token=context.lease.token, attempt=job.attempt, lease=lease,
            )  # fmt: skip
            if job.kind == "deadly":
                await asyncio.sleep(DEADLY_SECONDS)
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(pause)
            if job.kind == "held":
                path = job.payload.decode()
                if path not in awaited:
                    awaited[path] = asyncio.create_task(wait_until(Path(path).exists, 600))
                await asyncio.shield(awaited[path])
            if job.kind == "flaky" and not job.failures:
                raise jobwire.Retry(0.2, "fails once")
            return f"{name}:{job.attempt}"

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.serve()


if __name__ == "__main__":
    target, name, history = sys.argv[1:4]
    asyncio.run(main(target, name, Path(history), float(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])))
