"""Records: frozen, slotted, keyword-only dataclasses that go to canonical JSON and come back unchanged.

`@record` replaces `@dataclass` for every noun that is signed, digested, journalled or sent. `to_data` leaves out
fields that are None, so a new optional field does not change old digests. `from_data` is strict: unknown fields,
wrong types and missing fields are a `Malformed`, never a guess. pydantic does the checking.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from gridops.base import canon
from gridops.base.ids import Digest

# pydantic takes 200 ms to import and `gridops validate` needs no record checked, so it is imported on first use.
if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


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
    return canon.dumps(to_data(value))


def digest_of(value: Any) -> Digest:
    """Digest of the canonical bytes of a record: its identity."""
    return canon.digest_bytes(to_bytes(value))


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
