"""Checks of single fields, against the limits of the contract. `validation` says which field gets which check."""

from __future__ import annotations

import math
import unicodedata

from google.protobuf import duration_pb2, timestamp_pb2
from jobwire.v1 import job_pb2

from . import limits
from .errors import StoreError

# Not printable: control characters and the line and paragraph separators. Keys and texts in the engine are joined by
# control characters, so that no two different names can ever meet in one key.
_UNPRINTABLE = {"Cc", "Zl", "Zp", "Cs"}


class Problems:
    """Collects what is wrong with a request, field by field, and raises it as one FIELD_INVALID."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, field: str, problem: str) -> None:
        """Notes a problem; the first per field counts."""
        self.found.setdefault(field, problem)

    def raise_any(self) -> None:
        """Raises if any problem was found."""
        if self.found:
            message = "; ".join(f"{field}: {problem}" for field, problem in self.found.items())
            raise StoreError(job_pb2.ERROR_REASON_FIELD_INVALID, message, fields=self.found)

    # -- text --------------------------------------------------------------------------------------------------------

    def text(self, field: str, value: str, limit: int, *, required: bool = False) -> None:
        """A printable text of at most `limit` bytes."""
        if not value:
            if required:
                self.add(field, "is required")
        elif len(value) > limit or len(value.encode("utf-8", "surrogatepass")) > limit:
            self.add(field, f"is longer than {limit} bytes")
        elif not value.isprintable() and any(unicodedata.category(char) in _UNPRINTABLE for char in value):
            self.add(field, "holds a control character or line separator")

    def job_id(self, field: str, value: str) -> None:
        """A job id: printable, levels separated by "/", none of them empty."""
        self.text(field, value, limits.ID_BYTES, required=True)
        if "/" in value:
            levels = value.split("/")
            if len(levels) > limits.ID_LEVELS:
                self.add(field, f"has more than {limits.ID_LEVELS} levels")
            if not all(levels):
                self.add(field, "has an empty level")

    def free_text(self, field: str, value: str, limit: int) -> None:
        """Any text of at most `limit` bytes."""
        if len(value) > limit or len(value.encode()) > limit:
            self.add(field, f"is longer than {limit} bytes")

    def content(self, field: str, value: bytes) -> None:
        """A payload or result."""
        if len(value) > limits.PAYLOAD_BYTES:
            self.add(field, f"is larger than {limits.PAYLOAD_BYTES} bytes")

    # -- numbers -----------------------------------------------------------------------------------------------------

    def number(self, field: str, value: int, low: int, high: int) -> None:
        """A whole number within its limits; 0 means the default."""
        if value != 0 and not low <= value <= high:
            self.add(field, f"must be between {low} and {high}")

    def size(self, field: str, count: int, low: int, high: int) -> None:
        """How many elements a list has."""
        if not low <= count <= high:
            self.add(field, f"must have {low} to {high} elements, not {count}")

    def duration(self, field: str, value: duration_pb2.Duration, low_ms: int, high_ms: int) -> None:
        """A span that was given: well formed and within its limits."""
        if not _well_formed(value.seconds, value.nanos):
            self.add(field, "is not a valid Duration")
            return
        nanos = value.seconds * 10**9 + value.nanos
        if not low_ms * 10**6 <= nanos <= high_ms * 10**6:
            self.add(field, f"must be between {_span(low_ms)} and {_span(high_ms)}")

    def timestamp(self, field: str, value: timestamp_pb2.Timestamp) -> None:
        """A time that was given: well formed, within the years 1 to 9999 that a Timestamp may hold."""
        if not (-62_135_596_800 <= value.seconds <= 253_402_300_799 and 0 <= value.nanos <= 999_999_999):
            self.add(field, "is not a valid Timestamp")

    def progress(self, field: str, value: job_pb2.Progress) -> None:
        """A progress that was given."""
        if math.isnan(value.fraction) or not 0 <= value.fraction <= 1:
            self.add(f"{field}.fraction", "must be between 0 and 1")
        self.free_text(f"{field}.note", value.note, limits.NOTE_BYTES)

    def labels(self, field: str, entries: dict[str, str]) -> None:
        """Labels."""
        if len(entries) > limits.LABELS:
            self.add(field, f"are more than {limits.LABELS}")
        for key, value in entries.items():
            self.text(field, key, limits.LABEL_KEY_BYTES, required=True)
            self.text(field, value, limits.LABEL_VALUE_BYTES)


def _span(milliseconds: int) -> str:
    """For people: in the largest unit that gives a whole number."""
    for unit, size in (
        ("days", limits.DAY_MS),
        ("h", limits.HOUR_MS),
        ("min", limits.MINUTE_MS),
        ("s", limits.SECOND_MS),
    ):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def _well_formed(seconds: int, nanos: int) -> bool:
    same_sign = seconds == 0 or nanos == 0 or (seconds > 0) == (nanos > 0)
    return same_sign and abs(nanos) <= 999_999_999 and abs(seconds) <= 315_576_000_000
