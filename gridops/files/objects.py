"""Objects of a repository as they lie there: read one by one, by name, within bounds, and nothing is checked out.

`controller.intake` reads commits through this before anybody believes them. Sizes are asked before contents, so that
a huge object costs nothing; a folder's entries are read here and not by git, so that a tree of trees without end is
noticed at the bound and not at the end. Must never give git a name that is not hexadecimal.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from gridops.base import limits
from gridops.base.codes import commits as codes
from gridops.base.errors import Bug, Refusal, Unreachable
from gridops.files.git_run import GitDir, Process, end, start

TIMEOUT_S = 120.0
"""For everything that one reader reads: local disks answer in milliseconds."""
FOLDER, LINK, MODULE = "40000", "120000", "160000"
_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_AT_ONCE = 200
"""Questions that are sent before their answers are read: both together fit in a pipe."""


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
    _timer: threading.Timer | None = None
    _late: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._sizes = start(self.where, "cat-file", "--batch-check")
        self._contents = start(self.where, "cat-file", "--batch")
        self._timer = threading.Timer(TIMEOUT_S, self._too_late)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for process in (self._sizes, self._contents):
            if process is not None:
                end(process)

    def read(self, oid: str, kind: str, most: int) -> bytes:
        """The contents of an object of this kind. Raises Refusal `commit_unreadable` where there is none so small."""
        (size,) = self.sizes((oid,), kind)
        if size > most:
            raise Refusal(codes.COMMIT_UNREADABLE.code, f"{kind} {oid[:12]} has {size} bytes, at most {most} are read")
        to, answers = self._pipes(self._contents)
        to.write(f"{oid}\n".encode("ascii"))
        to.flush()
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
        return tuple(found)

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
        return answers.readline(200).decode("ascii", "replace").rstrip("\n")

    def _broken(self, oid: str, kind: str) -> Exception:
        if self._late.is_set():
            return Unreachable(f"{self.where.shown}: objects could not be read within {TIMEOUT_S:g} s")
        return Refusal(codes.COMMIT_UNREADABLE.code, f"{kind} {oid[:12]} is missing or damaged", subject=oid)

    def _too_late(self) -> None:
        self._late.set()
        for process in (self._sizes, self._contents):
            if process is not None:
                process.kill()
