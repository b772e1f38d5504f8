"""Routes the engine's notices to those whom they concern."""

from __future__ import annotations

import asyncio
import contextlib

import structlog
from jobwire.v1 import store_pb2

from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError
from jobwire_server.store.types import Notice, NoticeKind

from .background import Background
from .credit import Ledger
from .hub import Hub
from .watches import Watches

_RETRY_SECONDS = 0.5

_log = structlog.get_logger("jobwire.dispatch")


class Notices:
    """Any notice may be lost; none is needed for more than speed."""

    def __init__(self, store: Store, hub: Hub, ledger: Ledger, watches: Watches, background: Background) -> None:
        self._store = store
        self._hub = hub
        self._ledger = ledger
        self._watches = watches
        self._background = background

    async def follow_for_ever(self) -> None:
        """Reads notices; if they end, begins anew."""
        while True:
            try:
                async with contextlib.aclosing(self._store.notices()) as notices:
                    async for notice in notices:
                        self._route(notice)
            except StoreError as error:
                _log.debug("notices ended", reason=error.reason_name)
            except Exception:
                _log.exception("bug")
            await asyncio.sleep(_RETRY_SECONDS)

    def _route(self, notice: Notice) -> None:
        match notice.kind:
            case NoticeKind.READY:
                self._hub.told(notice.partition, (notice.namespace, notice.name))
            case NoticeKind.SETTLED:
                self._ledger.returned(notice.name)
            case NoticeKind.CANCEL:
                self._background.start(self._ask_to_stop(notice.name))
            case NoticeKind.CHANGED:
                self._watches.changed(notice.namespace, notice.name)
            case NoticeKind.RESUMED:
                self._hub.told_everything()
                self._watches.changed_everything()

    async def _ask_to_stop(self, token: str) -> None:
        """The notice says only which lease; what was asked stands in the record. If it is lost, heartbeats tell."""
        lease = self._ledger.lease(token)
        if lease is None:
            return
        with contextlib.suppress(StoreError):
            job = (await self._store.get(store_pb2.GetRequest(namespace=lease.namespace, id=lease.id))).job
            if job.cancel.requested:
                self._ledger.ask_to_stop(store_pb2.StreamCancel(lease=lease, cancel=job.cancel))
