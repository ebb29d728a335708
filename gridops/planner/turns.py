"""Whose turn it is when not every step can go at once: the order of steps, and for whom a process leaves.

Priority first, and a process that leaves for somebody counts as that one does; who leaves for nobody goes last. Among
equals what the file asks for comes before what demand adds, what can serve soon before what has to be fetched, and one
replica of each profile before the second of any. Where others are to leave, those that are nearly gone and those that
are idle go first, and the seat that lacks the fewest steps. Called by `actions`; it decides no step and drops none.
"""

from __future__ import annotations

from collections import Counter

from gridops.base.ids import Digest, HostId, ReplicaId, replica_key
from gridops.model.action import Action, Drain, Unload
from gridops.model.plan import Assignment, CauseKind, Decision, DecisionKind
from gridops.model.snapshot import Residency, ResidencyState
from gridops.planner.scene import Scene

Rank = tuple[int, int, int, int, int, int, int, int, int, tuple[str, int], str]
_PHASES = ("load", "warm", "operate", "unload", "drain")
_AT_ONCE, _MAKES_ROOM, _AFTER_A_FETCH = range(3)
_FOR_OTHERS = {DecisionKind.REMOVE: CauseKind.DISPLACED, DecisionKind.MOVE: CauseKind.REBALANCE}
"""A process that leaves by such a decision serves, and leaves for the sake of others alone."""


class Turns:
    """The order of one pass. What does not depend on single steps is counted once."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._decisions = {d.replica: d for d in scene.target.to_do}
        self._arrivals: dict[tuple[int, HostId], list[Assignment]] = {}
        """By change set and host: who is to come there and has not."""
        for decision in scene.target.to_do:
            a = scene.assignment(decision.replica)
            if a is not None and decision.target == a.seat and a.replica not in scene.adopted:
                self._arrivals.setdefault((decision.change_set, a.seat.host), []).append(a)
        self._position = _positions(scene)
        self._busy: set[Digest] = set()
        self._lacking: Counter[tuple[int, HostId]] = Counter()
        """Steps until the place is free."""
        for host, residency in scene.obsolete():
            if residency.in_flight and residency.incarnation is not None:
                self._busy.add(residency.incarnation)
            gone = self._leaves(host, residency.replica)
            if gone is not None:
                self._lacking[gone.change_set, host] += 1 if _is_going(residency) else 2

    def unfetched(self, host: HostId, replica: ReplicaId) -> ReplicaId | None:
        """Who takes the place of a process that serves, as long as its files are not there: until then it serves on."""
        decision = self._leaves(host, replica)
        if decision is None or _FOR_OTHERS.get(decision.kind) is not decision.cause.kind:
            return None
        coming = self._arrivals.get((decision.change_set, host), ())
        return next((a.replica for a in coming if not self._is_fetched(a)), None)

    def rank(self, action: Action, replica: ReplicaId) -> Rank:
        """Lower goes first."""
        phase, last = _PHASES.index(action.kind), replica_key(replica)
        if not isinstance(action, Drain | Unload):
            a = self._scene.assignment(self._scene.now_called(replica))
            stage = _AT_ONCE if a is None or self._is_fetched(a) else _AFTER_A_FETCH
            weight, beyond, share, start_ms = self._weight(self._scene.now_called(replica))
            return 0, weight, beyond, stage, phase, 0, 0, share, start_ms, last, action.host
        busy = int(action.incarnation in self._busy)
        decision = self._leaves(action.host, replica)
        group = (decision.change_set, action.host) if decision is not None else None
        coming = self._arrivals.get(group, []) if group is not None else []
        if group is None or not coming:
            return 1, -self._scene.priority(action.profile), 0, 0, phase, busy, 0, 0, 0, last, action.host
        weight, beyond, share, start_ms = min(self._weight(a.replica) for a in coming)
        lacking = self._lacking[group]
        return 0, weight, beyond, _MAKES_ROOM, phase, busy, lacking, share, start_ms, last, action.host

    def _weight(self, replica: ReplicaId) -> tuple[int, int, int, int]:
        """Priority, beyond what the file asks for, how many its profile has before it, and the time until it serves."""
        scene, position = self._scene, self._position.get(replica, 0)
        terms, decision = scene.terms_of(scene.profile_of(replica)), self._decisions.get(replica)
        start_ms = decision.cost.start_ms if decision is not None else 0
        return -terms.priority, int(position >= max(1, terms.replicas_min)), position, start_ms

    def _leaves(self, host: HostId, replica: ReplicaId | None) -> Decision | None:
        """The decision by which it leaves this host."""
        decision = self._decisions.get(self._scene.now_called(replica)) if replica is not None else None
        return (
            decision if decision is not None and decision.source is not None and decision.source.host == host else None
        )

    def _is_fetched(self, a: Assignment) -> bool:
        report, launch = self._scene.reports.get(a.seat.host), self._scene.launches.get(a.launch)
        return report is None or launch is None or {f.sha256 for f in launch.artifact.files}.issubset(report.cached)


def _positions(scene: Scene) -> dict[ReplicaId, int]:
    """How many of its profile each replica has before it: those that are there already, then by number."""
    found: dict[ReplicaId, int] = {}
    had: Counter[str] = Counter()
    for a in sorted(scene.target.placement, key=lambda a: (a.replica not in scene.adopted, replica_key(a.replica))):
        found[a.replica] = had[a.profile]
        had[a.profile] += 1
    return found


def _is_going(residency: Residency) -> bool:
    return residency.state in (ResidencyState.DRAINING, ResidencyState.FAILED)
