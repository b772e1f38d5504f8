"""What the demo shows while it runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

_PLAIN_STEPS = 5


@dataclass(frozen=True)
class WorkerSight:
    """One worker as it stands."""

    name: str
    state: str
    deliveries: int
    completions: int


@dataclass(frozen=True)
class Sight:
    """The work as it stands."""

    jobs: int
    ended: int
    workers: list[WorkerSight]


class Screen:
    """`with Screen(console) as screen: screen.say(...); screen.show(...)`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=10) if console.is_terminal else None
        self._step = 0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, event: str) -> None:
        """Something that happened; it stays on the screen."""
        self._console.print(event, markup=False, highlight=False, soft_wrap=True)

    def show(self, sight: Sight) -> None:
        """How far it is; replaces what was shown before, or adds a line every fifth of the way."""
        if self._live:
            self._live.update(_picture(sight))
        elif sight.ended * _PLAIN_STEPS // max(sight.jobs, 1) > self._step:
            self._step = sight.ended * _PLAIN_STEPS // sight.jobs
            self.say(f"{sight.ended:,} of {sight.jobs:,} jobs done")


def _picture(sight: Sight) -> Group:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("worker")
    table.add_column("state")
    for heading in ("delivered", "completed"):
        table.add_column(heading, justify="right")
    for worker in sight.workers:
        style = "red" if worker.state == "killed" else ""
        table.add_row(worker.name, worker.state, f"{worker.deliveries:,}", f"{worker.completions:,}", style=style)
    bar = ProgressBar(total=sight.jobs, completed=sight.ended, width=50)
    return Group(table, bar, f"{sight.ended:,} of {sight.jobs:,} jobs done")
