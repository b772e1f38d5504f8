"""Retries: only UNAVAILABLE, only what is safe, the same request each time, within the timeout."""

from __future__ import annotations

from typing import Any

import grpc
import jobwire
import pytest
from google.protobuf.message import Message
from jobwire._retry import TRIES, jittered, pauses
from jobwire.v1 import store_pb2

from tests.client.scripted import Scripted, abort, create_one, serving


def unavailable(scripted: Scripted, verb: str, times: int, answer: Any) -> None:
    async def method(request: Message, context: Any) -> Any:
        if len(scripted.of(verb)) <= times:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "failing over")
        return answer

    scripted.script[verb] = method


def test_pauses_grow_and_stay_bounded() -> None:
    for _ in range(100):
        drawn = list(pauses())
        assert len(drawn) == TRIES - 1
        assert drawn == sorted(drawn)
        assert 2.0 <= sum(drawn) <= 4.0


def test_full_jitter_is_capped() -> None:
    drawn = [jittered(5.0, 0.5, step) for step in range(2_000)]
    assert 0 <= min(drawn) < 1
    assert 4 < max(drawn) <= 5


async def test_get_survives_a_failover(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    unavailable(scripted, "Get", 2, store_pb2.GetResponse(job=jobwire.Job(id="a")))
    assert (await scripted_client.get("a")).id == "a"
    assert len(scripted.of("Get")) == 3


async def test_create_repeats_the_same_logical_request(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    unavailable(scripted, "Create", 1, store_pb2.CreateResponse(created=True))
    await scripted_client.create(queue="q", ttl=60)
    first, second = scripted.of("Create")
    assert first == second
    assert len(first.job_id) == 32
    assert first.request_id


async def test_create_with_a_dedup_key_draws_no_id(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    scripted.script["Create"] = create_one
    await scripted_client.create(queue="q", ttl=60, dedup_key="k")
    [request] = scripted.of("Create")
    assert request.job_id == ""
    assert request.request_id


async def test_a_bare_message_is_made_repeatable_and_not_changed(
    scripted: Scripted, scripted_client: jobwire.Client
) -> None:
    scripted.script["Create"] = create_one
    request = store_pb2.CreateRequest()
    await scripted_client.create_from(request)
    assert request == store_pb2.CreateRequest()
    [sent] = scripted.of("Create")
    assert sent.job_id
    assert sent.request_id


async def test_it_gives_up_after_five_tries(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    unavailable(scripted, "Update", 99, None)
    with pytest.raises(jobwire.Unavailable):
        await scripted_client.update("a", labels={})
    assert len(scripted.of("Update")) == TRIES
    assert len({request.request_id for request in scripted.of("Update")}) == 1


async def test_claim_is_never_repeated(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    unavailable(scripted, "Claim", 1, store_pb2.ClaimResponse())
    with pytest.raises(jobwire.Unavailable):
        await scripted_client.claim("q")
    assert len(scripted.of("Claim")) == 1


async def test_other_codes_are_not_repeated(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    async def get(request: Message, context: Any) -> None:
        await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded")

    scripted.script["Get"] = get
    with pytest.raises(jobwire.ResourceExhausted):
        await scripted_client.get("a")
    assert len(scripted.of("Get")) == 1


async def test_the_timeout_bounds_all_tries(scripted: Scripted) -> None:
    unavailable(scripted, "Get", 99, None)
    async with serving(scripted) as address, jobwire.connect(address, timeout=0.3) as client:
        with pytest.raises(jobwire.Unavailable):
            await client.get("a")
    # All pauses together are longer than the timeout, however they are drawn.
    assert len(scripted.of("Get")) < TRIES


async def test_nobody_there() -> None:
    async with jobwire.connect("127.0.0.1:1", timeout=0.5) as client:
        with pytest.raises(jobwire.Unavailable):
            await client.exists("a")


def test_the_blocking_client_retries_too() -> None:
    with jobwire.connect_sync("127.0.0.1:1", timeout=0.5) as client, pytest.raises(jobwire.Unavailable):
        client.exists("a")
