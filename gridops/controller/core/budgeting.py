"""What a scope's limits are judged against now: what was moved lately, and what goes on by the plan in force.

Called before automatic mode lets anything through. It counts what is under way, whoever decided it; the limits
themselves, and what each change set asks of them, are `planner.budgets`.
"""

from __future__ import annotations

from gridops.base.ids import HostId, ReplicaId
from gridops.controller.core.attempts import under_way
from gridops.controller.core.observe import fresh, seen
from gridops.controller.core.rights import Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.model.plan import Assignment
from gridops.model.policy import ActionClass
from gridops.model.snapshot import LIVE_STATES, Ownership, Residency, ResidencyState
from gridops.planner.budgets import Circumstances


def circumstances(rights: Rights, soft: Soft, roster: Roster) -> Circumstances:
    """What the budgets are judged against."""
    running = _running(rights, soft, roster)
    late = [a for a in _placement(rights) if not _arrived(a, running.get(a.replica, []))]
    return Circumstances(
        budgets=roster.desired.budgets.of(rights.scope),
        zones=soft.zones,
        moved_ms=tuple(rights.book.moves),
        moving=tuple(a.replica for a in late if _moves(rights, a, running.get(a.replica, []))),
        under_way=under_way(rights),
        disrupted=tuple(a.replica for a in late if not grows(rights, a)),
    )


def _placement(rights: Rights) -> tuple[Assignment, ...]:
    target = rights.book.target
    return target.placement if target is not None else ()


def _running(rights: Rights, soft: Soft, roster: Roster) -> dict[ReplicaId, list[tuple[HostId, Residency]]]:
    """What hosts that are heard say of each replica, by the name that the target has for it."""
    found: dict[ReplicaId, list[tuple[HostId, Residency]]] = {}
    for report in seen(soft, roster, rights.scope, rights.now_ms).hosts:
        if not fresh(soft, roster, report.host, rights.now_ms):
            continue
        for x in report.residencies:
            if x.replica is not None and x.ownership is Ownership.MANAGED and x.state in LIVE_STATES:
                found.setdefault(rights.now_called(x.replica), []).append((report.host, x))
    return found


def _arrived(a: Assignment, running: list[tuple[HostId, Residency]]) -> bool:
    """It serves where the target wants it, as the target wants it."""
    return any(h == a.seat.host and x.identity == a.launch and x.state is ResidencyState.READY for h, x in running)


def _moves(rights: Rights, a: Assignment, running: list[tuple[HostId, Residency]]) -> bool:
    """It is on its way from another host, and not for repair."""
    warrant = rights.book.warrants.get(a.replica)
    optional = warrant is not None and warrant.action_class is not ActionClass.REPAIR
    return optional and any(h != a.seat.host for h, _ in running)


def grows(rights: Rights, a: Assignment) -> bool:
    """It is new and has never served: nobody is disrupted by waiting for it."""
    warrant = rights.book.warrants.get(a.replica)
    grows = warrant is not None and warrant.action_class is ActionClass.SCALE_UP
    return grows and a.replica not in rights.book.carried_out
