"""What is under way while a pass queues more: counted once, and kept up with each command that is queued.

`reconcile` asks before every step whether a limit holds it. Counting all commands of the fleet anew for each step would
make a pass grow with the square of the fleet; the counts are kept by the two questions that tell commands apart: is it
repair, which waits for repair alone, and is it an errand, which nothing that was decided waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gridops.base.canon import digest
from gridops.base.ids import Digest, HostId, ScopeName
from gridops.controller.core.state import Uncertain
from gridops.model.action import Action, Load
from gridops.model.policy import ActionClass
from gridops.planner.authority import errand
from gridops.protocol.outbox import Entry


@dataclass(slots=True)
class Counts:
    """Commands under way of one kind of standing."""

    in_scope: int = 0
    fetching: Counter[HostId] = field(default_factory=Counter)
    artifacts: Counter[Digest] = field(default_factory=Counter)


class Going:
    """Open commands to hosts that are heard. Those of a silent host hold its own devices and nobody's turn."""

    def __init__(self, scope: ScopeName, heard: Callable[[HostId], bool]) -> None:
        self._scope = scope
        self._heard = heard
        self._counts: dict[tuple[bool, bool], Counts] = {}
        self._effects: dict[HostId, list[Entry]] = {}

    def add(self, host: HostId, entries: Iterable[Entry]) -> None:
        """These are under way on a host."""
        if not self._heard(host):
            return
        for entry in entries:
            action = entry.body.action
            kind = entry.authority.action_class is ActionClass.REPAIR, errand(action) is not None
            counts = self._counts.setdefault(kind, Counts())
            counts.in_scope += entry.body.scope == self._scope
            if isinstance(action, Load):
                counts.fetching[host] += 1
                counts.artifacts[artifact(action)] += 1
            else:
                self._effects.setdefault(host, []).append(entry)

    def keep(self, host: HostId, uncertain: Iterable[Uncertain]) -> None:
        """Nobody knows whether these are over: they keep their turns."""
        for known in uncertain if self._heard(host) else ():
            kind = known.action_class is ActionClass.REPAIR, errand(known.action) is not None
            counts = self._counts.setdefault(kind, Counts())
            counts.in_scope += known.scope == self._scope
            if isinstance(known.action, Load):
                counts.fetching[host] += 1
                counts.artifacts[artifact(known.action)] += 1

    def beside(self, action: Action, *, repair: bool) -> Counts:
        """What counts before an action: repair waits for repair alone, and only an errand waits for errands."""
        errands = errand(action) is not None
        found = [
            counts
            for (mends, guessed), counts in sorted(self._counts.items())
            if (mends or not repair) and (errands or not guessed)
        ]
        if len(found) == 1:
            return found[0]
        mine = Counts(in_scope=sum(c.in_scope for c in found))
        if isinstance(action, Load):
            mine.fetching[action.host] = sum(c.fetching[action.host] for c in found)
            mine.artifacts[artifact(action)] = sum(c.artifacts[artifact(action)] for c in found)
        return mine

    def effects(self, host: HostId) -> tuple[Entry, ...]:
        """Commands on a host that are no transfers: what its devices may be busy with."""
        return tuple(self._effects.get(host, ()))


def artifact(action: Load) -> Digest:
    """Two loads of the same files have the same one, by whatever names their profiles call them."""
    return digest(sorted({f.sha256 for f in action.artifact.files}))
