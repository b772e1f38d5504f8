"""What a worker saw, written down as it happens: a line per delivery and per completion that the server accepted.

The lines survive the worker, however it dies, so that deliveries and completions are counted by those who had them and
not by the one who is being examined.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

DELIVERED, COMPLETED = "delivered", "completed"


class Journal:
    """The writing side. Each line is one write, so none is ever half there."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, job_id: str) -> None:
        """Adds a line."""
        os.write(self._file, f"{what} {job_id}\n".encode())


def read(paths: Iterable[Path], what: str) -> Counter[str]:
    """How often something happened to each job, in all journals together."""
    lines = (line.split() for path in paths if path.exists() for line in path.read_text().splitlines())
    return Counter(job_id for kind, job_id in lines if kind == what)
