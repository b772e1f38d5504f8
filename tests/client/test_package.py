"""The package: what importing it loads, what it offers, and that the two clients are twins."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable

import jobwire
import pytest
from jobwire import _requests


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_messages_alone_load_no_grpc() -> None:
    modules = loaded_by("import jobwire\nfrom jobwire.v1 import store_pb2")
    assert "jobwire.v1.store_pb2" in modules
    assert "grpc" not in modules


def test_bare_stubs_load_nothing_of_the_thin_layer() -> None:
    modules = loaded_by("from jobwire.v1 import store_pb2_grpc, admin_pb2_grpc")
    assert not {name for name in modules if name.startswith("jobwire._")}


def test_every_public_name_is_there() -> None:
    assert set(jobwire._HOME) == set(jobwire.__all__)
    for name in jobwire.__all__:
        assert getattr(jobwire, name) is not None
    with pytest.raises(AttributeError):
        jobwire.nothing_of_this_name  # type: ignore[attr-defined]  # noqa: B018


def test_the_blocking_client_is_a_twin() -> None:
    for name, verb in inspect.getmembers(jobwire.Client, inspect.isfunction):
        if not name.startswith("_"):
            twin = getattr(jobwire.SyncClient, name)
            assert list(inspect.signature(twin).parameters) == list(inspect.signature(verb).parameters), name


@pytest.mark.parametrize(
    ("keywords", "request_of"),
    [
        (_requests.NewJob, _requests.new_job),
        (_requests.Changes, _requests.update_request),
        (_requests.StreamOptions, _requests.claim_stream_request),
    ],
)
def test_a_verbs_keywords_are_those_of_its_request(keywords: type, request_of: Callable[..., object]) -> None:
    parameters = inspect.signature(request_of).parameters.values()
    assert list(keywords.__annotations__) == [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
