"""`grpc.health.v1`: serving while the engine takes writes."""

from __future__ import annotations

import asyncio

import structlog
from grpc_health.v1 import health, health_pb2

from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError

SERVICES = ("jobwire.v1.Store", "jobwire.v1.Admin")

# Together they stay well below the 5 s within which a load balancer must hear of it.
PING_SECONDS = 1.0
PING_TIMEOUT_SECONDS = 2.0

_log = structlog.get_logger("jobwire.rpc")


class Health:
    """Looks at the engine once a second. `servicer` answers what it saw last, for each service and for "" (all)."""

    def __init__(self, store: Store) -> None:
        self.servicer = health.aio.HealthServicer()
        self._store = store
        self._serving: bool | None = None

    async def look(self) -> None:
        """Looks once."""
        problem = ""
        try:
            async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                await self._store.ping()
        except StoreError as error:
            problem = error.message
        except TimeoutError:
            problem = f"no answer within {PING_TIMEOUT_SECONDS:g} s"
        except Exception as error:
            _log.exception("bug")
            problem = type(error).__name__
        serving = not problem
        if serving is self._serving:
            return
        if self._serving is not None:
            _log.warning("engine is back" if serving else "engine is unusable", problem=problem)
        self._serving = serving
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *SERVICES):
            await self.servicer.set(service, status)

    async def look_for_ever(self) -> None:
        """Looks again and again."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            await self.look()

    async def drain(self) -> None:
        """NOT_SERVING from now on."""
        await self.servicer.enter_graceful_shutdown()
