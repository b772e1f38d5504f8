"""The hub: every claim stream and waiting claim of this replica, and who of them gets woken.

A queue's jobs are not polled for. A claim that finds nothing registers this replica with the engine; what makes a job
ready sends one notice, which wakes one listener. A claim that leaves jobs behind wakes the next. Notices may be lost,
so the timers also look, about once a second, at the queues that somebody here waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence

from jobwire.v1 import store_pb2

from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError, draining
from jobwire_server.store.types import Claimed, Outcome

from . import pace
from .background import Background
from .listener import Listener
from .queue_view import QueueView
from .undelivered import Undelivered

QueueName = tuple[str, str]
"""(namespace, queue)."""


class Hub:
    """Belongs to one event loop; none of its methods blocks but `claim_from`."""

    def __init__(self, store: Store, undelivered: Undelivered, background: Background) -> None:
        self.partitions = store.partitions
        self.is_draining = False
        self._store = store
        self._undelivered = undelivered
        self._background = background
        self._views: dict[QueueName, QueueView] = {}
        self._listeners: set[Listener] = set()
        self._moment = 0

    @contextlib.contextmanager
    def listening(self, request: store_pb2.ClaimRequest, receipt_ms: int = 0) -> Iterator[Listener]:
        """A listener to the request's queues (validated), for the extent of the context.

        With `receipt_ms`, its leases last only that long until their first heartbeat.

        Raises:
            StoreError: DRAINING.
        """
        if self.is_draining:
            raise draining()
        names = [(ref.namespace or limits.DEFAULT_NAMESPACE, ref.queue) for ref in request.queues]
        for name in names:
            self._views.setdefault(name, QueueView(*name, self.partitions)).listeners += 1
        listener = Listener(self, request, [self._views[name] for name in names], receipt_ms)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
            self._undelivered.give_back(listener.handed)
            for name in names:
                self._leave(name)

    async def claim_from(self, listener: Listener, partition: int, wanted: int) -> list[store_pb2.ClaimedJob]:
        """Claims for a listener; if its task is cancelled meanwhile, what was claimed is given back.

        Raises:
            StoreError: the engine refused.
        """
        return await self._undelivered.unless_cancelled(self._claim_from(listener, partition, wanted))

    async def hand_off(self, request: store_pb2.CreateRequest) -> Outcome | None:
        """Creates and claims in one step for a listener that waits here for the job's queue. None: there is none.

        Raises:
            StoreError: the request is invalid, or the engine refused.
        """
        job = request.job
        view = self._views.get((job.namespace or limits.DEFAULT_NAMESPACE, job.queue))
        if view is None or not view.idle or request.HasField("delay") or job.HasField("run_time"):
            return None
        listener = next(iter(view.idle))
        # Engaged at once, or another Create might choose it too. A caller that is cancelled leaves it the jobs all the
        # same.
        return await self._background.outlast(self._hand_off(listener, listener.engage(), request))

    async def _hand_off(self, listener: Listener, wanted: int, request: store_pb2.CreateRequest) -> Outcome:
        moment, asked_at = self._next_moment(), asyncio.get_running_loop().time()
        jobs: list[store_pb2.ClaimedJob] = []
        try:
            outcome, claimed = await self._store.hand_off(
                request, listener.request, wanted, receipt_ms=listener.receipt_ms
            )
            jobs = claimed.jobs
            if isinstance(outcome, StoreError):
                # It does not say where the claim took place. Seldom, and seldomer still with jobs to be had.
                if jobs or claimed.more:
                    self._told_everything(listener.views)
            else:
                partition = self._store.partition_of(outcome.job.namespace, outcome.job.id)
                self._note(listener, partition, wanted, claimed, moment, asked_at)
        finally:
            if listener in self._listeners:
                listener.give(jobs, wanted)
            else:
                self._undelivered.give_back(jobs)
        return outcome

    def told(self, partition: int, name: QueueName) -> None:
        """A job became ready: wakes one listener. If none can take it, another replica's may."""
        view = self._views.get(name)
        if view is None:
            self._pass_on(partition, name)
        elif view.is_asked(partition):
            # The claim that is on its way takes the job, or hears of this when it ends.
            view.told(partition, self._next_moment())
            _wake_one([view])
        else:
            view.told(partition, self._next_moment())
            self._wake_or_pass_on(partition, view)

    def told_everything(self) -> None:
        """Notices may have been lost: every partition of every queue may hold jobs."""
        self._told_everything(list(self._views.values()))

    async def look(self, partition: int) -> None:
        """Looks at the queues that somebody here waits for, and registers this replica anew for those without jobs.

        Raises:
            StoreError: the engine refused.
        """
        names = [name for name, view in self._views.items() if view.idle]
        for start in range(0, len(names), limits.BATCH):
            await self._look(partition, names[start : start + limits.BATCH])

    def drain(self) -> None:
        """No more claims; wakes all, so that each stream says so and ends."""
        self.is_draining = True
        for listener in self._listeners:
            listener.wake()

    async def _claim_from(self, listener: Listener, partition: int, wanted: int) -> list[store_pb2.ClaimedJob]:
        views = listener.views
        moment = self._next_moment()
        for view in views:
            view.ask(partition)
        asked_at = asyncio.get_running_loop().time()
        try:
            claimed = await self._store.claim_from(
                partition, listener.request, wanted, receipt_ms=listener.receipt_ms, waiting=True
            )
        except BaseException:
            for view in views:
                view.put_off(partition, asked_at + pace.LOOK_SECONDS)
            raise
        self._note(listener, partition, wanted, claimed, moment, asked_at)
        return claimed.jobs

    def _note(
        self, listener: Listener, partition: int, wanted: int, claimed: Claimed, moment: int, asked_at: float
    ) -> None:
        """What a claim says about the queues that it asked for."""
        views = listener.views
        if claimed.more:
            for view in views:
                view.found_more(partition)
            if len(claimed.jobs) >= wanted:
                _wake_one(views)
        else:
            for view in views:
                view.found_empty(partition, moment, asked_at + limits.WAITER_EXPIRY_MS / 1_000)
                if len(claimed.jobs) >= wanted and view.may_have(partition, asked_at):
                    self._wake_or_pass_on(partition, view)

    async def _look(self, partition: int, names: Sequence[QueueName]) -> None:
        moment = self._next_moment()
        looked_at = asyncio.get_running_loop().time()
        for name, ready in zip(names, await self._store.look(partition, names), strict=True):
            view = self._views.get(name)
            # A claim on its way finds out by itself; the look may have seen just the job that it takes.
            if view is None or view.is_asked(partition):
                continue
            if ready:
                self.told(partition, name)
            else:
                view.found_empty(partition, moment, looked_at + limits.WAITER_EXPIRY_MS / 1_000)

    def _told_everything(self, views: Sequence[QueueView]) -> None:
        moment = self._next_moment()
        for view in views:
            for partition in range(self.partitions):
                view.told(partition, moment)
        _wake_one(views)

    def _wake_or_pass_on(self, partition: int, view: QueueView) -> None:
        if view.idle:
            _wake_one([view])
        else:
            self._pass_on(partition, view.name)

    def _pass_on(self, partition: int, name: QueueName) -> None:
        # The engine told this replica alone, which waited for the queue when it last said so and has no room by now.
        self._background.start(self._try_to_pass_on(partition, name))

    async def _try_to_pass_on(self, partition: int, name: QueueName) -> None:
        # Without it, the other replicas' looks find the job.
        with contextlib.suppress(StoreError):
            await self._store.pass_on(partition, *name)

    def _leave(self, name: QueueName) -> None:
        view = self._views[name]
        view.listeners -= 1
        if not view.listeners:
            del self._views[name]
            return
        # The one that left may have been woken for a job and not have claimed it.
        now = asyncio.get_running_loop().time()
        if any(view.may_have(partition, now) for partition in range(self.partitions)):
            _wake_one([view])

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment


def _wake_one(views: Iterable[QueueView]) -> None:
    """Wakes as few listeners as reach every one of the views: one, unless they listen to different queues."""
    woken: set[Listener] = set()
    for view in views:
        if view.idle and not any(view in listener.views for listener in woken):
            listener = next(iter(view.idle))
            listener.wake()
            woken.add(listener)
