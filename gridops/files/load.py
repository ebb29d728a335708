"""From a tree of files to typed intent: every problem of every file in one run, or the intent with its places.

`check` is for people and CI, `load` for whoever needs the intent or nothing, `load_tightening` for the kill switch,
which must work while the rest of the commit is broken. Nothing here reads a clock or looks beyond the tree.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gridops.base.codes.trust import BAD_CATALOG
from gridops.base.errors import ConfigError, GridopsError, Refusal
from gridops.base.ids import CommitId
from gridops.files import sense
from gridops.files.diagnose import Problem, error, has_errors, ordered
from gridops.files.gather import Declared, Gathered, gather
from gridops.files.marks import marks
from gridops.files.nodes import Source
from gridops.files.pace import paced
from gridops.files.tree import Tree
from gridops.files.trusted import CATALOG, catalog_of
from gridops.model.catalog import Catalog
from gridops.model.fleet import Drain
from gridops.model.intent import Desired, Intent
from gridops.model.policy import ModePolicy, PlanningPolicy

MODE_FILE = "policies/mode.yaml"
DRAINS = "fleet.d/drains/"
_POLICY_FIELDS = {
    "Fleet": "fleet", "Mode": "mode", "Budgets": "budgets", "Planning": "planning", "Approvals": "approvals",
    "Protection": "protection",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checked:
    """Outcome of a check: the intent unless there are errors, all problems in order, and how many files were read."""

    intent: Intent | None
    problems: tuple[Problem, ...]
    files: int

    @property
    def errors(self) -> int:
        return sum(p.severity == "error" for p in self.problems)

    @property
    def warnings(self) -> int:
        return len(self.problems) - self.errors


def check(tree: Tree) -> Checked:
    """Read everything and report everything."""
    with _collector_at_rest():
        return _check(tree)


def _check(tree: Tree) -> Checked:
    """All nodes of all files are gone when this returns, so that the collector wakes to a clean room."""
    found = gather(tree)
    sense.judge(found, tree)
    catalog = _catalog(found, tree)
    problems = ordered(found.problems)
    if has_errors(problems):
        return Checked(None, problems, found.files)
    return Checked(
        Intent(desired=_desired(found, catalog), marks=MappingProxyType(marks(found))), problems, found.files
    )


@contextlib.contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Nothing made here is cyclic, and searching a million fresh nodes for cycles took half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load(tree: Tree, *, commit: CommitId | None = None, subject: str = "", dirty: bool = False) -> Intent:
    """The intent of a tree. Raises ConfigError with every problem when there is an error."""
    checked = check(tree)
    if checked.intent is None:
        first = next(p for p in checked.problems if p.severity == "error")
        more = f" and {checked.errors - 1} more" if checked.errors > 1 else ""
        raise ConfigError(f"{first}{more}", checked.problems, hints=("gridops validate shows every problem",))
    found = checked.intent
    return Intent(desired=found.desired, commit=commit, subject=subject, dirty=dirty, marks=found.marks)


def load_tightening(tree: Tree) -> tuple[ModePolicy | None, tuple[Drain, ...], tuple[Problem, ...]]:
    """Mode and drains by themselves: what must hold even when nothing else of the commit can be used.

    The mode is None when its file is missing, unreadable or wrong in any way. A drain whose file is wrong is left
    out and reported; the others count.
    """
    paths = tree.paths()
    drains = [p for p in paths if p.startswith(DRAINS)]
    found = gather(tree, [*drains, *(p for p in paths if p == MODE_FILE)])
    problems = ordered(found.problems)
    wrong = any(p.file == MODE_FILE and p.severity == "error" for p in problems)
    mode = found.policies.get("Mode")
    policy = None if wrong or mode is None else mode.value
    return policy, _values(found.drains), problems


def _catalog(found: Gathered, tree: Tree) -> Catalog | None:
    """What people signed; what does not hold is a problem of its file."""
    if CATALOG not in found.signed:
        return None
    try:
        return catalog_of(tree)
    except GridopsError as fault:
        words = "; ".join((fault.message, *(fault.evidence if isinstance(fault, Refusal) else ())))
        hint = "gridops trust verify says who signed it"
        found.problems.append(error(BAD_CATALOG, Source(CATALOG, ()).spot(1, 1), words, hint))
        return None


def _desired(found: Gathered, catalog: Catalog | None) -> Desired:
    policies = {_POLICY_FIELDS[kind]: declared.value for kind, declared in found.policies.items()}
    hosts = _values(found.hosts)
    policies["planning"] = paced(policies.get("planning") or PlanningPolicy(), hosts)
    return Desired(
        hosts=hosts,
        keys=_values(found.keys),
        drains=_values(found.drains),
        profiles=_values(found.profiles),
        catalog=catalog,
        **policies,
    )


def _values(shelf: dict[str, Declared]) -> tuple[Any, ...]:
    return tuple(shelf[name].value for name in sorted(shelf) if shelf[name].value is not None)
