"""Objects of a repository as they lie there: read one by one, by name, within bounds, and nothing is checked out.

`controller.intake` reads commits through this before anybody believes them. Sizes are asked before contents, so that
a huge object costs nothing; a folder's entries are read here and not by git, so that a tree of trees without end is
noticed at the bound and not at the end. Must never give git a name that is not hexadecimal.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from gridops.base import limits
from gridops.base.codes import commits as codes
from gridops.base.errors import Bug, Refusal, Unreachable
from gridops.files.git_run import GitDir, Process, end, start

SILENT_S = 60.0
"""So long may git say nothing at all: local disks answer in milliseconds."""
FOLDER, LINK, MODULE = "40000", "120000", "160000"
_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_AT_ONCE = 200
"""Questions that are sent before their answers are read: they fit in a pipe, so that nobody waits for the other."""
_KNOWN = 64


class Item(NamedTuple):
    """One entry of a folder."""

    name: bytes
    mode: str
    oid: str


@dataclass(slots=True)
class Objects:
    """Two `git cat-file` that wait for names: one says how large an object is, one what is in it."""

    where: GitDir
    _sizes: Process | None = None
    _contents: Process | None = None
    _heard_s: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)
    _late: bool = False
    _known: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    """Folders read last: neighbours in a history share most of theirs."""

    def __enter__(self) -> Self:
        self._sizes = start(self.where, "cat-file", "--batch-check")
        self._contents = start(self.where, "cat-file", "--batch")
        self._heard_s = time.monotonic()
        threading.Thread(target=self._watch, name="git-objects", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        for process in (self._sizes, self._contents):
            if process is not None:
                end(process)

    def read(self, oid: str, kind: str, most: int) -> bytes:
        """The contents of an object of this kind. Raises Refusal `commit_unreadable` where there is none so small."""
        return next(self.each((oid,), kind, most))

    def each(self, oids: Sequence[str], kind: str, most: int) -> Iterator[bytes]:
        """The contents of objects of one kind, in their order, some asked for ahead. Raises Refusal as `read` does."""
        to, answers = self._pipes(self._contents)
        for at in range(0, len(oids), _AT_ONCE):
            part = oids[at : at + _AT_ONCE]
            sizes = self.sizes(part, kind)
            for oid, size in zip(part, sizes, strict=True):
                if size > most:
                    what = f"{kind} {oid[:12]} has {size} bytes, at most {most} are read"
                    raise Refusal(codes.COMMIT_UNREADABLE.code, what)
            to.write("".join(f"{oid}\n" for oid in part).encode("ascii"))
            to.flush()
            # All of a part is taken before any of it is handed out: whoever asks for more in between is not answered
            # with the rest of it.
            yield from [self._content(answers, oid, kind, size) for oid, size in zip(part, sizes, strict=True)]

    def _content(self, answers: BinaryIO, oid: str, kind: str, size: int) -> bytes:
        head = self._line(answers)
        raw = answers.read(size + 1)
        if head != f"{oid} {kind} {size}" or len(raw) != size + 1:
            raise self._broken(oid, kind)
        return raw[:-1]

    def sizes(self, oids: Sequence[str], kind: str) -> tuple[int, ...]:
        """How large objects of one kind are, in their order. Raises Refusal for one that is not there."""
        to, answers = self._pipes(self._sizes)
        found: list[int] = []
        for at in range(0, len(oids), _AT_ONCE):
            part = oids[at : at + _AT_ONCE]
            for oid in part:
                if _NAME.fullmatch(oid) is None:
                    raise Bug(f"{oid[:80]!r} is no name of an object")
            to.write("".join(f"{oid}\n" for oid in part).encode("ascii"))
            to.flush()
            for oid in part:
                words = self._line(answers).split()
                if len(words) != 3 or words[:2] != [oid, kind] or not words[2].isdigit():
                    raise self._broken(oid, kind)
                found.append(int(words[2]))
        return tuple(found)

    def folder(self, oid: str) -> tuple[Item, ...]:
        """The entries of a tree, as they stand there. Raises Refusal for one that git would not write."""
        known = self._known.get(oid)
        if known is not None:
            return known
        raw, size = self.read(oid, "tree", limits.TREE_BYTES), len(oid) // 2
        found: list[Item] = []
        at = 0
        while at < len(raw):
            space, zero = raw.find(b" ", at), raw.find(b"\x00", at)
            mode = raw[at:space]
            if not at < space < zero or len(raw) < zero + 1 + size or not mode.isdigit() or len(mode) > 6:
                raise Refusal(codes.TREE_NAME.code, f"tree {oid[:12]} is not what git writes")
            found.append(Item(raw[space + 1 : zero], mode.decode("ascii"), raw[zero + 1 : zero + 1 + size].hex()))
            at = zero + 1 + size
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[oid] = tuple(found)
        return self._known[oid]

    def inside(self, tree: str, path: str) -> str | None:
        """The folder at a path below a tree; None where there is none."""
        for name in path.split("/"):
            item = next((i for i in self.folder(tree) if i.name == name.encode() and i.mode == FOLDER), None)
            if item is None:
                return None
            tree = item.oid
        return tree

    def changed(self, old: str | None, new: str | None, below: str = "", depth: int = 0) -> Iterator[str]:
        """Paths that differ between two trees, one by one; whoever asks takes as many as are wanted."""
        if depth > limits.TREE_DEPTH * 4:
            raise Refusal(codes.TREE_SIZE.code, f"{below[:80]}: folders lie deeper than {limits.TREE_DEPTH * 4}")
        before = {(i.name, i.mode == FOLDER): i for i in self.folder(old)} if old is not None else {}
        after = {(i.name, i.mode == FOLDER): i for i in self.folder(new)} if new is not None else {}
        for key in sorted({*before, *after}):
            one, other = before.get(key), after.get(key)
            if one == other:
                continue
            path = below + key[0].decode("utf-8", "surrogateescape")
            if key[1]:
                yield from self.changed(one and one.oid, other and other.oid, path + "/", depth + 1)
            else:
                yield path

    def _pipes(self, process: Process | None) -> tuple[BinaryIO, BinaryIO]:
        if process is None or process.stdin is None or process.stdout is None:
            raise Bug("objects are read inside of `with`")
        return process.stdin, process.stdout  # type: ignore[return-value]

    def _line(self, answers: BinaryIO) -> str:
        line = answers.readline(200)
        self._heard_s = time.monotonic()
        return line.decode("ascii", "replace").rstrip("\n")

    def _broken(self, oid: str, kind: str) -> Exception:
        if self._late:
            return Unreachable(f"{self.where.shown}: git said nothing of its objects for {SILENT_S:g} s")
        return Refusal(codes.COMMIT_UNREADABLE.code, f"{kind} {oid[:12]} is missing or damaged", subject=oid)

    def _watch(self) -> None:
        """End both when nothing was heard for too long; whoever reads then finds an end and no answer."""
        while not self._over.wait(min(1.0, SILENT_S / 2)):
            if time.monotonic() - self._heard_s > SILENT_S:
                self._late = True
                for process in (self._sizes, self._contents):
                    if process is not None:
                        process.kill()
                return
