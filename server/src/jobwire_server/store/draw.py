"""What a store draws at random: ids, lease tokens, nonces. Replaceable, so that tests can compare backends exactly."""

from __future__ import annotations

import random
import secrets
import uuid


class Draw:
    """Draws from the operating system's randomness."""

    def job_id(self) -> str:
        """A root id or a child's suffix: 32 hex digits (a random UUID)."""
        return uuid.uuid4().hex

    def token(self) -> str:
        """A lease token that cannot be guessed: 128 bits, URL-safe."""
        return secrets.token_urlsafe(16)

    def nonce(self) -> str:
        """Makes an etag differ across Delete and Create of one id: 48 bits."""
        return secrets.token_urlsafe(6)

    def partition(self, partitions: int) -> int:
        """Where jobs without an id of their own go."""
        return secrets.randbelow(partitions)


class SeededDraw(Draw):
    """Draws the same sequence again for the same seed (tests only)."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - on purpose not secret

    def job_id(self) -> str:
        """As `Draw.job_id`."""
        return f"{self._random.getrandbits(128):032x}"

    def token(self) -> str:
        """As `Draw.token`."""
        return f"{self._random.getrandbits(128):032x}"

    def nonce(self) -> str:
        """As `Draw.nonce`."""
        return f"{self._random.getrandbits(48):012x}"

    def partition(self, partitions: int) -> int:
        """As `Draw.partition`."""
        return self._random.randrange(partitions)
