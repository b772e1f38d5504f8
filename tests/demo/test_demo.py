"""The demo as a newcomer runs it: real processes, a real kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from jobwire_server.demo import journal
from jobwire_server.demo.folder import PIECE_BYTES, count_words, pieces
from jobwire_server.demo.report import Report

DEMO = [sys.executable, "-m", "jobwire_server.demo"]


def run(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The demo from its start to its end."""
    return subprocess.run([*DEMO, *words], check=False, env=os.environ | settings, capture_output=True, text=True)


def test_a_killed_worker_costs_nothing(tmp_path: Path) -> None:
    words = Counter[str]()
    for number in range(40):
        text = f"every worker counts words {'again ' * number}"
        words.update(count_words(text.encode()))
        (tmp_path / f"{number:02}.txt").write_text(text)
    # A user's own settings must not lead the demo to a real engine.
    demo = run(str(tmp_path), "--json", JOBWIRE_STORE_URL="redis://192.0.2.1", JOBWIRE_LISTEN="192.0.2.1:1")
    assert demo.returncode == 0, demo.stderr
    report = json.loads(demo.stdout)
    assert report["jobs"] == 40
    assert report["lost"] == report["completed_twice"] == 0
    assert report["killed_holding"] >= 1
    assert report["redeliveries"] >= 1
    assert report["deliveries"] == 40 + report["redeliveries"]
    assert report["words"] == words.total()
    assert report["commonest"] == [list(entry) for entry in words.most_common(10)]


def test_an_interrupt_leaves_no_process_behind(tmp_path: Path) -> None:
    for number in range(2_000):  # more than are done before a busy machine gets round to the interrupt
        (tmp_path / f"{number}.txt").write_text("some words")
    demo = subprocess.Popen([*DEMO, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert demo.stdout
    said = ""
    while "submitted" not in said:
        said += demo.stdout.readline()
    demo.send_signal(signal.SIGINT)
    said += demo.communicate()[0]
    assert demo.returncode == 2
    started = [int(pid) for pid in re.findall(r"\(process (\d+)\)", said)]
    assert len(started) >= 3
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_nothing_to_index_is_said(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    demo = run(str(tmp_path / folder))
    assert (demo.returncode, demo.stderr) == (2, f"no text in {tmp_path / folder}\n")


def test_pieces_are_texts_in_order_without_what_is_hidden(tmp_path: Path) -> None:
    for name, content in {
        "b.txt": b"second",
        "a/z.md": b"deeper",
        ".git/config": b"hidden",
        "node_modules/x.js": b"not ours",
        ".secret": b"hidden",
        "empty": b"",
        "image": b"\x89PNG\0",
        "latin1": b"caf\xe9",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").symlink_to("b.txt")
    assert [piece.name for piece in pieces(tmp_path)] == ["b.txt", "a/z.md"]


@pytest.mark.parametrize("text", ["a line of words\n" * 20_000, "ü" * 100_000])
def test_long_texts_are_cut_without_loss(tmp_path: Path, text: str) -> None:
    (tmp_path / "long.txt").write_text(text)
    parts = pieces(tmp_path)
    assert len(parts) > 1
    assert parts[0].name == f"long.txt (1/{len(parts)})"
    assert all(len(part.text) <= PIECE_BYTES for part in parts)
    assert b"".join(part.text for part in parts).decode() == text
    assert all(part.text.decode() for part in parts)


def test_the_journals_tell_who_completed_twice(tmp_path: Path) -> None:
    for name, ids in {"one": ["a", "b"], "two": ["b"]}.items():
        writing = journal.Journal(tmp_path / name)
        for job_id in ids:
            writing.write(journal.DELIVERED, job_id)
            writing.write(journal.COMPLETED, job_id)
    completions = journal.read([tmp_path / "one", tmp_path / "two", tmp_path / "missing"], journal.COMPLETED)
    assert completions == {"a": 1, "b": 2}


@pytest.mark.parametrize(("lost", "twice", "good"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_lost_or_done_twice_is_not_good(lost: int, twice: int, good: bool) -> None:
    report = Report(
        folder="x",
        jobs=2,
        deliveries=2,
        redeliveries=0,
        lost=lost,
        completed_twice=twice,
        killed_holding=0,
        words=0,
        commonest=[],
        seconds=0,
    )
    assert report.is_good is good
