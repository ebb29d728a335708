"""Strict YAML 1.2 with places: bytes in, a tree of nodes and problems out. The only door to a YAML parser for reading.

Called by `load` and `format`. It reads events, never objects: no tag is resolved and no scalar is guessed at, so
`no` is a word, `22:22` is text and `0123` has four digits. Refused: several documents, directives, anchors, aliases,
tags, merge keys, keys given twice, keys that are not text, control characters, and whatever passes the bounds of
`base.limits`. The C parser does the work; without it the pure one reads the same, slower. Never raises for content.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from gridops.base import limits
from gridops.base.codes import files as codes
from gridops.files.builder import COVER, UNSEEN, Builder
from gridops.files.diagnose import Fix, Problem, Related, error
from gridops.files.nodes import Node, Source

try:
    from _ruamel_yaml import CParser  # type: ignore[import-not-found]
except ImportError:  # pragma: no cover - a platform without the C extension; the pure reader is tested by name
    CParser = None

_BEGAN = {
    "flow sequence": "this list",
    "flow mapping": "this map",
    "block mapping": "this map",
    "block collection": "this list",
    "quoted scalar": "this quote",
    "simple key": "this key",
    "plain scalar": "this text",
}
_INNER_COLON = re.compile(r"""(?<=[^\s"'\]}]):(?=[^\s,\[\]{}])""")
"""A colon inside a word: text in YAML 1.2 (`{at: 09:12:00}`), refused inside braces by the C parser, which is older."""
_ODD_SPACE = "\u00a0\u1680\u2000-\u200d\u202f\u205f\u2060\u3000"
_ODD_INDENT = re.compile(f"(?m)^[ \t]*([{_ODD_SPACE}])")
"""Spaces that are none to YAML: they would become part of the first word."""
_CONFLICT = re.compile(r"(?:<{7}|={7}|>{7}|\|{7})(?: .*)?")
_HINTS = {
    "mapping values are not allowed": "a value that contains `: ` needs quotes",
    "cannot start any token": "a value that begins with this character needs quotes",
    "expected node content": "a bracket or brace was not closed",
    "expected the node content": "a bracket or brace was not closed",
    "expected ',' or": "a comma is missing, or the bracket was not closed",
    "unexpected end of stream": "a quote was not closed",
    "expected key": "is the indentation that of its neighbours?",
    "expected <block end>": "is the indentation that of its neighbours?",
    "could not find expected ':'": "a colon and a space are missing after the key",
}


class Parsed:
    """One file as read: its lines, its root (None when nothing can be used) and what is wrong with the text."""

    __slots__ = ("problems", "root", "source")

    def __init__(self, source: Source, root: Node | None, problems: list[Problem]) -> None:
        self.source = source
        self.root = root
        self.problems = problems


def parse(file: str, raw: bytes, *, pure: bool = False) -> Parsed:
    """Read one file. Every recoverable problem is reported and reading goes on; a syntax error ends the file."""
    source, text, problems = _decode(file, raw)
    if text is None:
        return Parsed(source, None, problems)
    failure: YAMLError | None = None
    for events, covered in _attempts(text, pure):
        builder = Builder(source, list(problems), covered=covered)
        try:
            builder.run(events)
        except YAMLError as refused:
            failure = refused
            continue
        if builder.root is None and not builder.problems:
            hint = "write what it declares, or delete it"
            builder.problems.append(error(codes.EMPTY_FILE, source.spot(1, 1), "the file says nothing", hint))
        return Parsed(source, builder.root, builder.problems)
    if failure is not None:
        problems.append(_syntax(source, failure))
    return Parsed(source, None, problems)


def _attempts(text: str, pure: bool) -> Iterator[tuple[Iterator[Any], bool]]:
    """Events of the fast reader; again with inner colons covered; for a short file, of the slow one, which decides."""
    fast = not pure and CParser is not None
    if fast:
        yield _c_events(text), False
        covered = _INNER_COLON.sub(COVER, text)
        if covered != text and COVER not in text:
            yield _c_events(covered), True
    if not fast or len(text) <= limits.YAML_SECOND_OPINION_CHARS:
        yield _pure_events(text), False


def _decode(file: str, raw: bytes) -> tuple[Source, str | None, list[Problem]]:
    """Text of a file, or None with the reason why it cannot be read at all."""
    empty = Source(file, ())
    if len(raw) > limits.YAML_FILE_BYTES:
        bound = limits.YAML_FILE_BYTES >> 20
        hint = "split it: every *.yaml in the folder is read"
        return empty, None, [error(codes.TOO_LARGE, empty.spot(1, 1), f"the file is larger than {bound} MiB", hint)]
    problems: list[Problem] = []
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as failure:
        return empty, None, [_not_utf8(file, raw, failure)]
    if text.startswith("\ufeff"):
        text = text[1:]
        source = Source(file, _lines(text))
        fix = Fix("remove the mark", ())
        problems.append(error(codes.BOM, source.spot(1, 1), "the file begins with a byte order mark", fix=fix))
    source = Source(file, _lines(text))
    odd = [_odd(source, text, at) for at in _unseen(text)]
    return source, None if odd else text, problems + odd


def _unseen(text: str) -> Iterator[int]:
    """Offsets of characters that show something else than they are: the first of each line."""
    line_end = -1
    for found in UNSEEN.finditer(text):
        if found.start() > line_end:
            yield found.start()
            line_end = text.find("\n", found.start())
            if line_end < 0:
                break
    if not text.isascii():
        yield from (found.start(1) for found in _ODD_INDENT.finditer(text))


def _odd(source: Source, text: str, at: int) -> Problem:
    line, column = position(text, at)
    name = f"U+{ord(text[at]):04X}"
    message, hint = f"character {name} may not stand in a file", "delete it and type the text again"
    if text[at] == "\r":
        message, hint = "a carriage return stands alone", "let lines end with LF, or with CR LF"
    elif re.match(f"[{_ODD_SPACE}]", text[at]):
        message, hint = f"character {name} is used for indentation", "use spaces"
    return error(codes.ODD_CHARACTER, source.spot(line, column), message, hint)


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.removesuffix("\r") for line in text.split("\n"))


def _not_utf8(file: str, raw: bytes, failure: UnicodeDecodeError) -> Problem:
    before = raw[: failure.start].decode("utf-8")
    line, column = position(before, len(before))
    source = Source(file, _lines(raw.decode("utf-8", errors="replace").replace("\x00", "\ufffd")))
    what = "the file is UTF-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "the file is not UTF-8"
    byte = f"byte 0x{raw[failure.start]:02x} is not part of a character"
    return error(codes.BAD_UTF8, source.spot(line, column), f"{what}: {byte}", "save it as UTF-8")


def _c_events(text: str) -> Iterator[Any]:
    return iter(CParser(text.encode()).get_event, None)


def _pure_events(text: str) -> Iterator[Any]:
    yaml = YAML(typ="safe", pure=True)
    yield from yaml.parse(io.StringIO(text))


def _syntax(source: Source, failure: YAMLError) -> Problem:
    """The parser's own complaint, said so that it helps."""
    mark = getattr(failure, "problem_mark", None) or getattr(failure, "context_mark", None)
    if not isinstance(failure, MarkedYAMLError) or mark is None:
        return error(codes.SYNTAX, source.spot(1, 1), f"not YAML: {str(failure).splitlines()[0]}")
    line = min(mark.line + 1, max(len(source.lines), 1))
    column = mark.column + 1 if line == mark.line + 1 else len(source.line(line)) + 1
    conflict = next((n for n, text in enumerate(source.lines, start=1) if _CONFLICT.fullmatch(text)), None)
    if conflict is not None:
        spot = source.spot(conflict, 1, length=7)
        return error(codes.SYNTAX, spot, "not YAML: a merge conflict was left here", "keep one side, remove the marks")
    tab = _indenting_tab(source, line)
    if tab is not None:
        return error(codes.TAB, source.spot(tab[0], tab[1]), "tab used for indentation", "use spaces")
    problem = (failure.problem or "cannot be read").replace("did not find expected", "expected")
    began = getattr(failure, "context_mark", None)
    related: tuple[Related, ...] = ()
    if began is not None and began.line + 1 != line and began.line < len(source.lines):
        label = next((word for part, word in _BEGAN.items() if part in (failure.context or "")), "began here")
        related = (Related(source.spot(began.line + 1, began.column + 1), label),)
    hint = next((text for part, text in _HINTS.items() if part in problem), "")
    if "mapping values are not allowed" in problem and ":" not in source.line(line)[: column - 1]:
        # The first colon of its line is no part of a value: the line stands deeper than the map that it belongs to.
        hint = _HINTS["expected key"]
    return error(codes.SYNTAX, source.spot(line, column), f"not YAML: {problem}", hint, related=related)


def _indenting_tab(source: Source, line: int) -> tuple[int, int] | None:
    """A tab before the first character of the line that the parser stopped at, or of the one before."""
    for number in (line, line - 1):
        text = source.line(number)
        lead = text[: len(text) - len(text.lstrip())]
        if "\t" in lead:
            return number, lead.index("\t") + 1
    return None
