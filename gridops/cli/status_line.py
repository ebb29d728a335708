"""What `gridops status` says of the branch as this checkout has fetched it, beside what the controller has accepted.

Whoever runs the forge can show one branch to the controller and another one to people, and the controller alone cannot
notice. Here both views meet. Nothing is fetched for it: the view is that of the last `git fetch`. Must never decide who
is right; it says where they differ and what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridops.base.errors import GridopsError
from gridops.base.ids import CommitId
from gridops.base.units import counted, parse_instant

if TYPE_CHECKING:
    from gridops.files.git import Checkout

Doc = dict[str, Any]
BEHIND, APART, UNKNOWN = "behind", "apart", "unknown"
SOON_MS = 300_000
"""A commit younger than that may simply not have been fetched by the controller yet. Double: a branch that is withheld
is noticed later; half: every push to a slowly fetched remote alarms somebody."""


def compared(directory: Path, intent: Doc) -> Doc | None:
    """How the controller stands to this checkout's view of its branch; None where both agree or nobody can say."""
    from gridops.files.git import Checkout  # it starts git, and a controller without a commit needs none

    accepted = intent.get("commit")
    if accepted is None:
        return None
    try:
        checkout = Checkout(directory)
        found = _view(checkout, str(intent["branch"]))
        if found is None or found[1] == accepted:
            return None
        name, commit = found
        if checkout.resolve(accepted) is None:
            return _document(UNKNOWN, name, commit, accepted)
        seen = intent.get("tip")
        if seen == commit or (seen and checkout.resolve(seen) and checkout.is_ancestor(commit, CommitId(seen))):
            return None  # it has seen all of this; why it is not in force is told elsewhere
        if checkout.is_ancestor(CommitId(accepted), commit):
            document = _document(BEHIND, name, commit, accepted, checkout.count(CommitId(accepted), commit))
            checked = intent.get("checked")
            document["late"] = checked is not None and parse_instant(checked) > checkout.committed_ms(commit) + SOON_MS
            return document
        return None if checkout.is_ancestor(commit, CommitId(accepted)) else _document(APART, name, commit, accepted)
    except GridopsError:
        return None  # a folder without git, or a broken one: the controller's own answer is still worth showing


def words(view: Doc | None) -> str | None:
    """One line for people."""
    if view is None:
        return None
    name, here, there = view["ref"], view["commit"][:7], view["accepted"][:7]
    if view["relation"] == BEHIND:
        ahead = counted(view["commits"], "commit")
        return f"{name} was fetched here at {here}, {ahead} ahead of the controller: it has not seen them"
    if view["relation"] == UNKNOWN:
        return f"the controller's commit {there} is not in this checkout, which has {name} at {here}: git fetch"
    return f"{name} was fetched here at {here}, and the controller's {there} is on another line: one view is not true"


def attention(view: Doc | None) -> list[str]:
    """What a person should look at. A checkout that was not fetched for a while is no matter."""
    if view is None or view["relation"] == UNKNOWN or (view["relation"] == BEHIND and not view.get("late")):
        return []
    return ["the controller is behind" if view["relation"] == BEHIND else "the controller is on another line"]


def _view(checkout: Checkout, branch: str) -> tuple[str, CommitId] | None:
    """The branch as it was fetched from a remote. A repository without remotes is the one that is watched."""
    for remote in sorted(checkout.remotes(), key=lambda name: (name != "origin", name)):
        commit = checkout.resolve(f"refs/remotes/{remote}/{branch}")
        if commit is not None:
            return f"{remote}/{branch}", commit
    return None


def _document(relation: str, ref: str, commit: CommitId, accepted: str, commits: int = 0) -> Doc:
    return {"relation": relation, "ref": ref, "commit": commit, "accepted": accepted, "commits": commits}
