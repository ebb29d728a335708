"""The whole state as plain JSON and back, so that a start need not replay every row since the beginning.

The journal stays the truth: a pack is the fold of its rows up to a number, and a test compares the two. Maps become
lists of pairs, because keys of a map are names here and canonical JSON has no free keys. A field that an older
program did not pack takes its default; a pack of a newer form is refused.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from gridops.base.record import Malformed
from gridops.controller.core.state import State

FORM = 1


def pack(state: State) -> Any:
    """The state as JSON values."""
    return {"form": FORM, "state": _pack(state, State)}


def unpack(data: Any) -> State:
    """The state that was packed. Raises Malformed for anything else."""
    if not isinstance(data, dict) or data.get("form") != FORM:
        raise Malformed(f"not a state of form {FORM}, the one that this version reads")
    state = _unpack(data["state"], State)
    if not isinstance(state, State):
        raise Malformed("not a state")
    return state


def _pack(value: Any, hint: Any) -> Any:
    kind, args = _shape(hint)
    if value is None:
        return None
    if kind is dict:
        return [[_pack(k, args[0]), _pack(v, args[1])] for k, v in value.items()]
    if kind is set:
        return sorted(_pack(item, args[0]) for item in value)
    if kind is list:
        return [_pack(item, args[0]) for item in value]
    if kind is tuple and args[-1:] != (Ellipsis,):
        return [_pack(item, of) for item, of in zip(value, args, strict=True)]
    if kind is tuple:
        return [_pack(item, args[0]) for item in value]
    if _is_book(kind):
        return {f.name: _pack(getattr(value, f.name), of) for f, of in _fields(kind)}
    return _adapter(hint).dump_python(value, mode="json", exclude_none=True)


def _unpack(data: Any, hint: Any) -> Any:
    kind, args = _shape(hint)
    if data is None:
        return None
    if kind is dict:
        return {_unpack(k, args[0]): _unpack(v, args[1]) for k, v in data}
    if kind is set:
        return {_unpack(item, args[0]) for item in data}
    if kind is list:
        return [_unpack(item, args[0]) for item in data]
    if kind is tuple and args[-1:] != (Ellipsis,):
        return tuple(_unpack(item, of) for item, of in zip(data, args, strict=True))
    if kind is tuple:
        return tuple(_unpack(item, args[0]) for item in data)
    if _is_book(kind):
        return kind(**{f.name: _unpack(data[f.name], of) for f, of in _fields(kind) if f.name in data})
    return _adapter(hint).validate_json(json.dumps(data), strict=True)


def _shape(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a type hint is made of; `X | None` is X, since None is told apart by itself."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        rest = [a for a in args if a is not type(None)]
        return _shape(rest[0]) if len(rest) == 1 else (hint, ())
    return (origin, args) if origin in (dict, set, list, tuple) else (hint, ())


def _is_book(kind: Any) -> bool:
    """One of the state's own dataclasses; records know their JSON form by themselves."""
    return isinstance(kind, type) and is_dataclass(kind) and not hasattr(kind, "__pydantic_config__")


@lru_cache(maxsize=256)
def _fields(kind: Any) -> tuple[tuple[Any, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((f, hints[f.name]) for f in fields(kind))


_adapters: dict[str, TypeAdapter[Any]] = {}


def _adapter(hint: Any) -> TypeAdapter[Any]:
    key = repr(hint)
    made = _adapters.get(key)
    if made is None:
        made = _adapters[key] = TypeAdapter(hint)
    return made
