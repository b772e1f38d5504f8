"""The distributions install alone, at both ends of what they allow. Makes virtual environments, so it needs an index:
run by `make range`, not by `make test`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import free_port
from tests.wait import wait_until

ROOT = Path(__file__).parents[2]
LOWEST = ("grpcio==1.71.2", "protobuf==5.29.5", "googleapis-common-protos==1.66.0")
EMBEDDED = """
import asyncio
from importlib.metadata import version
from jobwire.v1 import store_pb2
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.redis import RedisStore

async def main():
    store = MemoryStore()
    request = store_pb2.CreateRequest(job_id="a")
    request.job.ttl.seconds = 60
    assert (await store.create(request)).created
    print("ok", version("protobuf"))

asyncio.run(main())
"""

pytestmark = [pytest.mark.range, pytest.mark.timeout(300)]


def environment(folder: Path, *packages: str) -> str:
    """The interpreter of a new environment with these packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    subprocess.run(install, check=True, cwd=ROOT)
    return python


def run(*command: str) -> str:
    """What it prints."""
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server with this environment's packages."""
    address = f"127.0.0.1:{free_port()}"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "jobwire_server", "serve", "--store-url", "memory://", "--listen", address]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output, stdout=output)
    try:
        asyncio.run(wait_until(lambda: "serving" in log.read_text(), 20))
        yield address
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("versions", [LOWEST, ()], ids=["lowest", "highest"])
def test_the_client_alone(tmp_path: Path, server: str, versions: tuple[str, ...]) -> None:
    python = environment(tmp_path / "venv", "./client", *versions)
    told = run(python, "-W", "error", str(ROOT / "tests/range/smoke.py"), server)
    assert told.startswith("ok " + " ".join(version.split("==")[1] for version in versions[:2]))


def test_the_store_as_a_library_beside_an_old_protobuf(tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", "./client", ".", "protobuf==5.29.5")
    assert run(python, "-c", EMBEDDED) == "ok 5.29.5\n"
