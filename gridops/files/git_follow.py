"""Lets a work tree follow a branch that moves beneath it, without touching anything a person is doing.

Called by `files.branch` when the branch it writes is checked out somewhere. Order matters: files, then index, then
(by the caller) the branch; a crash in between leaves at most a staged addition, never a staged deletion of a plan.
Refuses, with the path, when a person has uncommitted work on the very files, or a rebase of the branch is going on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gridops.base.errors import Busy, Failed
from gridops.files.git_run import GitDir, ask, first_line, open_dir, run


@dataclass(frozen=True, slots=True)
class Followed:
    """A work tree that was brought along; `undo` puts its index and files back as they were."""

    place: GitDir
    before: Mapping[str, bytes | None]
    index: bytes

    def undo(self) -> None:
        _index(self.place, self.index)
        for path, content in self.before.items():
            _put(self.place, path, content)


def place_of(where: GitDir, ref: str) -> GitDir | None:
    """The work tree in which `ref` is checked out. Raises Busy while a rebase of it is going on."""
    found: GitDir | None = None
    for block in ask(where, "worktree", "list", "--porcelain").text.split("\n\n"):
        lines = block.splitlines()
        path = Path(lines[0].removeprefix("worktree ")) if lines else Path()
        if not lines or "bare" in lines or not path.is_dir():
            continue
        place = open_dir(path)
        if place.common == where.common and _rebasing(place, ref):
            raise Busy(f"{path}: a rebase of {ref.removeprefix('refs/heads/')} is going on; nothing was written")
        if f"branch {ref}" in lines:
            found = place
    return found


def follow(place: GitDir, old: str | None, files: Mapping[str, bytes]) -> Followed:
    """Bring index and files along to `files`; the caller moves the branch next, or undoes this."""
    if place.root is None:
        raise Failed(f"{place.own}: has no work tree")
    paths = sorted(files)
    _refuse_work_in_progress(place, old, files)
    before = {path: _get(place, path) for path in paths}
    index = ask(place, "ls-files", "--stage", "-z", "--", *paths).out
    known = {line.partition(b"\t")[2] for line in index.split(b"\0") if line}
    removed = b"".join(b"0 " + b"0" * 40 + b"\t" + p.encode() + b"\0" for p in paths if p.encode() not in known)
    followed = Followed(place, before, removed + _as_info(index))
    try:
        for path in paths:
            _put(place, path, files[path])
        lines = []
        for path in paths:
            oid = ask(place, "hash-object", "-w", "--stdin", "--no-filters", stdin=files[path]).text
            lines.append(f"100644 {oid}\t{path}\0".encode())
        _index(place, b"".join(lines))
    except BaseException:
        for path, content in before.items():
            _put(place, path, content)
        raise
    ask(place, "update-index", "-q", "--refresh", "--", *paths)
    return followed


def _refuse_work_in_progress(place: GitDir, old: str | None, files: Mapping[str, bytes]) -> None:
    hints = ("commit or move that work, or keep plans on a branch of their own (policies/fleet.yaml: plans)",)
    if old is not None:
        staged = ask(place, "diff-index", "--cached", "--name-only", "-z", old, "--", *sorted(files)).out
        first = staged.split(b"\0")[0].decode("utf-8", "replace")
        if first:
            raise Failed(f"{place.root}/{first}: has staged changes of its own; the plan was not written", hints=hints)
    tracked = set(ask(place, "ls-files", "-z", "--", *sorted(files)).out.decode("utf-8", "surrogateescape").split("\0"))
    for path in sorted(files):
        now = _get(place, path)
        if (now is None and path not in tracked) or now == files[path]:
            continue
        changed = path not in tracked or run(place, "diff-files", "--quiet", "--", path).status != 0
        if changed:
            raise Failed(f"{place.root}/{path}: was changed by hand; the plan was not written", hints=hints)


def _rebasing(place: GitDir, ref: str) -> bool:
    for state in ("rebase-merge", "rebase-apply"):
        try:
            if (place.own / state / "head-name").read_text("utf-8").strip() == ref:
                return True
        except (OSError, UnicodeDecodeError):
            continue
    return False


def _as_info(stage: bytes) -> bytes:
    """`ls-files --stage` lines as `--index-info` lines (both are `mode oid stage TAB path`)."""
    return b"".join(line + b"\0" for line in stage.split(b"\0") if line)


def _index(place: GitDir, info: bytes) -> None:
    ran = run(place, "update-index", "-z", "--index-info", stdin=info)
    if ran.status != 0:
        kind = Busy if ".lock" in ran.err else Failed
        raise kind(f"{place.root}: cannot update the index: {first_line(ran.err)}")


def _target(place: GitDir, path: str) -> Path:
    root = place.root
    if root is None:
        raise Failed(f"{place.own}: has no work tree")
    target = root / path
    for folder in target.relative_to(root).parents:
        if (root / folder).is_symlink():
            raise Failed(f"{root / folder}: is a symlink; plans are written into plain folders only")
    if target.is_symlink():
        raise Failed(f"{target}: is a symlink; plans are written into plain files only")
    return target


def _get(place: GitDir, path: str) -> bytes | None:
    try:
        return _target(place, path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Failed(f"{place.root}/{path}: cannot be read: {error.strerror}") from error


def _put(place: GitDir, path: str, content: bytes | None) -> None:
    target = _target(place, path)
    try:
        if content is None:
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.gridops")
        beside.write_bytes(content)
        os.replace(beside, target)
    except OSError as error:
        raise Failed(f"{target}: cannot be written: {error.strerror}") from error
