"""Everything that a store holds, every record and every index, in a form in which both backends can be compared."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from jobwire.v1 import job_pb2
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.memory.record import Record
from jobwire_server.store.redis import record as redis_record
from jobwire_server.store.times import timestamp_ms

US = "\x1f"

Scores = dict[str, float]


class Snapshot(NamedTuple):
    """By partition, where nothing else is said."""

    records: dict[tuple[str, str], tuple[job_pb2.Job, Any]]
    """The job, and what its caller does not see: place in line, deadline, lease."""
    due: dict[int, Scores]
    lease: dict[int, Scores]
    gone: dict[int, Scores]
    ids: dict[str, Scores]
    children: dict[str, Scores]
    lines: dict[str, Scores]
    rings: dict[str, Scores]
    debts: dict[str, Scores]
    dedup: list[str]
    """The ids of the jobs that have one and whose retention has not ended."""
    counts: dict[str, int]


async def of_engine(client: Any, now_ms: int) -> Snapshot:
    """What stands in the engine under the standard prefix."""
    found = Snapshot({}, {}, {}, {}, {}, {}, {}, {}, {}, [], {})
    zsets: dict[str, dict[Any, Scores]] = {
        name: getattr(found, name) for name in ("due", "lease", "gone", "ids", "children", "debts")
    }
    priorities: dict[str, Scores] = {}
    zsets |= {"line": found.lines, "ring": found.rings, "priorities": priorities}
    async for raw in client.scan_iter(match="jobwire:{*}:*", count=1_000):
        partition, _, rest = raw.decode().partition("{")[2].partition("}:")
        sort, _, names = rest.partition(":")
        if sort == "job":
            namespace, job_id = names.split(US)
            fields = await client.hmget(raw, redis_record.FIELDS)
            assert fields[1] is not None, f"a blank record: {raw!r}"
            state = dict(zip((name for name, _ in redis_record.STATE), fields[1].decode().split("\n"), strict=True))
            hidden = tuple(state[name] for name in ("seq", "deadline", "token", "lease_ms", "receipt", "cancel_at"))
            found.records[namespace, job_id] = (redis_record.decode(namespace, job_id, fields), hidden)
            assert await client.pttl(raw) > 0, raw
        elif sort in zsets:
            members = {member.decode(): score for member, score in await client.zrange(raw, 0, -1, withscores=True)}
            zsets[sort][int(partition) if sort in ("due", "lease", "gone") else f"{partition}:{names}"] = members
        elif sort == "dedup":
            found.dedup.append((await client.get(raw)).decode())
        elif sort == "counts":
            for field, value in (await client.hgetall(raw)).items():
                found.counts[f"{partition}:{field.decode()}"] = int(value)
    levels = {ring.rpartition(US)[0] for ring in found.rings}
    assert set(priorities) == levels
    for ring in found.rings:
        queue, _, priority = ring.rpartition(US)
        assert priorities[queue][priority] == float(priority)
    return _without_past_keys(found, now_ms)


def of_memory(store: MemoryStore, now_ms: int) -> Snapshot:
    """What the store holds, as an engine would hold it."""
    found = Snapshot({}, {}, {}, {}, {}, {}, {}, {}, {}, [], {})
    for partition in store._state.partitions:
        number = partition.number
        counts: defaultdict[str, int] = defaultdict(int)
        for name, record in partition.records.items():
            found.records[name] = (record.answer(full=True), _hidden(record))
            for place in _places(record):
                counts[place] += 1
        found.counts.update({f"{number}:{place}": count for place, count in counts.items()})
        timers = ((found.due, partition.due), (found.lease, partition.leases), (found.gone, partition.gone))
        for index, timer in timers:
            if timer:
                index[number] = {US.join(member): float(score) for score, member in timer}
        for namespace, ids in partition.ids.items():
            if ids:
                found.ids[f"{number}:{namespace}"] = {member: float(score) for score, member in ids}
        for parent, children in partition.children.items():
            if children:
                found.children[f"{number}:{US.join(parent)}"] = {member: float(score) for score, member in children}
        for queue, rings in partition.ready._queues.items():
            for priority, ring in rings.items():
                level = f"{number}:{US.join(queue)}{US}{priority}"
                found.rings[level] = dict(ring.tags)
                if ring.debts:
                    found.debts[level] = dict(ring.debts)
                for tenant, line in ring.lines.items():
                    found.lines[f"{level}{US}{tenant}"] = {member: float(score) for score, member in line}
        found.dedup.extend(partition.dedup.values())
    return _without_past_keys(found, now_ms)


def _without_past_keys(found: Snapshot, now_ms: int) -> Snapshot:
    """A repair does not give the key back to a record that is only waiting for its removal."""
    jobs = {job_id: job for (_, job_id), (job, _) in found.records.items()}
    past = {job_id for job_id, job in jobs.items() if 0 < timestamp_ms(job.expire_time) <= now_ms}
    return found._replace(dedup=sorted(job_id for job_id in found.dedup if job_id not in past))


def _hidden(record: Record) -> tuple[str, ...]:
    lease = record.lease
    token, lease_ms, receipt = (lease.token, lease.lease_ms, lease.receipt_ms) if lease else ("", 0, 0)
    return tuple(map(str, (record.seq, record.deadline, token, lease_ms, receipt, record.cancel_at)))


def _places(record: Record) -> list[str]:
    """The counters that count it: its timer's, and its place's in its queue."""
    if record.expires:
        return [f"{US}{US}gone"]
    place = "running" if record.running else "ready" if record.ready else "scheduled"
    timer = "lease" if record.running else "due"
    return [f"{US}{US}{timer}", US.join((record.job.namespace, record.job.queue, place))]
