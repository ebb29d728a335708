"""What `gridops explain PROFILE` lists: every replica of a profile with its state, one reason, and the way to more.

Called by `cli.explain`. It takes states from the snapshot and reasons from the plan, and adds none of its own; a
replica that nobody observed is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gridops.base.ids import HostId, ProfileName, ReplicaId, split_replica
from gridops.base.units import counted
from gridops.cli.tables import table
from gridops.model.plan import DecisionKind, Plan
from gridops.model.snapshot import HostReport, Ownership, Residency, ResidencyState, Snapshot
from gridops.planner.render_words import ASCII, Symbols, nowhere, seat, why

SCHEMA = "gridops.explain-profile/1"
NOWHERE = "nowhere"
UNSETTLED = frozenset({ResidencyState.FAILED, ResidencyState.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Line:
    """One replica: where it stands or shall stand, what is known of it there, and why."""

    replica: ReplicaId
    where: str
    state: str
    reason: str
    interest: int
    """What people ask about first is lowest: stands nowhere, is to be touched, is not ready, is as it shall be."""


def lines_of(plan: Plan, profile: ProfileName, snapshot: Snapshot | None, symbols: Symbols = ASCII) -> list[Line]:
    """The replicas of a profile in this plan, by number; empty when it wants none and had none."""
    return [_line(plan, replica, snapshot, symbols) for replica in replicas_of(plan, profile)]


def replicas_of(plan: Plan, profile: ProfileName | None = None) -> list[ReplicaId]:
    """Every replica that a plan places, decides about or leaves out; of one profile, or of all."""
    placed = {a.replica for a in plan.placement}
    every = placed | {d.replica for d in plan.decisions} | {u.replica for u in plan.report.unplaced}
    return sorted((r for r in every if profile in (None, split_replica(r)[0])), key=split_replica)


def text_lines(plan: Plan, profile: ProfileName, found: Sequence[Line], more: str, name: str) -> list[str]:
    """The list for people. `more` is the command that explains one replica, without its name; `name` is the plan's."""
    rows = [(line.replica, line.where, line.state, line.reason) for line in found]
    first = min(found, key=lambda line: line.interest)
    state = " (planned from declarations alone, so that no state is known)" if plan.hypothetical else ""
    return [
        f"{profile}: {counted(len(found), 'replica')}, {name}{state}",
        "",
        *table(("REPLICA", "WHERE", "STATE", "REASON"), rows),
        "",
        f"More: {more} {first.replica}",
    ]


def document(plan: Plan, profile: ProfileName, found: Sequence[Line], more: str) -> dict[str, Any]:
    """The list for machines."""
    return {
        "schema": SCHEMA,
        "profile": profile,
        "plan": plan.id,
        "hypothetical": plan.hypothetical,
        "replicas": [
            {
                "replica": line.replica,
                "where": None if line.where == NOWHERE else line.where,
                "state": line.state,
                "reason": line.reason,
                "more": f"{more} {line.replica}",
            }
            for line in found
        ],
    }


def _line(plan: Plan, replica: ReplicaId, snapshot: Snapshot | None, symbols: Symbols) -> Line:
    assignment = plan.assignment(replica)
    decision = next((d for d in plan.decisions if d.replica == replica), None)
    unplaced = next((u for u in plan.report.unplaced if u.replica == replica), None)
    source = decision.source if decision is not None else None
    place = assignment.seat if assignment is not None else source
    state, detail = _state(replica, place.host if place is not None else None, snapshot)
    if unplaced is not None:
        reason, interest = nowhere(unplaced), 0
    elif decision is not None:
        verb = "" if decision.kind is DecisionKind.CANNOT_PLACE else f"{decision.kind.value}: "
        reason, interest = f"{verb}{why(decision, symbols.arrow)}", 1
    else:
        reason, interest = "stays as it is", 3 if state == ResidencyState.READY.value else 2
    shown = seat(place, plan) if place is not None else NOWHERE
    return Line(replica, shown, state, f"{reason}; {detail}" if detail else reason, interest)


def _state(replica: ReplicaId, host: HostId | None, snapshot: Snapshot | None) -> tuple[str, str]:
    """What is known of it on the host where it shall stand, else of the copy that runs elsewhere; and its detail."""
    if snapshot is None:
        return ResidencyState.UNKNOWN.value, ""
    copies = [(report, r) for report in snapshot.hosts for r in report.residencies if _is(r, replica)]
    copies.sort(key=lambda copy: (copy[0].host != host, copy[0].host))
    if not copies:
        heard = host is None or snapshot.host(host) is not None
        return (ResidencyState.ABSENT if heard else ResidencyState.UNKNOWN).value, ""
    report, residency = copies[0]
    return residency.state.value, _detail(report, residency, host)


def _is(residency: Residency, replica: ReplicaId) -> bool:
    return residency.ownership is Ownership.MANAGED and residency.replica == replica


def _detail(report: HostReport, residency: Residency, host: HostId | None) -> str:
    elsewhere = f"runs on {report.host} now" if host is not None and report.host != host else ""
    said = residency.detail or "" if residency.state in UNSETTLED else ""
    return "; ".join(part for part in (elsewhere, said) if part)
