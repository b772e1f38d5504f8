"""What an engine must be, and what it had better be, looked at when a store opens."""

from __future__ import annotations

import re
from typing import Any

from redis import exceptions
from redis.asyncio import Redis

# What the scripts use; Redis 6.2 and the first Valkey are the oldest with all of it.
_OLDEST = {"redis": (6, 2), "valkey": (7, 2)}


async def check_engine(client: Redis) -> tuple[str, list[str]]:
    """The engine's name and version, e.g. `valkey 9.1.2`, and what its operator should know, a sentence each.

    An engine that refuses INFO or CONFIG (many managed ones do) is taken as it is, and says so. Raises ValueError if it
    is too old.
    """
    warnings: list[str] = []
    name, version = "engine", ""
    try:
        info = await client.info("server")
        # Valkey's own INFO says `redis_version` 7.2.4 too, for old clients.
        name = "valkey" if "valkey_version" in info else "redis"
        version = str(info.get("valkey_version") or info.get("redis_version", ""))
        _refuse_older(name, version)
    except exceptions.ResponseError as error:
        warnings.append(f"the engine's version is not known: it refuses INFO ({_first_word(error)})")
    try:
        settings: dict[str, str] = {}
        for setting in ("maxmemory-policy", "appendonly", "save"):  # one by one: Redis 6.2 takes no more
            for key, value in (await client.config_get(setting)).items():
                settings[_text(key)] = _text(value)
        warnings += _judge(settings)
    except exceptions.ResponseError as error:
        warnings.append(
            f"the engine refuses CONFIG ({_first_word(error)}): make sure that it evicts nothing"
            " (maxmemory-policy noeviction) and that its data survives a restart"
        )
    return f"{name} {version}".strip(), warnings


def _refuse_older(name: str, version: str) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    oldest = _OLDEST[name]
    if numbers and numbers < oldest:
        raise ValueError(f"the engine is {name} {version}; jobwire needs {name} {'.'.join(map(str, oldest))} or newer")


def _judge(settings: dict[str, str]) -> list[str]:
    warnings = []
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        warnings.append(
            f"the engine's maxmemory-policy is {policy}: when it is full it drops jobs. Set it to noeviction"
        )
    if settings.get("appendonly") == "no" and not settings.get("save"):
        warnings.append("the engine keeps nothing on disk: a restart loses every job. Set appendonly yes")
    elif settings.get("appendonly") == "no":
        warnings.append("the engine writes snapshots only: a crash loses what came after the last. Set appendonly yes")
    return warnings


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _first_word(error: exceptions.ResponseError) -> str:
    return type(error).__name__ if isinstance(error, exceptions.NoPermissionError) else str(error).split(" ", 1)[0]
