"""Formats one file: canonical layout, comments kept, meaning proved unchanged before anything is handed out.

Called by `gridops fmt`. A file with a problem in its text is not touched; a layout that cannot be rewritten safely is
kept, and said so. Formatting twice is the same as formatting once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gridops.base.errors import Bug
from gridops.files.diagnose import Problem
from gridops.files.kinds import KINDS
from gridops.files.layout import Keep, lay_out
from gridops.files.nodes import Map, Node, Scalar, Seq
from gridops.files.shape import Block, ListOf, MapOf, Shape
from gridops.files.yamlish import parse


@dataclass(frozen=True, slots=True)
class Formatted:
    """The text in canonical layout. `kept` says why a layout was left alone; `problems` why the file was not read."""

    text: str
    problems: tuple[Problem, ...] = ()
    kept: str = ""


def format_text(file: str, raw: bytes) -> Formatted:
    """Format a file. Never raises for content."""
    parsed = parse(file, raw)
    if parsed.root is None or parsed.problems:
        text = raw.decode("utf-8", errors="replace")
        return Formatted(text, tuple(parsed.problems))
    text = "\n".join(parsed.source.lines)
    shape = _shape(parsed.root)
    try:
        made = lay_out(parsed.source, parsed.root, shape)
    except Keep as why:
        return Formatted(_ended(text), kept=str(why))
    again = parse(file, made.encode())
    if again.root is None or _ink(made) != _ink(text) or not _same(parsed.root, again.root, shape):
        return Formatted(_ended(text), kept="its meaning would change")
    return Formatted(made)


def prove_stable(file: str, formatted: Formatted) -> None:
    """Formatting what was formatted changes nothing. Raises Bug; for tests and for `fmt --check` of ours."""
    if not formatted.problems and format_text(file, formatted.text.encode()).text != formatted.text:
        raise Bug(f"{file}: formatting twice is not the same as formatting once")


def _ink(text: str) -> Counter[str]:
    """Everything that is not white: layout moves it and never adds or loses any, comments included."""
    return Counter("".join(text.split()))


def _ended(text: str) -> str:
    return text.rstrip("\n") + "\n"


def _shape(root: Node) -> Shape | None:
    kind = root.entries.get("kind") if isinstance(root, Map) else None
    named = KINDS.get(kind.value.value) if kind is not None and isinstance(kind.value, Scalar) else None
    return named.shape if named is not None else None


def _same(left: Node, right: Node, shape: Shape | None) -> bool:
    """Equal in meaning. Order counts in lists and in maps with free keys, not among the fields of a block."""
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        return left.value == right.value and left.is_null == right.is_null
    if isinstance(left, Seq) and isinstance(right, Seq):
        inner = shape.item if isinstance(shape, ListOf) else None
        pairs = zip(left.items, right.items, strict=False)
        return len(left.items) == len(right.items) and all(_same(a, b, inner) for a, b in pairs)
    if isinstance(left, Map) and isinstance(right, Map):
        if left.entries.keys() != right.entries.keys():
            return False
        if not isinstance(shape, Block) and list(left.entries) != list(right.entries):
            return False
        return all(_same(e.value, right.entries[k].value, _inner(shape, k)) for k, e in left.entries.items())
    return False


def _inner(shape: Shape | None, key: str) -> Shape | None:
    if isinstance(shape, Block):
        known = shape.fields.get(key)
        inner = known.shape if known is not None else None
        return getattr(inner, "block", inner)
    return shape.value if isinstance(shape, MapOf) else None
