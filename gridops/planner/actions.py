"""From target and snapshot to steps: what may be done now, and what waits for what. Recomputed at every pass.

Called by the controller, which issues every step that waits for nothing; the others are for people to read. Rules:
make before break; the last serving replica goes only when the target itself gives its profile up; a process is asked to
stop only after its drain has ended with nothing in flight; what nobody can vouch for is left alone; a host that is
silent or not admitted gets no step. Plans are never changed here, and nothing is remembered between passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gridops.base.ids import Digest, HostId, ReplicaId, replica_key
from gridops.base.units import counted
from gridops.footprint.share import share_ppm, takes_share
from gridops.model.action import Action, DeviceShare, Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.advice import Advice
from gridops.model.intent import Desired
from gridops.model.plan import Assignment, Plan, Terms
from gridops.model.policy import ActionClass
from gridops.model.profile import Downtime
from gridops.model.snapshot import Residency, ResidencyState, Snapshot
from gridops.planner import errands
from gridops.planner.authority import errand
from gridops.planner.scene import Scene, set_scene
from gridops.planner.turns import Turns

ON_THEIR_WAY = (ResidencyState.DRAINING, ResidencyState.FAILED)
"""What leaves next gives its room back: whoever still serves is not stopped for that room meanwhile."""
NO_TERMS: Mapping[Digest, Terms] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Step:
    """One action and, if it may not begin yet, what it waits for in words."""

    action: Action
    action_class: ActionClass
    replica: ReplicaId
    waits_for: str | None = None
    room: bool = False
    """It waits for room that those who leave its host still hold, and for nothing else."""


def actions(
    target: Plan,
    snapshot: Snapshot,
    now_ms: int,
    *,
    desired: Desired | None = None,
    applied_terms: Mapping[Digest, Terms] = NO_TERMS,
    retry: frozenset[ReplicaId] = frozenset(),
    ending: frozenset[Digest] = frozenset(),
    advice: Advice | None = None,
) -> tuple[Step, ...]:
    """The steps from here to the target, in the order in which they are given (`turns`).

    `desired` (the last valid intent) says who is admitted or drained and what is reserved; without it every host that
    reports counts. `applied_terms` are the terms that each incarnation is known to act by. `retry` names replicas
    whose failed process may be cleared away for another attempt. `ending` names processes that were told to end and
    may have begun to, whatever their hosts reported last: nobody else goes because they serve. `advice` of the newest
    plan adds what may be done on disks meanwhile; it comes last and takes no turn from anything.
    """
    scene = set_scene(target, snapshot, now_ms, desired)
    work = _Work(scene, applied_terms, retry, ending)
    for assignment in sorted(target.placement, key=lambda a: (-scene.priority(a.profile), replica_key(a.replica))):
        work.towards(assignment)
    for host, residency in scene.obsolete():
        work.away(host, residency)
    planned = sorted(work.steps, key=lambda s: work.turns.rank(s.action, s.replica))
    return (*planned, *_errands(scene, planned, advice or Advice(), now_ms))


def _errands(scene: Scene, planned: Sequence[Step], advice: Advice, now_ms: int) -> Iterator[Step]:
    """Files that are needed come first: a host that has some to fetch fetches no guess."""
    busy = {s.action.host: s.replica for s in reversed(planned) if isinstance(s.action, Load)}
    found: list[Load | Evict] = [*errands.fetches(scene, advice, now_ms), *errands.evictions(scene, advice)]
    for action in found:
        group = errand(action)
        assert group is not None
        first = busy.get(action.host) if isinstance(action, Load) else None
        yield Step(action, group, action.replica, f"the files of {first}, which is needed" if first else None)


class _Work:
    """One pass. Keeps count of memory given out and of replicas that still serve, so that steps add up."""

    def __init__(
        self, scene: Scene, applied: Mapping[Digest, Terms], retry: frozenset[ReplicaId], ending: frozenset[Digest]
    ) -> None:
        self.scene, self.applied, self.retry, self.ending = scene, applied, retry, ending
        self.turns = Turns(scene)
        self.steps: list[Step] = []
        self.serving = {replica: found - ending for replica, found in scene.serving().items()}
        """Incarnations that serve and were not told to end, by the replica they serve as."""
        self.blocked: dict[ReplicaId, str] = {}
        """Replicas whose start waits for memory of their own former self, and of nobody who is on the way out."""
        self.short: dict[ReplicaId, Assignment] = {}
        """Replicas whose start waits for memory of anybody, the most important first."""
        self._fetching: set[tuple[HostId, Digest]] = set()

    def towards(self, a: Assignment) -> None:
        """What brings a replica to its seat."""
        scene, report = self.scene, self.scene.reports.get(a.seat.host)
        if report is None:
            return
        mine = scene.adopted.get(a.replica)
        if mine is not None:
            self._operate(a, mine)
            return
        if a.seat.host not in scene.open:
            return
        launch = scene.launches[a.launch]
        missing = [f for f in launch.artifact.files if f.sha256 not in report.cached]
        if missing and (a.seat.host, missing[0].sha256) not in self._fetching:
            self._fetching |= {(a.seat.host, f.sha256) for f in missing}
            self._add(Load(host=a.seat.host, replica=a.replica, profile=a.profile, artifact=launch.artifact), a.replica)
        waits = "its artifact" if missing else self._start(a)
        self._add(_warm(scene, a), a.replica, waits, room=not missing and a.replica in self.short)

    def away(self, host: HostId, residency: Residency) -> None:
        """What takes a process away that the target does not want, as late as it has to be."""
        replica, incarnation = residency.replica, residency.incarnation
        if replica is None or incarnation is None or residency.state is ResidencyState.UNKNOWN:
            return
        if self.scene.kept_for_its_owner(host, residency):
            return
        if residency.state in ON_THEIR_WAY:
            if residency.state is ResidencyState.FAILED and self._wanted_failure(host, residency):
                return
            busy = f"{counted(residency.in_flight, 'request')} in flight" if residency.in_flight else None
            unload = Unload(host=host, replica=replica, profile=residency.profile, incarnation=incarnation)
            self._add(unload, replica, busy)
            return
        waits = self._may_not_go(host, residency)
        grace = self.scene.terms_of(residency.profile).timing.drain_ms
        drain = Drain(host=host, replica=replica, profile=residency.profile, incarnation=incarnation, grace_ms=grace)
        self._add(drain, replica, waits)
        if waits is None:
            self.serving.get(self.scene.now_called(replica), set()).discard(incarnation)

    def _operate(self, a: Assignment, mine: Residency) -> None:
        """Terms and labels that may change while it runs."""
        terms = self.scene.terms_of(a.profile)
        known = self.applied.get(mine.incarnation) if mine.incarnation is not None else None
        relabelled = mine.replica != a.replica
        if mine.incarnation is None or not (relabelled or (known is not None and _acts(known) != _acts(terms))):
            return
        operate = Operate(
            host=a.seat.host,
            replica=a.replica,
            profile=a.profile,
            incarnation=mine.incarnation,
            serves=terms.serves,
            restart=terms.restart,
            drain_ms=terms.timing.drain_ms,
        )
        self._add(operate, a.replica)

    def _start(self, a: Assignment) -> str | None:
        """What a start waits for; None reserves its memory for the rest of the pass."""
        former = self.scene.same_process(a)
        if former is not None and former.state is ResidencyState.FAILED and a.replica not in self.retry:
            return f"somebody to look: it failed ({former.detail or 'no reason given'})"
        if former is not None:
            return f"its former process ({former.state.value})"
        waits = self.scene.no_room(a)
        if waits is None:
            self.scene.reserve(a)
        else:
            self.short[a.replica] = a
            leaving = self.scene.leaving(a.seat.host)
            if all(self._own_or_stuck(r, a) and r.state not in ON_THEIR_WAY for r in leaving):
                self.blocked[a.replica] = waits
        return waits

    def _own_or_stuck(self, r: Residency, a: Assignment) -> bool:
        mine = r.replica is not None and self.scene.now_called(r.replica) == a.replica
        return mine or r.state is ResidencyState.UNKNOWN

    def _wanted_failure(self, host: HostId, residency: Residency) -> bool:
        """A failed process at its own seat is evidence: it stays until somebody asks for another attempt."""
        assert residency.replica is not None
        replica = self.scene.now_called(residency.replica)
        a = self.scene.assignment(replica)
        mine = a is not None and a.seat.host == host and a.launch == residency.identity
        return mine and replica not in self.retry

    def _may_not_go(self, host: HostId, residency: Residency) -> str | None:
        """What a process has to wait for before it is drained; None: it may go now."""
        scene = self.scene
        assert residency.replica is not None
        replica = scene.now_called(residency.replica)
        profile = scene.profile_of(replica)
        wanted = scene.wanted(profile)
        serves = residency.state is ResidencyState.READY or _comes_back(residency)
        if not serves and not scene.yields(host, residency):
            return None
        if (coming := self.turns.unfetched(host, replica)) is not None:
            return f"the files of {coming}, which takes its place"
        if not wanted:
            return None
        a = scene.assignment(replica)
        if a is not None:
            mine = scene.adopted.get(a.replica)
            ready = mine is not None and mine.state is ResidencyState.READY and mine.incarnation not in self.ending
            if ready and a.seat.host in scene.serving_hosts:
                return None
            if self._may_break(a, host) or self._spare_in_the_way(host, residency):
                return None
            return f"{a.replica} to be ready on {a.seat.host}"
        others = [r for r in sorted(self.serving, key=replica_key) if self.serving[r] and r != replica]
        same = [r for r in others if scene.profile_of(r) == profile]
        if len(same) >= len(wanted):
            return None
        late = next((r for r in wanted if not self.serving.get(r)), wanted[0])
        return f"{late} to be ready"

    def _spare_in_the_way(self, host: HostId, residency: Residency) -> bool:
        """It serves twice, and somebody waits for this one's room: else two such pairs wait for each other for ever."""
        assert residency.replica is not None
        others = self.serving.get(self.scene.now_called(residency.replica), set()) - {residency.incarnation}
        return bool(others) and any(a.seat.host == host for a in self.short.values())

    def _may_break(self, a: Assignment, host: HostId) -> bool:
        """Break before make: where it is the only one in its own way, or where somebody has to begin."""
        if a.seat.host != host:
            return False
        return self._may_dip(a) if a.replica in self.blocked else self._first_to_break(host) == a.replica

    def _first_to_break(self, host: HostId) -> ReplicaId | None:
        """Who goes first where all who leave a host wait for room that all of them wait for: else nobody ever would."""
        waiting = {replica: a for replica, a in self.short.items() if a.seat.host == host}
        for r in self.scene.leaving(host):
            assert r.replica is not None, "only those with a name leave"
            if r.state is not ResidencyState.UNKNOWN and (
                r.state in ON_THEIR_WAY or self.scene.now_called(r.replica) not in waiting
            ):
                return None
        return next((replica for replica, a in waiting.items() if self._may_dip(a)), None)

    def _may_dip(self, a: Assignment) -> bool:
        """Downtime is allowed, and all others of its profile serve."""
        if self.scene.terms_of(a.profile).downtime is Downtime.NEVER:
            return False
        return all(self.serving.get(r) for r in self.scene.wanted(a.profile) if r != a.replica)

    def _add(self, action: Action, replica: ReplicaId, waits_for: str | None = None, *, room: bool = False) -> None:
        self.steps.append(Step(action, self.scene.class_of(action, replica), replica, waits_for, room))


def _comes_back(residency: Residency) -> bool:
    """It has served, and its host starts it again: it may serve sooner than what takes its place."""
    return residency.state in (ResidencyState.LOADING, ResidencyState.WARMING) and residency.restarts > 0


def _warm(scene: Scene, a: Assignment) -> Warm:
    terms = scene.terms_of(a.profile)
    return Warm(
        host=a.seat.host,
        replica=a.replica,
        profile=a.profile,
        launch=scene.launches[a.launch],
        devices=a.seat.devices,
        device_bytes=a.device_bytes,
        host_bytes=a.host_bytes,
        serves=terms.serves,
        restart=terms.restart,
        drain_ms=terms.timing.drain_ms,
        warm_ms=terms.timing.warm_ms,
        shares=_shares(scene, a),
    )


def _shares(scene: Scene, a: Assignment) -> tuple[DeviceShare, ...] | None:
    """What an engine that takes a share may take of each device: what is planned there, of what the host reports."""
    launch, report = scene.launches[a.launch], scene.reports[a.seat.host]
    if not takes_share(launch.engine, launch.backend):
        return None
    seen = [device for d in a.seat.devices if (device := report.device(d)) is not None]
    return tuple(DeviceShare(device=d.id, ppm=share_ppm(a.device_bytes, d.total_bytes)) for d in seen)


def _acts(terms: Terms) -> tuple[object, ...]:
    """What a host acts by."""
    return terms.serves, terms.restart, terms.timing.drain_ms
