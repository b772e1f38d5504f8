"""Page tokens: opaque to callers, valid on every server, refused when they were not ours."""

from __future__ import annotations

import base64
import binascii
import json

from .errors import invalid


def _encode(*parts: str | int) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode()


def _decode(token: str, *types: type) -> list[str | int]:
    try:
        parts = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        if isinstance(parts, list) and [type(part) for part in parts] == list(types):
            return parts
    except (ValueError, binascii.Error, RecursionError):
        pass
    raise invalid("page_token", "is not one that this verb answered")


def children_token(cursor: tuple[int, str] | None) -> str:
    """After the child (create time, id)."""
    return _encode(*cursor) if cursor else ""


def children_cursor(token: str) -> tuple[int, str]:
    """(create time, id) to start after."""
    if not token:
        return 0, ""
    created, job_id = _decode(token, int, str)
    return int(created), str(job_id)


def reclaim_token(partition: int, cursor: str) -> str:
    """Within or at the start of a partition."""
    return _encode(partition, cursor)


def reclaim_cursor(token: str, partitions: int) -> tuple[int, str]:
    """The partition and the backend's cursor in it."""
    if not token:
        return 0, ""
    partition, cursor = _decode(token, int, str)
    if not 0 <= int(partition) < partitions:
        raise invalid("page_token", "is not one that this verb answered")
    return int(partition), str(cursor)


def queue_token(name: tuple[str, str]) -> str:
    """After the queue (namespace, queue)."""
    return _encode(*name)


def queue_cursor(token: str) -> tuple[str, str]:
    """(namespace, queue) to start after."""
    if not token:
        return "", ""
    namespace, queue = _decode(token, str, str)
    return str(namespace), str(queue)
