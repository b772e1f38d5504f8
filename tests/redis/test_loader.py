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

    text = resolve("verb", read=files.__getitem__)

    assert [line for line in text.splitlines() if line.endswith("()")] == ["base()", "a()", "b()", "verb()"]
    assert "@include" not in text


def test_a_cycle_is_named() -> None:
    files = {"a": "--- @include b", "b": "--- @include c", "c": "--- @include a"}

    with pytest.raises(ScriptError, match="a -> b -> c -> a"):
        resolve("a", read=files.__getitem__)


def test_a_file_that_includes_itself_is_a_cycle() -> None:
    with pytest.raises(ScriptError, match="a -> a"):
        resolve("a", read={"a": "--- @include a"}.__getitem__)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ScriptError, match="'lib/nowhere'"):
        resolve("lib/nowhere")


def test_an_include_given_twice_is_refused() -> None:
    files = {"a": "--- @include b\n--- @include b", "b": ""}

    with pytest.raises(ScriptError, match="twice"):
        resolve("a", read=files.__getitem__)


async def test_parameters_items_and_texts_arrive_by_name_and_type(engine: Engine) -> None:
    head = preamble(
        params=(("count", INT), ("title", STR)),
        lists={"items": (("size", INT), ("name", STR)), "others": (("name", STR),)},
        constants={"LIMIT": 7, "MARK": 'a"\n\\'},
        texts={"note": (("number", INT), ("text", STR))},
    )
    body = """
        local note = {}
        unpack_note(note, "5\\nfive")
        note.number = note.number + 1
        local second, other = items[2], others[1].name
        return {count + LIMIT, title, MARK, second.size + 1, second.name, #items, other, pack_note(note), PREFIX}
    """

    async with engine.client() as client:
        answer = await client.eval(head + body, 1, "k:", "3", "t", "2", "10", "x", "20", "y", "1", "z")

    assert answer == [10, b"t", b'a"\n\\', 21, b"y", 2, b"z", b"6\nfive", b"k:"]
