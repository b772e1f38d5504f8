"""What came of it: the closing table, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.table import Table


@dataclass(frozen=True)
class Report:
    """The demo's outcome in figures."""

    folder: str
    jobs: int
    deliveries: int
    """Leases granted, by the jobs' own records."""
    redeliveries: int
    """Leases beyond a job's first."""
    lost: int
    """Jobs that were accepted and did not succeed."""
    completed_twice: int
    """Jobs of which the workers had more than one completion accepted."""
    killed_holding: int
    """How many jobs the killed worker held; 0: the work was over before one could be killed."""
    words: int
    commonest: list[tuple[str, int]]
    seconds: float
    """From the first job's submission until the results were gathered."""

    @property
    def is_good(self) -> bool:
        """Nothing lost, nothing done twice."""
        return not self.lost and not self.completed_twice

    def as_json(self) -> str:
        """One object."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)

    def as_table(self) -> Table:
        """For people."""
        table = Table(title=f"indexed {self.folder}", title_justify="left", show_header=False)
        table.add_column(justify="left")
        table.add_column(justify="right")
        for label, value in (
            ("jobs", f"{self.jobs:,}"),
            ("deliveries", f"{self.deliveries:,}"),
            ("redeliveries", f"{self.redeliveries:,}"),
            ("held by the killed worker", f"{self.killed_holding:,}" if self.killed_holding else "none was killed"),
            ("lost", f"{self.lost:,}"),
            ("completed twice", f"{self.completed_twice:,}"),
            ("time", f"{self.seconds:.1f} s"),
            ("words", f"{self.words:,}"),
        ):
            table.add_row(label, value)
        table.add_section()
        for word, count in self.commonest:
            table.add_row(word, f"{count:,}")
        return table
