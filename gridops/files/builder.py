"""Turns YAML events into nodes, one pass, no recursion, and refuses on the way what the house does not read.

Called by `yamlish` alone, with the events of either parser. This loop runs once per word of a repository, so its
common path is written flat; what is unusual goes through a method of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import events as yaml

from gridops.base import limits
from gridops.base.codes import Code
from gridops.base.codes import files as codes
from gridops.files.diagnose import Edit, Fix, Problem, Related, brief, error
from gridops.files.nodes import NULLS, Entry, Hole, Map, Node, Scalar, Seq, Source

COVER = "\ue000"
"""Stands for a colon that the C parser would trip over."""
UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]|\r(?!\n)"
)
"""Characters that show nothing or something else than they are."""
_NO_KEYS = frozenset({*NULLS, "<<"})


class _Stop(Exception):
    """A bound is passed: reading ends; the problem is already reported."""


class Builder:
    """One document in the making. `root` is None when nothing can be used."""

    def __init__(self, source: Source, problems: list[Problem], *, covered: bool = False) -> None:
        self.source = source
        self.problems = problems
        self.root: Node | None = None
        self._covered = covered
        self._stack: list[Map | Seq] = []
        self._keys: list[Scalar | Hole | None] = []
        self._count = 0

    def run(self, events: Iterator[Any]) -> None:
        """Read all events. Whatever is wrong lands in `problems`; only the parser's own errors pass through."""
        documents = 0
        try:
            for event in events:
                kind = event.__class__
                if kind is yaml.ScalarEvent:
                    start, end = event.start_mark, event.end_mark
                    style = event.style or ""
                    node = Scalar(event.value, style, start.line + 1, start.column + 1, end.line + 1, end.column + 1)
                    if style == '"' or self._covered or event.anchor is not None or event.tag:
                        self._put(self._unusual(event, node))
                        continue
                    self._put(node)
                elif kind is yaml.MappingStartEvent:
                    start = event.start_mark
                    self._open(event, Map(bool(event.flow_style), start.line + 1, start.column + 1))
                elif kind is yaml.SequenceStartEvent:
                    start = event.start_mark
                    self._open(event, Seq(bool(event.flow_style), start.line + 1, start.column + 1))
                elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                    self._close(event)
                elif kind is yaml.AliasEvent:
                    self._alias(event)
                elif kind is yaml.DocumentStartEvent:
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

    def _unusual(self, event: Any, node: Scalar) -> Scalar | Hole:
        """The node, or a hole in its place when its text cannot be taken at all."""
        if self._covered:
            node.value = node.value.replace(COVER, ":")
        self._decorated(event, node)
        if node.style == '"' and UNSEEN.search(node.value):
            self._report(
                codes.ODD_CHARACTER, node, "the text holds an invisible or control character", "write it without"
            )
            return Hole(node.line, node.column, node.end_line, node.end_column)
        return node

    def _open(self, event: Any, node: Map | Seq) -> None:
        if event.anchor is not None or event.tag:
            self._decorated(event, node)
        self._put(node)
        self._stack.append(node)
        self._keys.append(None)
        if len(self._stack) > limits.YAML_DEPTH:
            self._too_much(node, f"nested deeper than {limits.YAML_DEPTH} levels", "no file needs that")

    def _close(self, event: Any) -> None:
        node = self._stack.pop()
        self._keys.pop()
        if node.flow:
            end = event.end_mark
            node.end_line, node.end_column = end.line + 1, end.column + 1

    def _alias(self, event: Any) -> None:
        start, end = event.start_mark, event.end_mark
        node = Hole(start.line + 1, start.column + 1, end.line + 1, end.column + 1)
        if not (self._keys and isinstance(self._keys[-1], Hole)):
            # What stands at a refused key, such as `<<`, goes away with it.
            self._report(codes.ANCHOR, node, f"alias `*{brief(event.anchor)}`", "write the value out")
        self._put(node)

    def _decorated(self, event: Any, node: Node) -> None:
        if event.anchor is not None:
            self._report(
                codes.ANCHOR, node, f"anchor `&{brief(event.anchor)}`", "write the value out where it is needed"
            )
        if event.tag:
            name = str(event.tag).replace("tag:yaml.org,2002:", "!!").replace(COVER, ":")
            self._report(codes.TAG, node, f"tag `{brief(name)}`", "the schema decides the type")

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
            usable = isinstance(node, Scalar) and node.value and (node.style or node.value not in _NO_KEYS)
            self._keys[-1] = node if usable else self._refused_key(node)  # type: ignore[assignment]
            return
        self._keys[-1] = None
        if isinstance(key, Scalar):
            if key.value in parent.entries:
                self._repeated(parent, key, node)
            else:
                parent.entries[key.value] = Entry(key, node)

    def _refused_key(self, node: Node) -> Hole:
        """A hole whose value is passed over."""
        if isinstance(node, Scalar) and not node.style and node.value == "<<":
            self._report(codes.MERGE_KEY, node, "merge key `<<`", "write the fields out")
        elif not isinstance(node, Hole):
            self._report(codes.ODD_KEY, node, "a key must be plain text")
        return Hole(node.line, node.column, node.end_line, node.end_column)

    def _repeated(self, parent: Map, key: Scalar, value: Node) -> None:
        first = parent.entries[key.value]
        parent.repeated.append(Entry(key, value))
        since = first.key.line if key.line - first.key.line <= 2 else None
        self.problems.append(
            error(
                codes.DUPLICATE_KEY,
                self.source.place(key, since=since),
                f"field `{brief(key.value)}` is given twice",
                "remove one: YAML tools disagree about which one counts",
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

    def _too_much(self, node: Node, message: str, hint: str = "") -> None:
        self._report(codes.TOO_LARGE, node, message, hint)
        raise _Stop
