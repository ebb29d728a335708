"""Whether one more replica that serves may be stopped now, by a right that no person gave for it.

Limits are judged when a target is set, and between that and the stop others may go down, or who did not serve then may
serve by now. So each command that would take the last serving process of a wanted replica away is judged once more, in
the moment in which it is queued and in that in which it is delivered. Called by `reconcile` and `issue`; counts who
really serves, not who is on the way. What people approved is not bounded, and a repair is not unless a budget names it.
"""

from __future__ import annotations

from functools import cached_property

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


class Service:
    """Who serves in a scope at one moment, less whoever is told to go from then on. Read when it is first asked."""

    def __init__(self, rights: Rights, soft: Soft, roster: Roster) -> None:
        self._rights, self._soft, self._roster = rights, soft, roster
        self._budgets = roster.desired.budgets.of(rights.scope)

    def crowded(self, action: Action, authority: Authority) -> str | None:
        """Which budget holds a command back that would disrupt a replica; None where it disrupts nobody or may."""
        target, replica = self._rights.book.target, self._rights.now_called(action.replica)
        if authority.kind is not AuthorityKind.STANDING or not self._budgets.disruptions or target is None:
            return None
        if target.assignment(replica) is None or not self._takes_the_last(action, replica):
            return None
        others = tuple(one for one in self._down if one != replica)
        here = Circumstances(budgets=self._budgets, zones=self._soft.zones, disrupted=others)
        return Tally(target, here, self._rights.now_ms).one_more(replica, authority.action_class)

    def told(self, action: Action) -> None:
        """It was queued: whoever is to go by it serves no more."""
        if not self._budgets.disruptions or not isinstance(action, Drain | Unload):
            return
        replica = self._rights.now_called(action.replica)
        if self._takes_the_last(action, replica):
            self._down.setdefault(replica)
        self._ending.add(action.incarnation)

    def _takes_the_last(self, action: Action, replica: ReplicaId) -> bool:
        ready = self._ready.get(replica, set())
        if not isinstance(action, Drain | Unload) or action.incarnation not in ready:
            return False
        return not ready - self._ending - {action.incarnation}

    @cached_property
    def _ending(self) -> set[Digest]:
        return set(ending(self._rights.state))

    @cached_property
    def _down(self) -> dict[ReplicaId, None]:
        """Wanted, served before, and served by nobody, in the order of the plan."""
        target = self._rights.book.target
        placed = target.placement if target is not None else ()
        out = (a for a in placed if not self._ready.get(a.replica, set()) - self._ending)
        return {a.replica: None for a in out if not grows(self._rights, a)}

    @cached_property
    def _ready(self) -> dict[ReplicaId, set[Digest]]:
        """Who is ready by the word of a host that is heard, by the name that the target has for it."""
        rights, found = self._rights, dict[ReplicaId, set[Digest]]()
        for report in seen(self._soft, self._roster, rights.scope, rights.now_ms).hosts:
            if not fresh(self._soft, self._roster, report.host, rights.now_ms):
                continue
            for x in report.residencies:
                if x.replica is None or x.incarnation is None or x.ownership is not Ownership.MANAGED:
                    continue
                if x.state is ResidencyState.READY:
                    found.setdefault(rights.now_called(x.replica), set()).add(x.incarnation)
        return found
