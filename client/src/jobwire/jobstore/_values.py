"""What may be stored, checked before any backend sees it, so that all of them agree."""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

from ._errors import InvalidJobError
from ._record import JobStatus, Json

ID_BYTES = 256
NAME_BYTES = 128
ID_LEVELS = 8
CONTENT_BYTES = 1_900_000
ERROR_BYTES = 16 * 1024
TTL_MIN_SECONDS, TTL_MAX_SECONDS = 1, 366 * 86_400
DEPTH = 100
LIST_MAX = 1_000

CONTENT_TYPE = "application/json"

_UNPRINTABLE = {"Cc", "Zl", "Zp", "Cs"}


def check_id(job_id: str) -> str:
    """The id, if it is one. Raises InvalidJobError."""
    if not isinstance(job_id, str):
        raise InvalidJobError(f"a job id must be a string, not {type(job_id).__name__}")
    levels = job_id.split("/")
    if not 0 < len(job_id.encode("utf-8", "surrogatepass")) <= ID_BYTES:
        raise InvalidJobError(f"a job id has 1 to {ID_BYTES} bytes")
    if len(levels) > ID_LEVELS or not all(levels):
        raise InvalidJobError(f"a job id has at most {ID_LEVELS} levels, none of them empty")
    _printable("a job id", job_id)
    return job_id


def check_name(what: str, name: str) -> str:
    """The name, if it is one; it may be empty. Raises InvalidJobError."""
    if not isinstance(name, str):
        raise InvalidJobError(f"{what} must be a string, not {type(name).__name__}")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES:
        raise InvalidJobError(f"{what} has at most {NAME_BYTES} bytes")
    _printable(what, name)
    return name


def check_etag(etag: str | None) -> str:
    """The etag; empty if none is asked for. Raises InvalidJobError."""
    if etag == "":
        raise InvalidJobError("an etag is not empty; None is for any")
    return "" if etag is None else check_name("an etag", etag)


def check_status(status: JobStatus) -> JobStatus:
    """The status, also from its value. Raises InvalidJobError."""
    try:
        return JobStatus(status)
    except ValueError:
        raise InvalidJobError(f"no status of a job: {status!r}") from None


def check_ttl(seconds: float) -> float:
    """The span, if a job may be kept that long. Raises InvalidJobError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidJobError(f"ttl_seconds must be a number, not {type(seconds).__name__}")
    if not TTL_MIN_SECONDS <= seconds <= TTL_MAX_SECONDS:
        raise InvalidJobError(f"ttl_seconds must be between {TTL_MIN_SECONDS} and {TTL_MAX_SECONDS}")
    return seconds


def check_limit(limit: int) -> int:
    """How many ids are asked for, capped. Raises InvalidJobError."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidJobError("limit must be a positive integer")
    return min(limit, LIST_MAX)


def check_error(text: str) -> str:
    """The text, cut on a character boundary to what a record keeps. Raises InvalidJobError."""
    if not isinstance(text, str):
        raise InvalidJobError(f"error must be a string, not {type(text).__name__}")
    return _utf8(text, "error")[:ERROR_BYTES].decode(errors="ignore")


def encode(name: str, value: Json) -> bytes:
    """JSON that says exactly this. Raises InvalidJobError for what it cannot say."""
    _check(name, value)
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(content) > CONTENT_BYTES:
        raise InvalidJobError(f"{name} is {len(content)} bytes as JSON, more than {CONTENT_BYTES}")
    return content


def decode(job_id: str, name: str, content: bytes) -> Json:
    """What `encode` was given. Raises InvalidJobError for bytes that are no JSON: somebody else's job."""
    if not content:
        return None
    try:
        value: Json = json.loads(content.decode(), parse_constant=_no_json)
    except (ValueError, RecursionError):
        raise InvalidJobError(f"the {name} of job {job_id!r} is no JSON") from None
    return value


def _check(name: str, value: Any) -> None:
    pending = [(value, DEPTH)]
    values = 1
    while pending:
        value, depth = pending.pop()
        # By exact type: what a subclass adds (an enum, a named tuple) would not come back.
        kind = type(value)
        if kind is str:
            _utf8(value, name)
        elif kind is float:
            if not math.isfinite(value):
                raise InvalidJobError(f"{name} holds {value}, which JSON does not know")
        elif kind is int:
            if not -(2**63) <= value < 2**64:
                raise InvalidJobError(f"{name} holds an integer beyond 64 bits")
        elif kind in (dict, list):
            if depth == 0:
                raise InvalidJobError(f"{name} is nested more than {DEPTH} deep")
            values += len(value)
            # Each is a byte at least. Not left to the text: a few lists in one another may stand for more than fits.
            if values > CONTENT_BYTES:
                raise InvalidJobError(f"{name} is more than {CONTENT_BYTES} bytes as JSON")
            for key in value if kind is dict else ():
                if type(key) is not str:
                    raise InvalidJobError(f"{name} has a key that is no string but {type(key).__name__}")
                _utf8(key, name)
            pending += [(item, depth - 1) for item in (value.values() if kind is dict else value)]
        elif kind not in (bool, type(None)):
            raise InvalidJobError(f"{name} holds a {kind.__name__}, which would not come back as one")


def _printable(what: str, text: str) -> None:
    if any(unicodedata.category(char) in _UNPRINTABLE for char in text):
        raise InvalidJobError(f"{what} holds no control characters, line separators or lone surrogates")


def _no_json(constant: str) -> Json:
    raise ValueError(constant)


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidJobError(f"{name} holds a lone surrogate") from None
