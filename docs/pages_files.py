"""The reference page of files: every kind, every field, from the exported schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gridops.files.export import file_name, schemas
from gridops.files.kinds import KINDS

HEAD = """\
Every kind of file and every field of it, from the same declarations that read the files. The JSON Schemas (draft-07)
are in [docs/schemas](../schemas/v1); `gridops schema --write .gridops/schemas/v1` puts them where editors find them.

Each file begins with `apiVersion: gridops/v1` and `kind:`. YAML is 1.2 and strict: keys given twice, anchors, aliases,
tags, merge keys and several documents in one file are refused. Sizes, durations and rates carry a unit. `*` stands for
a name of your choosing, `[]` for each item of a list; **bold** fields must be given."""
SHAPES = (
    ("KiB", "size, `48GiB`"),
    ("bit/s", "rate, `1000Mbit/s`"),
    ("ms|", "duration, `30s`"),
    ("%", "share, `75%` or `0.75`"),
    ("ed25519", "public key, `ed25519:...`"),
    ("0-9a-f]{64}", "SHA-256"),
    ("secret:", "`secret:NAME`"),
    ("https?", "URL"),
)


def files_page() -> str:
    """docs/reference/files.md."""
    parts = ["# Files", HEAD]
    made = schemas()
    parts.append(
        "| kind | stands in | schema |\n| --- | --- | --- |\n"
        + "\n".join(
            f"| [{name}](#{name.lower()}) | `{kind.home}` | [{file_name(name)}](../schemas/v1/{file_name(name)}) |"
            for name, kind in KINDS.items()
        )
    )
    for kind in KINDS:
        rows = [row for row in fields(made[kind], "") if row[0] not in ("apiVersion", "kind")]
        table = "\n".join(
            f"| {_name(path, must)} | {what} | {default} | {text} |" for path, must, what, default, text in rows
        )
        parts.append(
            f"## {kind}\n\nStands in `{KINDS[kind].home}`.\n\n"
            f"| field | value | default | meaning |\n| --- | --- | --- | --- |\n{table}"
        )
    return "\n\n".join(parts) + "\n"


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, bool, str, str, str]]:
    """(path, required, value, default, meaning) of every field below a schema, in the order of the schema."""
    must = set(schema.get("required", ()))
    for name, below in schema.get("properties", {}).items():
        here = f"{path}{name}"
        default = f"`{json.dumps(below['default'], ensure_ascii=False)}`" if "default" in below else ""
        yield here, name in must, value(below), default, _cell(below.get("description", ""))
        yield from inside(below, here)


def inside(schema: dict[str, Any], path: str) -> Iterator[tuple[str, bool, str, str, str]]:
    """Fields of whatever a value may hold: a block, a map of blocks, a list of blocks, or a choice of these."""
    yield from fields(schema, f"{path}.")
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        yield from inside(more, f"{path}.*")
    if "items" in schema:
        yield from inside(schema["items"], f"{path}[]")
    for choice in schema.get("anyOf", ()):
        yield from inside(choice, path)


def value(schema: dict[str, Any]) -> str:
    """What may stand there, in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(value(choice) for choice in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{_plain(item)}`" for item in schema["enum"])
    kinds = schema.get("type", "text")
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if kind == "array":
        return f"list of {value(schema.get('items', {}))}"
    if kind == "object":
        more = schema.get("additionalProperties")
        return f"map of {value(more)}" if isinstance(more, dict) else "block"
    if schema.get("format") == "date-time":
        return "time, `2026-11-30T08:00:00Z`"
    pattern = schema.get("pattern", "")
    found = next((words for mark, words in SHAPES if mark in pattern), None)
    if found is not None:
        return found
    return {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true`, `false`"}.get(
        kind, kind
    )


def _plain(item: object) -> str:
    return json.dumps(item) if isinstance(item, bool) else str(item)


def _name(path: str, must: bool) -> str:
    return f"**`{path}`**" if must else f"`{path}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
