"""How often this replica looks by itself at what it is told of otherwise."""

LOOK_SECONDS = 0.9
"""Between two looks: a lost notice costs at most a second, the look and what follows it included."""

GAUGES_SECONDS = 5.0
"""Between two readings of what queues hold, at least, and only while somebody collects metrics."""

AUDIT_SECONDS = 30.0
"""Between two audits of a partition, on average."""
