"""Between protobuf's times and the engine's milliseconds."""

from __future__ import annotations

from google.protobuf import duration_pb2, timestamp_pb2


def duration_ms(duration: duration_pb2.Duration) -> int:
    """Whole milliseconds, finer parts cut off; 0 if unset."""
    return duration.seconds * 1_000 + duration.nanos // 1_000_000


def timestamp_ms(timestamp: timestamp_pb2.Timestamp) -> int:
    """Milliseconds since 1970, finer parts cut off; 0 if unset."""
    return timestamp.seconds * 1_000 + timestamp.nanos // 1_000_000


def set_duration(field: duration_pb2.Duration, milliseconds: int) -> None:
    """Writes into a message's field, in place."""
    field.seconds, rest = divmod(milliseconds, 1_000)
    field.nanos = rest * 1_000_000
    field.SetInParent()


def set_timestamp(field: timestamp_pb2.Timestamp, milliseconds: int) -> None:
    """Writes into a message's field, in place."""
    field.seconds, rest = divmod(milliseconds, 1_000)
    field.nanos = rest * 1_000_000
    field.SetInParent()
