"""Writes the two kinds of file that gridops itself keeps in a checkout: host keys and drains. One file, one thing.

Called by `gridops host admit` and `gridops drain`. An existing file keeps its comments, order and layout: only values
that differ change. Everything people wrote elsewhere is never touched.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from gridops.base.errors import ConfigError, Failed
from gridops.base.units import render_instant
from gridops.disk.atomic import write_atomic
from gridops.files.gather import gather
from gridops.files.kinds import API_VERSION
from gridops.files.tree import MemoryTree
from gridops.files.yamlish import parse
from gridops.model.fleet import Drain, HostKey


def write_host_key(root: Path, key: HostKey) -> Path:
    """Write `fleet.d/keys/<host>.yaml` below a checkout. Raises Failed, or ConfigError for a file that is not YAML."""
    admitted = {"by": key.admitted_by, "at": None if key.admitted_at_ms is None else render_instant(key.admitted_at_ms)}
    fields: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "HostKey",
        "host": key.host,
        "key": key.key,
        "previous": list(key.previous),
        "expunged": key.expunged,
        "admitted": {name: value for name, value in admitted.items() if value is not None} or None,
    }
    return _write(root, f"fleet.d/keys/{key.host}.yaml", fields)


def write_drain(root: Path, drain: Drain) -> Path:
    """Write `fleet.d/drains/<host>.yaml` below a checkout. Raises Failed, or ConfigError where that is not YAML."""
    fields = {
        "apiVersion": API_VERSION,
        "kind": "Drain",
        "host": drain.host,
        "reason": drain.reason,
        "by": drain.by,
        "until": None if drain.until_ms is None else render_instant(drain.until_ms),
    }
    return _write(root, f"fleet.d/drains/{drain.host}.yaml", fields)


def edited(text: str, fields: Mapping[str, Any]) -> str:
    """A document with exactly these fields; None leaves one out. Comments and order of what stays are kept."""
    yaml = _yaml()
    document = yaml.load(text) if text.strip() else None
    if not isinstance(document, CommentedMap):
        document = CommentedMap()
    for name, value in fields.items():
        if value is None:
            document.pop(name, None)
        elif name not in document or _plain(document[name]) != value:
            document[name] = _value(value)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _write(root: Path, relative: str, fields: Mapping[str, Any]) -> Path:
    path = root / relative
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = path.read_bytes() if path.exists() else b""
    except OSError as failure:
        raise Failed(f"{path}: cannot be read: {failure.strerror}") from failure
    if raw:
        problems = parse(relative, raw).problems
        if problems:
            raise ConfigError(f"{problems[0]}", problems, hints=("repair the file, or delete it and try again",))
    try:
        made = edited(raw.decode("utf-8"), fields).encode()
    except YAMLError as failure:
        raise ConfigError(f"{relative}: {failure}", hints=("delete the file and try again",)) from failure
    _prove(relative, made)
    write_atomic(path, made)
    return path


def _prove(relative: str, made: bytes) -> None:
    """What is written must be read back without a complaint: an argument out of bounds stops here, not in git."""
    problems = gather(MemoryTree({relative: made})).problems
    if problems:
        raise ConfigError(f"{problems[0]}", problems)


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4_096
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _value(value: Any) -> Any:
    """A value in the style of the house: short maps and lists in one line, text that would be misread in quotes."""
    if isinstance(value, dict):
        made = CommentedMap((k, _value(v)) for k, v in value.items())
        made.fa.set_flow_style()
        return made
    if isinstance(value, list):
        items = CommentedSeq(_value(v) for v in value)
        items.fa.set_flow_style()
        return items
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    """Plain where our reader and YAML 1.1 readers agree, else quoted."""
    risky = value[:1].isdigit() or value.lower() in ("yes", "no", "on", "off", "true", "false", "null", "~", "")
    return DoubleQuotedScalarString(value) if risky else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value if isinstance(value, bool) else str(value)
