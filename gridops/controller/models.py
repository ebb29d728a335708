"""One line per model for status: what is wanted, what answers, the one reason that matters, and what to type next.

Scaling up is progress, not damage: a model is degraded only when it has fewer ready replicas than its target already
had standing, when a step for it failed more than once, or when nobody starts again what is down unless a person
decides it. Called by `views` and `metrics`; it decides nothing: what is given up, `given_up` says.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.ids import HostId, ProfileName, ReplicaId, ScopeName, short
from gridops.base.units import counted
from gridops.controller.core.given_up import given_up
from gridops.controller.core.learned import RETRIABLE, RETRIES
from gridops.controller.core.modes import permitted
from gridops.controller.core.observe import fresh
from gridops.controller.core.rights import Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import ScopeBook, State
from gridops.controller.documents import ModelDoc
from gridops.model.plan import Plan
from gridops.model.snapshot import Ownership, Residency, ResidencyState
from gridops.planner.world import GivenUp

Standing = dict[ReplicaId, list[tuple[HostId, Residency]]]
NOTE_CHARS = 300


@dataclass(frozen=True, slots=True)
class _Seen:
    """What every line of a scope is made from."""

    book: ScopeBook
    plan: Plan | None
    roster: Roster
    standing: Standing
    down: tuple[GivenUp, ...]
    failing: dict[tuple[HostId, ProfileName], str]
    """What was tried more than once on a host and failed each time."""


def models(state: State, soft: Soft, roster: Roster, scope: ScopeName, now_ms: int) -> tuple[ModelDoc, ...]:
    """Every declared, placed or still resident model of a scope, by name."""
    book, plan = state.scope(scope), soft.scope(scope).candidate
    standing = _standing(soft, roster, scope, now_ms)
    rights = Rights(state, scope, permitted(state, scope, now_ms), soft.chain, now_ms)
    seen = _Seen(book, plan, roster, standing, given_up(rights, soft, roster), _failing(state))
    names = {p.name for p in roster.profiles_of(scope)}
    names |= {a.profile for a in book.target.placement} if book.target is not None else set()
    names |= {r.profile for found in standing.values() for _, r in found}
    return tuple(_model(name, seen) for name in sorted(names))


def _model(name: ProfileName, seen: _Seen) -> ModelDoc:
    book, plan, roster = seen.book, seen.plan, seen.roster
    mine = {k: v for k, v in seen.standing.items() if any(r.profile == name for _, r in v)}
    down = [g for g in seen.down if g.replica.rpartition("/")[0] == name]
    ready = [h for found in mine.values() for h, r in found if r.state is ResidencyState.READY]
    placed = [a for a in book.target.placement if a.profile == name] if book.target is not None else []
    unplaced = [u for u in plan.report.unplaced if u.replica.rpartition("/")[0] == name] if plan is not None else []
    wanted = (
        len({a.replica for a in plan.placement if a.profile == name}) + len(unplaced)
        if plan is not None
        else len(placed)
    )
    declared = any(p.name == name for p in roster.desired.profiles)
    state, note = _word(ready, placed_count=len(placed), wanted=wanted, mine=mine)
    tried = [seen.failing[key] for a in placed if (key := (a.seat.host, name)) in seen.failing]
    if down:
        state, note = "Degraded", down[0].cause.detail
    elif tried and state == "Progressing":
        state, note = "Degraded", tried[0]
    if unplaced and state in ("Ready", "Idle", "Unplaced"):
        state, note = "Unplaced", unplaced[0].detail
    if not declared:
        state, note = ("Retired", f"{len(mine)} still here") if mine or placed else ("Retired", "")
    return ModelDoc(
        profile=name,
        want=wanted,
        ready=len(ready),
        state=state,
        note=note[:NOTE_CHARS],
        command=_command(name, down, book) if state in ("Degraded", "Unplaced") else "",
        hosts=tuple(sorted(set(ready))),
    )


def _command(name: ProfileName, down: list[GivenUp], book: ScopeBook) -> str:
    """A plan that waits and starts what is down again is applied; whatever else is wrong is explained first."""
    waits = book.proposal.plan if book.proposal is not None else None
    if waits is None or not {g.replica for g in down} & {d.replica for d in waits.to_do}:
        return f"gridops explain {name}"
    names = sorted({d.profile for d in waits.to_do if d.last_replica})
    return " ".join((f"gridops apply {short(waits.decisions_digest)}", *(f"--confirm {n}" for n in names)))


def _word(ready: list[HostId], placed_count: int, wanted: int, mine: Standing) -> tuple[str, str]:
    if wanted == 0 and placed_count == 0 and not mine:
        return "Idle", ""
    broken = [(h, r) for found in mine.values() for h, r in found if r.state is ResidencyState.FAILED]
    if broken:
        host, residency = broken[0]
        return "Degraded", f"failed on {host}" + (f": {residency.detail}" if residency.detail else "")
    moving = [(h, r) for found in mine.values() for h, r in found if r.state is not ResidencyState.READY]
    going = bool(moving) and not ready and wanted == placed_count == 0
    if len(ready) >= wanted and len(ready) >= placed_count and not going:
        return "Ready", ""
    if moving:
        host, residency = moving[0]
        return "Progressing", f"{residency.state.value} on {host}"
    if placed_count < wanted:
        return "Progressing", "waits for a plan"
    return "Progressing", "not reported yet"


def _failing(state: State) -> dict[tuple[HostId, ProfileName], str]:
    return {
        (host, profile): f"{kind} on {host} failed {counted(tried.failures, 'time')} ({tried.code or 'no code'})"
        for host, book in sorted(state.hosts.items())
        for (kind, profile), tried in sorted(book.attempts.items())
        if tried.failures > (1 if tried.code not in RETRIABLE else RETRIES)
    }


def _standing(soft: Soft, roster: Roster, scope: ScopeName, now_ms: int) -> Standing:
    """Managed residencies on hosts that answer: a silent host counts as zero."""
    found: Standing = {}
    for host, heard in sorted(soft.hosts.items()):
        if roster.scope_of(host) != scope or not fresh(soft, roster, host, now_ms):
            continue
        for residency in heard.report.residencies:
            if residency.ownership is Ownership.MANAGED and residency.replica is not None and _lives(residency):
                found.setdefault(residency.replica, []).append((host, residency))
    return found


def _lives(residency: Residency) -> bool:
    return residency.state not in (ResidencyState.ABSENT, ResidencyState.CACHED)
