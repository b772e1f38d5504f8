"""OpenTelemetry's SDK for a server process: what it exports, and to where.

By the standard variables: spans and metrics go where `OTEL_EXPORTER_OTLP_ENDPOINT` (or that of one signal) says, by
`grpc` or `http/protobuf`; unset, nowhere. `OTEL_SDK_DISABLED=true` turns everything off. Metrics can be read by
Prometheus as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import grpc
import structlog
from jobwire.v1 import admin_pb2, store_pb2
from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.instrumentation.grpc import aio_server_interceptor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry, start_http_server

_SERVICE_NAME = "jobwire"
# What was not exported when the process ends may take this long, and not longer though nobody answers.
_FLUSH_SECONDS = 1.0

_Signal = Literal["TRACES", "METRICS"]

_UNARY = frozenset(
    f"/{service.full_name}/{method.name}"
    for file in (store_pb2.DESCRIPTOR, admin_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
    if not (method.server_streaming or method.client_streaming)
)

_log = structlog.get_logger("jobwire.telemetry")


class TelemetryError(Exception):
    """Why telemetry cannot be set up, in one line for the operator."""


class Telemetry:
    """What this process exports. Made by `set_up`."""

    def __init__(self, interceptors: Sequence[grpc.aio.ServerInterceptor] = (), metrics_address: str = "") -> None:
        self.interceptors = interceptors
        """For the gRPC server."""
        self.metrics_address = metrics_address
        """Where Prometheus reads, the port as bound; empty: nowhere."""
        self._closers: list[Callable[[], object]] = []

    def on_close(self, closer: Callable[[], object]) -> None:
        """To be called by `close`."""
        self._closers.append(closer)

    def close(self) -> None:
        """Exports what is left, within a second: whoever stops a server does not wait for its collector."""
        threads = [threading.Thread(target=closer, daemon=True) for closer in self._closers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_FLUSH_SECONDS / len(threads))


def set_up(metrics_listen: str = "") -> Telemetry:
    """Sets up what the environment and `metrics_listen` ask for; once per process.

    Raises:
        TelemetryError: a setting is wrong, or the address of the metrics is taken.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        if metrics_listen:
            _log.warning("no metrics: OTEL_SDK_DISABLED is true", metrics_listen=metrics_listen)
        return Telemetry()
    span_exporter, metric_exporter = _exporter("TRACES"), _exporter("METRICS")
    resource = _resource()
    readers: list[MetricReader] = []
    address = ""
    stop_serving = None
    if metrics_listen:
        registry = CollectorRegistry()
        address, stop_serving = _serve(metrics_listen, registry)
        readers.append(PrometheusMetricReader(registry=registry))
    if metric_exporter is not None:
        readers.append(PeriodicExportingMetricReader(metric_exporter))
    telemetry = Telemetry([interceptor()] if span_exporter is not None else (), address)
    if stop_serving is not None:
        telemetry.on_close(stop_serving)
    if readers:
        meter_provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meter_provider)
        telemetry.on_close(meter_provider.shutdown)
    if span_exporter is not None:
        tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracer_provider.add_span_processor(BatchSpanProcessor(span_exporter))
        trace.set_tracer_provider(tracer_provider)
        telemetry.on_close(tracer_provider.shutdown)
    return telemetry


def interceptor() -> grpc.aio.ServerInterceptor:
    """A span per unary call of ours. Streams have none: the instrumentation neither ends their spans when they are
    cancelled nor lets a handler write, and a span of days would tell little. Nor have health checks.
    """
    make: Callable[..., grpc.aio.ServerInterceptor] = aio_server_interceptor
    return make(filter_=lambda call: call.method in _UNARY)


def _resource() -> Resource:
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: _SERVICE_NAME}))
    return resource


def _exporter(signal: _Signal) -> Any:
    """The exporter of a signal; None: nobody asked for it."""
    wanted = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if wanted == "none" or not _setting(signal, "ENDPOINT"):
        return None
    if wanted not in ("", "otlp"):
        raise TelemetryError(f"OTEL_{signal}_EXPORTER: only otlp and none are known")
    protocol = _setting(signal, "PROTOCOL") or "grpc"
    # Imported late: each costs memory, and most processes need none.
    try:
        match protocol, signal:
            case "grpc", "TRACES":
                from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_spans  # noqa: PLC0415

                return grpc_spans.OTLPSpanExporter()
            case "grpc", _:
                from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc_metrics  # noqa: PLC0415

                return grpc_metrics.OTLPMetricExporter()
            case "http/protobuf", "TRACES":
                from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_spans  # noqa: PLC0415

                return http_spans.OTLPSpanExporter()
            case "http/protobuf", _:
                from opentelemetry.exporter.otlp.proto.http import metric_exporter as http_metrics  # noqa: PLC0415

                return http_metrics.OTLPMetricExporter()
    except (ValueError, OSError) as error:
        # Without its text: a header in the environment may be a secret.
        raise TelemetryError(f"the OTEL_EXPORTER_OTLP_* settings are not usable ({type(error).__name__})") from error
    raise TelemetryError("OTEL_EXPORTER_OTLP_PROTOCOL: only grpc and http/protobuf are known")


def _setting(signal: _Signal, name: str) -> str:
    own = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}", "").strip()
    return own or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()


def _serve(listen: str, registry: CollectorRegistry) -> tuple[str, Callable[[], object]]:
    host, _, port = listen.rpartition(":")
    try:
        server, _ = start_http_server(int(port), host.strip("[]"), registry)
    except OSError:
        raise TelemetryError(
            f"cannot serve metrics on {listen}: the port is taken, or the address is not this machine's"
        ) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return f"{host}:{server.server_port}", stop
