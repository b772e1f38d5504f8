"""Settings of a server, from flags or `JOBWIRE_*` variables. Flags win."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+):(?P<port>\d{1,5})")


def _checked_address(address: str) -> str:
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65_535:
        raise ValueError("must be host:port, e.g. 127.0.0.1:50051 or [::1]:50051")
    return address


class Settings(BaseSettings):
    """One field per flag of `jobwire serve`, in the same words."""

    model_config = SettingsConfigDict(env_prefix="JOBWIRE_", extra="ignore", hide_input_in_errors=True)

    store_url: str = ""
    """Where jobs are kept; unset: an engine of our own. The forms: `jobwire_server.store.open`."""
    listen: Annotated[str, AfterValidator(_checked_address)] = "127.0.0.1:50051"
    """host:port; port 0 takes a free one. There is no authentication yet: anything but loopback is for trusted
    networks.
    """
    metrics_listen: Annotated[str, AfterValidator(_checked_address)] | None = None
    """host:port where Prometheus may read metrics; unset: nowhere. OTLP has the standard variables (`telemetry`)."""
    partitions: Annotated[int, Field(ge=1, le=1_024)] | None = None
    """Permanent for a deployment. Unset: what the engine holds, or 1."""
    key_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")] = "jobwire"
    """Begins every key in the engine."""
    data_dir: Path | None = None
    """Where an engine of our own keeps its data. Unset: `$XDG_DATA_HOME/jobwire`."""
    fsync: Literal["everysec", "always"] = "everysec"
    """How often an engine of our own writes to the disk; "always" loses nothing when the machine crashes."""
    drain_grace: Annotated[float, Field(ge=0, le=600)] = 30.0
    """Seconds that calls in progress have to end on shutdown."""
    log_format: Literal["text", "json"] = "text"
    """One line per event, either way."""
    max_calls: Annotated[int, Field(ge=1)] = 2_000
    """Calls at a time; one more is answered OVERLOADED."""
    max_streams: Annotated[int, Field(ge=1)] = 10_000
    """Streams and waiting calls at a time; one more is answered OVERLOADED."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach `listen`."""
        host = self.listen.rpartition(":")[0].strip("[]")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def in_one_line(error: ValidationError) -> str:
    """What is wrong with the settings, without their values: they may be secret."""
    return "; ".join(
        f"{problem['loc'][0]}: {problem['msg'].removeprefix('Value error, ')}" for problem in error.errors()
    )


def without_password(url: str) -> str:
    """A store URL that may be logged."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}"))
