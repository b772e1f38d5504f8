"""The contract's limits that a client keeps by itself, before the server would have to refuse (`job.proto`, table)."""

from __future__ import annotations

MESSAGE_BYTES = 4 * 1024 * 1024
"""One gRPC message, either way."""

BATCH = 1_000
"""Items of one batch call; also the leases of one ClaimStream's `held`."""
BATCH_BYTES = 3_500_000
"""Of a batch call's items together; leaves room in a message."""
ITEM_OVERHEAD_BYTES = 8
"""What each item costs beside itself."""

NOTE_BYTES = 1_024
"""A progress note."""
NAME_BYTES = 128
"""The `code` and the `type` of a JobError."""
ERROR_BYTES = 16 * 1024
"""The message and the stack of a JobError together."""

LEASE_SECONDS = 30.0
"""The lease of a job when neither it nor its worker asks for one."""
BACKOFF_FIRST_SECONDS, BACKOFF_CAP_SECONDS, BACKOFF_MULTIPLIER = 1.0, 600.0, 2.0
"""A retry policy's defaults."""
