"""The leases a worker holds, kept by heartbeats from a thread and a connection of their own.

So a blocked event loop keeps its leases; only code that holds the interpreter lock for as long as a lease (a long call
into C that does not let go of it) still loses them.

The first heartbeat of a lease is the receipt of its job and goes out as the job arrives: until it is answered, the
server believes in the job's arrival for `receipt_timeout` only. Receipts of jobs that arrive while a heartbeat is in
flight, or within 20 ms of one, go out together as the next; what was settled by then needs none.

Times are of the local monotonic clock. A lease's duration counts from the earliest moment at which its job may have
been sent, then from the sending of each heartbeat, and a little is taken off for cancelling its handler: the worker
lets go before the server gives the job away.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

import grpc

from jobwire.v1 import job_pb2, store_pb2, store_pb2_grpc

from ._endpoint import Endpoint
from ._errors import error_of_call
from ._limits import BATCH

log = logging.getLogger("jobwire.worker")

_BEATS_PER_LEASE = 3
_EARLY_SECONDS, _EARLY_PART = 1.0, 0.1
# Between heartbeats: of very short jobs a receipt each would cost as much as the jobs.
_GATHER_SECONDS = 0.02
# A heartbeat that hangs would hold up the receipts behind it.
_PATIENCE_SECONDS = 3.0
_RETRY_SECONDS = 1.0
_PROGRESS_SECONDS = 1.0


class News(Enum):
    """What the keeper tells of a lease."""

    LOST = "lost"
    SURE = "sure"
    """The server says that a lease in doubt is held."""
    CANCEL = "cancel"
    """Somebody asked to stop the job; told with every heartbeat."""


class HeldLease:
    """One held lease. `sent`: since when its job may have been on its way. `doubtful`: that may be long; it waits for
    the answer to its receipt.
    """

    def __init__(self, claimed: store_pb2.ClaimedJob, *, sent: float, receipt_timeout: float, doubtful: bool) -> None:
        self.ref = store_pb2.LeaseRef(namespace=claimed.job.namespace, id=claimed.job.id, token=claimed.lease_token)
        self.duration = claimed.lease_duration.ToNanoseconds() / 1e9
        self.extended = sent
        self.doubtful = doubtful
        self.receipted = False
        """A heartbeat was answered."""
        self._receipt_timeout = receipt_timeout
        self.progress: job_pb2.Progress | None = None
        self.lost = False
        self.disowned = False
        """The server said itself that it is lost."""
        self.settling = False
        """Its settlement is on the way: that it is not held any more says nothing, the settlement's answer does."""

    @property
    def deadline(self) -> float:
        """When to let go of it, unless a heartbeat extends it."""
        span = self.duration if self.receipted else min(self.duration, self._receipt_timeout)
        return self.extended + span - min(_EARLY_SECONDS, span * _EARLY_PART)

    @property
    def due(self) -> float:
        """When to send the next heartbeat."""
        return self.extended + self.duration / _BEATS_PER_LEASE if self.receipted else 0.0

    def goes_with(self, now: float) -> bool:
        """Whether to take it along in a heartbeat that is sent now: due, or soon, or with progress to tell."""
        return self.progress is not None or self.due - self.duration / (2 * _BEATS_PER_LEASE) <= now


class LeaseKeeper:
    """Holds leases until they are dropped or lost: `with LeaseKeeper(...) as keeper: ...` runs its thread, on which
    `tell(token, news)` is called with what there is to know of one.
    """

    def __init__(self, endpoint: Endpoint, worker_id: str, tell: Callable[[str, News], object]) -> None:
        self._endpoint = endpoint
        self._worker_id = worker_id
        self._tell = tell
        self._leases: dict[str, HeldLease] = {}
        self._changed = threading.Condition()
        self._wake = math.inf
        """When the thread wakes by itself."""
        self._not_before = 0.0
        """When to try again after a heartbeat failed."""
        self._hurry = math.inf
        """When to send a heartbeat early, for progress or in doubt."""
        self._ask_all = False
        """The next heartbeat is for all."""
        self._beaten = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="jobwire-heartbeats", daemon=True)

    def __enter__(self) -> Self:
        self._connect()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._channel.close()  # ends a heartbeat that is being sent
        self._thread.join()

    def hold(self, lease: HeldLease) -> None:
        """Takes a lease into care, unless it is."""
        with self._changed:
            self._leases.setdefault(lease.ref.token, lease)
            if max(lease.due, self._beaten + _GATHER_SECONDS) < self._wake:
                self._changed.notify()

    def drop(self, lease: HeldLease) -> None:
        """Ends the care: the lease is settled."""
        with self._changed:
            self._leases.pop(lease.ref.token, None)

    def held(self) -> list[store_pb2.LeaseRef]:
        """What is held now."""
        with self._changed:
            return [lease.ref for lease in self._leases.values()]

    def report(self, lease: HeldLease, progress: job_pb2.Progress) -> None:
        """Sends a job's progress with the next heartbeat, within a second or so; a newer one replaces it."""
        with self._changed:
            lease.progress = progress
            self._hurry = min(self._hurry, max(time.monotonic(), self._beaten + _PROGRESS_SECONDS))
            if self._hurry < self._wake:
                self._changed.notify()

    def ask(self) -> None:
        """Sends a heartbeat at once, to learn what is still held."""
        with self._changed:
            self._hurry = 0.0
            self._ask_all = True
            self._changed.notify()

    def _connect(self) -> None:
        self._channel = self._endpoint.channel()
        self._stub = store_pb2_grpc.StoreStub(self._channel)

    def _run(self) -> None:
        while held := self._next():
            try:
                self._beat(held)
            except Exception:  # a thread that died would lose every lease without a word
                if self._closed:
                    return
                log.exception("heartbeat failed")
                self._not_before = time.monotonic() + _RETRY_SECONDS

    def _next(self) -> list[HeldLease]:
        """Waits until a heartbeat is due; what to send it for. Nothing: closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for lease in [lease for lease in self._leases.values() if lease.deadline <= now]:
                    self._lose(lease, "no heartbeat was answered in time")
                leases = list(self._leases.values())
                due = max(
                    self._not_before,
                    self._beaten + _GATHER_SECONDS,
                    min([self._hurry, *(lease.due for lease in leases)]),
                )
                if leases and due <= now:
                    going = [lease for lease in leases if self._ask_all or lease.goes_with(now)]
                    self._hurry, self._ask_all = math.inf, False
                    if going:
                        return going
                elif leases:
                    self._wake = min([due, *(lease.deadline for lease in leases)])
                    self._changed.wait(self._wake - now)
                else:
                    self._wake = self._hurry = math.inf
                    self._changed.wait()
        return []

    def _lose(self, lease: HeldLease, why: str) -> None:
        lease.lost = True
        del self._leases[lease.ref.token]
        log.warning("lease lost: job=%s/%s: %s", lease.ref.namespace, lease.ref.id, why)
        self._tell(lease.ref.token, News.LOST)

    def _beat(self, held: list[HeldLease]) -> None:
        for start in range(0, len(held), BATCH):
            leases = held[start : start + BATCH]
            with self._changed:
                progress = [lease.progress for lease in leases]
                for lease in leases:
                    lease.progress = None
            request = store_pb2.HeartbeatRequest(
                leases=[
                    store_pb2.LeaseHeartbeat(lease=lease.ref, progress=news)
                    for lease, news in zip(leases, progress, strict=True)
                ],
                worker_id=self._worker_id,
            )
            sent = self._beaten = time.monotonic()
            # Not past the first deadline: who is not extended until then has to be told.
            patience = min(
                min(lease.deadline for lease in leases) - sent,
                min(lease.duration for lease in leases) / _BEATS_PER_LEASE,
                _PATIENCE_SECONDS,
            )
            try:
                answer = self._stub.Heartbeat(request, timeout=max(patience, 0.05))
            except grpc.RpcError as error:
                self._failed(leases, progress, error)
                return
            with self._changed:
                for lease, result in zip(leases, answer.results, strict=True):
                    self._note(lease, result.state, sent)

    def _note(self, lease: HeldLease, state: store_pb2.LeaseState.ValueType, sent: float) -> None:
        if lease.lost or lease.ref.token not in self._leases:
            return
        if state == store_pb2.LEASE_STATE_LOST:
            if not lease.settling:
                lease.disowned = True
                self._lose(lease, "the server gave it away")
            return
        lease.extended = sent
        lease.receipted = True
        # First, so that a job to be stopped does not begin.
        if state == store_pb2.LEASE_STATE_CANCEL_REQUESTED:
            self._tell(lease.ref.token, News.CANCEL)
        if lease.doubtful:
            lease.doubtful = False
            self._tell(lease.ref.token, News.SURE)

    def _failed(self, leases: list[HeldLease], progress: list[job_pb2.Progress | None], failure: grpc.RpcError) -> None:
        if self._closed:
            return
        error = error_of_call(failure)
        log.warning("heartbeat failed: leases=%d code=%s: %s", len(leases), error.code.name, error.message)
        with self._changed:
            for lease, news in zip(leases, progress, strict=True):
                lease.progress = lease.progress or news
            self._hurry = 0.0  # as soon as the pause allows
        pause = min(_RETRY_SECONDS, min(lease.duration for lease in leases) / 10)
        self._not_before = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311 - spreads load
        if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            with self._changed:
                if not self._closed:
                    # A connection that swallows calls may do so for long: try another one.
                    self._channel.close()
                    self._connect()
