"""The JSON Schemas (draft-07) of all kinds, made from the same declarations that read the files.

For editors (a modeline in a file names one), for `gridops schema`, and for anybody who checks files without us.
A schema knows one file: what needs other files, or needs `defaults` merged, is only judged by `validate`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gridops.disk.atomic import write_atomic
from gridops.files.kinds import KINDS, Kind

DRAFT = "http://json-schema.org/draft-07/schema#"


def schemas() -> dict[str, dict[str, Any]]:
    """Schema of each kind, by kind."""
    return {name: _schema(kind) for name, kind in sorted(KINDS.items())}


def file_name(kind: str) -> str:
    """Name of the schema's file: `hosts.json`."""
    return f"{kind.lower()}.json"


def render(kind: str) -> str:
    """The text of a schema file; equal for equal declarations."""
    return json.dumps(_schema(KINDS[kind]), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write all schemas into a folder, such as `.gridops/schemas/v1`, where modelines look for them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in sorted(KINDS):
        path = folder / file_name(kind)
        write_atomic(path, render(kind).encode())
        written.append(path)
    return tuple(written)


def _schema(kind: Kind) -> dict[str, Any]:
    return {
        "$schema": DRAFT,
        "$id": f"urn:gridops:schema:v1:{kind.name.lower()}",
        "title": f"gridops {kind.name}",
        "description": f"Stands in {kind.home}.",
        **kind.shape.export(),
    }
