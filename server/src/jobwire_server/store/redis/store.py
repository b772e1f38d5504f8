"""`RedisStore`: the store on Redis or Valkey. Each verb packs a script's arguments, runs it, and reads its answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.base import Store, gather
from jobwire_server.store.draw import Draw
from jobwire_server.store.errors import (
    EXPIRED,
    LEASE_EXPIRED,
    StoreError,
    engine_unavailable,
    etag_mismatch,
    illegal_transition,
    invalid,
    not_found,
)
from jobwire_server.store.prepare import Creation
from jobwire_server.store.times import set_timestamp
from jobwire_server.store.types import Audit, Claimed, Held, Notice, Outcome, Repair, SettleResponse, Sweep, Wish

from . import scripts
from .check import check_engine
from .codec import (
    CANCEL_OUTCOMES,
    claimed,
    created,
    creation_args,
    flat_queues,
    heard,
    lease_args,
    names_of,
    pairs,
    settled,
    settlement_args,
    update_args,
    wish_args,
)
from .engine import Argument, Engine, asking, opening
from .meta import agree_on_partitions
from .notices import notices
from .record import STATUS, decode
from .repair import repair
from .scripts import Code, Script

_T = TypeVar("_T")

_LOST_ERROR = LEASE_EXPIRED.SerializeToString()
_EXPIRED_ERROR = EXPIRED.SerializeToString()


class RedisStore(Store):
    """The production backend. Made by `connect`."""

    def __init__(self, url: str, engine: Engine, prefix: str, clock: Callable[[], int] | None, **base: Any) -> None:
        super().__init__(**base)
        engine.round_trip = self._tell_round_trip
        self._url = url
        self._engine = engine
        self._prefix = prefix
        self._clock = clock
        self._updates = 0
        self._displaced: StoreError | None = None
        """The engine holds another number of partitions by now: no call would find what belongs together."""

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        prefix: str = "jobwire",
        partitions: int | None = None,
        clock: Callable[[], int] | None = None,
        draw: Draw | None = None,
        replica: str = "",
        sweep_interval_ms: int = limits.SWEEP_INTERVAL_MS,
        rehearse: bool = False,
    ) -> Self:
        """Opens the store at a `redis://`, `rediss://` or `unix://` URL.

        `partitions` is permanent for a deployment: given, it must be the engine's; None takes the engine's, or 1 for a
        new one. `clock` (milliseconds) replaces the engine's clock, for tests. `rehearse` lets every script read all
        keys before its first write, for engines whose slots may move.

        Raises ValueError for an unusable URL or prefix, refused credentials, an engine that is too old or holds another
        number of partitions; `StoreError` (ENGINE_UNAVAILABLE) if it does not answer.
        """
        if "{" in prefix or not prefix:
            raise ValueError("the key prefix must not be empty or hold '{'")
        engine = Engine(url, rehearse=rehearse)
        try:
            with opening():
                version, warnings = await check_engine(engine.client)
                agreed = await agree_on_partitions(engine.client, prefix, partitions)
        except BaseException:
            await engine.close()
            raise
        store = cls(
            url,
            engine,
            prefix,
            clock,
            partitions=agreed,
            draw=draw,
            replica=replica,
            sweep_interval_ms=sweep_interval_ms,
        )
        store.engine, store.warnings = version, warnings
        return store

    def _tell_round_trip(self, seconds: float) -> None:
        self.observer.round_trip(seconds)  # whichever there is by then

    async def _run(self, partition: int, script: Script, *params: Argument, **lists: Sequence[Argument]) -> Any:
        if self._displaced is not None and script is not scripts.PING:
            raise self._displaced
        args = [self._clock() if self._clock else 0, *params]
        for name, fields in script.lists.items():
            args += (len(lists[name]) // len(fields), *lists[name])
        return await self._engine.run(script, f"{self._prefix}:{{{partition}}}:", args)

    # -- create ------------------------------------------------------------------------------------------------------

    async def _create(self, partition: int, creations: Sequence[Creation]) -> list[Outcome]:
        answers = await _in_slices(creations, lambda some: self._run(partition, scripts.CREATE, items=_creations(some)))
        return [created(creation, answer) for creation, answer in zip(creations, answers, strict=True)]

    async def _hand_off(
        self, partition: int, creations: Sequence[Creation], wish: Wish
    ) -> tuple[list[Outcome], Claimed]:
        answers, (more, waited, *flat) = await self._run(
            partition,
            scripts.HAND_OFF,
            *wish_args(wish, self.replica),
            items=_creations(creations),
            queues=flat_queues(wish.queues),
        )
        outcomes = [created(creation, answer) for creation, answer in zip(creations, answers, strict=True)]
        return outcomes, _claimed(more, waited, flat)

    # -- read --------------------------------------------------------------------------------------------------------

    async def _get(
        self, partition: int, namespace: str, ids: Sequence[str], full: bool, watch: bool
    ) -> list[job_pb2.Job | None]:
        names = [name for job_id in ids for name in (namespace, job_id)]
        watcher = self.replica if watch else ""
        answers = await self._run(partition, scripts.GET, int(full), limits.ANSWER_BYTES, watcher, items=names)
        return [
            decode(namespace, job_id, fields) if fields else None for job_id, fields in zip(ids, answers, strict=False)
        ]

    async def _exists(self, partition: int, namespace: str, job_id: str) -> bool:
        return bool(await self._run(partition, scripts.EXISTS, namespace, job_id))

    async def _list_ids(self, partition: int, namespace: str, limit: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        created, after = 0, ""
        while True:
            # Any number of expired or lost jobs may stand before those to be listed: a slice of them per script.
            last, *answer = await self._run(
                partition, scripts.LIST_IDS, namespace, created, after, limit - len(found), limits.PAGE_MAX
            )
            found += [(int(create_time), job_id.decode()) for create_time, job_id in pairs(answer)]
            if not last or len(found) == limit:
                return found
            created, after = int(last[0]), last[1].decode()

    async def _list_children(
        self, partition: int, namespace: str, parent_id: str, after: tuple[int, str], limit: int, full: bool
    ) -> tuple[list[job_pb2.Job], tuple[int, str] | None]:
        after_created, after_id = after
        last, *children = await self._run(
            partition,
            scripts.LIST_CHILDREN,
            *(namespace, parent_id, after_created, after_id, limit, int(full), limits.ANSWER_BYTES),
        )
        jobs = [decode(namespace, job_id.decode(), fields) for job_id, fields in pairs(children)]
        if not last:
            return jobs, None
        last_created, last_id = last.decode().split(" ", 1)
        return jobs, (int(last_created), last_id)

    # -- the owner's changes -----------------------------------------------------------------------------------------

    async def _update(self, partition: int, namespace: str, request: store_pb2.UpdateRequest) -> job_pb2.Job:
        # A mark of our own recognises this Update when its answer was lost and the call is repeated.
        self._updates += 1
        mark = request.request_id or f"{self.replica}.{self._updates}"
        code, *rest = await self._run(partition, scripts.UPDATE, *update_args(namespace, request, mark))
        match code:
            case Code.OK:
                return decode(namespace, request.id, rest)
            case Code.NOT_FOUND:
                raise not_found(namespace, request.id)
            case Code.ETAG_MISMATCH:
                raise etag_mismatch(request.id, rest[0].decode())
            case Code.TOO_FAR:
                raise invalid("run_time", "is more than 366 days ahead")
            case _:
                raise illegal_transition(request.id, STATUS[rest[0].decode()])

    async def _delete(self, partition: int, namespace: str, job_id: str, etag: str) -> bool:
        answer = await self._run(partition, scripts.DELETE, namespace, job_id, etag)
        if isinstance(answer, bytes):
            raise etag_mismatch(job_id, answer.decode())
        return bool(answer)

    async def _cancel(
        self, partition: int, namespace: str, job_id: str, reason: str, grace_ms: int
    ) -> store_pb2.CancelResponse:
        code, *fields = await self._run(partition, scripts.CANCEL, namespace, job_id, reason, grace_ms)
        if code == Code.NOT_FOUND:
            raise not_found(namespace, job_id)
        return store_pb2.CancelResponse(outcome=CANCEL_OUTCOMES[code], job=decode(namespace, job_id, fields))

    # -- claim and settle --------------------------------------------------------------------------------------------

    async def _claim(self, partition: int, wish: Wish) -> Claimed:
        more, waited, *flat = await self._run(
            partition, scripts.CLAIM, *wish_args(wish, self.replica), queues=flat_queues(wish.queues)
        )
        return _claimed(more, waited, flat)

    async def _look(self, partition: int, queues: Sequence[tuple[str, str]]) -> list[bool]:
        answers = await self._run(partition, scripts.LOOK, self.replica, items=flat_queues(queues))
        return [bool(answer) for answer in answers]

    async def _pass_on(self, partition: int, namespace: str, queue: str) -> None:
        await self._run(partition, scripts.PASS_ON, namespace, queue)

    async def _heartbeat(
        self, partition: int, leases: Sequence[store_pb2.LeaseHeartbeat]
    ) -> list[store_pb2.HeartbeatResult]:
        args: list[Argument] = []
        for beat in leases:
            args += (*lease_args(beat.lease), int(beat.HasField("progress")), beat.progress.SerializeToString())
        return [heard(*answer) for answer in await self._run(partition, scripts.HEARTBEAT, items=args)]

    async def _settle(
        self, partition: int, settlements: Sequence[store_pb2.Settlement]
    ) -> list[SettleResponse | StoreError]:
        answers = await _in_slices(
            settlements,
            lambda some: self._run(partition, scripts.SETTLE, self.replica, items=_settlements(some)),
        )
        return [settled(settlement, answer) for settlement, answer in zip(settlements, answers, strict=True)]

    async def _held(self, partition: int, leases: Sequence[store_pb2.LeaseRef]) -> list[Held]:
        args = [arg for lease in leases for arg in lease_args(lease)]
        return [Held(state) for state in await self._run(partition, scripts.HELD, items=args)]

    # -- time --------------------------------------------------------------------------------------------------------

    async def _sweep(self, partition: int) -> Sweep:
        now, next_ms, more, late, promoted, expired, removed, *names = await self._run(
            partition, scripts.SWEEP, limits.SWEEP_SLICE, _LOST_ERROR, _EXPIRED_ERROR
        )
        return Sweep(now, next_ms, bool(more), late, promoted, expired, removed, names_of(names))

    async def _reclaim_stale(
        self, partition: int, before_ms: int | None, cursor: str, limit: int
    ) -> tuple[int, list[tuple[str, str]], str]:
        deadline, _, ref = cursor.partition(" ")
        if cursor and not deadline.isdecimal():
            raise invalid("page_token", "is not one that this verb answered")
        looked, last_deadline, last_ref, *names = await self._run(
            partition,
            scripts.RECLAIM_STALE,
            *(max(before_ms, 1) if before_ms is not None else 0, int(deadline or 0), ref, limit, _LOST_ERROR),
        )
        return looked, names_of(names), f"{last_deadline} {last_ref.decode()}" if last_ref else ""

    async def _audit(self, partition: int, cursor: str) -> Audit:
        agree, stale, following = await self._run(
            partition, scripts.AUDIT, limits.AUDIT_LINES, cursor or "0", limits.REPAIR_SLICE
        )
        return Audit(bool(agree), bool(stale), "" if following == b"0" else following.decode())

    async def _repair(self, partition: int, cursor: str) -> Repair:
        return await repair(lambda script, *params: self._run(partition, script, *params), cursor)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def _list_queues(self, partition: int) -> list[tuple[str, str]]:
        return names_of(await self._run(partition, scripts.LIST_QUEUES))

    async def _queue_stats(self, partition: int, namespace: str, queue: str) -> admin_pb2.QueueStats:
        ready, scheduled, running, oldest = await self._run(
            partition, scripts.QUEUE_STATS, namespace, queue, limits.OLDEST_TENANTS
        )
        stats = admin_pb2.QueueStats(ready=ready, scheduled=scheduled, running=running)
        if oldest:
            set_timestamp(stats.oldest_ready_time, oldest)
        return stats

    # -- the engine itself -------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        """As `Store.ping`, on partition 0.

        Also puts back what the engine says about the deployment, should it have lost it (evicted, or started again
        empty): a replica that started then would take another number of partitions, and neither find the other's jobs.
        """
        await self._run(0, scripts.PING)
        with asking():
            try:
                await agree_on_partitions(self._engine.client, self._prefix, self.partitions)
                self._displaced = None
            except ValueError as error:
                self._displaced = engine_unavailable(str(error))
                raise self._displaced from None

    def notices(self) -> AsyncGenerator[Notice, None]:
        """As `Store.notices`, from a pub/sub connection of its own."""
        return notices(self._url, f"{self._prefix}:replica:{self.replica}")

    async def close(self) -> None:
        """As `Store.close`."""
        await self._engine.close()


def _creations(creations: Sequence[Creation]) -> list[Argument]:
    return [argument for creation in creations for argument in creation_args(creation)]


def _settlements(settlements: Sequence[store_pb2.Settlement]) -> list[Argument]:
    return [argument for settlement in settlements for argument in settlement_args(settlement)]


async def _in_slices(items: Sequence[_T], run: Callable[[Sequence[_T]], Coroutine[None, None, list[Any]]]) -> list[Any]:
    """One script per `limits.SCRIPT_SLICE` items, in order and in one round trip; the answers of all."""
    starts = range(0, len(items), limits.SCRIPT_SLICE)
    slices = await gather([run(items[start : start + limits.SCRIPT_SLICE]) for start in starts])
    return [answer for some in slices for answer in some]


def _claimed(more: int, waited_ms: int, flat: Sequence[Any]) -> Claimed:
    return Claimed([claimed(*job) for job in zip(*[iter(flat)] * 4, strict=True)], bool(more), waited_ms)
