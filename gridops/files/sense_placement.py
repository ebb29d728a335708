"""Can the declared hosts ever satisfy a profile? Pins that cannot hold are errors; the rest is worth a warning.

Judged on ceilings alone: what is free at the moment is the planner's business. Hosts that are alike are judged once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from gridops.base.codes import sense as codes
from gridops.base.ids import HostId
from gridops.base.units import PPM, counted, render_lack
from gridops.files.diagnose import Related
from gridops.files.gather import Declared, Gathered
from gridops.files.kinds_fleet import BACKEND_KINDS
from gridops.files.nodes import Node
from gridops.files.sense_names import listed
from gridops.files.shape import Read
from gridops.footprint.need import Need, UnknownNeed, need
from gridops.model.fleet import Device, DeviceKind, Host, HostClass
from gridops.model.policy import PlanningPolicy
from gridops.model.profile import Config, PlacementRules, Profile

REASONS = 4
"""So many reasons are listed when no host can run a profile."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A profile with what each of its configs needs."""

    profile: Profile
    declared: Declared
    configs: tuple[tuple[Config, Need], ...]
    tiers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class No:
    """Why a host cannot hold a profile, and the place of the rule when it is a rule of the profile."""

    why: str
    node: Node | None = None


def judge(found: Gathered) -> None:
    """Each whole profile against each whole host of its scope."""
    planning = found.policies.get("Planning")
    policy = planning.value if planning is not None and planning.value is not None else PlanningPolicy()
    groups = _alike([h for h in found.hosts.values() if h.value is not None])
    whole = all(h.value is not None for h in found.hosts.values())
    for name in sorted(found.profiles):
        declared = found.profiles[name]
        if declared.value is None:
            continue
        configs = tuple(_needs(declared, policy))
        wanted = Wanted(declared.value, declared, configs, policy.tiers)
        _pins(found, wanted)
        if whole and configs and found.hosts and declared.value.replicas_max > 0:
            _reach(wanted, groups.get(declared.scope, {}))


def _needs(declared: Declared, policy: PlanningPolicy) -> Iterator[tuple[Config, Need]]:
    """Memory of each config; one that is unknown is said to be so."""
    configs = declared.read.get("configs")
    for config in declared.value.configs:
        wanted = need(config, policy)
        if isinstance(wanted, UnknownNeed):
            node = configs.values[config.name].key("footprint")
            declared.reader.warn(
                codes.FOOTPRINT_UNKNOWN, node, f"config `{config.name}` cannot be placed", wanted.reason
            )
        else:
            yield config, wanted


def _alike(hosts: list[Declared]) -> dict[str, dict[tuple[object, ...], list[Host]]]:
    """Hosts by scope, those that no rule can tell apart together."""
    groups: dict[str, dict[tuple[object, ...], list[Host]]] = defaultdict(lambda: defaultdict(list))
    for declared in hosts:
        host: Host = declared.value
        sizes = tuple(
            (d.kind, d.memory_bytes - d.reserve_bytes, d.gpu_share_ppm, d.parent, d.pcie_bps, d.backend)
            for d in host.devices
        )
        groups[host.scope][host.host_class, sizes, host.runtimes, host.tags, host.tier, host.disk].append(host)
    return groups


def _pins(found: Gathered, wanted: Wanted) -> None:
    read = wanted.declared.read
    placement = read.get("placement")
    for name, node in listed(placement, "pins"):
        host = found.hosts.get(name)
        if host is None or host.value is None:
            continue
        no = _named(placement, name) or _host(wanted, host.value)
        if no is not None:
            related = (Related(wanted.declared.source.place(no.node), "this rule"),) if no.node is not None else ()
            message = f"the pin to `{name}` can never hold"
            wanted.declared.reader.error(codes.PIN, node, message, no.why, related=related)


def _named(placement: Read, name: str) -> No | None:
    for denied, node in listed(placement, "deny_hosts"):
        if denied == name:
            return No("the host is denied", node)
    allowed = [host for host, _ in listed(placement, "allow_hosts")]
    if allowed and name not in allowed:
        return No("the host is not allowed", placement.node("allow_hosts"))
    return None


def _host(wanted: Wanted, host: Host) -> No | None:
    """The first rule that keeps the host from ever holding the profile."""
    profile = wanted.profile
    if host.scope != profile.scope:
        return No(f"the host is in scope `{host.scope}`, the profile in `{profile.scope}`")
    if host.host_class is HostClass.EXTERNAL:
        return No("the host is external and never actuated")
    if host.max_replicas == 0:
        return No("the host takes no replicas (`max_replicas: 0`)")
    rules = profile.placement
    missing = next((t for t in rules.require_tags if t not in host.tags), None)
    if missing is not None:
        return No(f"the host lacks the tag `{missing}`")
    forbidden = next((t for t in rules.forbid_tags if t in host.tags), None)
    if forbidden is not None:
        return No(f"the host carries the tag `{forbidden}`")
    if _rank(rules.tier, wanted.tiers) > _rank(host.tier, wanted.tiers):
        return No(f"its data tier is {host.tier or 'the lowest'}, `{rules.tier}` is needed")
    reasons = [reason for config, size in wanted.configs if (reason := _runs(config, size, host)) is None or reason]
    if not wanted.configs or None in reasons:
        return None
    return No(str(reasons[0]))


def _rank(tier: str | None, tiers: tuple[str, ...]) -> int:
    return tiers.index(tier) if tier in tiers else 0


def _runs(config: Config, size: Need, host: Host) -> str | None:
    """Why a config cannot run on a host by its ceilings; None when it can."""
    backends = {r.backend for r in host.runtimes if r.engine == config.engine}
    if not backends:
        return f"the host has no runtime {config.engine}"
    usable = [b for b in config.backends if b in backends]
    if not usable:
        return f"its {config.engine} is built for {', '.join(sorted(backends))}, not {' or '.join(config.backends)}"
    reasons = [_fits(config, size, host, backend) for backend in usable]
    if None in reasons:
        weight = sum(f.size_bytes for f in config.artifact.files)
        room = host.disk.artifacts_bytes - host.disk.keep_free_bytes if host.disk is not None else weight
        if weight <= room:
            return None
        wants, have, _ = render_lack(weight, room)
        return f"its disk holds {have}, the artifact is {wants}"
    return reasons[0]


def _fits(config: Config, size: Need, host: Host, backend: str) -> str | None:
    kinds = BACKEND_KINDS[backend]
    count, rate = config.devices.count, config.devices.pcie_bps
    cut = {d.parent for d in host.devices}
    able = [
        d
        for d in host.devices
        if d.kind in kinds and d.backend in (None, backend) and d.id not in cut and (count == 1 or d.parent is None)
    ]
    rooms = sorted((_room(d, backend) for d in able), reverse=True)
    if len(rooms) < count:
        return f"the host has {counted(len(rooms), 'device')} for {backend}, {count} are needed"
    if rate is not None and sum((d.pcie_bps or 0) >= rate for d in able) < count:
        return f"too few of its devices declare a `pcie` rate of {rate // 10**6} Mbit/s"
    if rooms[count - 1] < size.device_bytes:
        wants, have, lacks = render_lack(size.device_bytes, rooms[count - 1])
        return f"it needs {wants} per device, the host has {have}: {lacks} short"
    return None


def _room(device: Device, backend: str) -> int:
    room = device.memory_bytes - device.reserve_bytes
    if device.kind is DeviceKind.UNIFIED and backend != "cpu":
        room = min(room, device.memory_bytes * device.gpu_share_ppm // PPM)
    return room


def _reach(wanted: Wanted, groups: dict[tuple[object, ...], list[Host]]) -> None:
    """How many hosts and failure domains the profile can reach at all."""
    rules = wanted.profile.placement
    able: list[Host] = []
    reasons: dict[str, int] = defaultdict(int)
    for hosts in groups.values():
        no = _host(wanted, hosts[0])
        if no is not None:
            reasons[no.why] += len(hosts)
            continue
        named = [h for h in hosts if _listed(rules, h.id)] if rules.allow_hosts or rules.deny_hosts else hosts
        able += named
        if len(named) < len(hosts):
            reasons["`placement` names hosts"] += len(hosts) - len(named)
    read, reader = wanted.declared.read, wanted.declared.reader
    if not able:
        if groups:
            # What keeps the most hosts away comes first, and those that are not listed are at least counted.
            ordered = sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0]))
            notes = tuple(f"{counted(n, 'host')}: {why}" for why, n in ordered[:REASONS])
            rest = sum(n for _, n in ordered[REASONS:])
            notes += (f"{counted(rest, 'host')}: for other reasons",) if rest else ()
            message = f"no host of scope `{wanted.profile.scope}` can run it"
            reader.warn(codes.NOWHERE, read.anchor, message, notes=notes)
        return
    _enough(wanted, able)


def _listed(rules: PlacementRules, host: HostId) -> bool:
    """Whether the lists of hosts leave this one in."""
    return host not in rules.deny_hosts and (not rules.allow_hosts or host in rules.allow_hosts)


def _enough(wanted: Wanted, able: list[Host]) -> None:
    profile, read, reader = wanted.profile, wanted.declared.read, wanted.declared.reader
    each = profile.max_per_host
    if each is not None and len(able) * each < profile.replicas_min:
        hosts = f"{len(able)} host{'s' if len(able) > 1 else ''}"
        message = f"{counted(profile.replicas_min, 'replica')} wanted, {hosts} may hold {each} each"
        reader.warn(codes.TOO_FEW_HOSTS, read.node("replicas"), message)
    if profile.spread is None:
        return
    level = profile.spread.by
    domains: set[str] = set()
    for host in able:
        domains.update(domain.value for domain in host.domains if domain.level == level)
        if len(domains) >= profile.spread.min:
            break
    else:
        spread = read.get("spread")
        hint = f"hosts that could run it stand in {len(domains)} of level {level}"
        message = f"the fleet cannot spread it over {counted(profile.spread.min, 'domain')} of level `{level}`"
        reader.warn(codes.SPREAD, spread.node("min"), message, hint)
