"""Errors: the details of a trailer and the items of a batch become exceptions with something to act on."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import jobwire
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from jobwire._errors import error_of_item
from jobwire.v1 import job_pb2, store_pb2

from tests.client.scripted import Scripted, abort, serving


def refuse(scripted: Scripted, code: grpc.StatusCode, message: str, *details: Message) -> None:
    async def get(request: Message, context: Any) -> None:
        await abort(context, code, message, *details)

    scripted.script["Get"] = get


def info(reason: str, **metadata: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain="jobwire.v1", metadata=metadata)


async def test_every_code_has_its_class(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    classes = {
        grpc.StatusCode.INVALID_ARGUMENT: jobwire.InvalidArgument,
        grpc.StatusCode.NOT_FOUND: jobwire.NotFound,
        grpc.StatusCode.ALREADY_EXISTS: jobwire.AlreadyExists,
        grpc.StatusCode.FAILED_PRECONDITION: jobwire.FailedPrecondition,
        grpc.StatusCode.ABORTED: jobwire.Aborted,
        grpc.StatusCode.RESOURCE_EXHAUSTED: jobwire.ResourceExhausted,
        grpc.StatusCode.DEADLINE_EXCEEDED: jobwire.DeadlineExceeded,
        grpc.StatusCode.UNIMPLEMENTED: jobwire.Unimplemented,
        grpc.StatusCode.UNAUTHENTICATED: jobwire.Unauthenticated,
        grpc.StatusCode.PERMISSION_DENIED: jobwire.PermissionDenied,
        grpc.StatusCode.INTERNAL: jobwire.JobwireError,
    }
    for code, kind in classes.items():
        refuse(scripted, code, "no")
        with pytest.raises(jobwire.JobwireError, match="no") as caught:
            await scripted_client.get("a")
        assert (type(caught.value), caught.value.code) == (kind, code)
        assert caught.value.reason == ""


async def test_details_of_the_trailer(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="job.ttl", description="is required")
    refuse(scripted, grpc.StatusCode.INVALID_ARGUMENT, "two things", info("FIELD_INVALID"), bad)
    with pytest.raises(jobwire.InvalidArgument) as invalid:
        await scripted_client.get("a")
    assert invalid.value.reason == "FIELD_INVALID"
    assert invalid.value.fields == {"job.ttl": "is required"}

    refuse(scripted, grpc.StatusCode.ABORTED, "stale", info("ETAG_MISMATCH", etag="n.2"))
    with pytest.raises(jobwire.EtagMismatch) as mismatch:
        await scripted_client.get("a")
    assert mismatch.value.etag == "n.2"

    refuse(scripted, grpc.StatusCode.ALREADY_EXISTS, "taken", info("JOB_EXISTS", id="a"))
    with pytest.raises(jobwire.AlreadyExists) as exists:
        await scripted_client.get("a")
    assert exists.value.job_id == "a"

    refuse(scripted, grpc.StatusCode.FAILED_PRECONDITION, "no", info("ILLEGAL_TRANSITION", status="JOB_STATUS_FAILED"))
    with pytest.raises(jobwire.IllegalTransition) as illegal:
        await scripted_client.get("a")
    assert illegal.value.status == "JOB_STATUS_FAILED"

    refuse(scripted, grpc.StatusCode.FAILED_PRECONDITION, "lost", info("LEASE_LOST"))
    with pytest.raises(jobwire.LeaseLost):
        await scripted_client.get("a")

    retry = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))
    refuse(scripted, grpc.StatusCode.RESOURCE_EXHAUSTED, "full", info("QUEUE_FULL"), retry)
    with pytest.raises(jobwire.ResourceExhausted) as full:
        await scripted_client.get("a")
    assert full.value.retry_after == 1.5


async def test_one_settlement_keeps_the_details_of_its_error(scripted: Scripted) -> None:
    async def full(request: Message, context: Any) -> None:
        retry = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=2))
        await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "full", info("ENGINE_FULL"), retry)

    scripted.script |= {"Complete": full, "Fail": full, "Release": full}

    def settle_blocking(address: str, settlement: store_pb2.Settlement) -> None:
        with jobwire.connect_sync(address) as client:
            client.settle(settlement)

    async with serving(scripted) as address, jobwire.connect(address) as client:
        for settlement in (
            store_pb2.Settlement(complete=store_pb2.CompleteRequest()),
            store_pb2.Settlement(fail=store_pb2.FailRequest()),
            store_pb2.Settlement(release=store_pb2.ReleaseRequest()),
        ):
            for call in (client.settle(settlement), asyncio.to_thread(settle_blocking, address, settlement)):
                with pytest.raises(jobwire.ResourceExhausted) as refused:
                    await call
                assert refused.value.retry_after == 2
    assert [len(scripted.of(verb)) for verb in ("Complete", "Fail", "Release")] == [2, 2, 2]


async def test_a_garbled_trailer_leaves_code_and_message(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    async def get(request: Message, context: Any) -> None:
        trailer = (("grpc-status-details-bin", b"\xff\xff"),)
        await context.abort(grpc.StatusCode.NOT_FOUND, "gone", trailing_metadata=trailer)

    scripted.script["Get"] = get
    with pytest.raises(jobwire.NotFound, match="gone"):
        await scripted_client.get("a")


def test_item_errors() -> None:
    exists = error_of_item(
        store_pb2.ItemError(code=6, message="taken", reason=job_pb2.ERROR_REASON_JOB_EXISTS, metadata={"id": "a"})
    )
    assert isinstance(exists, jobwire.AlreadyExists)
    assert (exists.reason, exists.job_id, exists.message) == ("JOB_EXISTS", "a", "taken")

    invalid = error_of_item(store_pb2.ItemError(code=3, message="job.ttl: is required", field="job.ttl"))
    assert isinstance(invalid, jobwire.InvalidArgument)
    assert invalid.fields == {"job.ttl": "job.ttl: is required"}

    unknown = error_of_item(store_pb2.ItemError(code=99, message="?", reason=9_999))  # type: ignore[arg-type]
    assert type(unknown) is jobwire.JobwireError
    assert unknown.code is grpc.StatusCode.UNKNOWN


def test_lease_lost_is_a_failed_precondition() -> None:
    assert issubclass(jobwire.LeaseLost, jobwire.FailedPrecondition)
    assert issubclass(jobwire.EtagMismatch, jobwire.Aborted)


async def test_a_call_that_a_server_cuts_off_is_unavailable_and_repeated(
    scripted: Scripted, scripted_client: jobwire.Client
) -> None:
    """CANCELLED is how gRPC ends, in its own name, what a stopping server no longer waits for."""
    tries = 0

    async def get(request: store_pb2.GetRequest, context: Any) -> store_pb2.GetResponse:
        nonlocal tries
        tries += 1
        if tries == 1:
            await abort(context, grpc.StatusCode.CANCELLED, "Cancelling all calls")
        return store_pb2.GetResponse(job=job_pb2.Job(id="a"))

    scripted.script["Get"] = get
    assert (await scripted_client.get("a")).id == "a"
    assert tries == 2
