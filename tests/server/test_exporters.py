"""What a server process exports, to whom, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.server
import os
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import grpc
import pytest
from jobwire.v1 import store_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.engines import Engine, free_port
from tests.requests import claim, complete, create
from tests.server.probe import connected
from tests.server.test_process import COMMAND, server


async def scraped(address: str) -> str:
    """What Prometheus would read."""

    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(read)


@pytest.fixture
async def url(engine: Engine) -> str:
    """Of an empty engine."""
    await engine.flush()
    return engine.url


async def test_prometheus_reads_what_real_traffic_counted(url: str) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with server(url, "--metrics-listen", listen) as process, connected(process.address) as stub:
        await stub.Create(create("a", "q"))
        [job] = (await stub.Claim(claim("q"))).jobs
        await stub.Complete(complete(job))
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Get(store_pb2.GetRequest(id="nobody"))
        text = await scraped(listen)
        process.signal(signal.SIGTERM)
        assert await process.ended(30) == 0
    lines = [line for line in text.splitlines() if line.startswith("jobwire_operations_total")]
    for verb, outcome in (("create", "ok"), ("claim", "ok"), ("complete", "ok"), ("get", "job_not_found")):
        [line] = [line for line in lines if f'verb="{verb}"' in line]
        assert f'outcome="{outcome}"' in line
        assert line.endswith(" 1.0")
    assert 'service_name="jobwire"' in text
    assert "jobwire_operation_duration_seconds_bucket" in text
    assert 'le="0.001"' in text, "bounds fit seconds"


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_an_exporter_that_cannot_export_changes_nothing_for_callers(
    url: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    async with server(url) as process, connected(process.address) as stub:
        for number in range(100):
            await stub.Create(create(f"j{number}", "q"), timeout=30)
        [job] = (await stub.Claim(claim("q"), timeout=30)).jobs
        await stub.Complete(complete(job), timeout=30)
        process.signal(signal.SIGTERM)
        assert await process.ended(30) == 0


async def test_a_server_with_telemetry_off_opens_no_endpoint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    listen = f"127.0.0.1:{free_port()}"
    async with server(url, "--metrics-listen", listen) as process, connected(process.address) as stub:
        await stub.Create(create("a", "q"))
        with pytest.raises(OSError, match="refused"):
            await scraped(listen)


class Collector(http.server.BaseHTTPRequestHandler):
    """An OTLP collector over HTTP."""

    spans: ClassVar[list[trace_pb2.ResourceSpans]] = []
    metrics: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
        self.take(self.path, body)
        self.send_response(200)
        self.end_headers()

    @classmethod
    def take(cls, path: str, body: bytes) -> None:
        """Keeps what was exported."""
        if "trace" in path:
            cls.spans += trace_service_pb2.ExportTraceServiceRequest.FromString(body).resource_spans
        else:
            for resource in metrics_service_pb2.ExportMetricsServiceRequest.FromString(body).resource_metrics:
                cls.metrics |= {metric.name for scope in resource.scope_metrics for metric in scope.metrics}

    def log_message(self, *args: object) -> None:
        """Says nothing."""


class GrpcCollector(grpc.GenericRpcHandler):
    """An OTLP collector over gRPC."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = handler_call_details.method.lower()

        def take(body: bytes, context: object) -> bytes:
            Collector.take(method, body)
            return b""

        return grpc.unary_unary_rpc_method_handler(take)


@contextlib.contextmanager
def collecting(protocol: str) -> Iterator[str]:
    """The address of a collector."""
    Collector.spans, Collector.metrics = [], set()
    if protocol == "grpc":
        collector = grpc.server(ThreadPoolExecutor(2), handlers=[GrpcCollector()])
        port = collector.add_insecure_port("127.0.0.1:0")
        collector.start()
        yield f"http://127.0.0.1:{port}"
        collector.stop(None).wait()
    else:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as web:
            thread = threading.Thread(target=web.serve_forever)
            thread.start()
            yield f"http://127.0.0.1:{web.server_port}"
            web.shutdown()
            thread.join()


@pytest.mark.parametrize("name", ["", "my-jobs"])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_a_collector_gets_spans_and_metrics(
    url: str, protocol: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    if name:
        monkeypatch.setenv("OTEL_SERVICE_NAME", name)
    with collecting(protocol) as endpoint:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        async with server(url) as process, connected(process.address) as stub:
            await stub.Create(create("a", "q"))
            process.signal(signal.SIGTERM)  # what is left is exported at the end
            assert await process.ended(30) == 0
    [spans] = Collector.spans
    [service] = [one.value.string_value for one in spans.resource.attributes if one.key == "service.name"]
    assert service == (name or "jobwire")
    assert [span.name for scope in spans.scope_spans for span in scope.spans] == ["/jobwire.v1.Store/Create"]
    assert {"jobwire.operations", "jobwire.engine.round_trip", "jobwire.streams"} <= Collector.metrics


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"JOBWIRE_METRICS_LISTEN": "nonsense"}, "metrics_listen: must be host:port"),
        ({"JOBWIRE_METRICS_LISTEN": "127.0.0.1:{taken}"}, "cannot serve metrics on 127.0.0.1:{taken}"),
    ],
)
async def test_wrong_settings_end_the_start_in_one_line(url: str, variables: dict[str, str], problem: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        given = {name: value.replace("{taken}", port) for name, value in variables.items()}
        process = await asyncio.create_subprocess_exec(
            COMMAND, "serve", "--store-url", url, "--listen", "127.0.0.1:0",
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", **given},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            _, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode().startswith("jobwire: ")
    assert said.count(b"\n") == 1
    assert problem.replace("{taken}", port) in said.decode()
