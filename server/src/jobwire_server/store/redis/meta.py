"""What the engine says about the deployment: its schema and its number of partitions. Both are permanent."""

from __future__ import annotations

from redis import exceptions
from redis.asyncio import Redis

from .engine import is_refusal, unreachable

# Raised when the layout changes. A release reads its own schema and the one before.
SCHEMA = 1

PARTITIONS_MAX = 1_024


async def agree_on_partitions(client: Redis, prefix: str, partitions: int | None) -> int:
    """The number of partitions that stands in the engine, which a first comer writes.

    Raises ValueError if another one is asked for, the engine's schema is unknown, or it refuses our credentials;
    `StoreError` (ENGINE_UNAVAILABLE) if the engine does not answer.
    """
    if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
        raise ValueError(f"partitions must be between 1 and {PARTITIONS_MAX}")
    key = f"{prefix}:meta"
    try:
        # HSETNX, so that of two first comers one wins and both agree.
        await client.hsetnx(key, "schema", str(SCHEMA))
        await client.hsetnx(key, "partitions", str(partitions or 1))
        values = await client.hmget(key, ["schema", "partitions"])
        schema, agreed = (int(value or 0) for value in values)
    except (exceptions.RedisError, OSError) as error:
        if is_refusal(error):
            raise ValueError("the engine refuses the store's credentials, or one of its commands") from None
        raise unreachable(error) from error
    if schema != SCHEMA:
        raise ValueError(f"the engine holds schema {schema}; this release reads {SCHEMA}")
    if partitions is not None and partitions != agreed:
        raise ValueError(f"the engine holds {agreed} partitions, not {partitions}; their number is permanent")
    return agreed
