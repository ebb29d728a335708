"""The intent folders of one commit, looked over before anything in them is read: names, links, sizes, how many.

`controller.intake` asks where commits must be signed. Git refuses some of this on its own when it fetches, but not in a
repository that people push to, and not what is only hostile to the machine next door. Reads names and sizes, never a
file. Must never walk further than the bounds, however the trees refer to each other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from gridops.base import limits
from gridops.base.codes import commits as codes
from gridops.base.errors import Refusal
from gridops.base.units import counted
from gridops.files.objects import FOLDER, LINK, MODULE, Item, Objects
from gridops.files.tree import FOLDERS

_PLAIN = frozenset({"100644", "100755", "100664"})
_ODD = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\/]')
_GITS = re.compile(r"\.git|git~[0-9]+|\.gitmodules", re.IGNORECASE)
_UNSEEN = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF])
"""Characters that nobody sees: some file systems leave them out, so that `.g\\u200cit` is `.git` there."""


def survey(objects: Objects, tree: str) -> None:
    """Raise Refusal `tree_*` for the first thing in the intent folders of a tree that must not be there."""
    pending: list[tuple[str, str, int]] = []
    top = {item.name: item for item in objects.folder(tree)}
    for folder in FOLDERS:
        item = top.get(folder.encode())
        if item is not None:
            _kind(folder, item.mode, folder=True)
            pending.append((folder, item.oid, 1))
    files: list[tuple[str, str]] = []
    seen = 0
    while pending:
        where, oid, depth = pending.pop()
        if depth > limits.TREE_DEPTH:
            raise Refusal(codes.TREE_SIZE.code, f"{where[:120]}: folders lie deeper than {limits.TREE_DEPTH}")
        items = objects.folder(oid)
        seen += len(items)
        if seen > limits.FILES:
            what = f"{', '.join(FOLDERS)} hold more than {counted(limits.FILES, 'entry', 'entries')}"
            raise Refusal(codes.TREE_SIZE.code, what)
        for path, item in _named(where, items):
            _kind(path, item.mode, folder=item.mode == FOLDER)
            if item.mode == FOLDER:
                pending.append((path, item.oid, depth + 1))
            else:
                files.append((path, item.oid))
    _sizes(objects, files)


def _named(where: str, items: Sequence[Item]) -> list[tuple[str, Item]]:
    """The entries of a folder by their paths, if their names are names everywhere and apart from each other."""
    found: list[tuple[str, Item]] = []
    alike: dict[str, str] = {}
    for item in items:
        name = _name(where, item.name)
        twin = alike.setdefault(unicodedata.normalize("NFKC", name.translate(_UNSEEN)).casefold(), name)
        if twin is not name:
            raise Refusal(codes.TREE_CASE.code, f"{where}: {twin!r} and {name!r} are one name on some machines")
        found.append((f"{where}/{name}", item))
    return found


def _name(where: str, raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(codes.TREE_NAME.code, f"{where}: {raw[:60]!r} is no text") from error
    plain = name.translate(_UNSEEN)
    if name in ("", ".", "..") or _ODD.search(name) or plain != name or name[-1] in ". " or len(raw) > 255:
        raise Refusal(codes.TREE_NAME.code, f"{where}: {name[:60]!r} is no name for a file")
    if _GITS.fullmatch(name):
        raise Refusal(codes.TREE_NAME.code, f"{where}: {name!r} is a name of git's own")
    return name


def _kind(path: str, mode: str, *, folder: bool) -> None:
    if mode == LINK:
        raise Refusal(codes.TREE_LINK.code, f"{path[:120]} is a symbolic link")
    if mode == MODULE:
        raise Refusal(codes.TREE_MODULE.code, f"{path[:120]} is a submodule")
    if mode not in ({FOLDER} if folder else _PLAIN):
        raise Refusal(codes.TREE_NAME.code, f"{path[:120]} has the mode {mode}, which is neither a file nor a folder")


def _sizes(objects: Objects, files: Sequence[tuple[str, str]]) -> None:
    for (path, _), size in zip(files, objects.sizes([oid for _, oid in files], "blob"), strict=True):
        if size > limits.YAML_FILE_BYTES:
            what = f"{path[:120]} has {size} bytes, at most {limits.YAML_FILE_BYTES} are read"
            raise Refusal(codes.TREE_SIZE.code, what)
