"""docs/migration.md keeps its word: before and after behave the same, and after survives a restart."""

from __future__ import annotations

import ast
import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.engines import Engine
from tests.jobstore.recipes import BLOCKS, PYTHON, ROOT, USES, WORDS, Agent, call, modern
from tests.wait import wait_until

pytestmark = pytest.mark.jobstore


class Modules:
    """Starts the modules of a test. Each start is a new module; `stop` lets go of its store."""

    def __init__(self) -> None:
        self._running: list[Agent] = []

    def start(self, source: str, **settings: object) -> Agent:
        agent: Agent = {"__name__": "agent"}
        exec(compile(source, "docs/migration.md", "exec"), agent)
        for name in settings:
            assert name in agent, f"the guide has no {name}"
        agent.update(settings)
        self._running.append(agent)
        return agent

    async def stop(self, agent: Agent) -> None:
        self._running.remove(agent)
        await asyncio.gather(*agent.get("running", ()))
        if "job_store" in agent:
            await agent["job_store"].close()

    async def stop_all(self) -> None:
        for agent in list(self._running):
            await self.stop(agent)


@asynccontextmanager
async def modules() -> AsyncIterator[Modules]:
    started = Modules()
    try:
        yield started
    finally:
        await started.stop_all()


@pytest.fixture(params=["memory", "redis"])
async def store_url(request: pytest.FixtureRequest, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where `make_job_store()` leads."""
    url = "memory://"
    if request.param == "redis":
        await engine.flush()
        url = engine.url
    monkeypatch.setenv("JOB_STORE_URL", url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "migrated")
    return url


def test_the_guide_has_every_recipe() -> None:
    assert {title for title, blocks in BLOCKS.items() if len(blocks) == 2} == set(USES)
    assert {title: len(blocks) for title, blocks in BLOCKS.items() if blocks and title not in USES} == {
        "Two writers": 1
    }
    assert set(WORDS.values()) == {"pending", "running", "succeeded", "failed", "cancelled"}


def test_every_link_of_the_guides_leads_somewhere() -> None:
    for page in ("migration.md", "jobstore.md"):
        text = (ROOT / "docs" / page).read_text()
        links = re.findall(r"\]\(([^)]+)\)", text)
        assert links
        for path, _, anchor in (link.partition("#") for link in links):
            target = ROOT / "docs" / path if path else ROOT / "docs" / page
            assert target.exists(), path
            if anchor:
                titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


async def test_the_reference_and_the_readme_run(store_url: str) -> None:
    short, lifespan = PYTHON.findall((ROOT / "docs" / "jobstore.md").read_text())
    [readme] = PYTHON.findall(
        (ROOT / "README.md").read_text().partition("## Job state for agents")[2].partition("\n## ")[0]
    )
    async with modules() as started:
        for source, job_id in ((short, "j1"), (readme, "scan-1")):
            agent = started.start("")
            code = compile(source, "docs", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            await call(eval(code, agent))
            record = await agent["job_store"].get(job_id)
            assert (record.status, record.result) == ("succeeded", {"pages": 12})
        agent = started.start(lifespan)
        async with agent["lifespan"](None):
            for job_id in ("scan/4f1c", "artefact/9a20"):
                await agent["job_store"].create(job_id, ttl_seconds=60)
            assert set(await agent["job_store"].list_ids()) == {"j1", "scan-1", "scan/4f1c", "artefact/9a20"}


@pytest.mark.parametrize("title", USES)
async def test_before_and_after_behave_the_same(title: str, store_url: str) -> None:
    before, after = BLOCKS[title]
    async with modules() as started:
        old, _ = await USES[title](started.start(before))
        new, _ = await USES[title](started.start(after))
        assert modern(old) == modern(new)


@pytest.mark.parametrize("title", USES)
@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
async def test_only_after_survives_a_restart(title: str, store_url: str) -> None:
    async with modules() as started:
        answers = []
        for source in BLOCKS[title]:
            agent = started.start(source)
            _, again = await USES[title](agent)
            known = modern(await again(agent))
            assert known is not None
            await started.stop(agent)
            answers.append((known, modern(await again(started.start(source)))))
        (_, forgotten), (known, remembered) = answers
        assert forgotten is None
        assert remembered == known


@pytest.mark.parametrize("source", BLOCKS["Conversations"], ids=["before", "after"])
async def test_a_conversation_lasts_while_it_is_used(source: str, store_url: str) -> None:
    """Reading alone renews it; left alone, it goes when its time is over and no earlier."""
    ttl = 2.0
    async with modules() as started:
        agent = started.start(source, TTL_SECONDS=ttl)
        await agent["add_message"]("c", "user", "hello")
        began = time.monotonic()
        while time.monotonic() < began + 1.25 * ttl:
            used = time.monotonic()
            assert len(await agent["history"]("c")) == 1
            await asyncio.sleep(0.2)  # the subject is a span of time
        if "job_store" in agent:
            # Looking on without using it.
            async def is_gone() -> bool:
                return not await agent["job_store"].exists("c")

            await wait_until(is_gone)
            assert time.monotonic() - used > ttl - 0.1
        else:
            await asyncio.sleep(ttl)
        assert await agent["history"]("c") == []


async def test_sessions_go_when_their_time_is_over(store_url: str) -> None:
    async with modules() as started:
        sessions = started.start(BLOCKS["Sessions"][1])["SessionStore"](ttl_seconds=1)
        session = await sessions.open()
        assert await sessions.answer(session, "name", "A")

        async def is_gone() -> bool:
            return await sessions.answers(session) is None

        await wait_until(is_gone)
        assert not await sessions.answer(session, "name", "B")


@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
async def test_two_replicas_give_out_one_artefact(store_url: str) -> None:
    both = asyncio.Barrier(2)

    async def make() -> str:
        await both.wait()  # both have missed before either stores
        return f"made by {asyncio.current_task()}"

    async with modules() as started:
        replicas = [started.start(BLOCKS["Artefact cache"][1]) for _ in range(2)]
        one, other = await asyncio.gather(*(replica["artefact"]("k", make) for replica in replicas))
        assert one == other


async def test_a_cache_does_without_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_STORE_URL", "unix:///nowhere/engine.sock")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "migrated")

    async def make() -> str:
        return "made"

    async with modules() as started:
        assert await started.start(BLOCKS["Artefact cache"][1])["artefact"]("k", make) == "made"


async def test_no_progress_undoes_a_cancel(store_url: str) -> None:
    [source] = BLOCKS["Two writers"]
    async with modules() as started:
        worker, other = started.start(source), started.start(source)
        for number in range(8):
            job_id = f"j{number}"
            await worker["job_store"].create(job_id, ttl_seconds=60)

            async def work(job_id: str = job_id) -> int:
                done = 0
                while await worker["progress"](job_id, done):
                    done += 1
                    await asyncio.sleep(0)  # a dict never gives way by itself
                return done

            working = asyncio.create_task(work())

            async def is_running(job_id: str = job_id) -> bool:
                return (await other["job_store"].get(job_id)).status == "running"  # type: ignore[no-any-return]

            await wait_until(is_running)
            assert await other["cancel"](job_id)
            async with asyncio.timeout(20):
                done = await working
            assert not await other["cancel"](job_id)
            record = await other["job_store"].get(job_id)
            assert (record.status, record.payload) == ("cancelled", {"done": done - 1})
