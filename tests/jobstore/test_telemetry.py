"""What a JobStore tells OpenTelemetry: a span, a count and a duration per verb, and nothing without the API."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jobwire.jobstore import (
    EtagMismatchError,
    InvalidJobError,
    JobConflictError,
    JobNotFoundError,
    JobStatus,
    JobStoreError,
    StoreUnavailableError,
    make_job_store,
)
from jobwire.jobstore._opened import Opened
from jobwire.jobstore._store import AgentJobStore
from jobwire.v1 import store_pb2
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from tests.engines import Engine, free_port
from tests.telemetry import Recorded

pytestmark = pytest.mark.jobstore

Verb = Callable[[AgentJobStore], Awaitable[object]]

SECRET = "payload-of-nobody-elses-business"

VERBS: dict[str, Verb] = {
    "create": lambda store: store.create("j", {"x": SECRET}, ttl_seconds=60),
    "get": lambda store: store.get("j"),
    "update": lambda store: store.update("j", status=JobStatus.FAILED, payload=SECRET, result=SECRET, error=SECRET),
    "delete": lambda store: store.delete("j"),
    "exists": lambda store: store.exists("j"),
    "list_ids": lambda store: store.list_ids(),
}
"""In an order in which each succeeds."""

OUTCOMES: dict[str, Callable[[], BaseException]] = {
    "conflict": lambda: JobConflictError("there"),
    "not_found": lambda: JobNotFoundError("gone"),
    "etag_mismatch": lambda: EtagMismatchError("changed", "2"),
    "invalid": lambda: InvalidJobError("no"),
    "unavailable": lambda: StoreUnavailableError("away"),
    "error": lambda: RuntimeError("a bug"),
    "cancelled": asyncio.CancelledError,
}
NO_FAULTS = {"conflict", "not_found", "etag_mismatch", "cancelled"}


class Refusing:
    """A backend that meets every verb with the same error."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        async def refuse(request: object) -> object:
            raise self._error()

        return refuse


def refusing(error: Callable[[], BaseException]) -> AgentJobStore:
    """A store over it."""

    async def opened() -> Any:
        return Refusing(error)

    return AgentJobStore(Opened("nowhere", opened), "agent-a", "")


def outcome(verb: str, what: str) -> frozenset[tuple[str, object]]:
    """The labels of one count."""
    return frozenset({("verb", verb), ("outcome", what)})


@pytest.mark.parametrize("backend", ["memory", "redis"])
async def test_each_verb_has_a_span_a_count_and_a_duration(backend: str, engine: Engine, recorded: Recorded) -> None:
    await engine.flush()
    store = make_job_store({"memory": "memory://", "redis": engine.url}[backend], agent="agent-a", tenant="t")
    for call in VERBS.values():
        await call(store)
    await store.close()

    spans = recorded.spans()
    assert [span.name for span in spans] == [f"jobwire.{verb}" for verb in VERBS]
    for span in spans:
        attributes = dict(span.attributes or {})
        assert attributes.pop("job.id", None) == (None if span.name == "jobwire.list_ids" else "j")
        assert attributes == {
            "db.system": backend,
            "job.agent": "agent-a",
            "job.namespace": "agent-a",
            "jobwire.outcome": "ok",
        }
        assert (span.kind, span.status.status_code, list(span.events)) == (SpanKind.CLIENT, StatusCode.UNSET, [])
        assert SECRET not in span.to_json()
    assert recorded.values("jobwire.operations") == {outcome(verb, "ok"): 1 for verb in VERBS}
    assert recorded.values("jobwire.operation.duration") == {frozenset({("verb", verb)}): 1 for verb in VERBS}


@pytest.mark.parametrize("what", OUTCOMES)
@pytest.mark.parametrize("verb", VERBS)
async def test_each_verb_tells_each_outcome(verb: str, what: str, recorded: Recorded) -> None:
    error = OUTCOMES[what]
    answers_none = verb == "get" and what == "not_found"
    if answers_none:
        assert await VERBS[verb](refusing(error)) is None
    else:
        with pytest.raises(type(error())):
            await VERBS[verb](refusing(error))

    told = "ok" if answers_none else what
    [span] = recorded.spans()
    assert (span.attributes or {})["jobwire.outcome"] == told
    assert span.status.status_code is (StatusCode.UNSET if told in {"ok", *NO_FAULTS} else StatusCode.ERROR)
    assert recorded.values("jobwire.operations") == {outcome(verb, told): 1}
    assert recorded.values("jobwire.operation.duration") == {frozenset({("verb", verb)}): 1}


async def test_refusals_of_a_real_store_are_told_as_such(recorded: Recorded) -> None:
    store = make_job_store("memory://", agent="refusals")
    record = await store.create("j", ttl_seconds=60)
    with pytest.raises(JobConflictError):
        await store.create("j", ttl_seconds=60)
    with pytest.raises(JobNotFoundError):
        await store.update("other", status=JobStatus.RUNNING)
    await store.update("j", status=JobStatus.RUNNING)
    with pytest.raises(EtagMismatchError):
        await store.update("j", status=JobStatus.RUNNING, etag=record.etag)
    for wrong in ("", "a\nb", "\ud800", "x" * 10_000, None):
        with pytest.raises(InvalidJobError):
            await store.get(wrong)  # type: ignore[arg-type]
    away = make_job_store(f"redis://127.0.0.1:{free_port()}/0", agent="refusals")
    with pytest.raises(StoreUnavailableError):
        await away.exists("j")

    counts = {label: count for label, count in recorded.values("jobwire.operations").items() if count}
    assert counts == {
        outcome("create", "ok"): 1,
        outcome("create", "conflict"): 1,
        outcome("update", "not_found"): 1,
        outcome("update", "ok"): 1,
        outcome("update", "etag_mismatch"): 1,
        outcome("get", "invalid"): 5,
        outcome("exists", "unavailable"): 1,
    }
    ids = [(span.attributes or {}).get("job.id", "") for span in recorded.spans("jobwire.get")]
    assert all(isinstance(one, str) and len(one.encode()) <= 256 for one in ids)


async def test_a_callers_cancel_is_told(recorded: Recorded) -> None:
    began = asyncio.Event()

    class Hanging:
        async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

    async def opened() -> Any:
        return Hanging()

    task = asyncio.create_task(AgentJobStore(Opened("nowhere", opened), "agent-a", "").get("j"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorded.values("jobwire.operations") == {outcome("get", "cancelled"): 1}


async def test_spans_stand_in_their_callers_trace(recorded: Recorded) -> None:
    store = make_job_store("memory://", agent="agent-a")
    tracer = trace.get_tracer("test")

    async def request(name: str) -> None:
        with tracer.start_as_current_span(name):
            await store.create(name, ttl_seconds=60)
            await asyncio.gather(store.get(name), store.exists(name))

    await asyncio.gather(*(request(f"r{number}") for number in range(20)))
    assert not trace.get_current_span().get_span_context().is_valid
    requests = {span.name: span for span in recorded.spans() if span.name.startswith("r")}
    verbs = [span for span in recorded.spans() if span.name.startswith("jobwire.")]
    assert len(verbs) == 60
    for span in verbs:
        caller = requests[str((span.attributes or {})["job.id"])]
        assert span.context is not None
        assert span.parent is not None
        assert caller.context is not None
        assert (span.context.trace_id, span.parent.span_id) == (caller.context.trace_id, caller.context.span_id)


def test_nothing_happens_without_the_api() -> None:
    script = """
import asyncio, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from jobwire.jobstore import JobConflictError, JobStatus, make_job_store

async def main():
    store = make_job_store("memory://")
    await store.create("j", {"x": 1}, ttl_seconds=60)
    try:
        await store.create("j", ttl_seconds=60)
    except JobConflictError:
        pass
    await store.update("j", status=JobStatus.SUCCEEDED)
    assert (await store.get("j")).status is JobStatus.SUCCEEDED
    assert await store.list_ids() == ["j"] and await store.exists("j") and await store.delete("j")

asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)


def test_errors_are_all_told_apart() -> None:
    """A new kind of JobStoreError that nobody gave an outcome would count as a plain error."""
    assert {kind.__name__ for kind in JobStoreError.__subclasses__()} == {
        type(error()).__name__ for error in OUTCOMES.values() if isinstance(error(), JobStoreError)
    }
