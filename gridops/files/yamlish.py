"""Strict YAML 1.2 with places: bytes in, a tree of nodes and problems out. The only door to a YAML parser for reading.

Called by `load` and `format`. It reads events, never objects: no tag is resolved and no scalar is guessed at, so
`no` is a word, `22:22` is text and `0123` has four digits. Refused: several documents, directives, anchors, aliases,
tags, merge keys, keys given twice, keys that are not text, control characters, and whatever passes the bounds of
`base.limits`. The C parser does the work; without it the pure one reads the same, slower. Never raises for content.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from gridops.base import limits
from gridops.base.codes import Code
from gridops.base.codes import files as codes
from gridops.files.diagnose import Edit, Fix, Problem, Related, error
from gridops.files.nodes import Entry, Hole, Map, Node, Scalar, Seq, Source

try:
    from _ruamel_yaml import CParser  # type: ignore[import-not-found]
except ImportError:  # pragma: no cover - a platform without the C extension; the pure reader is tested by name
    CParser = None

_BAD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]|\r(?!\n)"
)
_COVER = "\ue000"
_INNER_COLON = re.compile(r"""(?<=[^\s"'\]}]):(?=[^\s,\[\]{}])""")
"""A colon inside a word: text in YAML 1.2 (`{at: 09:12:00}`), refused inside braces by the C parser, which is older."""
_SURROGATE = re.compile("[\ud800-\udfff]")
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
        builder = _Builder(source, list(problems), covered)
        try:
            builder.run(events)
        except YAMLError as refused:
            failure = refused
            continue
        if builder.root is None and not builder.problems:
            builder.problems.append(error(codes.EMPTY_FILE, source.spot(1, 1), "the file says nothing"))
        return Parsed(source, builder.root, builder.problems)
    if failure is not None:
        problems.append(_syntax(source, failure))
    return Parsed(source, None, problems)


def _attempts(text: str, pure: bool) -> Iterator[tuple[Iterator[Any], bool]]:
    """Events of the fast reader; when it refuses, again with inner colons covered; the slow one decides."""
    if not pure and CParser is not None:
        yield _c_events(text), False
        if _COVER not in text:
            covered = _INNER_COLON.sub(_COVER, text)
            if covered != text:
                yield _c_events(covered), True
    yield _pure_events(text), False


def _decode(file: str, raw: bytes) -> tuple[Source, str | None, list[Problem]]:
    """Text of a file, or None with the reason why it cannot be read at all."""
    empty = Source(file, ())
    if len(raw) > limits.YAML_FILE_BYTES:
        bound = limits.YAML_FILE_BYTES >> 20
        return empty, None, [error(codes.TOO_LARGE, empty.spot(1, 1), f"the file is larger than {bound} MiB")]
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
    found = _BAD.search(text)
    if found is None:
        return source, text, problems
    line, column = position(text, found.start())
    name = f"U+{ord(found.group()[0]):04X}"
    problems.append(error(codes.ODD_CHARACTER, source.spot(line, column), f"character {name} may not stand in a file"))
    return source, None, problems


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
    return error(codes.BAD_UTF8, source.spot(line, column), what, byte)


def _c_events(text: str) -> Iterator[Any]:
    parser = CParser(text.encode())
    take: Callable[[], Any] = parser.get_event
    while (event := take()) is not None:
        yield event


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
    tab = _indenting_tab(source, line)
    if tab is not None:
        return error(codes.TAB, source.spot(tab[0], tab[1]), "tab used for indentation", "use spaces")
    problem = (failure.problem or "cannot be read").replace("did not find expected", "expected")
    began = getattr(failure, "context_mark", None)
    related: tuple[Related, ...] = ()
    if began is not None and began.line + 1 != line and began.line < len(source.lines):
        label = (failure.context or "began here").replace("while ", "")
        related = (Related(source.spot(began.line + 1, began.column + 1), label),)
    hint = next((text for part, text in _HINTS.items() if part in problem), "")
    return error(codes.SYNTAX, source.spot(line, column), f"not YAML: {problem}", hint, related=related)


def _indenting_tab(source: Source, line: int) -> tuple[int, int] | None:
    """A tab before the first character of the line that the parser stopped at, or of the one before."""
    for number in (line, line - 1):
        text = source.line(number)
        lead = text[: len(text) - len(text.lstrip())]
        if "\t" in lead:
            return number, lead.index("\t") + 1
    return None


class _Stop(YAMLError):
    """A bound is passed: reading ends; the problem is already reported."""


class _Builder:
    """Turns events into nodes, one pass, no recursion."""

    def __init__(self, source: Source, problems: list[Problem], covered: bool) -> None:
        self.source = source
        self.problems = problems
        self.covered = covered
        self.root: Node | None = None
        self._stack: list[Map | Seq] = []
        self._keys: list[Scalar | Hole | None] = []
        self._count = 0

    def run(self, events: Iterator[Any]) -> None:
        documents = 0
        try:
            for event in events:
                kind = type(event).__name__
                if kind == "ScalarEvent":
                    self._scalar(event)
                elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                    self._open(event, kind == "MappingStartEvent")
                elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                    self._close(event)
                elif kind == "AliasEvent":
                    self._alias(event)
                elif kind == "DocumentStartEvent":
                    documents += 1
                    self._document(event, documents)
        except _Stop:
            self.root = None

    def _document(self, event: Any, number: int) -> None:
        mark = event.start_mark
        spot = self.source.spot(mark.line + 1, mark.column + 1, length=3)
        if event.version or event.tags:
            self.problems.append(error(codes.DIRECTIVE, self.source.spot(1, 1), "directives are not used here"))
        if number > 1:
            hint = "one file, one document"
            self.problems.append(error(codes.SEVERAL_DOCUMENTS, spot, "a second document begins", hint))
            raise _Stop

    def _scalar(self, event: Any) -> None:
        start, end = event.start_mark, event.end_mark
        value = event.value.replace(_COVER, ":") if self.covered else event.value
        node = Scalar(value, event.style or "", start.line + 1, start.column + 1, end.line + 1, end.column + 1)
        if event.anchor is not None or (event.tag is not None and event.tag):
            self._decorated(event, node)
        if node.style == '"' and (_BAD.search(node.value) or _SURROGATE.search(node.value)):
            self._report(codes.ODD_CHARACTER, node, "the text holds an invisible or control character")
        self._put(node)

    def _open(self, event: Any, is_map: bool) -> None:
        start = event.start_mark
        flow = bool(event.flow_style)
        node: Map | Seq = (Map if is_map else Seq)(flow, start.line + 1, start.column + 1)
        if event.anchor is not None or event.tag:
            self._decorated(event, node)
        self._put(node)
        self._stack.append(node)
        self._keys.append(None)
        if len(self._stack) > limits.YAML_DEPTH:
            self._too_much(node, f"nested deeper than {limits.YAML_DEPTH} levels")

    def _close(self, event: Any) -> None:
        node = self._stack.pop()
        self._keys.pop()
        if node.flow:
            end = event.end_mark
            node.end_line, node.end_column = end.line + 1, end.column + 1

    def _alias(self, event: Any) -> None:
        start, end = event.start_mark, event.end_mark
        node = Hole(start.line + 1, start.column + 1, end.line + 1, end.column + 1)
        self._report(codes.ANCHOR, node, f"alias `*{event.anchor}`", "write the value out")
        self._put(node)

    def _decorated(self, event: Any, node: Node) -> None:
        if event.anchor is not None:
            self._report(codes.ANCHOR, node, f"anchor `&{event.anchor}`", "write the value out where it is needed")
        if event.tag:
            name = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            self._report(codes.TAG, node, f"tag `{name}`", "the schema decides the type")

    def _put(self, node: Node) -> None:
        self._count += 1
        if self._count > limits.YAML_NODES:
            self._too_much(node, f"more than {limits.YAML_NODES} values in one file")
        if not self._stack:
            self.root = None if isinstance(node, Scalar) and node.is_null else node
            return
        parent = self._stack[-1]
        if isinstance(parent, Seq):
            parent.items.append(node)
            return
        key = self._keys[-1]
        if key is None:
            self._keys[-1] = self._key(node)
            return
        self._keys[-1] = None
        if isinstance(key, Scalar):
            self._entry(parent, key, node)

    def _key(self, node: Node) -> Scalar | Hole:
        """A key that may be used, or a hole whose value is passed over."""
        if isinstance(node, Scalar) and not node.style and node.value == "<<":
            self._report(codes.MERGE_KEY, node, "merge key `<<`", "write the fields out")
        elif isinstance(node, Scalar) and not node.is_null and node.value:
            return node
        elif not isinstance(node, Hole):
            self._report(codes.ODD_KEY, node, "a key must be plain text")
        return Hole(node.line, node.column, node.end_line, node.end_column)

    def _entry(self, parent: Map, key: Scalar, value: Node) -> None:
        first = parent.entries.get(key.value)
        if first is None:
            parent.entries[key.value] = Entry(key, value)
            return
        parent.repeated.append(Entry(key, value))
        since = first.key.line if key.line - first.key.line <= 2 else None
        self.problems.append(
            error(
                codes.DUPLICATE_KEY,
                self.source.place(key, since=since),
                f"field `{key.value}` is given twice",
                "YAML tools disagree about which one counts",
                related=(Related(self.source.place(first.key), "first here"),),
                fix=self._same_twice(parent, first, key, value),
            )
        )

    def _same_twice(self, parent: Map, first: Entry, key: Scalar, value: Node) -> Fix | None:
        """Removing a second line that says exactly what the first says is safe."""
        if parent.flow or not (isinstance(first.value, Scalar) and isinstance(value, Scalar)):
            return None
        one_line = key.line == value.end_line and self.source.line(key.line)[: key.column - 1].strip() == ""
        if first.value.value != value.value or not one_line:
            return None
        return Fix("remove the second", (Edit(key.line, 1, key.line + 1, 1, ""),))

    def _report(self, code: Code, node: Node, message: str, hint: str = "") -> None:
        self.problems.append(error(code, self.source.place(node), message, hint))

    def _too_much(self, node: Node, message: str) -> None:
        self._report(codes.TOO_LARGE, node, message)
        raise _Stop
