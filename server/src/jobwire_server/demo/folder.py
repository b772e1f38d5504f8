"""What there is to index: the texts of a folder, cut into pieces of work, and the words in them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

# A piece is a job. Small enough that a book is shared between the workers, far below the limit of a payload.
PIECE_BYTES = 64 * 1024
PIECES = 5_000
FILE_BYTES = 32 * 1024 * 1024

_SKIPPED_FOLDERS = {"__pycache__", "node_modules"}
_WORD = re.compile(r"[^\W\d_]{3,}")


class Piece(NamedTuple):
    """A file, or a part of a long one."""

    name: str
    text: bytes


def pieces(folder: Path) -> list[Piece]:
    """The folder's texts in order of their names, at most `PIECES`; hidden files and what is no text are left out."""
    return list(islice(_pieces(folder), PIECES))


def _pieces(folder: Path) -> Iterator[Piece]:
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            file = Path(path, name)
            text = b"" if name.startswith(".") or file.is_symlink() else _text(file)
            parts = list(_cut(text))
            for number, part in enumerate(parts, start=1):
                suffix = f" ({number}/{len(parts)})" if len(parts) > 1 else ""
                yield Piece(f"{file.relative_to(folder)}{suffix}", part)


def _text(file: Path) -> bytes:
    """A file's content if it can be read and is text, else nothing."""
    try:
        if not file.is_file() or file.stat().st_size > FILE_BYTES:
            return b""
        content = file.read_bytes()
        content.decode()
    except (OSError, UnicodeDecodeError):
        return b""
    return b"" if b"\0" in content else content


def _cut(text: bytes) -> Iterator[bytes]:
    """Cuts after the last line that fits; a line that is longer than a piece is cut between characters."""
    while len(text) > PIECE_BYTES:
        end = text.rfind(b"\n", 0, PIECE_BYTES) + 1
        if not end:
            end = len(text[:PIECE_BYTES].decode(errors="ignore").encode())
        yield text[:end]
        text = text[end:]
    if text:
        yield text


def count_words(text: bytes) -> Counter[str]:
    """How often each word of three letters or more occurs, whatever its case."""
    return Counter(_WORD.findall(text.decode().lower()))
