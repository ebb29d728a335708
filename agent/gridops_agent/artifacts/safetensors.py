"""safetensors: the header is bounded JSON, tensors fill the file without a gap, and the index names what is there.

Follows the format's own rules: eight bytes of length, a JSON object, then the tensors back to back.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gridops.base import limits
from gridops_agent.artifacts.reading import Reader, Unsound

_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
_META = "__metadata__"


def check(path: Path) -> None:
    """Raise Unsound for a file that no engine should be given."""
    with Reader(path) as reader:
        header = _header(reader)
        _fill(header, reader.left)


def check_index(name: str, paths: Mapping[str, Path]) -> None:
    """Every tensor of an index stands in the file that the index names, which belongs to the artifact."""
    with Reader(paths[name]) as reader:
        if reader.size > limits.SAFETENSORS_HEADER_BYTES:
            raise Unsound(f"an index of {reader.size} bytes")
        document = _json(reader.take(reader.size, "its index"))
    weights = document.get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise Unsound("it has no weight_map")
    folder = PurePosixPath(name).parent
    held: dict[str, frozenset[str]] = {}
    for tensor, file in weights.items():
        place = str(folder / file) if isinstance(file, str) else ""
        if place not in paths:
            raise Unsound(f"{tensor[:80]!r} is to be in {str(file)[:80]!r}, which is no file of the artifact")
        if place not in held:
            with Reader(paths[place]) as reader:
                held[place] = frozenset(_header(reader))
        if tensor not in held[place]:
            raise Unsound(f"{tensor[:80]!r} is not in {place}")


def _header(reader: Reader) -> dict[str, Any]:
    """Tensors by name."""
    length = struct.unpack("<Q", reader.take(8, "the length of its header"))[0]
    if length > limits.SAFETENSORS_HEADER_BYTES:
        raise Unsound(f"a header of {length} bytes")
    header = _json(reader.take(length, "its header"))
    header.pop(_META, None)
    return header


def _json(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Unsound("its header is not the JSON it should be") from error
    if not isinstance(document, dict):
        raise Unsound("its header is not an object")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _fill(header: Mapping[str, Any], size: int) -> None:
    places = sorted(_place(name, row) for name, row in header.items())
    end = 0
    for begin, finish, name in places:
        if begin != end:
            raise Unsound(f"{name[:80]!r} begins at {begin}, the tensor before it ends at {end}")
        end = finish
    if end != size:
        raise Unsound(f"its tensors take {end} bytes, the file has {size} for them: it is cut off, or has more")


def _place(name: str, row: Any) -> tuple[int, int, str]:
    said: dict[str, Any] = row if isinstance(row, dict) else {}
    kind, shape, offsets = said.get("dtype"), _naturals(said.get("shape")), _naturals(said.get("data_offsets"))
    if kind not in _BITS or shape is None or offsets is None or len(offsets) != 2 or len(shape) > 32:
        raise Unsound(f"{name[:80]!r} has no sensible type, shape or place")
    bits = _BITS[kind]
    for length in shape:
        bits *= length
        if bits > 1 << 62:
            raise Unsound(f"{name[:80]!r} says more values than any file holds")
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise Unsound(f"{name[:80]!r} takes {bits // 8} bytes by its shape, {offsets[1] - offsets[0]} by its place")
    return offsets[0], offsets[1], name


def _naturals(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(n) is int and n >= 0 for n in value) else None
