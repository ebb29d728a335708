"""Where each declared thing stands, by path: `profiles/coder/replicas` -> profiles.d/coder.yaml:8:11.

Plans and explanations cite these places. A thing is marked at its name, a field at its value.
"""

from __future__ import annotations

from gridops.files.gather import Declared, Gathered
from gridops.files.shape import Read, Table
from gridops.model.intent import Where


def marks(found: Gathered) -> dict[str, Where]:
    """All places, in a stable order."""
    made: dict[str, Where] = {}
    for family, shelf in (("hosts", found.hosts), ("profiles", found.profiles)):
        for name in sorted(shelf):
            _thing(made, f"{family}/{name}", shelf[name])
    for family, shelf in (("keys", found.keys), ("drains", found.drains)):
        for name in sorted(shelf):
            _thing(made, f"{family}/{name}", shelf[name])
    for kind in sorted(found.policies):
        declared = found.policies[kind]
        family = kind.lower()
        made[family] = _at(declared, declared.read)
        scopes = declared.read.get("scopes")
        if isinstance(scopes, Table):
            for scope, read in sorted(scopes.values.items()):
                if isinstance(read, Read):
                    _fields(made, f"{family}/{scope}", declared, read)
        else:
            _fields(made, family, declared, declared.read)
    return made


def _thing(made: dict[str, Where], path: str, declared: Declared) -> None:
    _fields(made, path, declared, declared.read)
    configs = declared.read.get("configs")
    for name, read in configs.values.items() if isinstance(configs, Table) else ():
        if isinstance(read, Read):
            _fields(made, f"{path}/configs/{name}", declared, read)


def _fields(made: dict[str, Where], path: str, declared: Declared, read: Read) -> None:
    file = declared.source.file
    made[path] = _at(declared, read)
    for field, entry in read.entries.items():
        if field in ("apiVersion", "kind"):
            continue
        node = entry.value
        made[f"{path}/{field}"] = Where(file, node.line, node.column)


def _at(declared: Declared, read: Read) -> Where:
    return Where(declared.source.file, read.anchor.line, read.anchor.column)
