"""Who gives a turn up when all of a scope's turns are taken: what no host has heard of yet and serves a lower class.

A command that was delivered may be running and keeps its turn; equals do not take each other's (A-328, A-329). At one
priority a start is taken back before a fetch, since what was fetched is useful anyhow (A-330). Asked by `reconcile`,
which voids what is named here. Must never name a command that ends something, or one that repairs for one that does
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gridops.base.ids import HostId, ProfileName
from gridops.model.action import Load, Warm
from gridops.model.plan import Plan
from gridops.model.policy import ActionClass
from gridops.planner.authority import errand
from gridops.protocol.messages import GrantMode
from gridops.protocol.outbox import Entry

Placed = tuple[HostId, Entry]


@dataclass(slots=True)
class Queue:
    """Commands of a scope that hold a turn and that nobody has heard of, as a pass found them."""

    priorities: Mapping[ProfileName, int]
    waiting: list[Placed] = field(default_factory=list)
    coming: int = 0
    """Turns that were given up and become free when their hosts have answered."""

    def takes_what_comes(self) -> bool:
        """Whether a turn comes anyhow; each call takes one."""
        self.coming -= 1
        return self.coming >= 0

    def first_to_yield(self, profile: ProfileName, *, repair: bool) -> Placed | None:
        """What gives its turn to a step of this profile, for the caller to void; None where nothing does."""
        mine = self.priorities.get(profile, 0)
        lower = [
            (self._rank(entry), entry.body.seq, host)
            for host, entry in self.waiting
            if (entry.authority.action_class is ActionClass.REPAIR) == repair
        ]
        rank, seq, host = min(lower, default=((mine, False), 0, HostId("")))
        if rank[0] >= mine:
            return None
        found = next((h, e) for h, e in self.waiting if (h, e.body.seq) == (host, seq))
        self.waiting.remove(found)
        return found

    def _rank(self, entry: Entry) -> tuple[int, bool]:
        """The lowest goes first: of a class, starts before fetches."""
        return self.priorities.get(entry.body.action.profile, 0), isinstance(entry.body.action, Load)


def queue_of(target: Plan, entries: Iterable[Placed]) -> Queue:
    """From the open commands of a scope to hosts that are heard."""
    queue = Queue({terms.profile: terms.priority for terms in target.terms})
    for host, entry in entries:
        if entry.delivered:
            continue
        if entry.wanted is GrantMode.VOID:
            queue.coming += 1
        elif isinstance(entry.body.action, Load | Warm) and errand(entry.body.action) is None:
            queue.waiting.append((host, entry))
    return queue
