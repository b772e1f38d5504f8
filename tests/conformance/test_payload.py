"""Payloads and results are opaque: what went in comes out, byte for byte, by every way there is."""

from __future__ import annotations

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import complete, update

from .bench import Bench, refusal

CONTENTS = {
    "empty": b"",
    "all bytes": bytes(range(256)) * 3,
    "NUL": b"\x00\x00a\x00",
    "not UTF-8": b"\xff\xfe\x80\xc3\x28",
    "looks like a number": b"1e999",
    "line ends": b"\r\n$-1\r\n\x1f\x1e",
    "largest": bytes(range(250)) * 7_600,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
async def test_contents_are_returned_byte_identical(bench: Bench, content: bytes) -> None:
    await bench.add("a", "q", payload=content)
    assert (await bench.job("a")).payload == content
    claimed = await bench.take("q")
    assert claimed.job.payload == content
    await bench.verbs.complete(complete(claimed, content))
    job = await bench.job("a")
    assert (job.payload, job.result) == (content, content)
    await bench.add("s", payload=b"before")
    await bench.verbs.update(update("s", payload=content, result=content))
    job = await bench.job("s")
    assert (job.payload, job.result) == (content, content)


async def test_basic_view_has_neither_payload_nor_result(bench: Bench) -> None:
    await bench.add("a", payload=b"p")
    answer = await bench.verbs.update(update("a", result=b"r"))
    assert (answer.job.payload, answer.job.result) == (b"", b"")
    for view in (job_pb2.JOB_VIEW_UNSPECIFIED, job_pb2.JOB_VIEW_BASIC):
        job = (await bench.verbs.get(store_pb2.GetRequest(id="a", view=view))).job
        assert (job.payload, job.result) == (b"", b"")


async def test_a_result_too_large_leaves_the_lease_as_it_was(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    error = await refusal(bench.verbs.complete(complete(claimed, bytes(1_900_001))))
    assert list(error.fields) == ["result"]
    assert not (await bench.verbs.complete(complete(claimed, b"smaller"))).repeated_call
