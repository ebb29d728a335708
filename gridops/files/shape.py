"""The language in which a schema is declared: one shape per form that a value can have.

`kinds` declares every field once with these: its name, its form, where it goes in the model and what it means. From
that one declaration come reading with places (here), the records of `model` (`build`) and the JSON Schemas (`export`).
A shape reads a node into a value or reports a problem and answers BAD; it never raises and knows no other file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gridops.base.codes import Code
from gridops.base.codes import files as codes
from gridops.files import near
from gridops.files.diagnose import Fix, Related, brief, error, has_errors
from gridops.files.nodes import Entry, Map, Node, Scalar, Seq
from gridops.files.reader import BAD, Reader, expose, replace, wrong_shape


class Shape(ABC):
    """A form of value. `word` completes the sentence "expected ..."."""

    word = "a value"

    @abstractmethod
    def read(self, node: Node, reader: Reader) -> Any:
        """The typed value of a node, or BAD after reporting why there is none."""

    def build(self, value: Any, reader: Reader) -> Any:
        """The value as the model wants it, or BAD."""
        return value

    @abstractmethod
    def export(self) -> dict[str, Any]:
        """The shape as JSON Schema (draft-07)."""

    def show(self, value: Any) -> Any:
        """A model value as people would write it; for defaults in schemas. None when it cannot be shown."""
        return value


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a block.

    `to` names the model's attribute when it differs; `*` spreads a built mapping over several attributes, `-` builds
    nothing. `lacking` is the code of a required field that is missing; None when somebody else reports it.
    """

    name: str
    shape: Shape
    doc: str
    to: str = ""
    required: bool = False
    lacking: Code | None = codes.MISSING_FIELD

    @property
    def target(self) -> str:
        return self.to or self.name


@dataclass(slots=True)
class Read:
    """A block as read. `entries` tells where each value stands; `anchor` is what to point at for the whole."""

    block: Block
    values: dict[str, Any]
    entries: dict[str, Entry]
    anchor: Node

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name, BAD)
        return default if value is BAD else value

    def node(self, name: str) -> Node:
        """Node of a field's value, or the anchor when the field is not given."""
        entry = self.entries.get(name)
        return entry.value if entry is not None else self.anchor

    def key(self, name: str) -> Node:
        entry = self.entries.get(name)
        return entry.key if entry is not None else self.anchor


@dataclass(slots=True)
class Table:
    """A map with free keys as read, in the order of the file. `keys` holds each key as its shape read it."""

    values: dict[str, Any]
    keys: dict[str, Any]
    entries: dict[str, Entry]


@dataclass(slots=True)
class Items:
    """A list as read: each good value with its node; `whole` unless a value was refused."""

    values: list[Any]
    nodes: list[Node]
    whole: bool = True


Rule = Callable[[Read, Reader], None]
Make = Callable[[Read, dict[str, Any], Reader], Any]


class Block(Shape):
    """A map with known fields, and the record that it becomes."""

    word = "a map of fields"

    def __init__(
        self,
        title: str,
        record: type | None,
        *fields: Field,
        rules: tuple[Rule, ...] = (),
        make: Make | None = None,
        merged: bool = False,
        doc: str = "",
    ) -> None:
        self.title = title
        self.record = record
        self.fields = {f.name: f for f in fields}
        self.rules = rules
        self.make = make
        self.merged = merged
        """Values may come from `defaults`, so that no schema of one file can demand them."""
        self.doc = doc

    def read(self, node: Node, reader: Reader) -> Any:
        if not isinstance(node, Map):
            return wrong_shape(node, reader, f"{self.title} is a map, such as {{{next(iter(self.fields))}: ...}}")
        values: dict[str, Any] = {}
        entries = node.entries
        for name, entry in node.entries.items():
            if reader.full:
                break
            known = self.fields.get(name)
            if known is None:
                meant = self._unknown(entry, entries, node, reader)
                if meant is None:
                    continue
                # One mistake, one problem: the field counts as given under the name that it was meant to have.
                entries = {**entries, meant.name: entry}
                known = meant
            value = values[known.name] = known.shape.read(entry.value, reader)
            if isinstance(value, Read):
                value.anchor = entry.key
        for entry in node.repeated:
            if (known := self.fields.get(entry.key.value)) is not None:
                known.shape.read(entry.value, reader)
        return Read(self, values, entries, node)

    def _unknown(self, entry: Entry, given: Mapping[str, Entry], node: Map, reader: Reader) -> Field | None:
        """Reports a field that does not exist; returns the one that was probably meant, unless that is given too."""
        name = entry.key.value
        close = near.nearest(name, self.fields.keys())
        hint, fix, meant = "", None, None
        if close is not None and close in given:
            hint = f"`{close}` is given too"
        elif close is not None:
            hint = f"did you mean `{close}`?"
            fix = Fix(f"rename to `{close}`", (replace(entry.key, close),))
            meant = self.fields[close]
        expose(entry.value, reader)
        first = next(iter(node.entries.values())).key.line
        since = None if node.flow else max(first - 1, 1)
        reader.problems.append(
            error(
                codes.UNKNOWN_FIELD,
                reader.source.place(entry.key, since=since),
                f"unknown field `{brief(name)}` in {self.title}",
                hint,
                notes=(f"fields here: {', '.join(sorted(self.fields))}",),
                fix=fix,
            )
        )
        return meant

    def build(self, value: Any, reader: Reader, **given: Any) -> Any:
        made = dict(given)
        good = True
        for name, known in self.fields.items():
            raw = value.values.get(name, self)
            if raw is self:
                if known.required and known.lacking is not None:
                    reader.error(known.lacking, value.anchor, f"{self.title} lacks `{name}`", known.doc)
                    good = False
                continue
            built = BAD if raw is BAD else known.shape.build(raw, reader)
            if built is BAD:
                good = False
            elif known.to == "*":
                made.update(built)
            elif known.to != "-":
                made[known.target] = built
        before = len(reader.problems)
        for rule in self.rules:
            rule(value, reader)
        if not good or has_errors(reader.problems[before:]):
            return BAD
        if self.make is not None:
            return self.make(value, made, reader)
        return self.record(**made) if self.record is not None else made

    def export(self) -> dict[str, Any]:
        properties = {}
        for known in self.fields.values():
            entry = known.shape.export()
            entry["description"] = known.doc
            default = self._default(known)
            if default is not None:
                entry["default"] = default
            properties[known.name] = entry
        made: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
        required = [f.name for f in self.fields.values() if f.required and not self.merged]
        if required:
            made["required"] = required
        return made

    def _default(self, known: Field) -> Any:
        """What holds when the field is left out, as the model says, in the words of the file."""
        declared: Mapping[str, Any] = getattr(self.record, "__dataclass_fields__", {})
        if known.required or known.target not in declared:
            return None
        default = declared[known.target].default
        return known.shape.show(default) if isinstance(default, str | int | bool | tuple) else None

    def show(self, value: Any) -> Any:
        return None


class ListOf(Shape):
    """A list of one form. Sets are sorted, so that their order in the file means nothing."""

    def __init__(self, item: Shape, *, ordered: bool = False, filled: bool = False) -> None:
        self.item = item
        self.ordered = ordered
        self.filled = filled
        self.word = f"a list; each item is {item.word}"

    def read(self, node: Node, reader: Reader) -> Any:
        if isinstance(node, Scalar) and not node.is_null and not node.style:
            fix = Fix("make it a list", (replace(node, f"[{node.value}]"),)) if _bare(node) else None
            return wrong_shape(node, reader, f"a list is expected here: [{brief(node.value)}]", fix)
        if not isinstance(node, Seq):
            return wrong_shape(node, reader, f"expected {self.word}")
        values: list[Any] = []
        nodes: list[Node] = []
        seen: dict[str, Node] = {}
        whole = True
        for item in node.items:
            if reader.full:
                break
            value = self.item.read(item, reader)
            if isinstance(item, Scalar) and (first := seen.setdefault(item.value, item)) is not item:
                related = (Related(reader.source.place(first), "first here"),)
                reader.error(codes.TWICE, item, f"`{brief(item.value)}` is listed twice", related=related)
                continue
            if value is BAD:
                whole = False
                continue
            if isinstance(value, Read):
                value.anchor = item
            values.append(value)
            nodes.append(item)
        if self.filled and not node.items:
            reader.error(codes.NO_VALUE, node, "the list is empty", f"expected {self.word}")
            return BAD
        return Items(values, nodes, whole)

    def build(self, value: Any, reader: Reader) -> Any:
        built = [self.item.build(item, reader) for item in value.values]
        if not value.whole or any(item is BAD for item in built):
            return BAD
        return tuple(built) if self.ordered or isinstance(self.item, Block) else tuple(sorted(built))

    def export(self) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "array", "items": self.item.export()}
        if not isinstance(self.item, Block):
            made["uniqueItems"] = True
        if self.filled:
            made["minItems"] = 1
        return made

    def show(self, value: Any) -> Any:
        return [self.item.show(item) for item in value] if isinstance(value, tuple) else None


class MapOf(Shape):
    """A map with free keys. `make` turns a key and a built value into a record; a Block takes the key as `key_to`."""

    def __init__(
        self,
        what: str,
        key: Shape,
        value: Shape,
        *,
        key_to: str = "",
        make: Callable[[str, Any], Any] | None = None,
        ordered: bool = False,
        filled: bool = False,
    ) -> None:
        self.what = what
        self.key = key
        self.value = value
        self.key_to = key_to
        self.make = make
        self.ordered = ordered
        self.filled = filled
        self.word = f"a map keyed by {what}"

    def read(self, node: Node, reader: Reader) -> Any:
        if not isinstance(node, Map):
            return wrong_shape(node, reader, f"expected {self.word}")
        values: dict[str, Any] = {}
        keys: dict[str, Any] = {}
        for name, entry in node.entries.items():
            if reader.full:
                break
            key = keys[name] = self.key.read(entry.key, reader)
            value = self.value.read(entry.value, reader)
            if isinstance(value, Read):
                value.anchor = entry.key
            values[name] = BAD if key is BAD else value
        for entry in node.repeated:
            self.value.read(entry.value, reader)
        if self.filled and not node.entries:
            reader.error(codes.NO_VALUE, node, "the map is empty", f"expected {self.word}")
            return BAD
        return Table(values, keys, node.entries)

    def build(self, value: Any, reader: Reader) -> Any:
        made: list[tuple[str, Any]] = []
        good = True
        for name, raw in value.values.items():
            key = value.keys[name]
            if raw is BAD:
                good = False
            elif self.key_to and isinstance(self.value, Block):
                made.append((key, self.value.build(raw, reader, **{self.key_to: key})))
            else:
                built = self.value.build(raw, reader)
                made.append((key, self.make(key, built) if self.make and built is not BAD else built))
        if not good or any(item is BAD for _, item in made):
            return BAD
        if not self.ordered:
            made.sort(key=lambda pair: pair[0])
        return tuple(item for _, item in made)

    def export(self) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "object", "additionalProperties": self.value.export()}
        names = self.key.export()
        made["propertyNames"] = {k: v for k, v in names.items() if k != "type"}
        if self.filled:
            made["minProperties"] = 1
        return made

    def show(self, value: Any) -> Any:
        return None


def _bare(node: Scalar) -> bool:
    return node.line == node.end_line and not any(sign in node.value for sign in ",[]{}#:")
