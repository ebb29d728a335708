"""Prints plain JSON values as YAML, always the same bytes for the same value, and YAML that reads back as that value.

Called by `files.plandoc`. It is no general writer: it knows no tags, anchors or comments, and takes no style option
beside the paths below. Files that people write go through ruamel's round trip instead.
"""

from __future__ import annotations

import re
from typing import Any

WIDTH = 120
ALWAYS_BLOCK = frozenset({(), ("decisions", "*"), ("report",), ("launches", "*"), ("report", "unplaced", "*")})
"""One field a line, whatever the length: what people review line by line."""
ALWAYS_FLOW = frozenset({("placement", "*"), ("report", "unplaced", "*", "hosts", "*")})
"""One line each, whatever the length: tables."""

# Plain scalars are a small alphabet that no reader of YAML 1.1 or 1.2 takes for anything but text.
_PLAIN = re.compile(r"(?:[A-Za-z][A-Za-z0-9 ._/@=>+()~-]*|[0-9]{8}T[0-9]{4,6}Z-[0-9a-f]{8})(?::[A-Za-z0-9._/-]+)*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_KEY = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}

Path = tuple[str, ...]


def print_yaml(value: dict[str, Any]) -> str:
    """A mapping as YAML text that ends with a newline. Keys keep their order."""
    return "".join(f"{line}\n" for line in _mapping(value, "", ()))


def scalar(value: Any) -> str:
    """One scalar. Raises TypeError for what is none."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not printed in plans")
    plain = _PLAIN.fullmatch(value) and not value.endswith(" ") and value.lower() not in _WORDS
    return value if plain else '"' + "".join(map(_escaped, value)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    # Printable to a person on any terminal; line separators and byte order marks are not, though some tables say so.
    if char.isprintable() and char not in "\u2028\u2029\ufeff":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _key(name: str) -> str:
    if _KEY.fullmatch(name) is None:
        raise TypeError(f"key {name!r} is not printed in plans")
    return f'"{name}"' if name in _WORDS and len(name) > 1 else name


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return scalar(value)


def _mapping(value: dict[str, Any], indent: str, path: Path) -> list[str]:
    lines: list[str] = []
    for name, item in value.items():
        lines += _entry(f"{indent}{_key(name)}:", item, indent, (*path, name))
    return lines


def _entry(head: str, item: Any, indent: str, path: Path) -> list[str]:
    """`head` and its value: on one line when that fits, else below it."""
    flow = _on_one_line(item, len(head) + 1, path)
    if flow is not None:
        return [f"{head} {flow}"]
    if isinstance(item, dict):
        return [head, *_mapping(item, indent + "  ", path)]
    lines = [head]
    for element in item:
        lines += _element(element, indent + "  ", (*path, "*"))
    return lines


def _element(element: Any, indent: str, path: Path) -> list[str]:
    flow = _on_one_line(element, len(indent) + 2, path)
    if flow is not None:
        return [f"{indent}- {flow}"]
    if isinstance(element, dict):
        first, *rest = _mapping(element, indent + "  ", path)
        return [f"{indent}- {first.lstrip()}", *rest]
    raise TypeError("a list of lists is not printed in plans unless it fits on a line")


def _on_one_line(value: Any, room_taken: int, path: Path) -> str | None:
    if not isinstance(value, dict | list):
        return scalar(value)
    if not value or path in ALWAYS_FLOW:
        return _flow(value)
    children_block = isinstance(value, list) and isinstance(value[0], dict)
    if path in ALWAYS_BLOCK or children_block:
        return None
    flow = _flow(value)
    return flow if room_taken + len(flow) <= WIDTH else None
