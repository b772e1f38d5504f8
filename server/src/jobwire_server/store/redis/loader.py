"""Loads the Lua scripts: resolves includes and writes the preamble that gives parameters and constants their names.

A line `--- @include lib/keys` at the head of a file puts that file (with its own includes) before it, once. The
preamble is generated from the declarations in `scripts` and `record`, so that a parameter's or field's name and type
stand in one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .record import INT

Declaration = Sequence[tuple[str, str]]

_INCLUDE = re.compile(r"^--- @include +(\S+) *$", re.MULTILINE)
_FOLDER = Path(__file__).parent / "lua"


class ScriptError(Exception):
    """A script that cannot be put together."""


def read_file(name: str) -> str:
    """The text of `lua/<name>.lua`."""
    path = _FOLDER / f"{name}.lua"
    if not path.is_file():
        raise ScriptError(f"no Lua file {name!r}")
    return path.read_text(encoding="utf-8")


def resolve(*names: str, read: Callable[[str], str] = read_file) -> str:
    """The files `names`, each after everything it includes, each file once, dependencies first.

    Raises `ScriptError` for a missing file, a cycle, or a file that includes another twice.
    """
    parts: list[str] = []
    done: set[str] = set()

    def visit(file: str, path: tuple[str, ...]) -> None:
        if file in path:
            raise ScriptError(f"include cycle: {' -> '.join((*path, file))}")
        if file in done:
            return
        text = read(file)
        includes = _INCLUDE.findall(text)
        if len(includes) != len(set(includes)):
            raise ScriptError(f"{file!r} includes a file twice")
        for include in includes:
            visit(include, (*path, file))
        done.add(file)
        parts.append(f"-- {file}\n{_INCLUDE.sub('', text).strip()}\n")

    for name in names:
        visit(name, ())
    return "\n".join(parts)


def preamble(
    params: Declaration,
    lists: Mapping[str, Declaration],
    constants: Mapping[str, int | Sequence[str]],
    texts: Mapping[str, Declaration],
) -> str:
    """Names for what a script is given.

    `params` become locals, read from ARGV in order. Then follow the `lists`, each as the number of its elements and
    their fields one after the other; each becomes a local list of tables. `constants` become locals; each of `texts`
    becomes `unpack_<name>(job, text)`, false for a text of another form, and `pack_<name>(job)`.
    """
    lines = ["local PREFIX = KEYS[1]"]
    for name, value in constants.items():
        lines.append(f"local {name} = {_literal(value)}")
    for index, (name, kind) in enumerate(params, start=1):
        lines.append(f"local {name} = {_typed(f'ARGV[{index}]', kind)}")
    lines.append(f"local at = {len(params) + 1}")
    for name, fields in lists.items():
        lines.append(f"local {name} = {{}}\nfor i = at + 1, at + ARGV[at] * {len(fields)}, {len(fields)} do")
        lines.append(f"  {name}[#{name} + 1] = {{")
        lines += [
            f"    {field} = {_typed(f'ARGV[i + {offset}]', kind)}," for offset, (field, kind) in enumerate(fields)
        ]
        lines.append(f"  }}\nend\nat = at + 1 + #{name} * {len(fields)}")
    for name, declaration in texts.items():
        lines.append(_text_functions(name, declaration))
    return "\n".join(lines) + "\n"


# Write commands, and what each pretends to answer in a rehearsal.
_WRITES = {
    **dict.fromkeys(("DEL", "HDEL", "HSET", "PEXPIREAT", "SET", "ZADD", "ZINCRBY", "ZREM", "ZREMRANGEBYSCORE"), "0"),
    "HINCRBY": "1",
    "INCR": "0",
    "INCRBY": "0",
    "PEXPIRE": "0",
    "PUBLISH": "false",
    "ZPOPMIN": "{}",
}


def rehearsed(body: str) -> str:
    """A script that runs `body` twice: first with a read of the key in the place of every write, then in earnest.

    On a cluster whose slot is moving, a key that is no longer here ends a script, and what it wrote before that stays
    half done. After the rehearsal every key was read, absent ones included, before the first write. EXISTS answers 0 in
    a rehearsal, as it will be answered when a collection has just lost its last member.
    """
    writes = ", ".join(f"{command} = {answer}" for command, answer in _WRITES.items())
    return f"""local WRITES = {{{writes}}}
local REHEARSAL = {{}}
function REHEARSAL.call(command, ...)
  local answer = WRITES[command]
  if answer == nil and command ~= "EXISTS" then
    return redis.call(command, ...)
  elseif command ~= "PUBLISH" then
    redis.call("EXISTS", (...))
  end
  return answer or 0
end
local function run(redis)
{body}
end
run(REHEARSAL)
return run(redis)
"""


def composed(verbs: Sequence[str]) -> str:
    """The end of a script made of verbs: runs `<verb>_all` of each, then the effects of all together.

    Answers what the verb answers; several verbs' answers in a list.
    """
    calls = [f"{verb}_all()" for verb in verbs]
    answer = calls[0] if len(calls) == 1 else f"{{ {', '.join(calls)} }}"
    return f"\nlocal composed_answer = {answer}\neffects.flush()\nreturn composed_answer\n"


def _text_functions(name: str, declaration: Declaration) -> str:
    names = [field for field, _ in declaration]
    pattern = "^" + "\\n".join(["([^\\n]*)"] * len(names)) + "$"
    return "\n".join(
        [
            f"local function unpack_{name}(job, text)",
            f'  local {", ".join(f"_{field}" for field in names)} = string.match(text or "", "{pattern}")',
            f"  if not _{names[0]} then",
            "    return false",
            "  end",
            *(f"  job.{field} = {_typed(f'_{field}', kind)}" for field, kind in declaration),
            "  return true",
            "end",
            f"local function pack_{name}(job)",
            f'  return table.concat({{{", ".join(f"job.{field}" for field in names)}}}, "\\n")',
            "end",
        ]
    )


def _typed(expression: str, kind: str) -> str:
    return f"tonumber({expression})" if kind == INT else expression


def _literal(value: int | Sequence[str]) -> str:
    if isinstance(value, int):
        return str(value)
    return _quoted(value) if isinstance(value, str) else f"{{ {', '.join(map(_quoted, value))} }}"


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\{byte:03d}" for byte in text.encode("latin-1")) + '"'
