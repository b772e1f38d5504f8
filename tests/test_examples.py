"""The examples work as they stand in the README."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from jobwire_server.app import running
from jobwire_server.store.memory import MemoryStore

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def code(example: Path) -> str:
    """An example without its docstring."""
    return example.read_text().split('"""\n', 2)[-1].strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_readme_has_the_example(example: Path) -> None:
    assert f"```python\n{code(example)}\n```" in (ROOT / "README.md").read_text()


@asynccontextmanager
async def process(name: str, address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """An example that is being run against a server of the test's own."""
    text = code(ROOT / "examples" / name).replace("127.0.0.1:50051", address)
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", text, stdout=asyncio.subprocess.PIPE)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
            await started.wait()


async def test_both_producers_get_what_the_worker_made() -> None:
    store = MemoryStore()
    async with running(store) as server, process("worker.py", server.address):
        for producer in ("producer.py", "bare_stub.py"):
            async with process(producer, server.address) as started:
                output, _ = await started.communicate()
                assert output.decode() == "JOB_STATUS_SUCCEEDED 6 words\n"
    await store.close()
