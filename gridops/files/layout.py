"""The canonical layout of a file: two spaces a level, one space after a colon, fields in schema order within a group.

Called by `fmt`. Works from the places of nodes and writes the words as they stand: quotes, numbers and comments are
never rewritten. A group ends at a blank line or a comment, and nothing moves out of its group. A construct that this
layout does not know raises `Keep`, and the file stays as its author wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gridops.files.nodes import Entry, Hole, Map, Node, Scalar, Seq, Source
from gridops.files.shape import Block, ListOf, MapOf, Shape

STEP = 2
GAP = 2
"""Spaces between code and a comment behind it, at least."""
_MARKER = re.compile(r"---\s*(#.*)?|\.\.\.\s*")


class Keep(Exception):
    """The layout of this file is left alone; the message says why."""


@dataclass(slots=True)
class Chunk:
    """Lines of one entry in the new layout, the last line it took in the old one, and the levels open at its end."""

    lines: list[str]
    last: int
    levels: list[tuple[int, int]] = field(default_factory=list)
    """(old column, new indent) from the outermost on; comments that follow are placed by them."""


def lay_out(source: Source, root: Node, shape: Shape | None) -> str:
    """The whole file in canonical layout. Raises Keep."""
    layout = _Layout(source)
    if isinstance(root, Map) and not root.flow:
        chunk = layout.block_map(root, 0, shape, after=0, is_root=True)
    else:
        chunk = layout.value(root, 0, 0)
        chunk.lines = [*layout.trivia(1, root.line - 1, (0, 0), []), *chunk.lines]
    tail = layout.trivia(chunk.last + 1, len(source.lines), (0, 0), chunk.levels)
    return "\n".join(_calm([*chunk.lines, *tail])) + "\n"


def _calm(lines: Sequence[str]) -> list[str]:
    """No blank line at the ends. (Runs of blank lines are cut where they are read.)"""
    made = list(lines)
    while made and not made[0].strip():
        made.pop(0)
    while made and not made[-1].strip():
        made.pop()
    return made


class _Layout:
    def __init__(self, source: Source) -> None:
        self.source = source

    # What stands between entries

    def trivia(self, first: int, last: int, here: tuple[int, int], levels: list[tuple[int, int]]) -> list[str]:
        """Blank lines and comments from `first` to `last`. `here` is (old column, new indent) of what follows."""
        made: list[str] = []
        for number in range(first, last + 1):
            text = self.source.line(number)
            bare = text.strip()
            if not bare:
                if not made or made[-1]:
                    made.append("")
            elif bare.startswith("#"):
                made.append(" " * _comment_indent(text, here, levels) + bare)
            elif _MARKER.fullmatch(text):
                made.append(bare)
            else:
                raise Keep(f"line {number} is laid out in a way that is not rewritten")
        return made

    # Blocks

    def block_map(self, node: Map, indent: int, shape: Shape | None, *, after: int, is_root: bool = False) -> Chunk:
        """A map in block style; `after` is the last line that is already written."""
        groups: list[list[tuple[str, list[str], Chunk]]] = []
        last, levels = after, [(node.column - 1, indent)]
        for entry in node.entries.values():
            if self.source.line(entry.key.line)[: entry.key.column - 1].strip() not in ("", "-"):
                raise Keep(f"line {entry.key.line} holds more than one entry")
            before = self.trivia(last + 1, entry.key.line - 1, (entry.key.column - 1, indent), levels)
            chunk = self.entry(entry, indent, _below(shape, entry.key.value))
            if before or not groups:
                groups.append([])
            groups[-1].append((entry.key.value, before, chunk))
            last = chunk.last
            levels = [(node.column - 1, indent), *chunk.levels]
        lines: list[str] = []
        for number, group in enumerate(groups):
            for _, before, chunk in _in_order(group, shape, is_top=is_root and number == 0):
                lines += [*before, *chunk.lines]
        return Chunk(lines, last, levels)

    def block_seq(self, node: Seq, indent: int, shape: Shape | None, *, after: int) -> Chunk:
        lines: list[str] = []
        last, levels = after, [(node.column - 1, indent)]
        item_shape = shape.item if isinstance(shape, ListOf) else None
        for item in node.items:
            lead = self.source.line(item.line)[: item.column - 1]
            if lead.strip() != "-":
                raise Keep(f"line {item.line} is laid out in a way that is not rewritten")
            here = (lead.index("-"), indent)
            lines += self.trivia(last + 1, item.line - 1, here, levels)
            chunk = self._item(item, indent, item_shape)
            lines += chunk.lines
            last = chunk.last
            levels = [(lead.index("-"), indent), *chunk.levels]
        return Chunk(lines, last, levels)

    def _item(self, item: Node, indent: int, shape: Shape | None) -> Chunk:
        if isinstance(item, Map) and not item.flow:
            chunk = self.block_map(item, indent + STEP, shape, after=item.line - 1)
        elif isinstance(item, Seq) and not item.flow:
            raise Keep("a list directly inside a list")
        else:
            chunk = self.value(item, indent + STEP, item.column - 1)
            chunk.lines[0] = " " * (indent + STEP) + chunk.lines[0]
            if item.line == item.end_line:
                chunk.lines[0] = self.with_comment(chunk.lines[0], item.line, item.end_column - 1)
        chunk.lines[0] = " " * indent + "- " + chunk.lines[0][indent + STEP :]
        return chunk

    def entry(self, entry: Entry, indent: int, shape: Shape | None) -> Chunk:
        """`key: value`, with what hangs below it."""
        key, value = entry.key, entry.value
        head = " " * indent + self.raw(key) + ":"
        line = self.source.line(key.line)
        rest = re.match(r"\s*:", line[key.end_column - 1 :])
        if rest is None or key.line != key.end_line:
            raise Keep(f"line {key.line}: the key and its colon are apart")
        after = key.end_column - 1 + rest.end()
        if isinstance(value, Map | Seq) and not value.flow:
            head = self.with_comment(head, key.line, after)
            if isinstance(value, Map):
                chunk = self.block_map(value, indent + STEP, shape, after=key.line)
            else:
                chunk = self.block_seq(value, indent + STEP, shape, after=key.line)
            chunk.lines.insert(0, head)
            return chunk
        if isinstance(value, Scalar) and not value.style and value.value == "":
            return Chunk([self.with_comment(head, key.line, after)], key.line)
        if value.line != key.line and (value.line != key.line + 1 or line[after:].strip()):
            raise Keep(f"line {key.line}: the value is apart from its key")
        old_indent = len(line) - len(line.lstrip())
        chunk = self.value(value, indent, old_indent)
        chunk.lines[0] = f"{head} {chunk.lines[0]}"
        if chunk.last == value.line and len(chunk.lines) == 1:
            end = value.end_column - 1
            chunk.lines[0] = self.with_comment(chunk.lines[0], value.line, end)
        return chunk

    # Values in a line or over several

    def value(self, node: Node, indent: int, old_indent: int) -> Chunk:
        """A scalar or a flow value; its first line without indentation."""
        if isinstance(node, Hole):
            raise Keep("an alias")
        if isinstance(node, Scalar) and node.style in ("|", ">"):
            return self._literal(node, indent, old_indent)
        if node.line == node.end_line:
            return Chunk([self.flow(node)], node.line)
        shift = indent - old_indent
        first = self.source.line(node.line)[node.column - 1 :].rstrip()
        lines = [first]
        for number in range(node.line + 1, node.end_line + 1):
            text = self.source.line(number)
            bare = text.strip()
            lines.append(" " * max(len(text) - len(text.lstrip()) + shift, 0) + bare if bare else "")
        return Chunk(lines, node.end_line)

    def _literal(self, node: Scalar, indent: int, old_indent: int) -> Chunk:
        """Block text: every line moves by the same distance; blanks at the end of a line are content."""
        header = self.source.line(node.line)[node.column - 1 :]
        if "+" in header.partition("#")[0]:
            raise Keep("block text that keeps its last blank lines")
        last = node.end_line if node.end_column > 1 else node.end_line - 1
        while last > node.line and not self.source.line(last).strip():
            last -= 1
        shift = indent - old_indent
        lines = [header.rstrip()]
        for number in range(node.line + 1, last + 1):
            text = self.source.line(number)
            width = len(text) - len(text.lstrip(" "))
            lines.append(" " * max(width + shift, 0) + text[width:] if text.strip() else "")
        return Chunk(lines, last)

    def flow(self, node: Node) -> str:
        """A value of one line in canonical spacing."""
        if isinstance(node, Scalar):
            return self.raw(node)
        if isinstance(node, Seq):
            return "[" + ", ".join(self.flow(item) for item in node.items) + "]"
        if isinstance(node, Map):
            return "{" + ", ".join(self._pair(entry) for entry in node.entries.values()) + "}"
        raise Keep("an alias")

    def _pair(self, entry: Entry) -> str:
        if isinstance(entry.value, Scalar) and entry.value.is_null and entry.value.value == "":
            raise Keep(f"line {entry.key.line}: a key without a value inside braces")
        return f"{self.raw(entry.key)}: {self.flow(entry.value)}"

    def raw(self, node: Scalar) -> str:
        return self.source.line(node.line)[node.column - 1 : node.end_column - 1]

    def with_comment(self, code: str, line: int, end: int) -> str:
        """Code with the comment that stood behind it, in its old column where that is free."""
        rest = self.source.line(line)[end:]
        bare = rest.strip()
        if not bare:
            return code
        if not bare.startswith("#") or not rest[:1].isspace():
            raise Keep(f"line {line} is laid out in a way that is not rewritten")
        column = end + len(rest) - len(rest.lstrip())
        return code + " " * max(column - len(code), GAP) + bare


def _comment_indent(text: str, here: tuple[int, int], levels: list[tuple[int, int]]) -> int:
    """A comment keeps company with what starts in its column: the next entry, or a level that is still open."""
    column = len(text) - len(text.lstrip())
    if column == here[0]:
        return here[1]
    for old, new in reversed(levels):
        if old <= column and old > here[0]:
            return new
    return here[1]


def _below(shape: Shape | None, key: str) -> Shape | None:
    if isinstance(shape, Block):
        known = shape.fields.get(key)
        inner = known.shape if known is not None else None
        return getattr(inner, "block", inner)
    return shape.value if isinstance(shape, MapOf) else None


def _in_order(
    group: list[tuple[str, list[str], Chunk]], shape: Shape | None, *, is_top: bool
) -> list[tuple[str, list[str], Chunk]]:
    """A group in the order of the schema; a comment above it stays above it, and forbids a new first entry."""
    if not isinstance(shape, Block) or any(name not in shape.fields for name, _, _ in group):
        return group
    order = {name: place for place, name in enumerate(shape.fields)}
    made = sorted(group, key=lambda part: order[part[0]])
    before = group[0][1]
    above = any(line.lstrip().startswith("#") for line in before)
    if made[0] is not group[0] and above and not is_top:
        return group
    if made[0] is not group[0]:
        first, old = made[0], group[0]
        moved = (first[0], before, first[2])
        made = [moved, *((old[0], [], old[2]) if part is old else part for part in made[1:])]
    return made
