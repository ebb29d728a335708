"""Reads the newest commit of the watched branch: fetch if there is a remote, look at blobs, never at a work tree.

Called by the shell in a thread. It touches no state: what it found is judged by `core.intend`. A remote that does not
answer is an error to show, not a reason to forget what was accepted.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.errors import BadSetup, GridopsError, Refusal
from gridops.base.ids import CommitId
from gridops.controller.core.intend import Found
from gridops.controller.lineage import Base, line_to, unread_catalog
from gridops.controller.statedir import ACCEPTED
from gridops.files.git import Checkout
from gridops.files.load import check, load_tightening
from gridops.files.tree import MemoryTree, Tree
from gridops.files.trusted import catalog_text, root_texts
from gridops.model.fleet import Drain, FleetSettings
from gridops.model.policy import ModePolicy
from gridops.trust.line import Line
from gridops.trust.root import walk

log = logging.getLogger("gridops.watch")

MODE_FILE = "policies/mode.yaml"
LOOK_BACK = 4_096
"""So far back along the branch's own line is looked for the commit that took a file away."""
FETCH_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Source:
    """Which branch is watched, and where it comes from. No remote: the checkout's own branch."""

    branch: str
    remote: str | None = None

    @property
    def shown(self) -> str:
        return f"{self.remote or 'this checkout'} {self.branch}"


def source_of(checkout: Checkout, settings: FleetSettings | None) -> Source:
    """What to watch: the configured remote, else whatever branch the checkout stands on."""
    if settings is not None and settings.remote_url is not None:
        return Source(settings.remote_branch, settings.remote_url)
    branch = checkout.branch()
    if branch is None:
        raise BadSetup(
            "the checkout stands on no branch, so there is nothing to watch",
            hints=("git switch main", "or name a remote in policies/fleet.yaml"),
        )
    return Source(branch)


def tip(checkout: Checkout, source: Source, fetch: bool) -> CommitId:
    """The newest commit. Raises Unreachable or Failed, naming the remote."""
    if source.remote is None:
        return checkout.head(source.branch)
    if fetch:
        return checkout.fetch(source.remote, source.branch, timeout_s=FETCH_TIMEOUT_S)
    known = checkout.fetched(source.branch)
    return known if known is not None else checkout.fetch(source.remote, source.branch, timeout_s=FETCH_TIMEOUT_S)


class Unread(Exception):
    """A commit could not be read to the end; `found` is what it tightens, read by itself. Its cause says why."""

    def __init__(self, found: Found) -> None:
        super().__init__("; ".join(found.problems))
        self.found = found


def look(checkout: Checkout, commit: CommitId, base: Base) -> Found:
    """`read`, but whatever goes wrong in it, what tightens was read before. Raises Unread, or what git says."""
    tight = _first(checkout, commit, base)
    try:
        return _read(checkout, commit, base, tight)
    except Exception as fault:
        mode, drains = tight
        what = f"a fault of gridops ({type(fault).__name__})" if not isinstance(fault, GridopsError) else fault.message
        problem = f"it could not be read to the end, which is tried again: {what}"
        raise Unread(Found(commit, _subject(checkout, commit), "", None, (problem,), mode, drains, ())) from fault


def read(checkout: Checkout, commit: CommitId, base: Base) -> Found:
    """Everything a commit says: its intent or its problems, and mode, drains and roots by themselves."""
    return _read(checkout, commit, base, _first(checkout, commit, base))


Tight = tuple[ModePolicy | None, tuple[Drain, ...]]


def _first(checkout: Checkout, commit: CommitId, base: Base) -> Tight:
    """What tightens, before anything else is looked at. Of a commit that nobody vouches for yet: its mode alone."""
    if not base.signed:
        return _tightening(checkout.tree(commit))
    raw = checkout.head_of_file(commit, MODE_FILE, limits.YAML_FILE_BYTES + 1)
    return _tightening(MemoryTree({MODE_FILE: raw} if raw else {}))


def _tightening(tree: Tree) -> Tight:
    """Mode and drains, before anything else is looked at. A fault of ours in it is a mode file that nobody can read."""
    try:
        mode, drains, _ = load_tightening(tree)
    except GridopsError:
        raise
    except Exception:
        log.exception("mode and drains cannot be read, so nothing is looser than recommend")
        return None, ()
    return mode, drains


def _read(checkout: Checkout, commit: CommitId, base: Base, tight: Tight) -> Found:
    line = line_to(checkout, commit, base) if base.signed else None
    if line is not None and line.refusal is not None:
        return _disbelieved(checkout, line, tight)
    tree = checkout.tree(commit)
    roots = root_texts(tree)
    if line is None and _demands_signatures(base, roots):
        line = line_to(checkout, commit, base)
        if line.refusal is not None:
            return _disbelieved(checkout, line, tight)
    catalog_before = _catalog_before(checkout, base) if line is None else None
    mode, drains = _tightening(tree) if base.signed else tight
    checked = check(tree)
    intent = checked.intent
    subject = checkout.subject(commit)
    before = tuple(known for known in (base.commit, base.beside) if known is not None)
    if intent is not None:
        intent = type(intent)(desired=intent.desired, commit=commit, subject=subject, dirty=False, marks=intent.marks)
    return Found(
        commit=commit,
        subject=subject,
        author=checkout.author(commit),
        intent=intent,
        problems=tuple(str(p) for p in checked.problems if p.severity == "error"),
        mode=mode,
        mode_gone=None if mode is not None else _mode_gone(checkout, commit),
        drains=drains,
        roots=roots,
        catalog=catalog_text(tree),
        catalog_before=catalog_before,
        descends=all(checkout.is_ancestor(known, commit) for known in before),
        line=line,
    )


def _catalog_before(checkout: Checkout, base: Base) -> str | None:
    """What stood in the commit in force. That may be gone by now, where the journal knows of its catalog."""
    if base.commit is None:
        return None
    if checkout.resolve(base.commit) is None:
        if base.alone and base.chain.root.catalog != 0:
            raise unread_catalog(base.commit, f"it is not here (where no clone has it: move {ACCEPTED} away)")
        return None
    try:
        return catalog_text(checkout.tree(base.commit))
    except GridopsError as error:
        raise unread_catalog(base.commit, error.message) from error


def _disbelieved(checkout: Checkout, line: Line, tight: Tight) -> Found:
    """A commit that cannot be verified: nothing of it is read but its mode."""
    subject = _subject(checkout, line.tip)
    return Found(line.tip, subject, "", None, (), tight[0], (), (), line=line)


def _demands_signatures(base: Base, roots: tuple[str, ...]) -> bool:
    """Whether a commit brings the document by which commits are signed from there on."""
    try:
        return bool(walk(base.chain, roots[len(base.roots) :]).root.signed_commits)
    except Refusal:
        return False  # documents that do not hold are refused where they are judged


def _subject(checkout: Checkout, commit: CommitId) -> str:
    with contextlib.suppress(GridopsError):
        return checkout.subject(commit)
    return ""


def _mode_gone(checkout: Checkout, commit: CommitId) -> CommitId | None:
    """Who took the mode file away. That nobody can say must never keep the commit, which tightens, from counting."""
    with contextlib.suppress(GridopsError):
        return last_change(checkout, commit, MODE_FILE)
    return None


def last_change(checkout: Checkout, commit: CommitId, path: str) -> CommitId | None:
    """The commit of the branch's own line that last touched a path; None where it lies too far back.

    Whether the path differs from n commits ago is asked in doubling steps, then by halves: few questions, however
    long the history is. A path that came and went again between two steps is taken for one that was away all along.
    """

    def differs(back: int) -> bool:
        older = checkout.resolve(f"{commit}~{back}")
        return older is None or path in checkout.changed(older, commit)

    near, far = 0, 1
    while not differs(far):
        near, far = far, far * 2
        if far > LOOK_BACK:
            return None
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (near, middle) if differs(middle) else (middle, far)
    return checkout.resolve(f"{commit}~{near}")
