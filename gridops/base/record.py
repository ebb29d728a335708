"""Records: frozen, slotted, keyword-only dataclasses that go to canonical JSON and come back unchanged.

`@record` replaces `@dataclass` for every noun that is signed, digested, journalled or sent. `to_data` leaves out
fields that are None, so a new optional field does not change old digests. `from_data` is strict: unknown fields,
wrong types and missing fields are a `Malformed`, never a guess. pydantic does the checking.

Canonical bytes have one meaning and two ways. The literal way is `canon.dumps(to_data(value))`. The straight way lets
pydantic write the bytes at once; it is taken only by record types whose schema proves, once per type, that the bytes
must be the same (`_Proof`), and only for values that pydantic writes without a remark. All else, and every refusal,
is decided by the literal way. `Digests` remembers the digests of values that came the straight way, `Pieces` the bytes
of which large ones are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, dataclass_transform

from gridops.base import canon, limits
from gridops.base.ids import Digest
from gridops.base.units import INT_MAX

# pydantic takes 200 ms to import and `gridops validate` needs no record checked, so it is imported on first use.
if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import SchemaSerializer

T = TypeVar("T")
Slots: TypeAlias = dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]]


class Malformed(ValueError):
    """Data that is not a record of the expected kind. The message names the first wrong field."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass whose JSON form is strict."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    for entry in fields(made):  # type: ignore[arg-type]
        # None is left out when written, so a field that may be None must also be readable when it is missing.
        if entry.default is MISSING and entry.default_factory is MISSING and "None" in str(entry.type):
            raise TypeError(f"{cls.__name__}.{entry.name} may be None and has no default")
    made.__pydantic_config__ = {"extra": "forbid", "strict": True, "frozen": True}  # type: ignore[attr-defined]
    return made


def with_one(value: T, field: str, to: object) -> T:
    """What `replace` makes with one other field, in a third of its time: for records that come in hundreds."""
    kind = type(value)
    slots = _slots(kind)
    if field not in slots:
        return replace(value, **{field: to})  # type: ignore[type-var]
    made = object.__new__(kind)
    for get, put in slots.values():
        put(made, get(value))
    slots[field][1](made, to)
    return made


_known_slots: dict[Any, Slots] = {}


def _slots(kind: Any) -> Slots:
    """How each field is read and written, frozen or not; nothing where more is done to a new one than that."""
    known = _known_slots.get(kind)
    if known is not None:
        return known
    names = () if hasattr(kind, "__post_init__") else kind.__slots__
    slots = {name: getattr(kind, name) for name in names}
    made = _known_slots[kind] = {name: (slot.__get__, slot.__set__) for name, slot in slots.items()}
    return made


_adapters: dict[Any, TypeAdapter[Any]] = {}


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """The (cached) pydantic adapter of a record type; also the source of its JSON schema."""
    made = _adapters.get(kind)
    if made is None:
        from pydantic import TypeAdapter

        made = _adapters[kind] = TypeAdapter(kind)
    return made


def to_data(value: Any) -> Any:
    """A record as plain JSON values. Tuples become lists, enums their values, None fields are left out."""
    return adapter(type(value)).dump_python(value, mode="json", exclude_none=True)


def to_bytes(value: Any) -> bytes:
    """Canonical bytes of a record."""
    raw = _straight_bytes(value)
    return canon.dumps(to_data(value)) if raw is None else raw


def digest_of(value: Any) -> Digest:
    """Digest of the canonical bytes of a record: its identity."""
    return canon.digest_bytes(to_bytes(value))


@lru_cache(maxsize=limits.LAUNCHES_KEPT)
def known_digest(value: Any) -> Digest:
    """What `digest_of` says, for small records of which few are asked for all the time: launches.

    Equal records have equal bytes where each field is of its type, as in all that was read, or was made under mypy's
    eyes. The independent checker of plans asks `digest_of`.
    """
    return digest_of(value)


class _Known(NamedTuple):
    value: Any
    """Held, so that its id stays its own."""
    digest: Digest
    size: int


class Digests:
    """Digests of records already seen, by identity: for callers that digest the same objects again and again.

    The caller makes one and passes it on; nothing is shared behind its back. Only what came the straight way is
    remembered, because then every part of it is known to be a frozen record, a tuple or a scalar and cannot change.
    The oldest used goes first. For one thread at a time.
    """

    def __init__(self, kept: int = limits.DIGESTS_KEPT, kept_bytes: int = limits.DIGESTS_KEPT_BYTES) -> None:
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._known: dict[int, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, value: Any, written: bytes | None = None) -> Digest:
        """What `digest_of` says. `written`: its bytes, where `Pieces` has written them."""
        known = self._known.pop(id(value), None)
        if known is not None:
            self._known[id(value)] = known
            return known.digest
        raw = written if written is not None else _straight_bytes(value)
        if raw is None:
            return digest_of(value)
        digest = canon.digest_bytes(raw)
        if len(raw) <= self._kept_bytes:  # a greater one would push out all others and then itself
            self._remember(_Known(value, digest, len(raw)))
        return digest

    def _remember(self, known: _Known) -> None:
        self._known[id(known.value)] = known
        self._bytes += known.size
        while len(self._known) > self._kept or self._bytes > self._kept_bytes:
            self._bytes -= self._known.pop(next(iter(self._known))).size


class _Written(NamedTuple):
    pieces: tuple[Any, ...]
    """Held, so that their ids stay their own."""
    known: dict[int, bytes]
    whole: bytes


class Pieces:
    """Digests of large records that are mostly made of records already seen: only what is new is written again.

    Like `Digests`, made by the caller and for one thread at a time. Of each kind of record the pieces of the last one
    are remembered, by identity.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[type[Any], str], _Written] = {}

    def of(self, value: Any, parts: Sequence[str]) -> Digest:
        """What `digest_of` says. `parts`: fields of the record that are tuples of records."""
        if not _is_straight(type(value)):
            return digest_of(value)
        written = {key: canon.dumps(data) for key, data in to_data(replace(value, **dict.fromkeys(parts, ()))).items()}
        for part in parts:
            made = self._part(value, part)
            if made is None:
                return digest_of(value)
            written[part] = made
        rows = (canon.dumps(key) + b":" + written[key] for key in sorted(written))
        return canon.digest_bytes(b"{" + b",".join(rows) + b"}")

    def written(self, kind: type[Any], part: str, piece: Any) -> bytes | None:
        """The bytes of one piece of the last record of this kind, if it is one."""
        last = self._known.get((kind, part))
        return last.known.get(id(piece)) if last is not None else None

    def _part(self, value: Any, part: str) -> bytes | None:
        """The bytes of one field; None where only the literal way can say what they are."""
        pieces, last = getattr(value, part), self._known.get((type(value), part))
        if last is not None and len(pieces) == len(last.pieces) and all(map(is_, pieces, last.pieces)):
            return last.whole
        before, now = last.known if last is not None else {}, dict[int, bytes]()
        for piece in pieces:
            raw = before.get(id(piece)) or _straight_bytes(piece)
            if raw is None:
                return None
            now[id(piece)] = raw
        whole = b"[" + b",".join([now[id(piece)] for piece in pieces]) + b"]"
        self._known[type(value), part] = _Written(pieces, now, whole)
        return whole


_writers: dict[Any, SchemaSerializer | None] = {}
_LONG = b"0" * len(str(INT_MAX)) + b","
_SHAPE = bytes.maketrans(b"0123456789]}", b"0" * 10 + b",,")


def _straight_bytes(value: Any) -> bytes | None:
    """Canonical bytes written by pydantic, or None where only the literal way can say what they are."""
    kind = type(value)
    writer = _writers[kind] if _is_straight(kind) else None
    if writer is None:
        return None
    try:
        raw = writer.to_json(value, exclude_none=True, warnings="error")
    except ValueError:  # a field holds what its type does not allow, or a lone surrogate
        return None
    # An integer out of range has at least sixteen digits before `,`, `]` or `}`. A text may have them too: no harm.
    return None if _LONG in raw.translate(_SHAPE) else raw


def _is_straight(kind: type[Any]) -> bool:
    """Whether it is proved of the type that pydantic writes its canonical bytes."""
    if kind not in _writers:
        _writers[kind] = _writer(kind)
    return _writers[kind] is not None


def _writer(kind: type[Any]) -> SchemaSerializer | None:
    """A serialiser that writes the fields of every record in canonical order, or None where that is not enough."""
    if not is_dataclass(kind):
        return None
    from pydantic_core import SchemaSerializer

    try:
        schema = _Proof().straight(adapter(kind).core_schema, 0)
    except _Unproved:
        return None
    return SchemaSerializer(schema)


class _Unproved(Exception):
    """Something in a schema of which it is not known that pydantic writes it canonically."""


class _Proof:
    """Walks a core schema and returns it with sorted fields, if nothing but canonical bytes can come of it.

    Known are texts, integers, booleans, enums of texts, tuples, records and choices of them, none nested too deep;
    whatever else a schema says, also what a later pydantic may add to it, is `_Unproved`. pydantic remarks on a value
    that is not of the type of its field, except for literals, which are therefore written as the texts or the integers
    they are.
    """

    _SAYS: Mapping[str, frozenset[str]] = {
        "str": frozenset(),
        "int": frozenset(),
        "bool": frozenset(),
        "literal": frozenset({"expected"}),
        "enum": frozenset({"cls", "members", "sub_type"}),
        "nullable": frozenset({"schema"}),
        "default": frozenset({"schema", "default", "default_factory", "default_factory_takes_data"}),
        "tuple": frozenset({"items_schema", "variadic_item_index"}),
        "tagged-union": frozenset({"choices", "discriminator", "strict", "from_attributes"}),
        "dataclass": frozenset({"cls", "config", "fields", "frozen", "post_init", "schema", "slots"}),
        "dataclass-args": frozenset({"dataclass_name", "fields", "computed_fields", "collect_init_only"}),
        "dataclass-field": frozenset({"name", "schema", "init"}),
        "definitions": frozenset({"schema", "definitions"}),
        "definition-ref": frozenset({"schema_ref"}),
    }
    _CONFIG = frozenset({"title", "extra_fields_behavior", "strict"})

    def __init__(self) -> None:
        self._shared: dict[str, Any] = {}
        self._open: list[str] = []

    def straight(self, schema: Any, depth: int) -> Any:
        """`schema`, whose value stands at `depth`, for writing. Raises _Unproved."""
        kind = schema["type"]
        made = {key: part for key, part in schema.items() if key != "metadata"}
        if kind not in self._SAYS or not made.keys() <= self._SAYS[kind] | {"type", "ref"} or depth > canon.DEPTH_MAX:
            raise _Unproved(kind)
        if kind == "literal":
            return self._literal(schema["expected"])
        if kind == "enum":
            self._texts([member.value for member in schema["members"]], made)
            if all(isinstance(member, StrEnum) for member in schema["members"]):
                # A member that is its text is written as one, which asks it nothing.
                return {"type": "str"} | {key: made[key] for key in ("ref",) if key in made}
            return made
        if kind in ("nullable", "default"):
            made["schema"] = self.straight(schema["schema"], depth)
        elif kind == "tuple":
            made["items_schema"] = [self.straight(item, depth + 1) for item in schema["items_schema"]]
        elif kind == "dataclass":
            self._record(made, depth)
        elif kind == "tagged-union":
            made["choices"] = self._choices(made["choices"], depth)
        elif kind == "definitions":
            self._definitions(made, depth)
        elif kind == "definition-ref":
            self._follow(schema["schema_ref"], depth)
        return made

    def _literal(self, values: Sequence[Any]) -> Any:
        if all(type(value) is int for value in values):
            # An integer's serialiser would write True as 1.
            return {"type": "union", "choices": [{"type": "bool"}, {"type": "int"}]}
        return self._texts(values, {"type": "str"})

    def _texts(self, values: Sequence[Any], made: Any) -> Any:
        if any(not isinstance(value, str) for value in values):
            raise _Unproved("not a text")
        return made

    def _choices(self, choices: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """One of several records: each of a type of its own, so that there is one that a value can be written as."""
        if any(choice["type"] != "dataclass" for choice in choices.values()):
            raise _Unproved("not a choice of records")
        return {name: self.straight(choice, depth) for name, choice in choices.items()}

    def _record(self, made: dict[str, Any], depth: int) -> None:
        inner = made["schema"]
        if inner["type"] != "dataclass-args" or not inner.keys() <= self._SAYS["dataclass-args"] | {"type"}:
            raise _Unproved(inner["type"])
        if not made.get("frozen") or inner["computed_fields"] or not made.get("config", {}).keys() <= self._CONFIG:
            raise _Unproved("not a plain record")
        rows = []
        for field in sorted(inner["fields"], key=lambda field: str(field["name"])):
            says = field.keys() - {"type", "metadata"}
            if not says <= self._SAYS["dataclass-field"] or not canon.is_key(field["name"]):
                raise _Unproved(field["name"])
            rows.append({**field, "schema": self.straight(field["schema"], depth + 1)})
        made["fields"] = sorted(made["fields"])
        made["schema"] = {**inner, "fields": rows}

    def _definitions(self, made: dict[str, Any], depth: int) -> None:
        if self._shared:
            raise _Unproved("definitions in definitions")
        self._shared = {shared["ref"]: shared for shared in made["definitions"]}
        made["schema"] = self.straight(made["schema"], depth)
        # How deep each one stands was judged where it is referred to.
        made["definitions"] = [self.straight(shared, 0) for shared in made["definitions"]]

    def _follow(self, ref: str, depth: int) -> None:
        """Judge what a reference stands for at this depth; a record that holds itself has no greatest depth."""
        if ref in self._open or ref not in self._shared:
            raise _Unproved(ref)
        self._open.append(ref)
        self.straight(self._shared[ref], depth)
        self._open.pop()


def from_data(kind: type[T], data: Any) -> T:
    """A record from plain JSON values (lists where the record has tuples). Raises Malformed."""
    try:
        raw = canon.dumps(data)
    except canon.NotCanonical as error:
        raise Malformed(f"{kind.__name__}: {error}") from error
    return from_bytes(kind, raw)


def from_bytes(kind: type[T], raw: bytes) -> T:
    """A record from JSON bytes. Raises Malformed, naming the field."""
    from pydantic import ValidationError

    try:
        return adapter(kind).validate_json(raw, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise Malformed(f"{kind.__name__}.{where}: {first['msg']}") from error
