"""Reads a JSON object pair by pair, within bounds, and builds nothing that nobody asked for. Used for model headers.

`json.loads` makes an object of everything it meets: a header of 32 MiB that is only brackets costs half a gigabyte of
the host's RAM before anybody has looked at it. Here the caller says of each value what it may be. Raises Unsound, and
never needs more than the raw bytes and what the caller keeps of them.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from gridops.base import limits
from gridops_agent.artifacts.reading import Unsound

NOT_JSON = "its header is not the JSON it should be"
_SPACE = re.compile(rb"[ \t\n\r]*")
# Possessive, so that a text of megabytes leaves no way back behind each of its characters.
_TEXT = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_PLAIN = re.compile(rb"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,4})?|true|false|null")
_PIECE = 1 << 16


class Pairs:
    """One document. Each `members` must be read to its end, and each value by exactly one call."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at, self._count = raw, 0, 0
        self._is_utf8()

    def members(self) -> Iterator[bytes]:
        """The names of the object that stands here, as UTF-8. After each the caller reads its value."""
        self._take(b"{")
        if self._next(b"}"):
            return
        while True:
            self._counted()
            name = self._name()
            self._take(b":")
            yield name
            if self._next(b"}"):
                return
            self._take(b",")

    def begins_with(self, mark: bytes) -> bool:
        """What stands here, looked at and not read."""
        self._step()
        return self._raw.startswith(mark, self._at)

    def flat(self) -> dict[str, Any]:
        """An object of a few values that holds no other object, made with nothing in it twice."""
        self._step()
        end = self._raw.find(b"}", self._at, self._at + limits.SAFETENSORS_ROW_BYTES)
        if end < 0 or not self.begins_with(b"{"):
            raise Unsound(NOT_JSON)
        return self._loaded(self._raw[self._at : end + 1], end + 1)

    def text(self) -> str:
        """A text, not longer than the name of a file or a tensor may be."""
        return self._name().decode()

    def skip(self, depth: int = 0) -> None:
        """Whatever stands here, bounded in depth and in how much there is of it."""
        self._counted()
        if self.begins_with(b"{"):
            for _ in self._deeper(self.members(), depth):
                self.skip(depth + 1)
        elif self.begins_with(b"["):
            for _ in self._deeper(self._items(), depth):
                self.skip(depth + 1)
        else:
            self._match(_TEXT if self.begins_with(b'"') else _PLAIN)

    def end(self) -> None:
        """Nothing follows."""
        self._step()
        if self._at != len(self._raw):
            raise Unsound(NOT_JSON)

    def _items(self) -> Iterator[bytes]:
        self._take(b"[")
        if self._next(b"]"):
            return
        while True:
            yield b""
            if self._next(b"]"):
                return
            self._take(b",")

    def _deeper(self, inside: Iterator[bytes], depth: int) -> Iterator[bytes]:
        if depth >= limits.SAFETENSORS_DEPTH:
            raise Unsound(NOT_JSON)
        return inside

    def _counted(self) -> None:
        self._count += 1
        if self._count > limits.SAFETENSORS_PAIRS:
            raise Unsound(f"its header says more than {limits.SAFETENSORS_PAIRS} things")

    def _name(self) -> bytes:
        begin, end = self._match(_TEXT)
        if end - begin > limits.SAFETENSORS_NAME_BYTES:
            raise Unsound(f"a name of {end - begin} bytes")
        try:
            return str(json.loads(self._raw[begin:end])).encode()
        except ValueError as error:  # half of a pair of surrogates
            raise Unsound(NOT_JSON) from error

    def _loaded(self, raw: bytes, end: int) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(raw, object_pairs_hook=_once, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Unsound(NOT_JSON) from error
        self._at = end
        return document

    def _match(self, form: re.Pattern[bytes]) -> tuple[int, int]:
        self._step()
        found = form.match(self._raw, self._at)
        if found is None:
            raise Unsound(NOT_JSON)
        self._at = found.end()
        return found.span()

    def _next(self, mark: bytes) -> bool:
        if not self.begins_with(mark):
            return False
        self._at += 1
        return True

    def _take(self, mark: bytes) -> None:
        if not self._next(mark):
            raise Unsound(NOT_JSON)

    def _step(self) -> None:
        found = _SPACE.match(self._raw, self._at)
        assert found is not None
        self._at = found.end()

    def _is_utf8(self) -> None:
        reads = codecs.getincrementaldecoder("utf-8")()
        try:
            for at in range(0, len(self._raw), _PIECE):
                reads.decode(self._raw[at : at + _PIECE])
            reads.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise Unsound(NOT_JSON) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
