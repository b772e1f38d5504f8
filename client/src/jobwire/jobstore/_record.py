"""The record of a job, as agents see it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Self, TypeAlias

from ._errors import InvalidJobError

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
"""What JSON can say, in the types that `json` reads back."""


class JobStatus(StrEnum):
    """The one vocabulary of job states."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it was read. Changing what is inside changes nothing in the store: that takes `update`."""

    job_id: str
    status: JobStatus
    payload: Json
    result: Json
    error: str | None
    created_at: float
    """Seconds since 1970, by the engine's clock, to the millisecond."""
    updated_at: float
    etag: str
    """Changes with every update, and never comes back for an id."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; `from_dict` reads it back."""
        return {**asdict(self), "status": self.status.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The record that `to_dict` wrote. Raises InvalidJobError for keys too many or too few, and wrong types."""
        if not isinstance(data, dict):
            raise InvalidJobError(f"not a job record but {type(data).__name__}")
        names = {field.name for field in fields(cls)}
        if wrong := names.symmetric_difference(data):
            raise InvalidJobError(f"not the keys of a job record: {', '.join(sorted(map(str, wrong)))}")
        for name, kinds in _KINDS.items():
            if type(data[name]) not in kinds:
                raise InvalidJobError(f"{name} of a job record must not be {type(data[name]).__name__}")
        try:
            status = JobStatus(data["status"])
        except ValueError:
            raise InvalidJobError(f"no status of a job: {data['status']!r}") from None
        return cls(**{**data, "status": status})


_KINDS: dict[str, tuple[type, ...]] = {
    "job_id": (str,),
    "status": (str, JobStatus),
    "error": (str, type(None)),
    "created_at": (float, int),
    "updated_at": (float, int),
    "etag": (str,),
}
