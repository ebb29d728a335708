"""Follows a line of commits where every commit has to be signed: which ones there are, and what each brings of trust.

`intake` calls this in a thread; each step is judged by `trust.line`. Objects are read by name and never checked out.
Which commits lie between is git's answer, and is believed only as far as each of them names the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from gridops.base import limits
from gridops.base.codes import commits as codes
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId
from gridops.controller.core.intend import chain_of
from gridops.controller.statedir import StateDir
from gridops.files.git import Checkout
from gridops.files.objects import FOLDER, LINK, MODULE, Objects
from gridops.files.survey import survey
from gridops.trust.commit import Commit, read_commit, signed_by
from gridops.trust.line import (
    CATALOG,
    Line,
    Position,
    Step,
    begins_anew,
    catalog_after,
    follow,
    restricted,
    root_documents,
)
from gridops.trust.root import TRUST, RoleKey, RootChain, genesis

_TREE = re.compile(rb"tree ([0-9a-f]{40}|[0-9a-f]{64})\n")


@dataclass(frozen=True, slots=True)
class Base:
    """What is in force: the commit accepted last, if any, and the documents of trust that are known."""

    commit: CommitId | None
    chain: RootChain
    roots: tuple[str, ...]
    beside: CommitId | None = None
    """What the note beside the journal names, where that is another one: a journal may be an older copy of itself."""
    alone: bool = False
    """Nothing but that commit says what was in force: the journal remembers none."""

    @property
    def signed(self) -> bool:
        return bool(self.chain.root.signed_commits)


def known_roots(folder: StateDir, tip: tuple[str, ...]) -> tuple[str, ...]:
    """The root documents to begin with: those that were in force; only where nothing was, those of the newest commit.

    A newer one comes in with its commit, which is judged by what was in force before it. Whoever may push and has no
    key could otherwise keep a controller from starting, give a new journal an old root, or let a root that people
    signed and nobody committed speak for the very commit that brings it.
    """
    kept = folder.accepted()
    return tip if kept is None else kept.roots


def line_to(checkout: Checkout, tip: CommitId, base: Base) -> Line:
    """The line from what is in force to a commit, and over what lies in the commit's folders. Never raises Refusal."""
    try:
        with checkout.objects() as objects:
            return _going_on(checkout, objects, tip, base)
    except Refusal as refusal:
        broken = Line(base.commit, tip, refusal=refusal)
    try:
        with checkout.objects() as objects:
            return _anew(checkout, objects, tip, base) or broken
    except Refusal as refusal:
        return replace(broken, refusal=refusal)


def _going_on(checkout: Checkout, objects: Objects, tip: CommitId, base: Base) -> Line:
    """The line from what is in force. Raises Refusal."""
    if base.beside is not None:
        _not_before(checkout, base.beside, tip)
    at = _followed(objects, *_beginning(checkout, objects, tip, base))
    return Line(base.commit, tip, at.signers, at.catalog)


def _anew(checkout: Checkout, objects: Objects, tip: CommitId, base: Base) -> Line | None:
    """The line from where the root's people let it begin anew, in a document that is newer than those in force; None
    where they have said nothing of the kind. Raises Refusal.

    They vouch for that commit and for all behind it. What comes after it is judged as ever, by the documents in force.
    """
    if base.commit is None:
        return None  # nothing was in force that it could begin beside
    try:
        trust = _trust_of(objects, _tree_of(tip, _raw(objects, tip)))
        roots = root_documents(_files(objects, trust)) if trust is not None else ()
        fresh = roots[len(base.roots) :] if roots[: len(base.roots)] == base.roots else ()
        named = begins_anew(base.chain, fresh)
    except Refusal:
        return None  # why the tip is not believed is told already
    if named is None:
        return None
    version, begin = named
    short = f"commit {begin[:12]}, at which root {version} lets the line begin anew,"
    if checkout.resolve(begin) is None:
        raise Refusal(codes.COMMIT_OFF_LINE.code, f"{short} is not here", subject=tip)
    there = _standing(objects, _trust_of(objects, _tree_of(begin, _raw(objects, begin))), {})
    if there is None or there[1] != base.roots:
        what = f"{short} holds other root documents than those in force: rewritten history keeps all of them"
        raise Refusal(codes.TRUST_DOCUMENTS.code, what, subject=tip)
    began = _holding(objects, Position(begin, base.chain, base.roots))
    at = _followed(objects, began, commits_between(checkout, begin, tip))
    return Line(base.commit, tip, at.signers, at.catalog, anew=version)


def _followed(objects: Objects, at: Position, ahead: tuple[CommitId, ...]) -> Position:
    """The end of a line, each commit judged by the one before it, and what lies in the folders of the last."""
    tree = _tree_of(at.commit, _raw(objects, at.commit))
    for name, raw in zip(ahead, objects.each(ahead, "commit", limits.COMMIT_BYTES), strict=True):
        commit = read_commit(name, raw)
        at = follow(at, _step(objects, at, commit, tree))
        tree = commit.tree
    survey(objects, tree)
    return at


def signer_of(checkout: Checkout, commit: CommitId) -> RoleKey:
    """Who signed one commit, by the documents of its parent. Raises Refusal; a first commit has nobody to ask."""
    with checkout.objects() as objects:
        found = read_commit(commit, _raw(objects, commit))
        parent = found.parents[0] if found.parents else None
        before = _trust_of(objects, _tree_of(parent, _raw(objects, parent))) if parent is not None else None
        standing = _standing(objects, before, {})
        if standing is None:
            raise Refusal(codes.COMMIT_KEY.code, f"no root document stood before commit {commit[:12]}")
        return signed_by(found, standing[0])


def commits_between(checkout: Checkout, base: CommitId, tip: CommitId) -> tuple[CommitId, ...]:
    """The first-parent commits after `base` up to `tip`, oldest first. Raises Refusal where `base` is not before it."""
    if base == tip:
        return ()
    _not_before(checkout, base, tip)
    most = limits.COMMITS_PER_INTAKE
    found = checkout.first_parents(tip, most + 1, f"^{base}")
    if len(found) > most:
        raise _too_many(tip)
    # Where a line was merged the wrong way round, the last commit before it is not `base`; the first step notices.
    return found


def _not_before(checkout: Checkout, base: CommitId, tip: CommitId) -> None:
    """Raise Refusal where a commit that was accepted is not behind the tip."""
    if checkout.is_ancestor(base, tip):
        return
    if checkout.resolve(base) is not None and checkout.is_ancestor(tip, base):
        what = f"commit {tip[:12]} lies before {base[:12]}, which was accepted"
        raise Refusal(codes.COMMIT_REWOUND.code, what, subject=tip)
    raise _off_line(base, tip)


def _beginning(
    checkout: Checkout, objects: Objects, tip: CommitId, base: Base
) -> tuple[Position, tuple[CommitId, ...]]:
    """Where to start from, and what comes after it."""
    if base.commit is not None:
        ahead = commits_between(checkout, base.commit, tip)
        return _holding(objects, Position(base.commit, base.chain, base.roots)), ahead
    most = limits.COMMITS_PER_INTAKE
    ahead = checkout.first_parents(tip, most + 1)
    known: dict[str, tuple[RootChain, tuple[str, ...]] | None] = {}
    began: Position | None = None
    anew: CommitId | None = None
    for back in range(len(ahead) - 1, -1, -1):
        here = _standing(objects, _trust_of(objects, _tree_of(ahead[back], _raw(objects, ahead[back]))), known)
        if here is None:
            break  # nobody had a say before the first root document: the commit that brought it is where it begins
        if began is None:  # the tip: its documents say whether the branch was rewritten, and at which commit it begins
            named = begins_anew(genesis(here[1][0]), here[1][1:])
            anew = named[1] if named is not None else None
        began = Position(ahead[back], *here)
        if not began.signed or began.commit == anew:
            break
    if began is None:
        what = f"commit {tip[:12]} holds no root document, or none that holds"
        raise Refusal(codes.TRUST_DOCUMENTS.code, what, subject=tip)
    if began.signed and len(ahead) > most:
        raise _too_many(tip)
    return _holding(objects, began), ahead[ahead.index(began.commit) + 1 :]


def _holding(objects: Objects, at: Position) -> Position:
    """With the catalog of its own tree: where the journal is gone, nothing else says that it was in force.

    Nothing else in that folder is a reason to forget it. One that is there and cannot be read is a reason to stop: what
    comes after could bring an older one back. Raises Refusal.
    """
    if at.chain.root.catalog == 0:
        return at
    try:
        trust = _trust_of(objects, _tree_of(at.commit, _raw(objects, at.commit)))
        items = objects.folder(trust) if trust is not None else ()
        kept = next((i for i in items if i.name == CATALOG.encode() and i.mode not in (FOLDER, LINK, MODULE)), None)
        raw = objects.read(kept.oid, "blob", limits.YAML_FILE_BYTES) if kept is not None else None
    except Refusal as refusal:
        raise unread_catalog(at.commit, refusal.message) from refusal
    return replace(at, catalog=catalog_after(at.catalog, at.chain, {CATALOG: raw} if raw is not None else None))


def unread_catalog(commit: CommitId, why: str) -> Refusal:
    """Nobody can say which catalog was in force, and an older one must not come back by that."""
    what = f"{TRUST}{CATALOG} of commit {commit[:12]}, which was in force, cannot be read: {why}"
    way = f"look with git fsck, and get it from a clone that has it: git fetch CLONE {commit}"
    return Refusal(codes.COMMIT_UNREADABLE.code, f"{what}; {way}", subject=commit)


def _standing(
    objects: Objects, trust: str | None, known: dict[str, tuple[RootChain, tuple[str, ...]] | None]
) -> tuple[RootChain, tuple[str, ...]] | None:
    """The root documents of one tree; most commits share theirs with the one before."""
    if trust is None:
        return None
    if trust not in known:
        roots = root_documents(_files(objects, trust))
        known[trust] = (chain_of(roots), roots) if roots else None
    return known[trust]


def _step(objects: Objects, at: Position, commit: Commit, before: str) -> Step:
    """A commit as the next step; `before` is the tree of the one behind it."""
    trust = _trust_of(objects, commit.tree)
    files: Mapping[str, bytes] | None = None
    if trust != _trust_of(objects, before):
        files = _files(objects, trust) if trust is not None else {}
    changed: tuple[str, ...] = ()
    if restricted(at.chain):
        changed = tuple(islice(objects.changed(before, commit.tree), limits.FILES))
        if len(changed) == limits.FILES:
            what = f"commit {commit.id[:12]} touches {limits.FILES} files or more, which is more than are compared"
            raise Refusal(codes.TREE_SIZE.code, what)
    return Step(commit, files, changed)


def _files(objects: Objects, trust: str) -> dict[str, bytes]:
    """All files below policies/trust. Raises Refusal for anything else there."""
    found: dict[str, bytes] = {}
    pending = [("", trust)]
    while pending:
        below, oid = pending.pop()
        for item in objects.folder(oid):
            path = below + item.name.decode("utf-8", "replace")
            if item.mode == FOLDER and path == "root":
                pending.append(("root/", item.oid))
            elif item.mode not in ("100644", "100755") or len(found) >= limits.TRUST_FILES:
                raise Refusal(codes.TRUST_DOCUMENTS.code, f"{TRUST}{path[:120]} is no document of trust")
            else:
                found[path] = objects.read(item.oid, "blob", limits.YAML_FILE_BYTES)
    return found


def _too_many(tip: CommitId) -> Refusal:
    what = f"commit {tip[:12]} is more than {limits.COMMITS_PER_INTAKE} commits ahead"
    return Refusal(codes.COMMIT_TOO_MANY.code, what, subject=tip)


def _raw(objects: Objects, commit: CommitId) -> bytes:
    return objects.read(commit, "commit", limits.COMMIT_BYTES)


def _tree_of(commit: CommitId, raw: bytes) -> str:
    """The tree of a commit whose form nobody judges here: it was accepted, or lies before commits were signed."""
    found = _TREE.match(raw)
    if found is None:
        raise Refusal(codes.COMMIT_MALFORMED.code, f"commit {commit[:12]} cannot be read: it names no tree")
    return found[1].decode("ascii")


def _trust_of(objects: Objects, tree: str) -> str | None:
    return objects.inside(tree, TRUST.rstrip("/"))


def _off_line(base: CommitId, tip: CommitId) -> Refusal:
    what = f"commit {tip[:12]} does not follow {base[:12]}, which was accepted"
    return Refusal(codes.COMMIT_OFF_LINE.code, what, subject=tip)
