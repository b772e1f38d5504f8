"""What this replica knows about one queue: which partitions may hold ready jobs, and who waits here for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .listener import Listener

# Besides a time up to which the engine would tell us of new jobs, a partition is in one of these states.
_READY = -1.0  # holds more jobs: any number of claims may run side by side
_UNKNOWN = 0.0  # may hold jobs: one claim finds out
_ASKED = float("inf")  # that claim is on its way


class QueueView:
    """Kept while somebody listens to the queue here.

    A claim and a notice travel on connections of their own, so a claim's "nothing ready" may arrive after the notice
    of a job that came later. Moments, drawn from one counter when a claim starts and when a notice comes, tell which
    was first.
    """

    def __init__(self, namespace: str, queue: str, partitions: int) -> None:
        self.name = (namespace, queue)
        self.listeners = 0
        self.idle: dict[Listener, None] = {}
        """Those asleep with room for a job, longest first."""
        self._empty_until = [_UNKNOWN] * partitions
        self._told = [0] * partitions

    def may_have(self, partition: int, now: float) -> bool:
        """Whether a claim there is worth its while."""
        return self._empty_until[partition] <= now

    def is_asked(self, partition: int) -> bool:
        """Whether one claim is finding out."""
        return self._empty_until[partition] == _ASKED

    def ask(self, partition: int) -> None:
        """A claim starts."""
        if self._empty_until[partition] != _READY:
            self._empty_until[partition] = _ASKED

    def found_more(self, partition: int) -> None:
        """A claim left ready jobs behind, here or in another queue that it asked for."""
        self._empty_until[partition] = _READY

    def found_empty(self, partition: int, asked: int, until: float) -> None:
        """A claim or look that started at the moment `asked` left nothing; until then (loop time) we would be told."""
        self._empty_until[partition] = until if self._told[partition] < asked else _UNKNOWN

    def told(self, partition: int, moment: int) -> None:
        """A notice: a job became ready."""
        self._told[partition] = moment
        if self._empty_until[partition] != _READY:
            self._empty_until[partition] = _UNKNOWN

    def put_off(self, partition: int, until: float) -> None:
        """A claim failed: no other before `until` (loop time), unless a look finds jobs."""
        self._empty_until[partition] = until
