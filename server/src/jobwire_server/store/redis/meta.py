"""What the engine says about the deployment: its schema and its number of partitions. Both are permanent."""

from __future__ import annotations

from redis.asyncio import Redis

# Raised when the layout changes. A release reads its own schema and the one before.
SCHEMA = 1

PARTITIONS_MAX = 1_024


async def agree_on_partitions(client: Redis, prefix: str, partitions: int | None) -> int:
    """The number of partitions that stands in the engine, which a first comer writes.

    Raises ValueError if another one is asked for, or the engine's schema is unknown.
    """
    if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
        raise ValueError(f"partitions must be between 1 and {PARTITIONS_MAX}")
    key = f"{prefix}:meta"
    values = await client.hmget(key, ["schema", "partitions"])
    # An engine that is full or read-only refuses a write even where there is nothing to change.
    if None in values:
        # HSETNX, so that of two first comers one wins and both agree.
        await client.hsetnx(key, "schema", str(SCHEMA))
        await client.hsetnx(key, "partitions", str(partitions or 1))
        values = await client.hmget(key, ["schema", "partitions"])
    schema, agreed = (int(value or 0) for value in values)
    if schema != SCHEMA:
        raise ValueError(f"the engine holds schema {schema}; this release reads {SCHEMA}")
    if partitions is not None and partitions != agreed:
        raise ValueError(f"the engine holds {agreed} partitions, not {partitions}; their number is permanent")
    return agreed
