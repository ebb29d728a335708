"""How many replicas are disrupted at once by what nobody but automatic mode decided: rule S8.

A command that takes a serving process away, by a standing right and not for repair, disrupts its replica until as
many serve as the plan in force wants. Counted from journal rows and from what really serves, never from what the
controller counts. What people apply is not bounded: applying is how they say that it shall be done all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gridops.base.ids import Digest, ProfileName
from gridops.lab.broken import Broken
from gridops.model.plan import Plan


class Disruptions:
    """Who was told to go by a standing right."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._gone: dict[Digest, ProfileName] = {}

    def stays(self, incarnation: Digest) -> None:
        """It was never told: the command did not come about."""
        self._gone.pop(incarnation, None)

    def takes(self, incarnation: Digest, name: ProfileName, target: Plan, serving: Mapping[ProfileName, int]) -> None:
        """One more is told to go; `serving` counts who still serves without it. Raises Broken."""
        if not self._most:
            return
        wanted = Counter(a.profile for a in target.placement)
        self._gone[incarnation] = name
        for body, other in tuple(self._gone.items()):
            if serving.get(other, 0) >= wanted[other]:
                del self._gone[body]  # it was replaced, or is not wanted any more
        told = Counter(self._gone.values())
        down = {who: min(count, wanted[who] - serving.get(who, 0)) for who, count in sorted(told.items())}
        total = sum(down.values())
        if total > self._most:
            whom = ", ".join(f"{count} of {who}" for who, count in down.items())
            raise Broken("S8", f"{total} replicas are disrupted at once ({whom}), at most {self._most} may be")
