"""The include loader and the preamble it writes."""

from __future__ import annotations

import pytest
from jobwire_server.store.redis.loader import ScriptError, preamble, resolve
from jobwire_server.store.redis.record import INT, STR

from tests.engines import Engine


def test_a_file_comes_once_and_after_what_it_includes() -> None:
    files = {
        "verb": "--- @include a\n--- @include b\nverb()",
        "a": "--- @include base\na()",
        "b": "--- @include base\nb()",
        "base": "base()",
    }

    text = resolve("verb", files.__getitem__)

    assert [line for line in text.splitlines() if line.endswith("()")] == ["base()", "a()", "b()", "verb()"]
    assert "@include" not in text


def test_a_cycle_is_named() -> None:
    files = {"a": "--- @include b", "b": "--- @include c", "c": "--- @include a"}

    with pytest.raises(ScriptError, match="a -> b -> c -> a"):
        resolve("a", files.__getitem__)


def test_a_file_that_includes_itself_is_a_cycle() -> None:
    with pytest.raises(ScriptError, match="a -> a"):
        resolve("a", {"a": "--- @include a"}.__getitem__)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ScriptError, match="'lib/nowhere'"):
        resolve("lib/nowhere")


def test_an_include_given_twice_is_refused() -> None:
    files = {"a": "--- @include b\n--- @include b", "b": ""}

    with pytest.raises(ScriptError, match="twice"):
        resolve("a", files.__getitem__)


async def test_parameters_items_and_texts_arrive_by_name_and_type(engine: Engine) -> None:
    head = preamble(
        params=(("count", INT), ("title", STR)),
        item=(("size", INT), ("name", STR)),
        constants={"LIMIT": 7, "MARK": 'a"\n\\'},
        texts={"note": (("number", INT), ("text", STR))},
    )
    body = """
        local note = {}
        unpack_note(note, "5\\nfive")
        note.number = note.number + 1
        return {count + LIMIT, title, MARK, items[2].size + 1, items[2].name, #items, pack_note(note), PREFIX}
    """

    async with engine.client() as client:
        answer = await client.eval(head + body, 1, "k:", "3", "t", "10", "x", "20", "y")

    assert answer == [10, b"t", b'a"\n\\', 21, b"y", 2, b"6\nfive", b"k:"]
