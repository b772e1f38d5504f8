"""The one ordered structure of the memory backend."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Generic, TypeVar

Member = TypeVar("Member", str, tuple[str, str])


class Order(Generic[Member]):
    """Members with a score each, ordered by (score, member), like an engine's sorted set.

    Python orders texts by code point, which for UTF-8 is the order of the bytes. Writing costs O(n) in moved pointers.
    """

    def __init__(self) -> None:
        self._scores: dict[Member, int] = {}
        self._entries: list[tuple[int, Member]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, member: Member) -> bool:
        return member in self._scores

    def __iter__(self) -> Iterator[tuple[int, Member]]:
        return iter(self._entries)

    def put(self, member: Member, score: int) -> None:
        """Adds the member, or moves it to its new score."""
        self.drop(member)
        self._scores[member] = score
        bisect.insort(self._entries, (score, member))

    def drop(self, member: Member) -> None:
        """Takes the member out, if it is there."""
        score = self._scores.pop(member, None)
        if score is not None:
            del self._entries[bisect.bisect_left(self._entries, (score, member))]

    def first(self) -> tuple[int, Member]:
        """The lowest entry; there must be one."""
        return self._entries[0]

    def upto(self, score: int, count: int) -> list[tuple[int, Member]]:
        """At most `count` entries from the start, none above `score`."""
        end = bisect.bisect_right(self._entries, score, key=lambda entry: entry[0])
        return self._entries[: min(end, count)]

    def after(self, entry: tuple[int, Member], count: int) -> list[tuple[int, Member]]:
        """At most `count` entries that follow `entry`, which need not be there itself."""
        start = bisect.bisect_right(self._entries, entry)
        return self._entries[start : start + count]

    def descending(self) -> Iterator[tuple[int, Member]]:
        """All entries, from the highest."""
        return reversed(self._entries)
