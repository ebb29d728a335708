"""GGUF headers byte by byte, for files that no writer would make. What a test does not change is sound."""

from __future__ import annotations

import struct

U32, STRING, ARRAY = 4, 8, 9


def text(word: bytes) -> bytes:
    return struct.pack("<Q", len(word)) + word


def number(key: bytes, value: int) -> bytes:
    return text(key) + struct.pack("<II", U32, value)


def tensor(name: bytes = b"t", dims: tuple[int, ...] = (32, 2), kind: int = 0, offset: int = 0) -> bytes:
    return (
        text(name)
        + struct.pack("<I", len(dims))
        + struct.pack(f"<{len(dims)}Q", *dims)
        + struct.pack("<IQ", kind, offset)
    )


def made(*, keys: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (tensor(),), room: int = 1 << 16) -> bytes:
    """A sound file, but for what a test puts in."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(room)
