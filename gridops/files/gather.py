"""Reads every file of a tree and sorts what it declares by kind and name, each with its places.

Called by `load`. Looks at one file at a time, except that it refuses to take one name twice. A thing that is wrong
inside is kept by name with no value, so that others may refer to it without a second complaint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gridops.base import limits
from gridops.base.codes import Code
from gridops.base.codes import files as codes
from gridops.base.codes import sense as sense_codes
from gridops.base.ids import ScopeName
from gridops.files import near
from gridops.files.diagnose import Edit, Fix, Problem, Related, brief, error, warning
from gridops.files.kinds import API_VERSION, KINDS, Kind, kind_at
from gridops.files.kinds_fleet import HOST, merge
from gridops.files.nodes import Entry, Map, Node, Scalar, Source
from gridops.files.reader import BAD, Reader, replace, wrong_shape
from gridops.files.shape import Read, Table
from gridops.files.tree import FOLDERS, Tree
from gridops.files.yamlish import parse

DEFAULT_SCOPE = ScopeName("default")
_HEADER = ("apiVersion", "kind")
_OURS = API_VERSION.partition("/")[0] + "/"
_IGNORED = ("policies/trust/",)
_LOOKS_LIKE_INTENT = (".yml", ".yaml", ".json", ".toml")


@dataclass(frozen=True, slots=True)
class Declared:
    """One thing under its name. `value` is None when something inside it is wrong."""

    name: str
    value: Any
    read: Read
    reader: Reader
    scope: str = DEFAULT_SCOPE

    @property
    def source(self) -> Source:
        return self.reader.source


@dataclass(slots=True)
class Gathered:
    """Everything that a tree declares."""

    files: int = 0
    problems: list[Problem] = field(default_factory=list)
    hosts: dict[str, Declared] = field(default_factory=dict)
    profiles: dict[str, Declared] = field(default_factory=dict)
    keys: dict[str, Declared] = field(default_factory=dict)
    drains: dict[str, Declared] = field(default_factory=dict)
    policies: dict[str, Declared] = field(default_factory=dict)
    """By kind."""
    trust_roots: tuple[str, ...] = ()
    """Paths of the trust root documents."""
    signed: tuple[str, ...] = ()
    """Paths of everything that people signed."""


def gather(tree: Tree, only: Iterable[str] | None = None) -> Gathered:
    """Read all files, or only some. Everything wrong lands in `problems`."""
    found = Gathered()
    paths = [p for p in (tree.paths() if only is None else only) if p.split("/", 1)[0] in FOLDERS]
    found.signed = tuple(p for p in paths if p.startswith(_IGNORED))
    found.trust_roots = tuple(p for p in paths if p.startswith("policies/trust/root/"))
    for path in paths[: limits.FILES]:
        before = len(found.problems)
        folder, _, name = path.rpartition("/")
        if path.startswith(_IGNORED) or name.startswith("."):
            continue
        if ".yaml" in folder and (named := _named_like_a_file(folder)) is not None:
            found.problems.append(_unreadable(named, "it is a folder"))
            continue
        if name.endswith(".yaml"):
            found.files += 1
            _file(found, tree, path)
            _bound(found, before, path)
        elif name.lower().endswith(_LOOKS_LIKE_INTENT):
            spot = Source(path, ()).spot(1, 1)
            hint = "only *.yaml is: rename it, or move it away"
            found.problems.append(warning(codes.EXTENSION, spot, "the file will not be read", hint))
        elif "." not in name:
            _door(found, tree, path)
    if len(paths) > limits.FILES:
        spot = Source(paths[limits.FILES], ()).spot(1, 1)
        found.problems.append(error(codes.TOO_LARGE, spot, f"more than {limits.FILES} files"))
    return found


def _named_like_a_file(folder: str) -> str | None:
    """The outermost folder of a path that is called as only files may be."""
    parts = folder.split("/")
    at = next((n for n, part in enumerate(parts, start=1) if part.endswith(".yaml")), None)
    return None if at is None else "/".join(parts[:at])


def _unreadable(path: str, why: str) -> Problem:
    return error(codes.UNREADABLE, Source(path, ()).spot(1, 1), f"the file cannot be read: {why}")


def _door(found: Gathered, tree: Tree, path: str) -> None:
    """A link or a submodule may lead to a folder of files that somebody believes to be read."""
    try:
        tree.read(path)
    except OSError as failure:
        spot, why = Source(path, ()).spot(1, 1), failure.strerror or str(failure)
        hint = "if it leads to files that declare something, put them here"
        found.problems.append(warning(codes.EXTENSION, spot, f"nothing behind it is read: {why}", hint))


def _bound(found: Gathered, before: int, path: str) -> None:
    """A file that is wrong everywhere is wrong once."""
    if len(found.problems) - before > limits.PROBLEMS_PER_FILE:
        spot = found.problems[before + limits.PROBLEMS_PER_FILE].place
        del found.problems[before + limits.PROBLEMS_PER_FILE :]
        message = f"more than {limits.PROBLEMS_PER_FILE} problems in this file; the rest is not shown"
        found.problems.append(error(codes.TOO_LARGE, Source(path, ()).spot(spot.line, spot.column), message))


def _file(found: Gathered, tree: Tree, path: str) -> None:
    try:
        raw = tree.read(path)
    except OSError as failure:
        found.problems.append(_unreadable(path, failure.strerror or str(failure)))
        return
    parsed = parse(path, raw)
    reader = Reader(parsed.source, found.problems, len(found.problems))
    found.problems.extend(parsed.problems)
    if parsed.root is None:
        return
    if not isinstance(parsed.root, Map):
        wrong_shape(parsed.root, reader, "a file is a map that begins with apiVersion and kind")
        return
    kind = _kind(parsed.root, reader)
    if kind is None:
        return
    read = kind.shape.read(parsed.root, reader)
    read.anchor = _anchor(parsed.root)
    if not kind.is_home(path):
        node = parsed.root.entries["kind"].value if "kind" in parsed.root.entries else parsed.root
        reader.error(codes.WRONG_FOLDER, node, f"{kind.name} does not belong here", f"move it to {kind.home}")
    _take(found, kind, read, reader)


def _anchor(root: Map) -> Node:
    first = next(iter(root.entries.values()))
    return next((root.entries[k].value for k in ("name", "host", "kind") if k in root.entries), first.key)


def _kind(root: Map, reader: Reader) -> Kind | None:
    """The kind that a file says it is, else the one that belongs at its path."""
    expected = kind_at(reader.source.file)
    version, named = _header(root, "apiVersion", expected), _header(root, "kind", expected)
    missing = [f"apiVersion: {API_VERSION}"] if version is None else []
    if named is None:
        missing.append(f"kind: {expected.name if expected else '...'}")
    if missing:
        line = min(e.key.line for e in root.entries.values()) if root.entries else root.line
        certain = expected is not None and not root.flow
        fix = Fix("add the header", (Edit(line, 1, line, 1, "".join(f"{m}\n" for m in missing)),)) if certain else None
        what = " and ".join(f"`{m.split(':')[0]}`" for m in missing)
        hint = f"add `{'`, `'.join(missing)}`"
        reader.problems.append(
            error(codes.HEADER, reader.source.spot(line, 1), f"the file lacks {what}", hint, fix=fix)
        )
    if version is not None and not _is(version.value, API_VERSION):
        _unknown(version.value, "apiVersion", (API_VERSION,), API_VERSION, reader)
    if named is None:
        return expected
    if isinstance(named.value, Scalar) and named.value.value in KINDS:
        return KINDS[named.value.value]
    _unknown(named.value, "kind", tuple(KINDS), expected.name if expected else " or ".join(KINDS), reader)
    return None


def _header(root: Map, name: str, expected: Kind | None) -> Entry | None:
    """A field of the header, also under a misspelt name: that is reported with the other fields, and once is enough."""
    if name in root.entries:
        return root.entries[name]
    known = expected.shape.fields if expected is not None else {}
    slips = (e for key, e in root.entries.items() if key not in known and near.nearest(key, _HEADER) == name)
    return next(slips, None)


def _is(node: Node, text: str) -> bool:
    return isinstance(node, Scalar) and node.value == text


def _unknown(node: Node, what: str, known: tuple[str, ...], here: str, reader: Reader) -> None:
    """A word of the header that means nothing to us; `here` is what belongs at this path."""
    if not isinstance(node, Scalar) or node.is_null:
        wrong_shape(node, reader, f"expected {what}: {here}")
        return
    close = near.nearest(node.value, known) or (here if node.value.startswith(_OURS) else None)
    hint = f"did you mean `{close}`?" if close else f"expected `{here}`"
    fix = Fix(f"change to `{close}`", (replace(node, close),)) if close else None
    notes = (f"{what} is one of: {', '.join(known)}",)
    reader.error(codes.UNKNOWN_KIND, node, f"unknown {what} `{brief(node.value)}`", hint, notes=notes, fix=fix)


def _take(found: Gathered, kind: Kind, read: Read, reader: Reader) -> None:
    """Build what the file declares and file it under its name."""
    if kind.name == "Hosts":
        _hosts(found, read, reader)
        return
    value = kind.shape.build(read, reader)
    made = None if value is BAD else value
    if kind.name == "Profile":
        name, scope = read.get("name"), read.get("scope", DEFAULT_SCOPE)
        if name is not None:
            _once(found.profiles, Declared(name, made, read, reader, scope), sense_codes.PROFILE_TWICE, "profile")
    elif kind.name in ("HostKey", "Drain"):
        host = read.get("host")
        if host is not None:
            _file_name(host, kind, read, reader)
            shelf = found.keys if kind.name == "HostKey" else found.drains
            _once(shelf, Declared(host, made, read, reader), codes.FILE_NAME, kind.name)
    else:
        _once(found.policies, Declared(kind.name, made, read, reader), codes.WRONG_FOLDER, "kind")


def _file_name(host: str, kind: Kind, read: Read, reader: Reader) -> None:
    stem = reader.source.file.rsplit("/", 1)[-1].removesuffix(".yaml")
    if stem != host and kind.is_home(reader.source.file):
        reader.error(codes.FILE_NAME, read.node("host"), f"this file is named `{stem}`", f"rename it to {host}.yaml")


def _hosts(found: Gathered, read: Read, reader: Reader) -> None:
    scope = read.get("scope", DEFAULT_SCOPE)
    defaults = read.get("defaults")
    table = read.get("hosts")
    if "hosts" not in read.entries:
        reader.error(codes.MISSING_FIELD, read.anchor, "the file lacks `hosts`", "a map of hosts by name")
    if not isinstance(table, Table):
        return
    for name, raw in table.values.items():
        if not isinstance(raw, Read):
            # A name that is wrong, or a host that is not a map: reported; still known to whoever refers to it.
            empty = Read(HOST, {}, {}, table.entries[name].key)
            found.hosts.setdefault(name, Declared(name, None, empty, reader, scope))
            continue
        whole = merge(defaults, raw)
        value = HOST.build(whole, reader, id=name, scope=scope)
        made = Declared(name, None if value is BAD else value, whole, reader, scope)
        _once(found.hosts, made, sense_codes.HOST_TWICE, "host")


def _once(shelf: dict[str, Declared], made: Declared, code: Code, what: str) -> None:
    first = shelf.setdefault(made.name, made)
    if first is not made:
        related = (Related(first.source.place(first.read.anchor), "first here"),)
        message, hint = f"{what} `{made.name}` is declared twice", "remove one, or give it another name"
        made.reader.error(code, made.read.anchor, message, hint, related=related)
