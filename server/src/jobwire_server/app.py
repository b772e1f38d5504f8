"""Puts a server together: store, dispatch, gRPC services, health, reflection; runs it, drains it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Self, cast

import grpc
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection
from jobwire.v1 import admin_pb2_grpc, job_pb2, store_pb2_grpc

from . import __version__, telemetry
from .dispatch.dispatch import Dispatch
from .rpc.admin import AdminServicer
from .rpc.calls import Calls
from .rpc.health import SERVICES, Health
from .rpc.services import Services
from .rpc.store import StoreServicer
from .settings import Settings, without_password
from .store import limits
from .store.base import Store
from .store.errors import StoreError
from .store.open import open_store
from .store.redis.embedded import EngineStartError

# Between two log lines that say the engine is still away.
_REMIND_SECONDS = 30.0

# On shutdown new calls are told so. For less than our client tries again: after that, connections are closed to them.
_REFUSE_SECONDS = 1.0
# After the last call has ended, for its answer to go out; and after the grace, for everything to be closed.
_FLUSH_SECONDS = 1.0
_CLOSE_SECONDS = 1.5

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # else two servers would share a port unnoticed
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES),
    # gRPC itself cancels calls beyond 1,000 that no handler has taken up yet, by chance, with a bare CANCELLED that no
    # client may repeat. A crowd is ours to refuse, with OVERLOADED.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    # Clients may ping an idle connection every 10 s; gRPC's own default drops them for more than one in 5 min.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # And we ping, so that a stream whose client vanished without a word ends.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Any ping, not only a keepalive: with another one in flight the timeout above never starts.
    ("grpc.http2.ping_timeout_ms", 10_000),
)

_log = structlog.get_logger("jobwire.app")


class StartError(Exception):
    """Why a server cannot start, in one line for its operator."""


class Server:
    """One replica. It takes its address when made, and calls within `serving`; it serves once."""

    def __init__(self, settings: Settings, interceptors: Sequence[grpc.aio.ServerInterceptor] = ()) -> None:
        self._settings = settings
        self._grpc = grpc.aio.server(interceptors=interceptors, options=_OPTIONS)
        self._services = Services()
        self._services.expect(*SERVICES)
        self._health = Health()
        self._started = False
        self._hurry = asyncio.Event()
        self.address = self._bind(settings.listen)
        """host:port, the port as bound."""
        self.stopping = asyncio.Event()
        """Set by the first `stop`."""

    def stop(self) -> None:
        """Asks the server to drain; a second time, to be quick about it."""
        if self.stopping.is_set():
            self._hurry.set()
        self.stopping.set()

    async def start(self) -> None:
        """Takes calls, and answers UNAVAILABLE and NOT_SERVING until `serving`."""
        if self._started:
            return
        self._started = True
        self._grpc.add_generic_rpc_handlers((self._services,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._grpc)
        reflection.enable_server_reflection((*SERVICES, HEALTH_SERVICE, reflection.SERVICE_NAME), self._grpc)
        await self._health.tell(serving=False)
        await self._grpc.start()

    async def close(self) -> None:
        """Takes no more calls. For a server that never came to serve."""
        await self._grpc.stop(None)

    @contextlib.asynccontextmanager
    async def serving(self, store: Store) -> AsyncIterator[Self]:
        """Serves for the extent of the context, then drains. The store stays open."""
        await self.start()
        calls = Calls(self._settings.max_calls, self._settings.max_streams)
        dispatch = Dispatch(store)
        async with dispatch.running():
            services = cast(grpc.aio.Server, self._services)
            store_pb2_grpc.add_StoreServicer_to_server(StoreServicer(store, dispatch, calls), services)
            admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(store, calls), services)
            await self._health.look(store)
            looking = asyncio.create_task(self._health.look_for_ever(store))
            try:
                yield self
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
                await self._health.drain()
                dispatch.drain()
                await self._end_calls(calls)

    async def _end_calls(self, calls: Calls) -> None:
        """Refuses new calls; returns once every other has ended, at the latest when the grace is over."""
        # gRPC's own stop does not come first: after it, calls are refused in words that no client knows to be harmless.
        # But nor does it wait for the last call: it is what makes clients go to another server. Else one peer that does
        # not read would have everybody else refused for all of the grace.
        calls.drain()
        over = [asyncio.create_task(wait) for wait in (calls.none_left(), self._hurry.wait())]
        refusing = min(_REFUSE_SECONDS, self._settings.drain_grace)
        await asyncio.wait(over, timeout=refusing, return_when=asyncio.FIRST_COMPLETED)
        rest = self._settings.drain_grace - refusing
        sending_away = asyncio.create_task(self._grpc.stop(rest + _FLUSH_SECONDS))
        await asyncio.wait(over, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        for task in over:
            task.cancel()
        # What is left now are last answers on their way, and watchers of our health: they would stay for ever.
        await self._grpc.stop(None if self._hurry.is_set() else _FLUSH_SECONDS)
        await sending_away
        # Cancelled handlers still tidy up after themselves.
        await calls.none_left()

    def _bind(self, address: str) -> str:
        try:
            port = self._grpc.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise StartError(f"cannot listen on {address}: the port is taken, or the address is not this machine's")
        return f"{address.rpartition(':')[0]}:{port}"


@contextlib.asynccontextmanager
async def running(
    store: Store,
    *,
    address: str = "127.0.0.1:0",
    settings: Settings | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> AsyncIterator[Server]:
    """A server around a store that is open already, for the extent of the context; drained at its end.

    Raises:
        StartError: the address cannot be bound.
    """
    settings = (settings or Settings()).model_copy(update={"listen": address})
    async with Server(settings, interceptors).serving(store) as server:
        yield server


async def serve(settings: Settings) -> None:
    """The server process: runs until SIGTERM or SIGINT, then drains. A second signal ends it at once.

    Raises:
        StartError: it cannot start.
    """
    try:
        exporting = telemetry.set_up(settings.metrics_listen or "")
    except telemetry.TelemetryError as error:
        raise StartError(str(error)) from error
    try:
        await _serve(settings, exporting)
    finally:
        exporting.close()


async def _serve(settings: Settings, exporting: telemetry.Telemetry) -> None:
    # Before the engine is started or waited for: that a port is taken should be told at once.
    server = Server(settings, exporting.interceptors)
    if not settings.is_loopback:
        _log.warning("reachable from other machines, and there is no authentication yet", listen=settings.listen)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        grace = 0 if server.stopping.is_set() else settings.drain_grace
        loop.call_later(grace + _CLOSE_SECONDS, _leave)
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.close)
        await server.start()
        store = await _unless_set(server.stopping, _open(settings, server.address, stack))
        if store is None:
            return
        async with server.serving(store):
            _log.info(
                "serving",
                address=server.address,
                version=__version__,
                store=without_password(settings.store_url) or "embedded",
                engine=store.engine,
                partitions=store.partitions,
                **({"metrics": exporting.metrics_address} if exporting.metrics_address else {}),
            )
            for warning in store.warnings:
                _log.warning(warning)
            await server.stopping.wait()
            _log.info("draining", grace=settings.drain_grace)
    _log.info("stopped")


def _leave() -> None:
    # Whatever hangs, an engine that does not answer most likely: whoever stops us waits no longer.
    _log.warning("not closed in time")
    os._exit(0)


async def _open(settings: Settings, address: str, stack: contextlib.AsyncExitStack) -> Store:
    """The store of the settings, put on the stack. An engine that is away is waited for, however long."""
    loop = asyncio.get_running_loop()
    remind_at = loop.time()
    pause = 0.1
    while True:
        try:
            return await stack.enter_async_context(
                open_store(
                    settings.store_url,
                    partitions=settings.partitions,
                    prefix=settings.key_prefix,
                    data_dir=settings.data_dir,
                    fsync=settings.fsync,
                )
            )
        except StoreError as error:
            if error.reason != job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE:
                raise StartError(error.message) from error
            if loop.time() >= remind_at:
                remind_at = loop.time() + _REMIND_SECONDS
                _log.warning(
                    "the engine is away",
                    address=address,
                    store=without_password(settings.store_url),
                    problem=error.message,
                )
        except (ValueError, EngineStartError) as error:
            raise StartError(str(error)) from error
        await asyncio.sleep(pause)
        pause = min(2 * pause, 5.0)


async def _unless_set(event: asyncio.Event, work: Coroutine[None, None, Store]) -> Store | None:
    """What the work yields; None if the event comes first, which cancels it."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    for task in (working, waiting):
        task.cancel()
    await asyncio.wait([working, waiting])
    return None if working.cancelled() else working.result()
