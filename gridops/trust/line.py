"""A line of commits: from the one that was accepted last to a new one, each judged by what stood in its parent.

`follow` takes one step; `controller.intake` reads the objects and calls it for every first-parent commit in turn.
Side branches are not walked: whoever signs a merge vouches for its tree. Must never let a commit be judged by
documents that it brings itself, nor by documents older than those of the commit before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gridops.base import limits
from gridops.base.codes import commits as codes
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId, PersonName
from gridops.trust.commit import Commit, signed_by
from gridops.trust.release import NONE_KNOWN, KnownCatalog, take
from gridops.trust.root import TRUST, RoleKey, RootChain, walk

_ROOT = re.compile(r"root/([1-9][0-9]{0,4})\.json")
CATALOG = "catalog.json"
_BESIDE = frozenset({"draft.json", CATALOG, "README.md"})
"""What may stand in policies/trust beside the root documents. Who reads one of them judges it there."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a line has been followed: a commit, and the documents of trust as they stand in its tree."""

    commit: CommitId
    chain: RootChain
    roots: tuple[str, ...]
    """Texts of the root documents from 1 on."""
    signers: tuple[PersonName, ...] = ()
    """Who signed the commits behind it, since the line began; sorted."""
    catalog: KnownCatalog = NONE_KNOWN
    """The newest catalog that stood in a tree on the way, the first one's included, and held there."""

    @property
    def signed(self) -> bool:
        """What comes next has to be signed."""
        return bool(self.chain.root.signed_commits)


@dataclass(frozen=True, slots=True)
class Line:
    """What came of following a line to its end."""

    base: CommitId | None
    """The commit accepted before; None where there was none, and the line began where commits began to be signed."""
    tip: CommitId
    signers: tuple[PersonName, ...] = ()
    catalog: KnownCatalog = NONE_KNOWN
    """The newest catalog on the way: the last commit may hold no older one, whoever saw what lay between."""
    refusal: Refusal | None = None
    """Why the line does not lead to the tip."""
    anew: int | None = None
    """The root document by which it begins anew, beside what was accepted; None where it goes on from that."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next commit of a line, as it was read."""

    commit: Commit
    trust: Mapping[str, bytes] | None
    """Files below policies/trust by their path there; None when they are those of the commit before."""
    changed: tuple[str, ...]
    """Paths that differ from the first parent; asked only of keys with a limit of paths."""


def follow(at: Position, step: Step) -> Position:
    """One commit further. Raises Refusal, naming the commit; the codes are those of `base.codes.commits`."""
    commit = step.commit
    if not commit.parents or commit.parents[0] != at.commit:
        what = f"commit {commit.id[:12]} does not follow {at.commit[:12]}, which should be its first parent"
        raise Refusal(codes.COMMIT_OFF_LINE.code, what)
    roots, chain = _documents(at, commit, step.trust)
    signers = at.signers
    if at.signed:
        entry = signed_by(commit, at.chain, chain)
        _within(commit, entry, step.changed)
        signers = tuple(sorted({*signers, entry.holder}))
    catalog = catalog_after(at.catalog, chain, step.trust)
    return replace(at, commit=commit.id, chain=chain, roots=roots, signers=signers, catalog=catalog)


def catalog_after(known: KnownCatalog, chain: RootChain, trust: Mapping[str, bytes] | None) -> KnownCatalog:
    """What is known of catalogs after this tree. One that does not hold, or is older, says nothing: the next commit
    may mend it, and whoever judges the last one refuses it there."""
    raw = trust.get(CATALOG) if trust is not None else None
    if raw is None:
        return known
    try:
        return take(known, chain, raw.decode("utf-8"))
    except (Refusal, UnicodeDecodeError):
        return known


def begins_anew(chain: RootChain, texts: Iterable[str]) -> tuple[int, CommitId] | None:
    """Where the newest of these documents that says so lets the line begin anew, and its version. Raises Refusal.

    `texts` follow the chain: what stands in documents that are in force already has been done, and counts no more.
    """
    found = None
    for text in texts:
        chain = chain.advance(text)
        if chain.root.from_commit is not None:
            found = chain.root.version, chain.root.from_commit
    return found


def restricted(chain: RootChain) -> bool:
    """Whether any change key has a limit of paths, so that a step needs to say what it touches."""
    return any(entry.paths is not None for role in chain.root.roles for entry in role.keys)


def root_documents(trust: Mapping[str, bytes]) -> tuple[str, ...]:
    """Texts of the root documents below policies/trust, from 1 on. Raises Refusal where one lacks or is no text."""
    numbered = {int(m[1]): path for path in trust if (m := _ROOT.fullmatch(path)) is not None}
    texts: list[str] = []
    for number in range(1, len(numbered) + 1):
        path = numbered.get(number)
        if path is None:
            raise _broken(f"root/{number}.json is missing below root/{max(numbered)}.json")
        try:
            texts.append(trust[path].decode("utf-8").strip())
        except UnicodeDecodeError as error:
            raise _broken(f"{path} is no text") from error
    return tuple(texts)


def _documents(at: Position, commit: Commit, trust: Mapping[str, bytes] | None) -> tuple[tuple[str, ...], RootChain]:
    """The documents in a commit's own tree, if they hold."""
    if trust is None:
        return at.roots, at.chain
    short = f"commit {commit.id[:12]}"
    for path in sorted(trust):
        if _ROOT.fullmatch(path) is None and path not in _BESIDE and at.signed:
            raise _broken(f"{short}: {TRUST}{path} is no document of trust")
    if len(trust) > limits.TRUST_FILES:
        raise _broken(f"{short}: more than {limits.TRUST_FILES} files below {TRUST}")
    roots = root_documents(trust)
    known = at.roots
    if roots[: len(known)] != known:
        number = next((n for n, pair in enumerate(zip(roots, known, strict=False), 1) if pair[0] != pair[1]), None)
        gone = f"root {number} was replaced" if number else f"root {len(roots) + 1} was taken away"
        raise _broken(f"{short}: {gone}; root documents are only ever added")
    try:
        chain = walk(at.chain, roots[len(known) :], added=True)
    except Refusal as refusal:
        raise _broken(f"{short}: {refusal.message}", *refusal.evidence) from refusal
    return roots, chain


def _within(commit: Commit, entry: RoleKey, changed: tuple[str, ...]) -> None:
    if entry.paths is None:
        return
    for path in changed:
        if not any(path == allowed or (allowed.endswith("/") and path.startswith(allowed)) for allowed in entry.paths):
            where = ", ".join(entry.paths)
            raise Refusal(
                codes.COMMIT_PATHS.code,
                f"commit {commit.id[:12]} by {entry.holder} touches {path[:120]}, and that key may touch only {where}",
            )


def _broken(why: str, *evidence: str) -> Refusal:
    return Refusal(codes.TRUST_DOCUMENTS.code, why, evidence=evidence)
