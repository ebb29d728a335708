"""Whether one more replica that serves may be stopped now, by a right that no person gave for it.

Limits are judged when a target is set, and between that and the stop others may go down, or who did not serve then may
serve by now. So each command that would take the last serving process of a wanted replica away is judged once more, in
the moment in which it is queued and in that in which it is delivered. Called by `reconcile` and `issue`; counts who
really serves, not who is on the way. What people approved is not bounded, and a repair is not unless a budget names it.
"""

from __future__ import annotations

from gridops.base.ids import Digest, ReplicaId
from gridops.controller.core.budgeting import grows
from gridops.controller.core.evidence import ending
from gridops.controller.core.observe import fresh, seen
from gridops.controller.core.rights import Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.model.action import Action, Drain, Unload
from gridops.model.snapshot import Ownership, ResidencyState
from gridops.planner.budgets import Circumstances, Tally
from gridops.protocol.messages import Authority, AuthorityKind


def crowded(rights: Rights, soft: Soft, roster: Roster, action: Action, authority: Authority) -> str | None:
    """Which budget holds a command back that would disrupt a replica now; None where it disrupts nobody or may."""
    target, budgets = rights.book.target, roster.desired.budgets.of(rights.scope)
    if not isinstance(action, Drain | Unload) or authority.kind is not AuthorityKind.STANDING or target is None:
        return None
    replica = rights.now_called(action.replica)
    if not budgets.disruptions or target.assignment(replica) is None:
        return None
    serving = _serving(rights, soft, roster)
    if action.incarnation not in serving.get(replica, ()):
        return None
    told = ending(rights.state)
    if serving[replica] - told - {action.incarnation}:
        return None
    down = (a.replica for a in target.placement if a.replica != replica and not serving.get(a.replica, set()) - told)
    grown = frozenset(a.replica for a in target.placement if grows(rights, a))
    here = Circumstances(budgets=budgets, zones=soft.zones, disrupted=tuple(r for r in down if r not in grown))
    return Tally(target, here, rights.now_ms).one_more(replica, authority.action_class)


def _serving(rights: Rights, soft: Soft, roster: Roster) -> dict[ReplicaId, set[Digest]]:
    """Who is ready by the word of a host that is heard, by the name that the target has for it."""
    found: dict[ReplicaId, set[Digest]] = {}
    for report in seen(soft, roster, rights.scope, rights.now_ms).hosts:
        if not fresh(soft, roster, report.host, rights.now_ms):
            continue
        for x in report.residencies:
            if x.replica is None or x.incarnation is None or x.ownership is not Ownership.MANAGED:
                continue
            if x.state is ResidencyState.READY:
                found.setdefault(rights.now_called(x.replica), set()).add(x.incarnation)
    return found
