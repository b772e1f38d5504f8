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

    def __init__(self) -> None:
        self.servicer = health.aio.HealthServicer()
        self._serving: bool | None = None

    async def look(self, store: Store) -> None:
        """Looks once."""
        problem = ""
        try:
            async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                await store.ping()
        except StoreError as error:
            problem = error.message
        except TimeoutError:
            problem = f"no answer within {PING_TIMEOUT_SECONDS:g} s"
        except Exception as error:
            _log.exception("bug")
            problem = type(error).__name__
        serving = not problem
        if self._serving is not None and serving is not self._serving:
            _log.warning("engine is back" if serving else "engine is unusable", problem=problem)
        self._serving = serving
        await self.tell(serving=serving)

    async def tell(self, *, serving: bool) -> None:
        """What the servicer answers from now on."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *SERVICES):
            await self.servicer.set(service, status)

    async def look_for_ever(self, store: Store) -> None:
        """Looks again and again."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            await self.look(store)

    async def drain(self) -> None:
        """NOT_SERVING from now on."""
        await self.servicer.enter_graceful_shutdown()
