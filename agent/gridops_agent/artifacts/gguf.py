"""GGUF headers: magic, version, counts, keys, and that every tensor lies inside the file, aligned, beside the others.

Follows the GGUF specification, versions 2 and 3, little-endian. Tensor types that are newer than this table have no
known size; of them only the place is checked. Work is bounded by `limits`, whatever the file says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gridops.base import limits
from gridops.base.units import counted
from gridops_agent.artifacts.reading import Reader, Unsound

TYPES: Mapping[int, tuple[int, int]] = MappingProxyType(
    {
        0: (1, 4),
        1: (1, 2),
        2: (32, 18),
        3: (32, 20),
        6: (32, 22),
        7: (32, 24),
        8: (32, 34),
        9: (32, 40),
        10: (256, 84),
        11: (256, 110),
        12: (256, 144),
        13: (256, 176),
        14: (256, 210),
        15: (256, 292),
        16: (256, 66),
        17: (256, 74),
        18: (256, 98),
        19: (256, 50),
        20: (32, 18),
        21: (256, 110),
        22: (256, 82),
        23: (256, 136),
        24: (1, 1),
        25: (1, 2),
        26: (1, 4),
        27: (1, 8),
        28: (1, 8),
        29: (256, 56),
        30: (1, 2),
        34: (256, 54),
        35: (256, 66),
        39: (32, 17),
        40: (64, 36),
        41: (128, 18),
    }
)
"""By number of the type: values in a block, and bytes of a block."""
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_U32, _STRING, _ARRAY = 4, 8, 9
_ALIGNMENT = b"general.alignment"
_DIMENSIONS = 4
_NAME_BYTES = 256
_KEY_BYTES = 65_535


def check(path: Path) -> None:
    """Raise Unsound for a file that no engine should be given."""
    with Reader(path) as reader:
        _Header(reader).check()


class _Header:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._texts = 0
        """Texts of all arrays so far; each costs a step."""

    def check(self) -> None:
        reader = self._reader
        if reader.take(4, "its magic") != b"GGUF":
            raise Unsound("it does not begin with GGUF")
        version = reader.u32("its version")
        if version not in (2, 3):
            raise Unsound(f"it says version {version}, known are 2 and 3")
        tensors, keys = reader.u64("its counts"), reader.u64("its counts")
        # The least that one of each takes: a count beyond that is a lie, and costs nothing to find out.
        if not 0 < tensors <= min(limits.GGUF_TENSORS, reader.left // 24):
            raise Unsound(f"it says {tensors} tensors")
        if keys > min(limits.GGUF_KEYS, reader.left // 12):
            raise Unsound(f"it says {counted(keys, 'key')}")
        self._tensors(tensors, self._keys(keys))

    def _keys(self, count: int) -> int:
        """The alignment, by the keys."""
        seen: set[bytes] = set()
        alignment, left = 32, limits.GGUF_KEYS_BYTES
        for _ in range(count):
            key = self._text(min(_KEY_BYTES, left), "a key")
            left -= len(key)
            if not key or key in seen:
                raise Unsound(f"the key {_shown(key)} stands twice" if key else "a key has no name")
            seen.add(key)
            kind = self._reader.u32("the type of a value")
            if key == _ALIGNMENT:
                if kind != _U32:
                    raise Unsound("its alignment is not a number")
                alignment = self._reader.u32("its alignment")
                if alignment < 8 or alignment > limits.GGUF_ALIGNMENT or alignment & (alignment - 1):
                    raise Unsound(f"its alignment is {alignment}")
            else:
                self._value(kind, key, 0)
        return alignment

    def _value(self, kind: int, key: bytes, depth: int) -> None:
        reader, what = self._reader, f"the value of {_shown(key)}"
        if kind in _SCALARS:
            reader.skip(_SCALARS[kind], what)
        elif kind == _STRING:
            reader.skip(self._length(limits.GGUF_TEXT_BYTES, what), what)
        elif kind == _ARRAY and depth < limits.GGUF_ARRAY_DEPTH:
            inner, count = reader.u32(what), reader.u64(what)
            if inner in _SCALARS:
                if count > reader.left:
                    raise Unsound(f"{what} says {count} numbers")
                reader.skip(count * _SCALARS[inner], what)
                return
            self._texts += count
            if count > reader.left // 8 or self._texts > limits.GGUF_TEXTS:
                raise Unsound(f"{what} says {count} texts")
            for _ in range(count):
                self._value(inner, key, depth + 1)
        else:
            raise Unsound(f"{what} has the unknown type {kind}, or is nested too deep")

    def _tensors(self, count: int, alignment: int) -> None:
        reader = self._reader
        seen: set[bytes] = set()
        places: list[tuple[int, int, bytes]] = []
        for _ in range(count):
            name = self._text(_NAME_BYTES, "the name of a tensor")
            if name in seen:
                raise Unsound(f"the tensor {_shown(name)} stands twice")
            seen.add(name)
            size = self._tensor_bytes(name)
            offset = reader.u64("a tensor's offset")
            if offset % alignment:
                raise Unsound(f"the tensor {_shown(name)} is not aligned to {alignment}")
            places.append((offset, size, name))
        begin = -(-reader.at // alignment) * alignment
        end = 0
        for offset, size, name in sorted(places):
            if offset < end:
                raise Unsound(f"the tensor {_shown(name)} overlaps the one before it")
            end = offset + size
            if begin + end > reader.size:
                raise Unsound(
                    f"the tensor {_shown(name)} ends at byte {begin + end}, the file has {reader.size}: it is cut off"
                )

    def _tensor_bytes(self, name: bytes) -> int:
        """Its size; one byte for a type that is not known, so that at least its place is looked at."""
        reader = self._reader
        dimensions = reader.u32("the dimensions of a tensor")
        if not 0 < dimensions <= _DIMENSIONS:
            raise Unsound(f"the tensor {_shown(name)} has {dimensions} dimensions")
        values, row = 1, 0
        for number in range(dimensions):
            length = reader.u64("the dimensions of a tensor")
            row = length if number == 0 else row
            values *= length
            # More values than bits in the file: an engine that multiplies in 64 bits would overflow here.
            if not 0 < length <= 1 << 40 or values > reader.size * 64:
                raise Unsound(f"the tensor {_shown(name)} says more values than the file can hold")
        kind = reader.u32("the type of a tensor")
        if kind not in TYPES:
            return 1
        block, block_bytes = TYPES[kind]
        if row % block:
            raise Unsound(f"a row of the tensor {_shown(name)} has {row} values, no multiple of {block}")
        return values // block * block_bytes

    def _length(self, most: int, what: str) -> int:
        length = self._reader.u64(what)
        if length > most:
            raise Unsound(f"{what} is {length} bytes long")
        return length

    def _text(self, most: int, what: str) -> bytes:
        return self._reader.take(self._length(most, what), what)


def _shown(name: bytes) -> str:
    """A name out of the file, as it may stand in a message."""
    return repr(name[:60])[1:]
