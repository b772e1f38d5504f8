"""The recipes of docs/migration.md, and a script for each that uses before and after alike."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.wait import wait_until

ROOT = Path(__file__).parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
GUIDE = (ROOT / "docs" / "migration.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in GUIDE.split("\n## ")[1:]}
BLOCKS = {title: PYTHON.findall(part) for title, part in SECTIONS.items()}
WORDS = {
    word.strip("` "): after.strip("` ")
    for before, after in re.findall(r"^\| (`.*`) \| (`[a-z]+`) \|$", GUIDE, re.MULTILINE)
    for word in before.split(",")
    if not after.endswith("-agent`")
}
"""The guide's table of status words."""

Agent = dict[str, Any]
"""A module: a block of the guide, run."""


async def call(answer: Any) -> Any:
    """Of a method that became async, or had been."""
    return await answer if inspect.isawaitable(answer) else answer


def modern(answer: Any) -> Any:
    """An answer with status words as they are now."""
    if isinstance(answer, dict):
        return {
            key: WORDS.get(value, str(value)) if key == "status" else modern(value) for key, value in answer.items()
        }
    if isinstance(answer, list | tuple):
        return [modern(item) for item in answer]
    return answer


async def use_pipelines(agent: Agent) -> tuple[list[Any], Callable[[Agent], Awaitable[Any]]]:
    pipeline = await agent["start_pipeline"]("site")
    seen = [deepcopy(await agent["get_pipeline"](pipeline))]  # the dict gives out itself, the store a copy
    await asyncio.gather(*(agent["step_done"](pipeline, f"step {number}") for number in range(10)))
    both = await agent["get_pipeline"](pipeline)
    seen.append({**both, "steps": sorted(both["steps"])})
    await agent["finish_pipeline"](pipeline)
    seen += [(await agent["get_pipeline"](pipeline))["status"], await agent["get_pipeline"]("nobody")]
    seen[2] = WORDS.get(seen[2], seen[2])
    with pytest.raises(KeyError):
        await agent["step_done"]("nobody", "step")
    return seen, lambda later: later["get_pipeline"](pipeline)


async def use_scans(agent: Agent) -> tuple[list[Any], Callable[[Agent], Awaitable[Any]]]:
    good, bad = [(await agent["start_scan"](target))["job_id"] for target in ("here", "")]

    async def is_over() -> bool:
        await asyncio.sleep(0)
        return not agent["running"]

    await wait_until(is_over)
    seen = [await agent["get_status"](job_id) for job_id in (good, bad, "nobody")]

    async def again(later: Agent) -> Any:
        answer, code = await later["get_status"](good)
        return answer if code == 200 else None

    return seen, again


async def use_runs(agent: Agent) -> tuple[list[Any], Callable[[Agent], Awaitable[Any]]]:
    await agent["begin_run"]("r1", "a plan")
    seen = [deepcopy(await agent["get_run"]("r1"))]
    with pytest.raises(ValueError, match="run r1 exists"):
        await agent["begin_run"]("r1", "another")
    await agent["checkpoint"]("r1", {"goal": "a plan", "node": "split", "parts": [1, {"deep": [None, True, 0.5]}]})
    seen.append(deepcopy(await agent["get_run"]("r1")))
    await agent["begin_run"]("r2", "more")
    await agent["end_run"]("r2", {"parts": 2})
    seen += [await agent["get_run"]("r2"), await agent["get_run"]("r3")]
    return seen, lambda later: later["get_run"]("r1")


async def use_conversations(agent: Agent) -> tuple[list[Any], Callable[[Agent], Awaitable[Any]]]:
    seen = [await agent["history"]("c")]
    await agent["add_message"]("c", "user", "hello")
    await agent["add_message"]("c", "assistant", "good day")
    seen.append(await agent["history"]("c"))
    await asyncio.gather(*(agent["add_message"]("d", "user", f"{number}") for number in range(8)))
    seen.append(sorted(message["text"] for message in await agent["history"]("d")))
    for number in range(55):
        await agent["add_message"]("e", "user", f"{number}")
    seen.append([message["text"] for message in await agent["history"]("e")])
    assert seen[-1] == [f"{number}" for number in range(5, 55)]

    async def again(later: Agent) -> Any:
        return await later["history"]("c") or None

    return seen, again


async def use_sessions(agent: Agent) -> tuple[list[Any], Callable[[Agent], Awaitable[Any]]]:
    sessions = agent["sessions"]
    kept, closed = [await call(sessions.open()) for _ in range(2)]
    seen = [await call(sessions.answers(kept))]
    seen.append([await call(sessions.answer(kept, question, text)) for question, text in (("name", "A"), ("age", "9"))])
    seen.append(await call(sessions.answers(kept)))
    seen.append([await call(sessions.close(closed)) for _ in range(2)])
    seen.append([await call(sessions.answers(closed)), await call(sessions.answer(closed, "name", "B"))])
    return seen, lambda later: call(later["sessions"].answers(kept))


async def use_artefacts(agent: Agent) -> tuple[list[Any], Callable[[Agent], Awaitable[Any]]]:
    made = []

    async def make() -> Any:
        made.append(1)
        return {"main.py": "print()\n", "number": len(made)}

    seen = [await agent["artefact"]("k", make) for _ in range(3)]
    seen.append(await agent["artefact"]("other", make))

    async def nothing() -> None:
        return None

    return seen, lambda later: later["artefact"]("k", nothing)


USES = {
    "Pipelines": use_pipelines,
    "Background scans": use_scans,
    "Workflow state": use_runs,
    "Conversations": use_conversations,
    "Sessions": use_sessions,
    "Artefact cache": use_artefacts,
}
