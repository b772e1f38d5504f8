"""Every limit and default of the contract, as tabulated at the top of `proto/jobwire/v1/job.proto`.

Lengths are bytes of UTF-8, times are milliseconds.
"""

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 366 * DAY_MS

DEFAULT_NAMESPACE = "default"

ID_BYTES = 256
ID_LEVELS = 8
NAME_BYTES = 128
DEDUP_KEY_BYTES = 256
REASON_BYTES = 1_024
NOTE_BYTES = 1_024
TRACEPARENT_BYTES = 128
TRACESTATE_BYTES = 512
LABELS = 32
LABEL_KEY_BYTES = 64
LABEL_VALUE_BYTES = 256
PAYLOAD_BYTES = 1_900_000
ERROR_TEXT_BYTES = 16 * 1024
PAGE_TOKEN_BYTES = 1_024
TOKEN_BYTES = 128

# gRPC's own default for a received message is 4 MiB; a margin is left for what an answer adds around the records.
MESSAGE_BYTES = 4 * 1024 * 1024
ANSWER_BYTES = 4_000_000

PRIORITY_MIN, PRIORITY_MAX = -100, 100
LEASE_MIN_MS, LEASE_MAX_MS, LEASE_DEFAULT_MS = 500, HOUR_MS, 30 * SECOND_MS
MAX_ATTEMPTS_MAX, MAX_ATTEMPTS_DEFAULT = 1_000, 5
BACKOFF_MIN_MS, BACKOFF_MAX_MS = 1, DAY_MS
BACKOFF_INITIAL_DEFAULT_MS, BACKOFF_MAX_DEFAULT_MS = SECOND_MS, 10 * MINUTE_MS
MULTIPLIER_MIN, MULTIPLIER_MAX, MULTIPLIER_DEFAULT = 1.0, 10.0, 2.0
TTL_MIN_MS, TTL_MAX_MS = SECOND_MS, YEAR_MS
QUEUE_TIMEOUT_MIN_MS, QUEUE_TIMEOUT_MAX_MS, QUEUE_TIMEOUT_DEFAULT_MS = SECOND_MS, YEAR_MS, 24 * HOUR_MS
WINDOW_MIN_MS, WINDOW_MAX_MS, WINDOW_DEFAULT_MS = SECOND_MS, 30 * DAY_MS, 24 * HOUR_MS
DELAY_MAX_MS = YEAR_MS
WAIT_MAX_MS = MINUTE_MS
GRACE_MAX_MS, GRACE_DEFAULT_MS = HOUR_MS, 30 * SECOND_MS
KEEPALIVE_MIN_MS, KEEPALIVE_MAX_MS, KEEPALIVE_DEFAULT_MS = SECOND_MS, 5 * MINUTE_MS, 20 * SECOND_MS

BATCH = 1_000
IN_FLIGHT_MAX = 1_000
QUEUES = 32
PAGE_MAX, PAGE_DEFAULT = 1_000, 100

# How many leases in a row may miss their receipt before that counts as a loss.
UNDELIVERED_MAX = 3

# How many ended attempts a record remembers, and with them their settled tokens.
ATTEMPTS_KEPT = 8

# Work that one sweep script does at most per timer, so that no script runs over 50 ms.
SWEEP_SLICE = 200

# Jobs that one script creates, claims or settles at most, for the same reason; a batch goes as several scripts.
SCRIPT_SLICE = 250
SWEEP_INTERVAL_MS = 500

# Keys, and entries of an index or of the counters, that one script of a repair walk or an audit looks at; lines that an
# audit adds up at most; how long a walk that nobody goes on with stands in the way of another; and how often one is due
# though nothing seems amiss: what damages an index and its counter alike is not seen by comparing them.
REPAIR_SLICE = 200
AUDIT_LINES = 2_000
WALK_EXPIRY_MS = MINUTE_MS
WALK_EVERY_MS = DAY_MS

# How long a replica counts as waiting for a queue without saying so again; it says so about every second.
WAITER_EXPIRY_MS = 3 * SECOND_MS

# The engine's own expiry of a record is only the backstop of the logical one.
BACKSTOP_LIVE_MS = YEAR_MS
BACKSTOP_ENDED_MS = HOUR_MS

# How long a claim whose answer was lost can be repeated under its token.
CLAIM_REPEATABLE_MS = 10 * SECOND_MS

# What a record may need in an answer besides its payload, labels and error.
ENVELOPE_BYTES = 4_096

# How many tenants' oldest jobs are looked at, per priority, for a queue's oldest.
OLDEST_TENANTS = 100
