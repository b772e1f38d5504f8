"""What evictions, restored backups and hands do to an engine's keys, and what becomes of it by a repair."""

from __future__ import annotations

from collections.abc import Sequence

from jobwire_server.store.base import Store
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.memory.ready import Ring
from redis.asyncio import Redis

SORTED_SETS = ("due", "lease", "gone", "ids", "children", "line", "ring", "priorities", "debts")
WHOLE = (*SORTED_SETS, "counts", "seq", "dedup")


async def keys_of(client: Redis, sorts: Sequence[str]) -> list[bytes]:
    """The keys of these sorts, in order."""
    keys = [key async for key in client.scan_iter(match="jobwire:{*}:*", count=1_000)]
    return sorted(key for key in keys if sort_of(key) in sorts)


def sort_of(key: bytes) -> str:
    """Its kind, as `lib/keys.lua` names them."""
    return key.decode().partition("}:")[2].partition(":")[0]


async def drop_key(client: Redis, memory: MemoryStore, key: bytes) -> None:
    """A whole index or counter is lost. Only fairness remembers: virtual times begin anew."""
    await client.delete(key)
    sort = sort_of(key)
    if sort == "ring":
        _forget_times(ring_of(memory, key))
    elif sort == "debts":
        ring_of(memory, key).debts.clear()
    elif sort == "seq":
        partition = memory._state.partitions[_partition(key)]
        partition.last_seq = max((record.seq for record in partition.records.values()), default=0)


async def drop_member(client: Redis, memory: MemoryStore, key: bytes, index: int) -> None:
    """One entry of an index is lost."""
    members: list[bytes] = await client.zrange(key, 0, -1)  # type: ignore[assignment]
    member = members[index % len(members)]
    await client.zrem(key, member)
    if sort_of(key) == "debts":
        del ring_of(memory, key).debts[member.decode()]
    elif sort_of(key) == "ring":
        ring = ring_of(memory, key)
        if len(ring.tags) == 1:
            _forget_times(ring)
        else:
            del ring.tags[member.decode()]
            ring.tags[member.decode()] = min(ring.tags.values())


async def add_stray(client: Redis, key: bytes, index: int) -> None:
    """An entry that does not belong there: of no job, or of one that stands elsewhere."""
    strays = [b"default\x1fghost", b"default\x1fa", b"ghost", b"a", b"b", b"7"]
    stray = strays[index % len(strays)]
    if not await client.zscore(key, stray):
        await client.zadd(key, {stray: 1_800_000_000_000 + index})


async def add_blank(client: Redis, partition: int) -> None:
    """Half a record, as a careless write to a lost one makes it."""
    await client.hset(f"jobwire:{{{partition}}}:job:default\x1fblank", "kids", "1")


async def repair(store: Store) -> dict[str, int]:
    """The whole walk over every partition; what it mended."""
    mended: dict[str, int] = {}
    for partition in range(store.partitions):
        cursor, begun = "", False
        while cursor or not begun:
            cursor, some = await store.repair(partition, cursor)
            begun = True
            for sort, number in some.items():
                mended[sort] = mended.get(sort, 0) + number
    return mended


async def agrees(store: Store) -> bool:
    """Whether every partition's counters and indexes agree."""
    for partition in range(store.partitions):
        cursor, begun = "", False
        while cursor or not begun:
            agree, _, cursor = await store.audit(partition, cursor)
            begun = True
            if not agree:
                return False
    return True


def ring_of(memory: MemoryStore, key: bytes) -> Ring:
    """The ring that the key of a ring or its debts stands for."""
    namespace, queue, priority = key.decode().partition("}:")[2].partition(":")[2].split("\x1f")
    return memory._state.partitions[_partition(key)].ready._queues[namespace, queue][int(priority)]


def _forget_times(ring: Ring) -> None:
    ring.tags = dict.fromkeys(ring.tags, 0.0)
    ring.debts.clear()


def _partition(key: bytes) -> int:
    return int(key.decode().partition("{")[2].partition("}")[0])
