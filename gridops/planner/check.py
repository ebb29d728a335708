"""The independent checker: re-derives every safety rule on a finished plan, with arithmetic of its own.

It shares no code with the rooms that make plans (a contract of the import linter), so that one mistake has to be made
twice to pass. Called on every plan by the controller before it is shown to anybody, and by every test. `check` returns
notes, each a sentence with its subject; an empty tuple means clean. It never repairs anything.

A seat is *new* when neither the parent nor a living process holds it already with the same command: new seats have to
meet every rule, standing ones only those that running on does not excuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from gridops.base import canon, limits
from gridops.base.codes import placement as codes
from gridops.base.ids import DeviceId, Digest, HostId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of, to_data
from gridops.model.fleet import Device, DeviceKind, Host, HostClass
from gridops.model.forecast import Forecast
from gridops.model.intent import Desired, Intent
from gridops.model.plan import Assignment, CauseKind, Decision, DecisionKind, Launch, Plan, Terms, Unplaced
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Config, Downtime, Profile
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
OVER_MEMORY, SPREAD_SHORT = codes.OVER_MEMORY.code, codes.SPREAD_SHORT.code
KINDS = {"cpu": {DeviceKind.CPU, DeviceKind.UNIFIED}, "metal": {DeviceKind.UNIFIED}, "mps": {DeviceKind.UNIFIED}}
GPU_KINDS = {
    "cuda": {DeviceKind.GPU, DeviceKind.UNIFIED},
    "rocm": {DeviceKind.GPU, DeviceKind.UNIFIED},
    "vulkan": {DeviceKind.GPU, DeviceKind.UNIFIED},
    "cann": {DeviceKind.GPU},
}
SHOWN = (DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE, DecisionKind.REMOVE, DecisionKind.CANNOT_PLACE)


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


def check(plan: Plan, inputs: Given, *, partial: bool = False) -> tuple[str, ...]:
    """Notes about everything that is wrong with the plan; empty when clean.

    `partial`: the plan carries out only some of the decisions (`restrict`), so that not every wanted replica appears.
    """
    view = _View(plan, inputs, partial)
    rules = [_document, _references, _hosts, _policy, _memory, _counts, _decisions, _takes_away]
    rules += [] if partial else [_complete, _promises]
    return tuple(sorted({note for rule in rules for note in rule(view)}))


class _View:
    """The plan and its inputs, indexed once."""

    def __init__(self, plan: Plan, inputs: Given, partial: bool) -> None:
        self.plan, self.inputs, self.partial = plan, inputs, partial
        self.desired: Desired = inputs.intent.desired
        self.hosts = {h.id: h for h in self.desired.hosts}
        self.profiles = {p.name: p for p in self.desired.profiles if p.scope == plan.scope}
        self.declared = inputs.snapshot.source is SnapshotSource.DECLARED
        self.reports = {} if self.declared else {r.host: r for r in inputs.snapshot.hosts}
        self.launches = {digest_of(launch): launch for launch in plan.launches}
        stored = inputs.snapshot.source is SnapshotSource.STATE
        self.clock = inputs.snapshot.observed_ms if stored else inputs.now_ms
        self.before = {a.replica: a for a in inputs.parent.placement} if inputs.parent is not None else {}
        self.names = self._renamed()
        self.new = tuple(a for a in plan.placement if not self._stands(a))
        self.on: dict[HostId, list[Assignment]] = {}
        for a in plan.placement:
            self.on.setdefault(a.seat.host, []).append(a)

    def former(self, a: Assignment) -> Assignment | None:
        """The same replica in the parent, under its old name if it was renamed."""
        old = self.names.get(a.profile, a.profile)
        return self.before.get(ReplicaId(f"{old}/{a.replica.rpartition('/')[2]}"))

    def beat(self, host: HostId) -> str | None:
        """Why the host may take nothing new, or None."""
        declared, report = self.hosts.get(host), self.reports.get(host)
        if declared is None or declared.scope != self.plan.scope or declared.host_class is HostClass.EXTERNAL:
            return "is not a host of the scope that can be actuated"
        if any(d.host == host and (d.until_ms is None or d.until_ms > self.inputs.now_ms) for d in self.desired.drains):
            return "is drained"
        if self.declared:
            return None
        if not any(k.host == host and not k.expunged for k in self.desired.keys):
            return "is not admitted"
        if report is None:
            return "has not reported"
        age, rule = self.clock - report.observed_ms, self.desired.planning.heartbeat
        if not -rule.future_skew_ms <= age <= rule.stale_after_ms or report.goodbye:
            return f"has a heartbeat of age {age} ms"
        return None if report.state in (HostState.ACCEPTING, HostState.THROTTLED) else f"is {report.state.value}"

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
        stood = {a.replica for a in self.before.values() if a.profile == old}
        ran = {r.replica for h in self.reports.values() for r in h.residencies if r.profile in (profile.name, old)}
        return min(most, max(least, len(stood | ran)))

    def live(self, host: HostId) -> tuple[Residency, ...]:
        report = self.reports.get(host)
        return tuple(r for r in report.residencies if r.state in LIVE_STATES) if report is not None else ()

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


def _document(view: _View) -> Iterator[str]:
    """The document agrees with itself."""
    plan = view.plan
    second = datetime.fromtimestamp(plan.created_ms // 1000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    if plan.id != f"{second}-{plan.decisions_digest.removeprefix('sha256:')[:8]}":
        yield f"plan id {plan.id} does not follow from its second and decisions"
    parent = view.inputs.parent
    if plan.parent != (digest_of(parent) if parent is not None else None):
        yield "the parent is not the plan it was made from"
    if _done(plan.decisions) != plan.decisions_digest:
        yield "decisions_digest does not name the decisions"
    order = [(_key(a.replica)) for a in plan.placement]
    if order != sorted(set(order)):
        yield "placement is not sorted or holds a replica twice"
    if [d.n for d in plan.decisions] != sorted({d.n for d in plan.decisions}):
        yield "decisions are not numbered in order"
    shown = [(SHOWN.index(d.kind), _key(d.replica)) for d in plan.decisions]
    if shown != sorted(shown):
        yield "decisions are not in the order in which they are shown"
    dry = view.declared or view.inputs.intent.commit is None or view.inputs.intent.dirty
    if dry and not plan.hypothetical:
        yield "a plan without live hosts or without a commit does not say that it is hypothetical"


def _references(view: _View) -> Iterator[str]:
    """Everything a replica needs to be started stands in the plan, and nothing that no replica needs."""
    terms = {t.profile for t in view.plan.terms}
    for a in view.plan.placement:
        if a.launch not in view.launches:
            yield f"{a.replica} runs a launch that the plan does not hold"
        if a.profile not in terms:
            yield f"{a.replica} has no terms"
        if not a.replica.startswith(f"{a.profile}/"):
            yield f"{a.replica} is not a replica of {a.profile}"
    for unused in sorted(set(view.launches) - {a.launch for a in view.plan.placement}):
        yield f"launch {unused} belongs to no replica"


def _hosts(view: _View) -> Iterator[str]:
    """New seats stand on hosts that can take them."""
    for a in view.new:
        if (why := view.beat(a.seat.host)) is not None:
            yield f"{a.replica} is placed on {a.seat.host}, which {why}"
            continue
        launch, host, report = view.launches.get(a.launch), view.hosts[a.seat.host], view.reports.get(a.seat.host)
        if launch is None:
            continue
        wanted = (launch.engine, launch.backend)
        declared = [(r.engine, r.backend) for r in host.runtimes]
        reported = [(r.engine, r.backend) for r in report.runtimes] if report is not None else declared
        if wanted not in reported or (declared and wanted not in declared):
            yield f"{a.replica} needs {launch.engine} for {launch.backend}, which {host.id} does not have"
        yield from _seat(view, a, launch, host, report)
    yield from _disk(view)


def _seat(view: _View, a: Assignment, launch: Launch, host: Host, report: HostReport | None) -> Iterator[str]:
    """The device set is real, of the right kind and count, and may work together."""
    devices = {d.id: d for d in host.devices}
    seen = {d.id: d for d in report.devices} if report is not None else None
    kinds = KINDS.get(launch.backend) or GPU_KINDS.get(launch.backend, set())
    for name in a.seat.devices:
        if name not in devices or (seen is not None and name not in seen):
            yield f"{a.replica} stands on {host.id} {name}, which does not exist"
            return
        if devices[name].kind not in kinds:
            yield f"{a.replica} runs {launch.backend} on {host.id} {name}, a {devices[name].kind.value}"
    chosen = [devices[name] for name in a.seat.devices]
    if len(set(a.seat.devices)) != launch.devices.count or list(a.seat.devices) != sorted(a.seat.devices):
        yield f"{a.replica} takes {len(a.seat.devices)} devices, {launch.devices.count} needed, sorted"
    sizes = {min(d.memory_bytes, seen[d.id].total_bytes) if seen is not None else d.memory_bytes for d in chosen}
    if len(chosen) > 1 and not launch.devices.uneven and (len(sizes) > 1 or len({d.model for d in chosen}) > 1):
        yield f"{a.replica} splits evenly over unequal devices of {host.id}"
    if len(chosen) > 1 and launch.devices.link is not None:
        for one in chosen:
            if any(other.id not in one.peers for other in chosen if other is not one):
                yield f"{a.replica} needs linked devices, and {host.id} {one.id} is not a peer of all others"
    config = _config(view.profiles.get(a.profile), launch)
    if config is not None and launch.devices.shard == "tensor":
        for what in (config.heads.attention, config.heads.vision, config.heads.vocabulary):
            if what is not None and what % launch.devices.count:
                yield f"{a.replica} divides {what} by {launch.devices.count}"


def _disk(view: _View) -> Iterator[str]:
    """What has to be fetched for new seats fits the disk."""
    for host in sorted({a.seat.host for a in view.new}):
        report, declared = view.reports.get(host), view.hosts.get(host)
        if declared is None:
            continue
        keep = declared.disk.keep_free_bytes if declared.disk is not None else 0
        room = declared.disk.artifacts_bytes if declared.disk is not None else None
        if report is not None and report.disk_free_bytes is not None:
            room = report.disk_free_bytes
        cached = set(report.cached) if report is not None else set()
        launches = [view.launches[a.launch] for a in view.new if a.seat.host == host and a.launch in view.launches]
        files = {f.sha256: f.size_bytes for launch in launches for f in launch.artifact.files if f.sha256 not in cached}
        if files and room is not None and sum(files.values()) > room - keep:
            yield f"{host} has no disk for the artifacts of its new replicas"


def _policy(view: _View) -> Iterator[str]:
    """New seats meet what their profile asks of a host, and run what it declares today."""
    tiers = view.desired.planning.tiers
    for a in view.new:
        profile, host = view.profiles.get(a.profile), view.hosts.get(a.seat.host)
        if profile is None or host is None:
            yield f"{a.replica} is placed although its profile or its host is not declared"
            continue
        rules, tags = profile.placement, set(host.tags)
        wanted = tiers.index(rules.tier) if rules.tier in tiers else (0 if rules.tier is None else len(tiers))
        if not set(rules.require_tags) <= tags or set(rules.forbid_tags) & tags:
            yield f"{a.replica} stands on {host.id} against its tags"
        if wanted > (tiers.index(host.tier) if host.tier in tiers else 0):
            yield f"{a.replica} stands on {host.id}, whose tier is too low"
        if (rules.allow_hosts and host.id not in rules.allow_hosts) or host.id in rules.deny_hosts:
            yield f"{a.replica} stands on {host.id} against allow_hosts or deny_hosts"
        launch = view.launches.get(a.launch)
        if launch is not None and _config(profile, launch) is None:
            yield f"{a.replica} is started with a command that no config of {profile.name} makes"


def _config(profile: Profile | None, launch: Launch) -> Config | None:
    for c in profile.configs if profile is not None else ():
        same = (c.name, c.engine, c.artifact, c.context, c.lanes, c.devices, c.args)
        mine = (
            launch.config,
            launch.engine,
            launch.artifact,
            launch.context,
            launch.lanes,
            launch.devices,
            launch.args,
        )
        if same == mine and launch.backend in c.backends:
            return c
    return None


def _memory(view: _View) -> Iterator[str]:
    """Per device: everything planned fits; where something is new or has grown, the headroom stays free too."""
    excused = {s.detail.split(" ")[0] for s in view.plan.report.shortfalls if s.code == OVER_MEMORY}
    for host_id in sorted(view.on):
        host, report = view.hosts.get(host_id), view.reports.get(host_id)
        there = [d for d in host.devices if _there(report, d.id)] if host is not None else []
        pools = sorted((d.kind is DeviceKind.UNIFIED, d.id) for d in there if d.kind is not DeviceKind.GPU)
        ram = pools[0][1] if pools else None
        for device in there:
            raw, margin, share = _bounds(view, host_id, device)
            taken, gpu, grows = _load(view, host_id, device.id, ram=device.id == ram)
            where = f"{host_id} {device.id}: {taken} bytes planned"
            if grows and (taken > raw - margin or gpu > share):
                yield f"{where}, {raw - margin} may be with something new there"
            elif (taken > max(0, raw) or gpu > share) and not (view.partial or host_id in excused):
                yield f"{where}, {raw} there, and the report does not say so"


def _bounds(view: _View, host: HostId, device: Device) -> tuple[int, int, int]:
    """Bytes that may be planned on a device, how many of them new work leaves free, and the most for GPU work."""
    report = view.reports.get(host)
    seen = report.device(device.id) if report is not None else None
    total = min(device.memory_bytes, seen.total_bytes) if seen is not None else device.memory_bytes
    theirs = [r for r in view.live(host) if r.ownership is Ownership.EXTERNAL and device.id in r.devices]
    external = max(seen.external_bytes if seen is not None else 0, sum(r.device_bytes for r in theirs))
    raw = total - device.reserve_bytes - external
    margin = -(-total * view.desired.planning.headroom.memory_ppm // PPM)
    if report is not None and report.state is HostState.THROTTLED:
        margin = max(margin, raw - raw // 2)
    return raw, margin, total * device.gpu_share_ppm // PPM


def _load(view: _View, host: HostId, device: DeviceId, *, ram: bool) -> tuple[int, int, bool]:
    """Bytes planned on a device, GPU work among them, and whether anything of it is new or has grown."""
    taken = gpu = 0
    grows = False
    fresh = {a.replica for a in view.new}
    for a in view.on[host]:
        here, old = device in a.seat.devices, view.former(a)
        own = (a.device_bytes if here else 0) + (a.host_bytes if ram else 0)
        launch = view.launches.get(a.launch)
        taken += own
        gpu += a.device_bytes if here and launch is not None and launch.backend != "cpu" else 0
        before = old.device_bytes + old.host_bytes if old is not None and old.seat == a.seat else -1
        grows = grows or (own > 0 and a.replica in fresh and before < a.device_bytes + a.host_bytes)
    for r in view.strangers(host):
        if r.ownership is Ownership.MANAGED:
            part = r.device_bytes if device in r.devices else 0
            taken += part + (r.host_bytes if ram else 0)
            gpu += part
    return taken, gpu, grows


def _there(report: HostReport | None, device: str) -> bool:
    return report is None or any(d.id == device for d in report.devices)


def _counts(view: _View) -> Iterator[str]:
    """Slots, replicas per host and company, wherever something new arrives."""
    for host_id in sorted({a.seat.host for a in view.new}):
        host, seats = view.hosts.get(host_id), view.on[host_id]
        if host is None:
            continue
        everybody = [a.profile for a in seats] + [r.profile for r in view.strangers(host_id)]
        if host.max_replicas is not None and len(everybody) > host.max_replicas:
            yield f"{host_id} would hold {len(everybody)} residencies of at most {host.max_replicas}"
        arriving = {a.profile for a in view.new if a.seat.host == host_id}
        for name, number in sorted(Counter(everybody).items()):
            profile = view.profiles.get(name)
            if profile is None:
                continue
            if name in arriving and profile.max_per_host is not None and number > profile.max_per_host:
                yield f"{host_id} would hold {number} replicas of {name}"
            others = set(everybody) - {name}
            touched = name in arriving or bool(arriving & others)
            if touched and profile.colocation.max is not None and len(others) + 1 > profile.colocation.max:
                yield f"{name} would share {host_id} with {len(others)} other models"
            for other in sorted(others & set(profile.colocation.exclude)):
                if name in arriving or other in arriving:
                    yield f"{name} and {other} exclude each other and would share {host_id}"


def _decisions(view: _View) -> Iterator[str]:
    """The decisions are exactly the difference between parent and placement, and say how grave they are."""
    plan = view.plan
    expected = dict(_differences(view))
    listed = {(d.kind, d.replica): (d.source, d.target) for d in plan.decisions}
    for kind, replica in sorted(expected.keys() - listed.keys()):
        yield f"the plan does {kind.value} {replica} and no decision says so"
    for kind, replica in sorted(listed.keys() - expected.keys()):
        yield f"decision {kind.value} {replica} has no difference behind it"
    for key in sorted(expected.keys() & listed.keys()):
        if expected[key] != listed[key]:
            yield f"decision {key[0].value} {key[1]} names other seats than the placement"
    left = {a.profile for a in plan.placement} | {view.names.get(a.profile, a.profile) for a in plan.placement}
    for d in plan.decisions:
        if d.kind is not DecisionKind.REMOVE:
            continue
        last = d.profile not in left and d.cause.kind is not CauseKind.HOST_LOST
        if d.last_replica != last:
            yield f"removing {d.replica} {'does not say that it is' if last else 'says that it is'} the last replica"
        gone = d.profile not in view.profiles and d.profile not in view.names.values()
        if (last or gone) and d.risk is not Risk.DESTRUCTIVE:
            yield f"removing {d.replica} takes something for good and is called {d.risk.value}"
        if gone and d.action_class is not ActionClass.REMOVE:
            yield f"removing {d.replica} of a profile that is gone is called {d.action_class.value}"
    for d in plan.decisions:
        placed = next((a for a in plan.placement if a.replica == d.replica), None)
        if d.target is not None and (placed is None or d.launch != placed.launch):
            yield f"decision {d.kind.value} {d.replica} does not say what will run"


def _differences(view: _View) -> Iterator[tuple[tuple[DecisionKind, ReplicaId], tuple[object, object]]]:
    parent = view.inputs.parent
    was = {t.profile: t for t in parent.terms} if parent is not None else {}
    now = {t.profile: t for t in view.plan.terms}
    survives = set()
    placed = {d.replica for d in view.plan.decisions if d.kind is DecisionKind.PLACE}
    for a in view.plan.placement:
        old = view.former(a)
        if old is None:
            yield (DecisionKind.PLACE, a.replica), (None, a.seat)
            continue
        survives.add(old.replica)
        if old.seat.host != a.seat.host or (old.seat != a.seat and old.launch == a.launch):
            yield (DecisionKind.MOVE, a.replica), (old.seat, a.seat)
        elif (
            old.launch != a.launch
            or old.replica != a.replica
            or _acts_otherwise(was.get(old.profile), now.get(a.profile))
        ):
            yield (DecisionKind.CHANGE, a.replica), (old.seat, a.seat)
        elif a.replica in placed:
            # Started again where it stands: only when its host says that nothing of it runs, and could take it.
            names = view.known_as(a)
            mine = [r for r in view.live(a.seat.host) if r.replica in names and r.identity == a.launch]
            if view.beat(a.seat.host) is None and all(r.state is ResidencyState.FAILED for r in mine):
                yield (DecisionKind.PLACE, a.replica), (None, a.seat)
    for replica, old in view.before.items():
        if replica not in survives:
            yield (DecisionKind.REMOVE, replica), (old.seat, None)
    for missing in view.plan.report.unplaced:
        yield (DecisionKind.CANNOT_PLACE, missing.replica), (None, None)


def _acts_otherwise(old: Terms | None, new: Terms | None) -> bool:
    if old is None or new is None:
        return False
    return (old.serves, old.restart, old.timing.drain_ms) != (new.serves, new.restart, new.timing.drain_ms)


def _takes_away(view: _View) -> Iterator[str]:
    """What may not be taken: anything after mass silence; and a serving replica whose profile refuses downtime."""
    taking = [d for d in view.plan.decisions if d.source is not None and d.source != d.target]
    taking += [d for d in view.plan.decisions if d.kind is DecisionKind.CHANGE and d.cost.dip]
    if _mass_silence(view):
        for d in taking:
            yield f"{d.kind.value} {d.replica} takes something away although many hosts fell silent at once"
    for d in taking:
        profile = view.profiles.get(d.profile)
        if d.cost.dip and profile is not None and profile.downtime is Downtime.NEVER:
            yield f"{d.replica} would be down, and {d.profile} refuses downtime"
    for d in view.plan.decisions:
        if d.kind is DecisionKind.REMOVE and d.cause.kind is CauseKind.DISPLACED and not _goes_on(view, d):
            yield f"{d.replica} gives way, and no other replica of {d.profile} that serves goes on"


def _goes_on(view: _View, decision: Decision) -> bool:
    """Does a replica of the profile that serves now (or that nobody reports about) keep a place?"""
    after = {a.replica for a in view.plan.placement}
    serving = {
        r.replica
        for report in view.reports.values()
        for r in report.residencies
        if r.profile == decision.profile and r.state is ResidencyState.READY
    }
    if not view.declared and decision.replica not in serving:
        return True
    before = {a.replica for a in view.before.values() if a.profile == decision.profile}
    return bool(after & (before if view.declared else serving))


def _mass_silence(view: _View) -> bool:
    rule, beat = view.desired.planning.heartbeat.mass_stale, view.desired.planning.heartbeat
    dedicated, silent = 0, []
    drained = {d.host for d in view.desired.drains if d.until_ms is None or d.until_ms > view.inputs.now_ms}
    keys = {k.host for k in view.desired.keys if not k.expunged}
    for host in view.hosts.values():
        if host.host_class is not HostClass.DEDICATED or host.scope != view.plan.scope or host.id in drained:
            continue
        if view.declared or host.id not in keys:
            continue
        dedicated += 1
        report = view.reports.get(host.id)
        since = report.observed_ms if report is not None else view.inputs.watching_since_ms
        gone = report is not None and report.goodbye
        if since is not None and not gone and view.clock - since > beat.stale_after_ms:
            silent.append(since)
    most = max((sum(1 for s in silent if first <= s <= first + rule.within_ms) for first in silent), default=0)
    return most >= rule.at_least and most * PPM >= rule.share_ppm * dedicated


def _complete(view: _View) -> Iterator[str]:
    """Every wanted replica stands somewhere or is reported once, with one headline and one line per declared host."""
    missing = [u.replica for u in view.plan.report.unplaced]
    if len(missing) != len(set(missing)) or set(missing) & {a.replica for a in view.plan.placement}:
        yield "a replica is reported as unplaced twice, or although it stands"
    for u in view.plan.report.unplaced:
        if not u.code.startswith("GO5") or not u.detail:
            yield f"{u.replica} is unplaced without a headline"
        yield from _reasons(view, u, lines=len(missing) * len(view.hosts))
    silence = _mass_silence(view)
    for profile in view.profiles.values():
        wanted = view.wanted(profile)
        have = sum(1 for a in view.plan.placement if a.profile == profile.name)
        short = sum(1 for r in missing if r.rpartition("/")[0] == profile.name)
        most = view.most(profile)
        if have + short < wanted or (have + short > most and not silence):
            asked = str(wanted) if wanted == most else f"{wanted} to {most}"
            yield f"{profile.name} wants {asked} replicas, {have} stand and {short} are reported missing"
    for retired in view.plan.retirements:
        if retired.profile in view.profiles:
            yield f"{retired.profile} is declared and retired at once"
    for d in view.plan.decisions:
        gone = d.kind is DecisionKind.REMOVE and d.profile not in view.profiles
        if gone and d.profile not in {r.profile for r in view.plan.retirements} | set(view.names.values()):
            yield f"{d.profile} is removed without a retirement"


def _reasons(view: _View, missing: Unplaced, lines: int) -> Iterator[str]:
    """One line per declared host; in a plan that would have too many `lines`, counts that add up to the hosts."""
    told, counts = [line.host for line in missing.hosts], missing.counts
    if lines <= limits.HOST_LINES:
        if counts is not None or told != sorted(view.hosts):
            yield f"{missing.replica} is unplaced without exactly one line per declared host"
        return
    found = {c.code: c.hosts for c in counts or () if c.hosts > 0 and c.code.startswith("GO5")}
    if sum(found.values()) != len(view.hosts) or len(found) != len(counts or ()):
        yield f"{missing.replica} is unplaced, and its reasons do not add up to {len(view.hosts)} declared hosts"
    if told != [h for h in (missing.nearest,) if h is not None]:
        yield f"{missing.replica} is unplaced with lines of other hosts than the nearest"


def _promises(view: _View) -> Iterator[str]:
    """Pins and failure domains are kept, or the report says that they are not."""
    missing = {u.replica.rpartition("/")[0] for u in view.plan.report.unplaced}
    waiting = {line.detail.partition("/")[0] for line in view.plan.report.waiting}
    short = {s.profile for s in view.plan.report.shortfalls if s.code == SPREAD_SHORT}
    for profile in view.profiles.values():
        hosts = {a.seat.host for a in view.plan.placement if a.profile == profile.name}
        for pin in profile.placement.pins:
            known = pin in view.hosts and view.hosts[pin].scope == profile.scope
            if known and pin not in hosts and profile.name not in missing | waiting and not _mass_silence(view):
                yield f"{profile.name} is pinned to {pin}, does not stand there, and nothing says so"
        if profile.spread is not None and hosts and profile.name not in short:
            missed = sum(1 for u in view.plan.report.unplaced if u.replica.rpartition("/")[0] == profile.name)
            stands = sum(1 for a in view.plan.placement if a.profile == profile.name)
            wanted = min(profile.spread.min, max(view.wanted(profile), min(stands + missed, view.most(profile))))
            if len(_domains(view, hosts, profile.spread.by)) < wanted:
                yield f"{profile.name} stands in too few domains of level {profile.spread.by}, and nothing says so"


def _domains(view: _View, hosts: Iterable[HostId], level: str) -> set[str]:
    found = set()
    for name in hosts:
        host = view.hosts.get(name)
        place = name if level == "host" else host.domain(level) if host is not None else None
        if place is not None:
            found.add(str(place))
    return found


def _done(decisions: Sequence[Decision]) -> Digest:
    """The digest of what will be done, written down a second time."""
    rows = []
    for d in decisions:
        if d.kind is DecisionKind.CANNOT_PLACE:
            continue
        source = None if d.source is None else to_data(d.source)
        target = None if d.target is None else to_data(d.target)
        changes = [to_data(c) for c in d.changes]
        rows.append(
            {
                "kind": d.kind.value,
                "replica": d.replica,
                "source": source,
                "target": target,
                "launch": d.launch,
                "changes": changes,
            }
        )
    return canon.digest(sorted(rows, key=lambda row: (str(row["kind"]), str(row["replica"]))))


def _key(replica: ReplicaId) -> tuple[str, int]:
    name, _, number = replica.rpartition("/")
    return name, int(number)
