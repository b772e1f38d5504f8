"""The repair walk, a script at a time: every record, every index, then the counters that were counted on the way."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from jobwire_server.store import limits
from jobwire_server.store.types import Repair

from . import scripts
from .codec import mended

Run = Callable[..., Awaitable[Any]]
"""Runs a script on the partition, with its parameters."""


class _Place(NamedTuple):
    """Where a walk goes on."""

    number: int
    """What it marks the records with that it has counted: no other walk has it."""
    step: str
    scan: str
    """The engine's cursor within the step."""
    indexes: tuple[str, ...] = ()
    """Indexes that were named and not looked at yet. They come before the step goes on; the first at `entries`."""
    entries: str = "0"

    def text(self) -> str:
        """As a cursor. No name holds a newline."""
        return "\n".join((str(self.number), self.step, self.scan, self.entries, *self.indexes))


_AFTER = {"records": "indexes", "indexes": "counts", "counts": "missing counts", "missing counts": ""}


async def repair(run: Run, cursor: str) -> Repair:
    """One slice, which is one script."""
    place = _read(cursor) if cursor else _Place(1 + secrets.randbits(40), "records", "0")
    following, report, *named = await _step(run, place, begins=not cursor) or ["", []]
    if not following:
        return Repair("", {})  # another walk is under way, or this one came too late
    if place.indexes:
        rest = place.indexes if following != b"0" else place.indexes[1:]
        after = place._replace(indexes=rest, entries=following.decode())
    else:
        after = place._replace(scan=following.decode(), indexes=tuple(name.decode() for name in named))
    if after.scan == "0" and not after.indexes:
        after = after._replace(step=_AFTER[place.step])
    return Repair(after.text() if after.step else "", mended([report]))


async def _step(run: Run, place: _Place, *, begins: bool) -> list[Any]:
    number, size = place.number, limits.REPAIR_SLICE
    answer: list[Any]
    if place.indexes:
        answer = await run(scripts.REPAIR_INDEX, number, place.entries, size, place.indexes[0])
    elif place.step == "records":
        answer = await run(scripts.REPAIR, number, place.scan, size, int(begins))
    elif place.step == "indexes":
        answer = await run(scripts.REPAIR_INDEXES, number, place.scan, size)
    else:
        answer = await run(scripts.REPAIR_COUNTS, number, place.scan, size, int(place.step == "missing counts"))
    return answer


def _read(cursor: str) -> _Place:
    number, step, scan, entries, *indexes = cursor.split("\n")
    return _Place(int(number), step, scan, tuple(indexes), entries)
