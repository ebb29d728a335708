"""The checker's rules about whole hosts: what a profile's file asks of one, and whether one is too full for who stood.

Part of `check`: arithmetic of its own, nothing of the planner. `policy` is a rule by itself; `check_causes` asks the
others whether what a decision gives as its reason is so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gridops.base.ids import DeviceId, HostId, ProfileName, ReplicaId
from gridops.model.fleet import Host, HostClass
from gridops.model.plan import Assignment, Launch
from gridops.model.profile import Profile
from gridops.model.snapshot import HostState, Ownership, Residency, ResidencyState
from gridops.planner.check_seats import bounds, known_needs, made_by, ram_of
from gridops.planner.check_view import View

REPLACE_AFTER_MS = 600_000
"""A person's machine of which no file says it is missed after so long."""
RUNS = (ResidencyState.READY, ResidencyState.WARMING, ResidencyState.LOADING, ResidencyState.OFFLOADED)
"""What may be taken up: it serves, or is about to."""
POORLY = (HostState.PAUSED, HostState.UNHEALTHY, HostState.QUARANTINED)


def policy(view: View) -> Iterator[str]:
    """New seats meet what their profile asks of a host, and run what it declares today."""
    for a in view.new:
        profile, host = view.profiles.get(a.profile), view.hosts.get(a.seat.host)
        if profile is None or host is None:
            yield f"{a.replica} is placed although its profile or its host is not declared"
            continue
        for against in objections(view, profile, host):
            yield f"{a.replica} stands on {host.id}{against}"
        launch = view.launches.get(a.launch)
        if launch is not None and made_by(profile, launch) is None:
            yield f"{a.replica} is started with a command that no config of {profile.name} makes"


def objections(view: View, profile: Profile, host: Host) -> Iterator[str]:
    """What the profile's file has against the host."""
    tiers, rules, tags = view.desired.planning.tiers, profile.placement, set(host.tags)
    wanted = tiers.index(rules.tier) if rules.tier in tiers else (0 if rules.tier is None else len(tiers))
    if not set(rules.require_tags) <= tags or set(rules.forbid_tags) & tags:
        yield " against its tags"
    if wanted > (tiers.index(host.tier) if host.tier in tiers else 0):
        yield ", whose tier is too low"
    if (rules.allow_hosts and host.id not in rules.allow_hosts) or host.id in rules.deny_hosts:
        yield " against allow_hosts or deny_hosts"


def process(profile: Profile | None, launch: Launch | None) -> Launch | None:
    """The same process as some config of the profile starts it today, whatever it is called and fetched from."""
    for c in profile.configs if profile is not None else ():
        if launch is None or launch.backend not in c.backends:
            continue
        new = replace(launch, config=c.name, artifact=c.artifact)
        plain = replace(c.artifact, source=None, credential=None)
        same = plain == replace(launch.artifact, source=None, credential=None)
        if same and made_by(profile, new) is not None:
            return new
    return None


def undeclared(host: Host, launch: Launch | None) -> bool:
    """The host declares what it can run, and this is no part of it."""
    can = [(r.engine, r.backend) for r in host.runtimes]
    return bool(can) and launch is not None and (launch.engine, launch.backend) not in can


def taken_from_us(view: View, host: HostId) -> bool:
    """It is declared as nobody's to actuate, or not at all."""
    declared = view.hosts.get(host)
    return declared is None or declared.scope != view.plan.scope or declared.host_class is HostClass.EXTERNAL


def shut_out(view: View, host: HostId) -> bool:
    """It is declared, and no key of it counts."""
    return not view.declared and not any(k.host == host and not k.expunged for k in view.desired.keys)


def lost(view: View, host: HostId) -> bool:
    """It was written off, or is silent for longer than its files let anybody wait."""
    declared, report, beat = view.hosts.get(host), view.reports.get(host), view.desired.planning.heartbeat
    if declared is None or view.declared:
        return False
    since = report.observed_ms if report is not None else view.inputs.watching_since_ms
    age = view.clock - since if since is not None else None
    heard = report is not None and age is not None and age <= beat.stale_after_ms and not report.goodbye
    if heard:
        return False
    began, wait = view.inputs.watching_since_ms, max(beat.recovery_grace_ms, beat.stale_after_ms)
    listened = began is None or view.inputs.now_ms - began >= wait
    overdue = age is not None and age >= patience(view, declared) and listened
    return overdue or host in view.inputs.written_off


def poorly(view: View, host: HostId) -> bool:
    """It says itself that it cannot serve, and has said so for longer than is waited for."""
    declared, report = view.hosts.get(host), view.reports.get(host)
    if declared is None or report is None or report.state not in POORLY:
        return False
    return report.since_ms is None or view.clock - report.since_ms >= patience(view, declared)


def patience(view: View, host: Host) -> int:
    if host.host_class is not HostClass.OPPORTUNISTIC:
        return view.desired.planning.heartbeat.stale_after_ms
    return host.absence.replace_after_ms if host.absence is not None else REPLACE_AFTER_MS


def stood(view: View, host: HostId) -> Sequence[Assignment]:
    """Who stands there by the parent, or was found to run there, also one that the parent has elsewhere and that this
    plan lets stay where it runs: by the names of today."""
    new_names = {old: new for new, old in view.names.items()}
    before = [replace(a, profile=new_names.get(a.profile, a.profile)) for a in view.stood.get(host, ())]
    known = {a.replica for a in view.before.values()}
    found = [a for a in view.on.get(host, ()) if a.replica not in view.fresh and view.former(a) is None]
    back = [a for a in view.on.get(host, ()) if _elsewhere(view, a, host) and runs(view, a.replica, host)]
    return [*before, *(a for a in found if a.replica not in known), *back]


def _elsewhere(view: View, a: Assignment, host: HostId) -> bool:
    former = view.former(a)
    return former is not None and former.seat.host != host


def leaving(view: View, host: HostId) -> list[Residency]:
    """What runs there, is in no plan so far, and is taken up by this one as a replica that stands elsewhere."""
    here = {a.replica for a in stood(view, host)}
    found = []
    for r in view.live(host):
        a = view.placed.get(r.replica) if r.replica is not None and r.ownership is Ownership.MANAGED else None
        if a is not None and a.seat.host != host and a.replica not in here and view.former(a) is None:
            found.append(r)
    return [r for r in found if r.state in RUNS]


def crowded(view: View, host: HostId) -> bool:
    """Some device has less memory than those who stood there may take, at most, with what nobody can stop."""
    declared = view.hosts.get(host)
    if declared is None:
        return False
    here, ram = stood(view, host), ram_of(view, host)
    held = [r for r in view.strangers(host) if r.ownership is Ownership.MANAGED] + leaving(view, host)
    for device in declared.devices:
        raw, _, share = bounds(view, host, device)
        parts = [_most(view, a, device.id, ram) for a in here]
        taken = sum(parts) + sum(r.device_bytes for r in held if device.id in r.devices)
        taken += sum(r.host_bytes for r in held) if device.id == ram else 0
        if taken > min(max(0, raw), share):
            return True
    return False


def _most(view: View, a: Assignment, device: DeviceId, ram: DeviceId | None) -> int:
    """The most that a seat may be counted with on a device: as planned, as its process was started, as is known."""
    launch = view.old_launches.get(a.launch) or view.launches.get(a.launch)
    again = process(view.profiles.get(a.profile), launch)
    known = known_needs(view, a, again) if again is not None else []
    names = {a.replica, *view.known_as(a)}
    live = [(r.device_bytes, r.host_bytes) for r in view.live(a.seat.host) if r.replica in names]
    rows = [(a.device_bytes, a.host_bytes), *known, *live]
    alone, beside = max(d for d, _ in rows), max(h for _, h in rows)
    return (alone if device in a.seat.devices else 0) + (beside if device == ram else 0)


def full(view: View, profile: Profile, host: HostId) -> bool:
    """More stood there than the host, the profile or its company allow."""
    declared = view.hosts.get(host)
    present = [a.profile for a in stood(view, host)]
    present += [r.profile for r in (*view.strangers(host), *leaving(view, host))]
    most = declared.max_replicas if declared is not None else None
    if most is not None and len(present) > most:
        return True
    if profile.max_per_host is not None and present.count(profile.name) > profile.max_per_host:
        return True
    others = sorted(set(present) - {profile.name})
    both: list[tuple[Profile, ProfileName]] = [(profile, name) for name in others]
    both += [(view.profiles[name], profile.name) for name in others if name in view.profiles]
    if any(name in one.colocation.exclude for one, name in both):
        return True
    limits = [one.colocation.max for one, _ in both if one.colocation.max is not None]
    return bool(limits) and len(others) + 1 > min(limits)


def runs(view: View, replica: ReplicaId, host: HostId) -> bool:
    """A process of ours that goes by this name is there."""
    return any(r.replica == replica and r.ownership is Ownership.MANAGED for r in view.live(host))
