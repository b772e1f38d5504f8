"""Time in tests."""

from __future__ import annotations

START_MS = 1_800_000_000_000


class Clock:
    """A clock that stands still until a test moves it; both backends take it for the engine's own."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, seconds: float = 0, *, ms: int = 0) -> int:
        """Moves forward; answers the new time in ms."""
        self.now_ms += round(seconds * 1_000) + ms
        return self.now_ms
