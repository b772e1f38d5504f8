"""`make_job_store`: which backend a URL means."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from ._errors import JobStoreError
from ._memory import MemoryVerbs
from ._opened import Opened
from ._store import AgentJobStore
from ._values import check_name
from ._verbs import Verbs

_ENGINES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_opened: dict[str, Opened] = {}


def make_job_store(url: str | None = None, *, agent: str | None = None, tenant: str = "") -> AgentJobStore:
    """The job store of an agent. Nothing is connected before its first use.

    | `url`, by default `JOB_STORE_URL` | backend |
    |---|---|
    | unset, `memory://` | a dict of this process, gone with it, or when its last user closes it |
    | `redis://`, `rediss://`, `unix://` | straight to a Redis or Valkey (needs `jobwire[redis]`) |
    | `grpc://host:port`, `grpcs://host:port` | through a jobwire server, `grpcs` with TLS |

    Args:
        url: As above.
        agent: Whose jobs these are: another agent's job of the same id is another job. By default `OTEL_SERVICE_NAME`,
            which must be set unless the backend is memory.
        tenant: For whom they are.

    Raises JobStoreError for a URL that can never work, or whose backend is not installed.
    """
    url = os.environ.get("JOB_STORE_URL", "") if url is None else url
    agent = os.environ.get("OTEL_SERVICE_NAME", "") if agent is None else agent
    url = url or "memory://"
    check_name("agent", agent)
    check_name("tenant", tenant)
    if not agent and not url.lower().startswith("memory:"):
        raise JobStoreError("whose jobs are these? Set OTEL_SERVICE_NAME, or give make_job_store an agent")
    if url not in _opened:
        _opened[url] = Opened(*_backend(url))
    return AgentJobStore(_opened[url], agent or "default", tenant)


def _backend(url: str) -> tuple[str, Callable[[], Awaitable[Verbs]]]:
    """What a URL's backend is called, and how it is opened. No error quotes the URL: it may hold a password."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower() if separator else ""
    if scheme == "memory":
        if rest:
            raise JobStoreError("JOB_STORE_URL: memory:// takes neither host nor path")
        return "memory", MemoryVerbs().open
    if scheme not in ("grpc", "grpcs", *_ENGINES):
        raise JobStoreError(
            "JOB_STORE_URL must begin with memory://, redis://, rediss://, unix://, grpc:// or grpcs://"
        )
    if scheme in _ENGINES:
        return "redis", _direct(scheme, url)
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port and parts.netloc == rest.rstrip("/") and "@" not in rest
    except ValueError:
        usable = False
    if not usable:
        raise JobStoreError(f"JOB_STORE_URL must be {scheme}://host:port and nothing more")
    return "jobwire", _remote(parts.netloc, tls=scheme == "grpcs")


def _remote(target: str, *, tls: bool) -> Callable[[], Awaitable[Verbs]]:
    async def open_remote() -> Verbs:
        from ._remote import RemoteVerbs  # noqa: PLC0415 - gRPC costs memory and forks, and memory:// needs none

        return RemoteVerbs(target, tls=tls)

    return open_remote


def _direct(scheme: str, url: str) -> Callable[[], Awaitable[Verbs]]:
    try:
        from ._direct import check_direct, open_direct  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise JobStoreError(
            f"JOB_STORE_URL: {scheme}:// needs an extra: pip install 'jobwire[redis]' ({error.name})"
        ) from None
    check_direct(url)

    async def open_store() -> Verbs:
        return await open_direct(url)

    return open_store
