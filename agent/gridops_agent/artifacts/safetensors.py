"""safetensors: the header is bounded JSON (`pairs`), tensors fill the file without a gap, the index names what is.

Follows the format's own rules: eight bytes of length, a JSON object, then the tensors back to back.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gridops.base import limits
from gridops_agent.artifacts.pairs import Pairs
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
_META = b"__metadata__"


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
        wanted = _weight_map(Pairs(reader.take(reader.size, "its index")), PurePosixPath(name).parent, paths)
    if not wanted:
        raise Unsound("it has no weight_map")
    for place in sorted(wanted):  # one header at a time: all of them together have no bound
        with Reader(paths[place]) as reader:
            held = _header(reader)
        for tensor in wanted[place]:
            if tensor not in held:
                raise Unsound(f"{_shown(tensor)} is not in {place}")


def _weight_map(pairs: Pairs, folder: PurePosixPath, paths: Mapping[str, Path]) -> dict[str, list[bytes]]:
    """Tensors by the file of the artifact that is to hold them."""
    wanted: dict[str, list[bytes]] = {}
    known: set[bytes] = set()
    for key in pairs.members():
        if key != b"weight_map":
            pairs.skip()
            continue
        for tensor in pairs.members():
            file = pairs.text() if pairs.begins_with(b'"') else ""
            place = str(folder / file) if file else ""
            if place not in paths:
                raise Unsound(f"{_shown(tensor)} is to be in {file[:80]!r}, which is no file of the artifact")
            if tensor in known:
                raise Unsound(f"{_shown(tensor)} stands there twice")
            known.add(tensor)
            wanted.setdefault(place, []).append(tensor)
    pairs.end()
    return wanted


def _header(reader: Reader) -> dict[bytes, tuple[int, int]]:
    """Where each tensor begins and ends, by its name."""
    length = struct.unpack("<Q", reader.take(8, "the length of its header"))[0]
    if length > limits.SAFETENSORS_HEADER_BYTES:
        raise Unsound(f"a header of {length} bytes")
    pairs = Pairs(reader.take(length, "its header"))
    if not pairs.begins_with(b"{"):
        raise Unsound("its header is not an object")
    found: dict[bytes, tuple[int, int]] = {}
    for name in pairs.members():
        if name in found:
            raise Unsound(f"{_shown(name)} stands there twice")
        if name == _META:
            pairs.skip()
        found[name] = (0, 0) if name == _META else _place(name, pairs.flat())
    pairs.end()
    found.pop(_META, None)
    return found


def _fill(header: Mapping[bytes, tuple[int, int]], size: int) -> None:
    end = 0
    for name in sorted(header, key=lambda name: (header[name], name)):
        begin, finish = header[name]
        if begin != end:
            raise Unsound(f"{_shown(name)} begins at {begin}, the tensor before it ends at {end}")
        end = finish
    if end != size:
        raise Unsound(f"its tensors take {end} bytes, the file has {size} for them: it is cut off, or has more")


def _place(name: bytes, said: Mapping[str, Any]) -> tuple[int, int]:
    kind, shape, offsets = said.get("dtype"), _naturals(said.get("shape")), _naturals(said.get("data_offsets"))
    kind = kind if isinstance(kind, str) else ""
    if kind not in _BITS or shape is None or offsets is None or len(offsets) != 2 or len(shape) > 32:
        raise Unsound(f"{_shown(name)} has no sensible type, shape or place")
    bits = _BITS[kind]
    for length in shape:
        bits *= length
        if bits > 1 << 62:
            raise Unsound(f"{_shown(name)} says more values than any file holds")
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise Unsound(f"{_shown(name)} takes {bits // 8} bytes by its shape, {offsets[1] - offsets[0]} by its place")
    return offsets[0], offsets[1]


def _naturals(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(n) is int and n >= 0 for n in value) else None


def _shown(name: bytes) -> str:
    return repr(name.decode()[:80])
