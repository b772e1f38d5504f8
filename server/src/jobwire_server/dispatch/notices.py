"""Routes the engine's notices to those whom they concern."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from jobwire_server.store.base import Notice, NoticeKind, Store
from jobwire_server.store.errors import StoreError

from .credit import Ledger
from .hub import Hub
from .watches import Watches

_RETRY_SECONDS = 0.5

_log = structlog.get_logger("jobwire.dispatch")


class Notices:
    """Any notice may be lost; none is needed for more than speed."""

    def __init__(self, store: Store, hub: Hub, ledger: Ledger, watches: Watches) -> None:
        self._store = store
        self._hub = hub
        self._ledger = ledger
        self._watches = watches

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
            case NoticeKind.CHANGED:
                self._watches.changed(notice.namespace, notice.name)
            case NoticeKind.RESUMED:
                self._hub.told_everything()
                self._watches.changed_everything()
