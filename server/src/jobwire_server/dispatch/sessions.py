"""Worker sessions: of each, one stream at this replica, the one with the latest epoch.

A client whose connection broke without a sign opens a new stream while the server still believes in the old one, which
would go on taking jobs that nobody reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .credit import Account
from .stream import superseded


class Sessions:
    """By session id: the epoch and account of the stream that counts."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, Account]] = {}

    @contextlib.contextmanager
    def opened(self, session_id: str, epoch: int, account: Account) -> Iterator[None]:
        """A stream, for the extent of the context; ends the session's earlier one. Without an id there is no session.

        Raises:
            StoreError: STREAM_SUPERSEDED, a later epoch's stream is open.
        """
        if not session_id:
            yield
            return
        if earlier := self._latest.get(session_id):
            if earlier[0] > epoch:
                raise superseded()
            earlier[1].is_superseded = True
            earlier[1].wake()
        self._latest[session_id] = epoch, account
        try:
            yield
        finally:
            if self._latest.get(session_id, (0, None))[1] is account:
                del self._latest[session_id]
