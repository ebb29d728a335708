"""What the checker goes by: a finished plan and its inputs, indexed once, and what they say about hosts and replicas.

Part of `check`, which says what may be imported here: nothing of the planner. Decides nothing by itself.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from gridops.base.codes.protection import SENSOR_UNKNOWN
from gridops.base.ids import DeviceId, Digest, HostId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.base.versions import ranked
from gridops.model.fleet import HostClass
from gridops.model.forecast import Forecast
from gridops.model.intent import Desired, Intent
from gridops.model.learned import Learned
from gridops.model.plan import Assignment, Cause, CauseKind, Decision, Plan
from gridops.model.policy import protection_default
from gridops.model.profile import Profile
from gridops.model.snapshot import (
    LIVE_STATES,
    HostReport,
    HostState,
    Ownership,
    Residency,
    ResidencyState,
    Snapshot,
    SnapshotSource,
)

PPM = 1_000_000
NAMES = re.compile(r"[^\s,]+/\d+")
"""Replicas that a sentence names."""


class Gone(Protocol):
    """A replica that whoever carries plans out has given up, and why."""

    @property
    def replica(self) -> ReplicaId: ...
    @property
    def cause(self) -> Cause: ...


class Given(Protocol):
    """What a plan was made from (the planner's `Inputs`, by shape)."""

    @property
    def intent(self) -> Intent: ...
    @property
    def scope(self) -> ScopeName: ...
    @property
    def fleet(self) -> Digest: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def parent(self) -> Plan | None: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def watching_since_ms(self) -> int | None: ...
    @property
    def forecast(self) -> Forecast | None: ...
    @property
    def written_off(self) -> frozenset[HostId]: ...
    @property
    def learned(self) -> Learned | None: ...
    @property
    def waiting(self) -> Plan | None: ...
    @property
    def given_up(self) -> Sequence[Gone] | None: ...
    @property
    def under_way(self) -> frozenset[ReplicaId]: ...
    @property
    def agents_from(self) -> str | None: ...


class View:
    """The plan and its inputs, indexed once."""

    def __init__(self, plan: Plan, inputs: Given, partial: bool) -> None:
        self.plan, self.inputs, self.partial = plan, inputs, partial
        self.desired: Desired = inputs.intent.desired
        self.hosts = {h.id: h for h in self.desired.hosts}
        self.profiles = {p.name: p for p in self.desired.profiles if p.scope == plan.scope}
        self.declared = inputs.snapshot.source is SnapshotSource.DECLARED
        self.reports = {} if self.declared else {r.host: r for r in inputs.snapshot.hosts}
        self.launches = {digest_of(launch): launch for launch in plan.launches}
        parent = inputs.parent.launches if inputs.parent is not None else ()
        self.old_launches = {digest_of(launch): launch for launch in parent}
        stored = inputs.snapshot.source is SnapshotSource.STATE
        self.clock = inputs.snapshot.observed_ms if stored else inputs.now_ms
        self.before = {a.replica: a for a in inputs.parent.placement} if inputs.parent is not None else {}
        self.stood = _by_host(tuple(self.before.values()))
        self.names = self._renamed()
        self._by_profile: dict[ProfileName, set[ReplicaId | None]] | None = None
        self.new = tuple(a for a in plan.placement if not self._stands(a))
        self.fresh = frozenset(a.replica for a in self.new)
        self.on, self.arriving = _by_host(plan.placement), _by_host(self.new)
        self.placed = {a.replica: a for a in plan.placement}
        self.of: dict[ProfileName, list[Assignment]] = {}
        for a in plan.placement:
            self.of.setdefault(a.profile, []).append(a)
        self.mass_silent = self._silence()
        """Many hosts fell silent at once."""
        moved = (d for d in plan.decisions if d.cause.kind is CauseKind.REBALANCE)
        self.passing = {d.replica for d in moved if NAMES.search(d.cause.detail)}
        """Who only makes room for others."""
        self.missing = Counter(u.replica.rpartition("/")[0] for u in plan.report.unplaced)

    def former(self, a: Assignment) -> Assignment | None:
        """The same replica in the parent, under its old name if it was renamed."""
        old = self.names.get(a.profile, a.profile)
        return self.before.get(ReplicaId(f"{old}/{a.replica.rpartition('/')[2]}"))

    def old_launch(self, decision: Decision) -> Digest | None:
        """What the replica of a decision ran by the parent."""
        placed = self.placed.get(decision.replica)
        old = self.former(placed) if placed is not None else self.before.get(decision.replica)
        return None if old is None else old.launch

    def beat(self, host: HostId) -> str | None:
        """Why the host may take nothing new, or None."""
        declared, report = self.hosts.get(host), self.reports.get(host)
        if declared is None or declared.scope != self.plan.scope or declared.host_class is HostClass.EXTERNAL:
            return "is not a host of the scope that can be actuated"
        if any(d.host == host and (d.until_ms is None or d.until_ms > self.inputs.now_ms) for d in self.desired.drains):
            return "is drained"
        if self.declared:
            return None
        if (why := self.unheard(host)) is not None:
            return why
        if report is None:
            return None
        least = self.inputs.agents_from
        if least is not None and (ranked(report.agent_version or "") or ()) < (ranked(least) or (1 << 62,)):
            return f"has an agent that is older than {least}, or of no readable version"
        takes_work = report.state in (HostState.ACCEPTING, HostState.THROTTLED)
        return None if takes_work else f"is {report.state.value}"

    def unheard(self, host: HostId) -> str | None:
        """Why nothing that the host reports may be gone by, or None."""
        report = self.reports.get(host)
        if not any(k.host == host and not k.expunged for k in self.desired.keys):
            return "is not admitted"
        if report is None:
            return "has not reported"
        age, rule = self.clock - report.observed_ms, self.desired.planning.heartbeat
        if not -rule.future_skew_ms <= age <= rule.stale_after_ms or report.goodbye:
            return f"has a heartbeat of age {age} ms"
        return None

    def wanted(self, profile: Profile) -> int:
        """Replicas that the profile asks for, pins on hosts of the scope included."""
        pins = [h for h in profile.placement.pins if h in self.hosts and self.hosts[h].scope == profile.scope]
        return max(profile.replicas_min, len(pins))

    def most(self, profile: Profile) -> int:
        """Replicas that demand may ask for: up to the maximum where a forecast speaks of the profile.

        Where it does not, demand is unknown: what stood may stay, and nothing is added.
        """
        least, forecast = self.wanted(profile), self.inputs.forecast
        if forecast is None:
            return least
        most, old = max(least, profile.replicas_max), self.names.get(profile.name, profile.name)
        if any(e.profile in (profile.name, profile.renamed_from) for e in forecast.profiles):
            return most
        known = self._known()
        return min(most, max(least, len(known.get(profile.name, set()) | known.get(old, set()))))

    def _known(self) -> dict[ProfileName, set[ReplicaId | None]]:
        """Replicas that the parent or a host knows, by profile; counted once, when somebody asks."""
        if self._by_profile is None:
            self._by_profile = {}
            ran = [r for h in self.reports.values() for r in h.residencies]
            pairs = [(a.profile, a.replica) for a in self.before.values()] + [(r.profile, r.replica) for r in ran]
            for profile, replica in pairs:
                self._by_profile.setdefault(profile, set()).add(replica)
        return self._by_profile

    def _silence(self) -> bool:
        rule, beat = self.desired.planning.heartbeat.mass_stale, self.desired.planning.heartbeat
        dedicated, silent = 0, []
        drained = {d.host for d in self.desired.drains if d.until_ms is None or d.until_ms > self.inputs.now_ms}
        keys = {k.host for k in self.desired.keys if not k.expunged}
        for host in self.hosts.values():
            if host.host_class is not HostClass.DEDICATED or host.scope != self.plan.scope or host.id in drained:
                continue
            if self.declared or host.id not in keys or host.id in self.inputs.written_off:
                continue
            dedicated += 1
            report = self.reports.get(host.id)
            since = report.observed_ms if report is not None else self.inputs.watching_since_ms
            gone = report is not None and report.goodbye
            if since is not None and not gone and self.clock - since > beat.stale_after_ms:
                silent.append(since)
        silent.sort()
        most = max((bisect_right(silent, first + rule.within_ms) - n for n, first in enumerate(silent)), default=0)
        return most >= rule.at_least and most * PPM >= rule.share_ppm * dedicated

    def throttled(self, report: HostReport) -> int:
        """Share of a throttled host that is open to new work, in ppm: its class says, more where it only cannot see."""
        host = self.hosts[report.host]
        known = [c for c in self.desired.protection.classes if c.host_class == host.host_class.value]
        rules = known[0] if known else protection_default(host.host_class.value)
        blind = bool(report.reasons) and {r.partition(":")[0] for r in report.reasons} == {SENSOR_UNKNOWN.code}
        return max(rules.throttled_ppm, rules.unknown_ppm) if blind else rules.throttled_ppm

    def live(self, host: HostId) -> tuple[Residency, ...]:
        report = self.reports.get(host)
        return tuple(r for r in report.residencies if r.state in LIVE_STATES) if report is not None else ()

    def domain(self, host: HostId, level: str) -> str | None:
        """The failure domain of a host; every host is one of level `host`."""
        declared = self.hosts.get(host)
        return str(host) if level == "host" else declared.domain(level) if declared is not None else None

    def usable(self, host: HostId) -> list[DeviceId]:
        """Devices of the host that the file and its report know, cards that are cut into instances left out."""
        declared, report = self.hosts.get(host), self.reports.get(host)
        if declared is None:
            return []
        kinds = {d.id: d.kind for d in report.devices} if report is not None else None
        cut = {d.parent for d in declared.devices} | {d.parent for d in (report.devices if report is not None else ())}
        there = [d for d in declared.devices if d.id not in cut]
        return [d.id for d in there if kinds is None or kinds.get(d.id) is d.kind]

    def strangers(self, host: HostId) -> list[Residency]:
        """What holds a place on the host and is in no plan: external ones, and ours that nobody can vouch for."""
        planned = {(name, a.launch) for a in self.on.get(host, []) for name in self.known_as(a)}
        found = []
        for r in self.live(host):
            stuck = r.state is ResidencyState.UNKNOWN and (r.replica, r.identity) not in planned
            if r.ownership is Ownership.EXTERNAL or stuck:
                found.append(r)
        return found

    def known_as(self, a: Assignment) -> tuple[ReplicaId, ...]:
        """What hosts may call a replica: also by the name its profile had before."""
        profile = self.profiles.get(a.profile)
        old = profile.renamed_from if profile is not None else None
        number = a.replica.rpartition("/")[2]
        return (a.replica,) if old is None or old in self.profiles else (a.replica, ReplicaId(f"{old}/{number}"))

    def _renamed(self) -> dict[ProfileName, ProfileName]:
        known = {a.profile for a in self.before.values()}
        return {
            p.name: p.renamed_from
            for p in self.profiles.values()
            if p.renamed_from in known
            and p.renamed_from not in self.profiles
            and p.name not in known
            and p.renamed_from
        }

    def _stands(self, a: Assignment) -> bool:
        old = self.former(a)
        if old is not None and (old.seat, old.launch) == (a.seat, a.launch):
            return True
        names = self.known_as(a)
        mine = (r for r in self.live(a.seat.host) if r.ownership is Ownership.MANAGED and r.replica in names)
        return any(r.identity == a.launch and tuple(sorted(r.devices)) == a.seat.devices for r in mine)


def _by_host(assignments: tuple[Assignment, ...]) -> dict[HostId, list[Assignment]]:
    found: dict[HostId, list[Assignment]] = {}
    for a in assignments:
        found.setdefault(a.seat.host, []).append(a)
    return found
