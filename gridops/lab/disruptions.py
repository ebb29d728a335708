"""How many replicas are disrupted at once by what nobody but automatic mode decided: rule S8.

A command that takes a serving process away, by a standing right and not for repair, disrupts its replica until as
many serve as the plan in force wants, or as did before: whoever is new and has never served is missed by nobody.
Counted from journal rows and from what really serves, never from what the controller counts. What people apply is not
bounded: applying is how they say that it shall be done all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set

from gridops.base.ids import Digest, ProfileName, ReplicaId
from gridops.lab.broken import Broken
from gridops.model.action import Drain, Unload
from gridops.model.plan import Plan


class Disruptions:
    """Who was told to go by a standing right."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._gone: dict[Digest, tuple[ProfileName, int]] = {}
        """Whom it was of, and how many replicas of that profile served before."""

    def stays(self, incarnation: Digest) -> None:
        """It was never told: the command did not come about."""
        self._gone.pop(incarnation, None)

    def takes(self, action: Drain | Unload, target: Plan, serving: Mapping[ProfileName, Set[ReplicaId]]) -> None:
        """One more is told to go; `serving` is who still serves without it. Raises Broken."""
        if not self._most:
            return
        wanted = Counter(a.profile for a in target.placement)
        before = len({*serving.get(action.profile, ()), action.replica})
        self._gone[action.incarnation] = action.profile, before
        left = {who: len(serving.get(who, ())) for who, _ in self._gone.values()}
        for body, (who, served) in tuple(self._gone.items()):
            if left[who] >= min(wanted[who], served):
                del self._gone[body]  # it was replaced, or is not wanted any more
        told = Counter(who for who, _ in self._gone.values())
        most = {who: max(served for other, served in self._gone.values() if other == who) for who in sorted(told)}
        down = {who: min(told[who], min(wanted[who], served) - left[who]) for who, served in most.items()}
        total = sum(down.values())
        if total > self._most:
            whom = ", ".join(f"{count} of {who}" for who, count in down.items())
            raise Broken("S8", f"{total} replicas are disrupted at once ({whom}), at most {self._most} may be")
