"""A controller's memory made anew: from git what was in force, from the hosts, as they report, what they did.

`gridops controller rebuild` calls it while no controller runs. The old journal is kept aside. The newest applied plan
of each scope becomes its target again, but without anybody's authority; hosts' heads, open commands and receipts are
adopted when they speak, and the write term rises above what they obey. Residencies match the target, so no engine
restarts. What cannot come back (freezes, invitations, proposals, locks) is named.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

from gridops import __version__
from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import PlanId, ScopeName
from gridops.controller.clock import MachineClock
from gridops.controller.core import rows as r
from gridops.controller.core.intend import chain_of, judge_commit
from gridops.controller.lineage import Base
from gridops.controller.polls import peek
from gridops.controller.project import Place
from gridops.controller.service import Opening
from gridops.controller.start import Ground, newest_valid
from gridops.controller.writer import Writer, open_authority
from gridops.disk.quarantine import set_aside
from gridops.files.plandoc import read_plan
from gridops.files.projection import PlanBranch, PlanPlace
from gridops.model.plan import Plan
from gridops.store.authority import JOURNAL, Authority
from gridops.store.errors import Damaged
from gridops.trust.root import RootChain

_APPLIED = re.compile(r"^applied_ms: (\d{1,16})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """What was found again."""

    commit: str
    targets: tuple[tuple[ScopeName, PlanId, int], ...]
    """Scope, plan in force, replicas."""
    kept: Path | None
    """Where the old journal lies now."""
    rows: int


def rebuild(found: Ground, opening: Opening) -> Memory:
    """Make the journal anew. Raises Busy while a controller runs, Refusal for a plan document that does not verify."""
    roots, before = opening.roots, opening.state.accepted()
    chain = chain_of(roots)
    commit = newest_valid(found, Base(before.commit if before is not None else None, chain, roots, alone=True))
    branch = Place(found.checkout, found.settings, found.source.branch, opening.state.signer()).branch()
    applied = newest_applied(branch, chain)
    kept = _set_old_aside(opening.state.path, chain.root.controller_epoch)
    authority, _ = open_authority(opening.state.path, chain.root.controller_epoch)
    writer = Writer(authority)
    try:
        now_ms = MachineClock().wall_ms()
        rows: list[r.Row] = [r.Started(version=__version__)]
        rows += [r.RootTaken(version=n, text=text) for n, text in enumerate(roots, 1)]
        writer.record(rows, now_ms)
        writer.record(judge_commit(writer.state, chain, commit).rows, now_ms)
        for plan, applied_ms in applied:
            writer.record((r.TargetRestored(plan=plan, applied_ms=applied_ms),), now_ms)
        writer.record((r.Rebuilt(plans=tuple(plan.id for plan, _ in applied)),), now_ms)
        writer.flush()
        targets = tuple((plan.scope, plan.id, len(plan.placement)) for plan, _ in applied)
        return Memory(commit.commit, targets, kept, writer.length)
    finally:
        writer.close()


def newest_applied(branch: PlanBranch, chain: RootChain) -> tuple[tuple[Plan, int], ...]:
    """The plan that was applied last in each scope, verified, and when."""
    newest: dict[ScopeName, tuple[int, PlanPlace]] = {}
    for place in branch.places():
        applied_ms = _applied_ms(branch.result_text(place)) if place.finished else None
        if applied_ms is not None and (place.scope not in newest or applied_ms >= newest[place.scope][0]):
            newest[place.scope] = (applied_ms, place)
    plans: list[tuple[Plan, int]] = []
    for _, (applied_ms, place) in sorted(newest.items()):
        stored = branch.read(place.id, place.scope)
        try:
            plan = read_plan(stored.yaml, stored.envelope, chain.plan_keys(), file=branch.plan_file(place))
        except Refusal as refusal:
            raise _of_which_fleet(refusal, stored.envelope, chain, branch) from refusal
        if plan.fleet == chain.fleet and plan.scope == place.scope:
            plans.append((plan, applied_ms))
    return tuple(plans)


def _of_which_fleet(refusal: Refusal, envelope: str, chain: RootChain, branch: PlanBranch) -> Refusal:
    """The same, with the way out where a fleet was founded again in a repository that holds plans of the one before.

    They are not passed over: whoever may write there could make any plan say that it is another fleet's.
    """
    with contextlib.suppress(Refusal):
        said, name = peek(envelope, limits.PLAN_BYTES).get("fleet"), branch.branch.name
        if said != chain.fleet:
            what = f"{refusal.message}; it says that it is a plan of fleet {said}, and this one is {chain.fleet}"
            move = f"git branch -m {name} {name}-before, and the same at the remote"
            way = f"if this fleet was founded again, move those of before away: {move}; or the folder {branch.path}/"
            return Refusal(
                refusal.code, what, subject=refusal.subject, evidence=refusal.evidence, hints=(*refusal.hints, way)
            )
    return refusal


def _applied_ms(result: str | None) -> int | None:
    found = _APPLIED.search(result) if result is not None else None
    return int(found.group(1)) if found is not None else None


def _set_old_aside(folder: Path, epoch: int) -> Path | None:
    """Hold the lock once, so that no controller runs; then keep the old journal under another name."""
    journal = folder / JOURNAL
    existed = journal.exists()
    try:
        Authority.open(folder, epoch).close()
    except Damaged as damaged:
        return damaged.kept
    return set_aside(journal, "gridops controller rebuild", time.time_ns() // 1_000_000) if existed else None
