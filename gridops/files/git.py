"""The checkout: what was committed, read from git objects and never from files in the work tree.

Called by the controller (branch head, fetch) and by `gridops plan`. It must never check anything out, run a hook or
follow a symlink: a commit is untrusted until it validates.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path

from gridops.base import limits
from gridops.base.errors import Failed, Unreachable
from gridops.base.ids import CommitId
from gridops.base.units import counted
from gridops.files.git_run import GitDir, ask, clean, failed, first_line, head_of, open_dir, run
from gridops.files.objects import Objects
from gridops.files.tree import A_LINK, FOLDERS

FETCH_TIMEOUT_S = 60.0
_FETCHED = "refs/gridops/fetched/"
_LINK, _MODULE = "120000", "160000"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a commit."""

    mode: str
    oid: str
    size: int


@dataclass(slots=True)
class CommitTree:
    """The intent folders of one commit (a `files.tree.Tree`). All contents are read in one go, at first need."""

    where: GitDir
    commit: CommitId
    entries: dict[str, Entry]
    _contents: dict[str, bytes] = field(default_factory=dict)

    def paths(self) -> tuple[str, ...]:
        """Every path, sorted, with `/` between folders."""
        return tuple(sorted(self.entries))

    def read(self, path: str) -> bytes:
        """Contents, at most one byte more than the bound of a file. Raises OSError, as a work tree would."""
        entry = self.entries.get(path)
        if entry is None:
            raise FileNotFoundError(path)
        if entry.mode in (_LINK, _MODULE):
            raise OSError(A_LINK if entry.mode == _LINK else "it is a submodule, and submodules are not read")
        if entry.size > limits.YAML_FILE_BYTES:
            return head_of(self.where, "cat-file", "blob", entry.oid, size=limits.YAML_FILE_BYTES + 1)
        if path not in self._contents:
            wanted = {p: e for p, e in self.entries.items() if _readable(e)}
            blobs = read_blobs(self.where, sorted({e.oid for e in wanted.values()}))
            self._contents = {p: blobs[e.oid] for p, e in wanted.items()}
        return self._contents[path]


class Checkout:
    """One repository: an ordinary checkout, a linked worktree or a bare mirror."""

    def __init__(self, path: Path | str) -> None:
        self.where = open_dir(Path(path))

    @property
    def root(self) -> Path | None:
        """The work tree; None for a bare repository."""
        return self.where.root

    @property
    def git_dir(self) -> Path:
        return self.where.own

    @property
    def common_dir(self) -> Path:
        """Where branches live, shared by all worktrees."""
        return self.where.common

    def branch(self) -> str | None:
        """The branch that is checked out; None when HEAD is detached."""
        ran = run(self.where, "symbolic-ref", "--quiet", "--short", "HEAD")
        return ran.text if ran.status == 0 else None

    def head(self, branch: str | None = None) -> CommitId:
        """The newest commit of a branch (or of HEAD). Raises Failed when it has none."""
        if branch is None:
            found = self.resolve("HEAD")
            if found is None:
                raise Failed(
                    f"{self.where.shown}: no commits yet",
                    hints=("commit your files first: git add . && git commit",),
                )
            return found
        found = self.resolve(f"refs/heads/{branch}")
        if found is None:
            hints = ("see what there is: git branch --all",)
            raise Failed(f"{self.where.shown}: branch {branch} has no commit here", hints=hints)
        return found

    def resolve(self, revision: str) -> CommitId | None:
        """The commit that a revision names (branch, tag, `origin/main`, `HEAD~1`, digits), or None."""
        if revision.startswith("-"):
            return None
        ran = run(self.where, "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
        return CommitId(ran.text) if ran.status == 0 and ran.text else None

    def tree(self, commit: CommitId) -> CommitTree:
        """The intent folders of a commit, without hidden files: the same files that a work tree shows."""
        found = list_files(self.where, commit, FOLDERS)
        return CommitTree(self.where, commit, {path: entry for path, entry in found.items() if "/." not in path})

    def subject(self, commit: CommitId) -> str:
        """First line of the commit message."""
        return self._show(commit, "%s")

    def author(self, commit: CommitId) -> str:
        """Name of the author, as git has it: a claim, not a proof."""
        return self._show(commit, "%an")

    def committed_ms(self, commit: CommitId) -> int:
        return int(self._show(commit, "%ct")) * 1000

    def dirty(self) -> bool:
        """True when the intent folders of the work tree differ from HEAD; a bare repository is never dirty."""
        if self.where.root is None:
            return False
        args = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=all", "--")
        return bool(ask(self.where, *args, *FOLDERS).out)

    def is_ancestor(self, older: CommitId, newer: CommitId) -> bool:
        """True when `newer` descends from `older` or is it. A shallow history that hides the answer says False."""
        args = ("merge-base", "--is-ancestor", older, newer)
        ran = run(self.where, *args)
        if ran.status in (0, 1):
            return ran.status == 0
        if self.resolve(older) is None or self.resolve(newer) is None:
            return False
        raise failed(self.where, args, ran)

    def first_parents(self, tip: CommitId, most: int, *without: str) -> tuple[CommitId, ...]:
        """The newest so many commits of a branch's own line, oldest first; `without` are revisions to leave out."""
        args = ("rev-list", "--first-parent", "--reverse", f"--max-count={most}", tip, *without, "--")
        return tuple(CommitId(line) for line in ask(self.where, *args).text.split())

    def objects(self) -> Objects:
        """The repository's objects, one by one; to be used inside of `with`."""
        return Objects(self.where)

    def head_of_file(self, commit: CommitId, path: str, size: int) -> bytes:
        """The first bytes of one file of a commit; none where it is not there."""
        return head_of(self.where, "cat-file", "blob", f"{commit}:{path}", size=size)

    def count(self, older: CommitId, newer: CommitId) -> int:
        """How many commits `newer` has that `older` has not."""
        return int(ask(self.where, "rev-list", "--count", newer, f"^{older}", "--").text)

    def remotes(self) -> tuple[str, ...]:
        """Names of remotes, sorted."""
        return tuple(sorted(ask(self.where, "remote").text.split()))

    def changed(self, older: CommitId, newer: CommitId) -> tuple[str, ...]:
        """Paths of the intent folders that differ between two commits, sorted."""
        args = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", older, newer, "--")
        names = ask(self.where, *args, *FOLDERS).out.decode("utf-8", "surrogateescape").split("\0")
        return tuple(sorted(name for name in names if name))

    def setting(self, name: str) -> str | None:
        """A value of git's configuration as it holds here; None where nobody set it."""
        ran = run(self.where, "config", "--show-scope", "--get-all", name)
        said = [line.partition("\t")[::2] for line in ran.text.splitlines() if ran.status == 0]
        # What we ourselves tell git with each command is not what people set.
        return next((value for scope, value in reversed(said) if scope != "command"), None)

    def shallow(self) -> bool:
        return (self.where.common / "shallow").exists()

    def fetch(self, remote: str, branch: str, *, timeout_s: float = FETCH_TIMEOUT_S) -> CommitId:
        """Fetch one branch of a remote (name or URL) and return its commit. Touches no branch and no work tree.

        The result is kept as `refs/gridops/fetched/<branch>`. Raises Unreachable, naming the remote, when it does
        not answer, and Failed when it answers but has no such branch.
        """
        target = _FETCHED + branch
        args = (
            "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
            "--no-auto-maintenance", "--end-of-options", remote, f"+refs/heads/{branch}:{target}",
        )  # fmt: skip
        shown, before = clean(remote), self._partial()
        try:
            ran = run(self.where, *args, timeout_s=timeout_s, most=limits.FETCHED_BYTES)
        except Unreachable:
            raise Unreachable(f"{shown}: no answer within {timeout_s:g} s") from None
        if ran.status != 0:
            detail = first_line(ran.err)
            if "couldn't find remote ref" in ran.err:
                raise Failed(f"{shown}: there is no branch {branch}")
            if f"died of signal {signal.SIGXFSZ}" in ran.err:
                self._forget_partial(before)
                raise Failed(f"{shown}: sends more at once than {limits.FETCHED_BYTES} bytes; nothing was fetched")
            raise Unreachable(f"{shown}: cannot fetch {branch}: {detail}", hints=(f"try it: git ls-remote {shown}",))
        found = self.resolve(target)
        if found is None:
            raise Failed(f"{shown}: fetched {branch}, but it holds no commit")
        return found

    def fetched(self, branch: str) -> CommitId | None:
        """What the last `fetch` of this branch brought."""
        return self.resolve(_FETCHED + branch)

    def _partial(self) -> frozenset[Path]:
        """What git leaves of packs whose arrival was broken off."""
        return frozenset((self.where.common / "objects" / "pack").glob("tmp_*"))

    def _forget_partial(self, before: frozenset[Path]) -> None:
        """Remove what a stopped fetch wrote, or each try would fill the disk by as much again."""
        for path in sorted(self._partial() - before):
            path.unlink(missing_ok=True)

    def _show(self, commit: CommitId, form: str) -> str:
        args = ("show", "--no-patch", "--no-show-signature", f"--format={form}", "--end-of-options", commit, "--")
        return ask(self.where, *args).text


def list_files(where: GitDir, commit: str, folders: tuple[str, ...], most: int = limits.FILES) -> dict[str, Entry]:
    """Files below some folders of a commit or tree, by path. Raises Failed for more than `most` or a damaged one."""
    raw = ask(where, "ls-tree", "-r", "-z", "-l", "--full-tree", commit, "--", *folders).out
    found: dict[str, Entry] = {}
    for line in raw.split(b"\0"):
        if not line:
            continue
        facts, _, path = line.partition(b"\t")
        mode, _, oid, size = facts.decode("ascii").split()
        name = path.decode("utf-8", "surrogateescape")
        if not size.isdigit() and size != "-":  # git says BAD
            what = f"{where.shown}: {name[:200]} of {commit[:12]} is missing or damaged"
            raise Failed(what, hints=("check the repository: git fsck",))
        found[name] = Entry(mode, oid, 0 if size == "-" else int(size))
    if len(found) > most:
        raise Failed(f"{where.shown}: {counted(len(found), 'file')} in {', '.join(folders)}, at most {most} are read")
    return found


def read_blobs(where: GitDir, oids: list[str]) -> dict[str, bytes]:
    """Contents of many blobs through one `cat-file --batch`."""
    if not oids:
        return {}
    raw = ask(where, "cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode("ascii")).out
    found: dict[str, bytes] = {}
    at = 0
    for oid in oids:
        end = raw.index(b"\n", at)
        head = raw[at:end].decode("ascii").split()
        if len(head) != 3 or head[1] != "blob":
            hints = ("check the repository: git fsck",)
            raise Failed(f"{where.shown}: object {oid} is missing or damaged", hints=hints)
        size = int(head[2])
        found[oid] = raw[end + 1 : end + 1 + size]
        at = end + 2 + size
    return found


def _readable(entry: Entry) -> bool:
    return entry.mode not in (_LINK, _MODULE) and entry.size <= limits.YAML_FILE_BYTES
