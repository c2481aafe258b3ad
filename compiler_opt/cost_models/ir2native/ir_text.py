"""Reads the functions of a module from LLVM's textual IR, as `opt -S -discard-value-names` prints it.

Only what the features need is read. Values are numbered (`%12`), an instruction begins a line with two spaces, and its
further lines are indented more. Strings, which may contain anything, are emptied first. The text is linear in the size
of the module, and so is reading it.
"""

import dataclasses
import re
from collections.abc import Iterator

Line = tuple[int, str, str]
"""Result (-1 for none), opcode, and what follows it, without metadata."""

_STRING = re.compile(r'"[^"]*"')
_INSTRUCTION = re.compile(r"  (?:%(\d+) = )?((?:tail |musttail |notail )?[a-z_]+)(.*)")
_LABEL = re.compile(r"(\d+):")
_NAME = re.compile(r'@("[^"]*"|[-\w$.]+)\(')
_GLOBAL = re.compile(r'@("[^"]*"|[-\w$.]+) = (.{0,200}?)(?:global|constant|alias|ifunc) ')
_DECLARE = re.compile(r'declare (.*?)@("[^"]*"|[-\w$.]+)\(')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2})")
_GROUP = re.compile(r"attributes (#\d+) = \{ (.*) \}")
_FLAG = re.compile(r'!\{i32 \d+, !"([^"]+)", i32 (\d+)\}')
_LOCAL = frozenset(("dso_local", "hidden", "internal", "private", "protected"))


@dataclasses.dataclass(frozen=True)
class Block:
    """A basic block: its label's number and its instructions."""

    label: int
    lines: list[Line]


@dataclasses.dataclass(frozen=True)
class Function:
    """A defined function.

    Attributes:
      name: of its symbol.
      header: the line that begins it, from `define` to `{`, with strings emptied.
      parameters: the texts of its parameters, types first.
      attributes: of the function, by their names; those of strings as `"name"="value"`.
      blocks: in order; the first is its entry.
    """

    name: str
    header: str
    parameters: list[str]
    attributes: frozenset[str]
    blocks: list[Block]


@dataclasses.dataclass(frozen=True)
class ModuleText:
    """What is read of a module.

    Attributes:
      functions: those that it defines, in order.
      local_names: of functions and variables, as written, that its own code reaches directly, without the global
        offset table.
      flags: integers among the module's flags, such as `PIC Level`.
    """

    functions: list[Function]
    local_names: frozenset[str]
    flags: dict[str, int]


def parse_module(text: str) -> ModuleText:
    """Reads a module; lines of a form that is not known are passed over."""
    groups: dict[str, frozenset[str]] = {}
    found: list[tuple[str, list[str]]] = []
    local: set[str] = set()
    flags: dict[str, int] = {}
    body: list[str] | None = None
    for line in text.split("\n"):
        if body is not None:
            if line == "}":
                body = None
            else:
                body.append(line)
        elif line.startswith("define "):
            body = []
            found.append((line, body))
        elif line.startswith("@"):
            # A variable's value may be huge; what matters comes first.
            match = _GLOBAL.match(line[:4096])
            if match and not _LOCAL.isdisjoint(match[2].split()):
                local.add(match[1])
        elif line.startswith("declare "):
            if (match := _DECLARE.match(line)) and not _LOCAL.isdisjoint(match[1].split()):
                local.add(match[2])
        elif line.startswith("attributes "):
            if match := _GROUP.match(line):
                groups[match[1]] = frozenset(match[2].split())
        elif line.startswith("!") and (match := _FLAG.search(line[:200])):
            flags[match[1]] = int(match[2])
    functions = []
    for header, lines in found:
        function = _function(header, lines, groups)
        if function is not None:
            functions.append(function)
            if not _LOCAL.isdisjoint(header.partition("@")[0].split()):
                local.update(match[1] for match in _NAME.finditer(header[:4096]))
    return ModuleText(functions, frozenset(local), flags)


def symbol_name(written: str) -> str:
    r"""The symbol of a name as the text writes it: `"a\20b"` is `a b`; a leading byte 1 is dropped."""
    if not written.startswith('"'):
        return written
    data = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), written[1:-1]).encode("latin-1", "replace")
    return data.decode("utf-8", "surrogateescape").removeprefix("\x01")


def without_strings(line: str) -> str:
    """The line with its strings, and names in quotes, emptied."""
    return _STRING.sub('""', line) if '"' in line else line


def _function(header: str, lines: list[str], groups: dict[str, frozenset[str]]) -> Function | None:
    match = _NAME.search(header)
    if match is None:
        return None
    parameters, end = _in_parentheses(header, match.end() - 1)
    tail = header[end:].split()
    attributes: set[str] = set()
    for word in tail:
        attributes |= groups.get(word, frozenset((word,)))
    return Function(
        symbol_name(match[1]),
        without_strings(header[: match.start()] + header[end:]),
        parameters,
        frozenset(attributes),
        list(_blocks(lines, len(parameters) - parameters.count("..."))),
    )


def _in_parentheses(text: str, start: int) -> tuple[list[str], int]:
    """The comma-separated parts within the parenthesis that opens at `start`, and the position behind it."""
    depth, begin, parts = 0, start + 1, []
    is_string = False
    for position in range(start, len(text)):
        letter = text[position]
        if letter == '"':
            is_string = not is_string
        elif is_string:
            continue
        elif letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            depth -= 1
            if depth == 0:
                parts.append(text[begin:position].strip())
                return [part for part in parts if part], position + 1
        elif letter == "," and depth == 1:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return [part for part in parts if part], len(text)


def split_operands(text: str) -> list[str]:
    """The comma-separated parts of a text, in which parentheses, brackets and braces group."""
    return _in_parentheses(f"({text})", 0)[0]


def arguments(text: str, start: int) -> list[str]:
    """The arguments within the parenthesis that opens at `start`."""
    return _in_parentheses(text, start)[0]


def _blocks(lines: list[str], entry: int) -> Iterator[Block]:
    """The blocks of a function's body; `entry` is the number of the first, whose label is not printed."""
    block = Block(entry, [])
    for line in lines:
        if line.startswith("  ") and line[2:3] not in " ]":
            match = _INSTRUCTION.match(without_strings(line))
            if match is not None:
                result = int(match[1]) if match[1] is not None else -1
                block.lines.append((result, match[2], match[3].partition(", !")[0].lstrip()))
        elif line.startswith("   "):
            further = without_strings(line).strip()
            if block.lines and not further.startswith("#dbg"):
                result, opcode, rest = block.lines[-1]
                block.lines[-1] = (result, opcode, f"{rest} {further}")
        elif match := _LABEL.match(line):
            if block.lines:
                yield block
            block = Block(int(match[1]), [])
    if block.lines:
        yield block
