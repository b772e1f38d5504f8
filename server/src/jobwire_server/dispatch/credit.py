"""Who holds what: the outstanding leases of this replica's streams, and how their credit comes back.

By a settlement through this replica, by a notice of one through another, and by asking the engine about the leases of
a stream that has had no credit for a second. A lease that ran out gives its credit back only when the client next
speaks for the stream: a frozen worker is not fed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog
from jobwire.v1 import store_pb2

from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError
from jobwire_server.store.types import Held

CHECK_SECONDS = 1.0
"""How long a stream is without credit before its leases are checked, and between two checks."""

SILENT_SECONDS = 60.0
"""How long a stream may keep a lease that ran out without a word from its client. Then it is ended: a client that is
alive, and was told of the loss by another server, opens a new one; a frozen one does not.
"""

_TICK_SECONDS = 0.25

_log = structlog.get_logger("jobwire.dispatch")


def lease_of(job: store_pb2.ClaimedJob) -> store_pb2.LeaseRef:
    """Names the lease of a claimed job."""
    return store_pb2.LeaseRef(namespace=job.job.namespace, id=job.job.id, token=job.lease_token)


class Account:
    """One stream's outstanding leases against its limit. `wake` is called when credit comes back."""

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self.leases: dict[str, store_pb2.LeaseRef] = {}
        """By token."""
        self.lost: dict[str, float] = {}
        """Tokens of those that ran out, and since when (loop time) we know."""
        self.is_silent = False
        """The client has not spoken for `SILENT_SECONDS` since one ran out."""
        self.is_superseded = False
        """A later epoch of the client's session has a stream here."""
        self.cancels: list[store_pb2.StreamCancel] = []
        """Requests to stop a job, to be sent."""
        self.wake = wake
        self._limit = limit

    @property
    def credit(self) -> int:
        """How many more jobs the client may be sent."""
        return max(0, self._limit - len(self.leases))


class Ledger:
    """All accounts of this replica."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._accounts: dict[str, Account] = {}
        self._checks: dict[Account, float] = {}  # those without credit, and when (loop time) they are checked next

    def add(self, account: Account, leases: Iterable[store_pb2.LeaseRef]) -> None:
        """Counts leases against an account."""
        for lease in leases:
            account.leases[lease.token] = lease
            self._accounts[lease.token] = account
        if not account.credit:
            self._checks.setdefault(account, self._loop.time() + CHECK_SECONDS)

    @property
    def leases(self) -> int:
        """How many leases are outstanding."""
        return len(self._accounts)

    def lease(self, token: str) -> store_pb2.LeaseRef | None:
        """The lease, if a stream here holds it."""
        account = self._accounts.get(token)
        return account.leases.get(token) if account else None

    def ask_to_stop(self, cancel: store_pb2.StreamCancel) -> None:
        """Somebody asked to stop a job: its stream, if it is here, tells its client."""
        if account := self._accounts.get(cancel.lease.token):
            account.cancels.append(cancel)
            account.wake()

    def close(self, account: Account) -> None:
        """Forgets an account. Its leases go on without it."""
        self._checks.pop(account, None)
        for token in account.leases:
            if self._accounts.get(token) is account:
                del self._accounts[token]

    def returned(self, token: str) -> None:
        """The lease has ended, and its client knows or has it no more: its credit comes back, if it was ours."""
        account = self._accounts.pop(token, None)
        if account is None or account.leases.pop(token, None) is None:
            return
        account.lost.pop(token, None)
        if account.credit:
            self._checks.pop(account, None)
        account.wake()

    def heard(self, token: str, *, gone: bool) -> None:
        """The client that holds this lease spoke, so those that ran out hold back its credit no longer; nor does this
        one if it is gone, that is settled, or lost and the client now knows.
        """
        if account := self._accounts.get(token):
            for lost in list(account.lost):
                self.returned(lost)
        if gone:
            self.returned(token)

    async def check_for_ever(self) -> None:
        """Asks the engine about the leases of every account that has been without credit for a second."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._loop.time()
            due = [account for account, at in self._checks.items() if at <= now]
            for account in due:
                self._checks[account] = now + CHECK_SECONDS
            try:
                await self._check(due)
            except StoreError as error:
                _log.debug("check refused", reason=error.reason_name)
            except Exception:
                _log.exception("bug")

    async def _check(self, due: Sequence[Account]) -> None:
        now = self._loop.time()
        leases = [lease for account in due for token, lease in account.leases.items() if token not in account.lost]
        for start in range(0, len(leases), limits.BATCH):
            some = leases[start : start + limits.BATCH]
            for lease, state in zip(some, await self._store.held(some), strict=True):
                account = self._accounts.get(lease.token)
                if state is Held.SETTLED:
                    self.returned(lease.token)
                elif state is Held.LOST and account is not None:
                    account.lost.setdefault(lease.token, now)
        for account in due:
            if any(now - since >= SILENT_SECONDS for since in account.lost.values()):
                account.is_silent = True
                account.wake()
