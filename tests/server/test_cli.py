"""Settings, and the `jobwire` command's answers to its user."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from jobwire_server import __version__, cli
from jobwire_server.app import running
from jobwire_server.settings import Settings, without_password
from typer.testing import CliRunner

from tests.requests import create
from tests.server.probe import Probe


@pytest.mark.parametrize(
    ("listen", "is_loopback"),
    [
        ("127.0.0.1:50051", True),
        ("127.8.8.8:1", True),
        ("[::1]:0", True),
        ("localhost:65535", True),
        ("0.0.0.0:50051", False),
        ("[::]:50051", False),
        ("jobs.example:50051", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(listen: str, is_loopback: bool) -> None:
    assert Settings(listen=listen).is_loopback is is_loopback


@pytest.mark.parametrize(
    ("url", "logged"),
    [
        ("redis://user:pa%40ss@host:6379/1", "redis://user:***@host:6379/1"),
        ("rediss://:secret@host", "rediss://:***@host"),
        ("redis://host", "redis://host"),
        ("unix:///run/engine.sock", "unix:///run/engine.sock"),
    ],
)
def test_a_logged_url_holds_no_password(url: str, logged: str) -> None:
    assert without_password(url) == logged


def test_settings_come_from_the_environment_and_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBWIRE_STORE_URL", "memory://")
    monkeypatch.setenv("JOBWIRE_PARTITIONS", "4")
    settings = Settings(partitions=8)
    assert (settings.store_url, settings.partitions, settings.listen) == ("memory://", 8, "127.0.0.1:50051")


@pytest.fixture
def own_logs() -> Iterator[None]:
    """`serve` sets logs up for its whole process, which here is not its own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.usefixtures("own_logs")
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--listen", "50051"], "listen"),
        (["--listen", "127.0.0.1:99999"], "listen"),
        (["--partitions", "0"], "partitions"),
        (["--log-format", "xml"], "log_format"),
        (["--key-prefix", "a{b"], "key_prefix"),
        (["--store-url", "mysql://u:secret@h"], "store URL"),
        (["--store-url", "redis+sentinel://:secret@h/s"], "not served"),
        (["--store-url", "memory://", "--listen", "192.0.2.1:0"], "cannot listen"),
    ],
)
def test_a_bad_setting_is_one_line_and_exit_code_1(flags: list[str], named: str) -> None:
    # Port 0, so that nothing else on this machine decides the outcome.
    result = CliRunner().invoke(cli.app, ["serve", "--listen", "127.0.0.1:0", *flags])
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line.startswith("jobwire: ")
    assert named in line
    assert "secret" not in line


def test_version() -> None:
    assert CliRunner().invoke(cli.app, ["version"]).stdout == f"{__version__}\n"


async def test_queues_of_a_running_server(store: Probe) -> None:
    await store.create(create("a", "interactive"))
    await store.create(create("b", "batch", delay=60, namespace="agents"))
    async with running(store) as server:
        arguments = ["queues", "--server", server.address]
        table = await asyncio.to_thread(CliRunner().invoke, cli.app, arguments)
        assert table.exit_code == 0, table.output
        assert "interactive" in table.stdout
        printed = await asyncio.to_thread(CliRunner().invoke, cli.app, [*arguments, "--json"])
        rows = json.loads(printed.stdout)
        assert [(row["namespace"], row["queue"], row["ready"], row["scheduled"]) for row in rows] == [
            ("agents", "batch", 0, 1),
            ("default", "interactive", 1, 0),
        ]
        one = await asyncio.to_thread(CliRunner().invoke, cli.app, [*arguments, "--json", "--namespace", "agents"])
        assert len(json.loads(one.stdout)) == 1


def test_queues_of_a_server_that_is_not_there() -> None:
    result = CliRunner().invoke(cli.app, ["queues", "--server", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
