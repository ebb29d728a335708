"""The checker's rules about single seats and hosts: may it stand there, is there memory, are the counts kept.

Part of `check`: arithmetic of its own, nothing of the planner. Each rule yields notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gridops.base.codes import placement as codes
from gridops.base.ids import DeviceId, HostId
from gridops.model.fleet import Device, DeviceKind, Host
from gridops.model.measured import revision, settings
from gridops.model.plan import Assignment, Launch
from gridops.model.profile import Config, FootprintSource, Profile
from gridops.model.snapshot import (
    DeviceReport,
    HostReport,
    HostState,
    Ownership,
    ResidencyState,
)
from gridops.planner.check_view import View

PPM = 1_000_000
OVER_MEMORY = codes.OVER_MEMORY.code
KINDS = {
    "cann": {DeviceKind.GPU},
    "cpu": {DeviceKind.CPU, DeviceKind.UNIFIED},
    "cuda": {DeviceKind.GPU, DeviceKind.UNIFIED},
    "metal": {DeviceKind.UNIFIED},
    "mps": {DeviceKind.UNIFIED},
    "rocm": {DeviceKind.GPU, DeviceKind.UNIFIED},
    "vulkan": {DeviceKind.GPU, DeviceKind.UNIFIED},
}
"""Kinds of device that each backend can use."""


def hosts(view: View) -> Iterator[str]:
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


def _seat(view: View, a: Assignment, launch: Launch, host: Host, report: HostReport | None) -> Iterator[str]:
    """The device set is real, of the right kind and count, and may work together."""
    devices = {d.id: d for d in host.devices}
    cut = {d.parent for d in host.devices} | ({d.parent for d in report.devices} if report is not None else set())
    seen = {d.id: d for d in report.devices} if report is not None else None
    kinds = KINDS.get(launch.backend, set())
    for name in a.seat.devices:
        if name not in devices or (seen is not None and name not in seen):
            yield f"{a.replica} stands on {host.id} {name}, which does not exist"
            return
        if name in cut:
            yield f"{a.replica} stands on {host.id} {name}, a card that is cut into instances"
        if devices[name].backend not in (None, launch.backend):
            yield f"{a.replica} runs {launch.backend} on {host.id} {name}, which only {devices[name].backend} can use"
        if devices[name].kind not in kinds:
            yield f"{a.replica} runs {launch.backend} on {host.id} {name}, a {devices[name].kind.value}"
    chosen = [devices[name] for name in a.seat.devices]
    if len(set(a.seat.devices)) != launch.devices.count or list(a.seat.devices) != sorted(a.seat.devices):
        yield f"{a.replica} takes {len(a.seat.devices)} devices, {launch.devices.count} needed, sorted"
    sizes = {min(d.memory_bytes, seen[d.id].total_bytes) if seen is not None else d.memory_bytes for d in chosen}
    if len(chosen) > 1 and not launch.devices.uneven and (len(sizes) > 1 or len({d.model for d in chosen}) > 1):
        yield f"{a.replica} splits evenly over unequal devices of {host.id}"
    if len(chosen) > 1 and launch.devices.link not in (None, "any"):
        for one in chosen:
            if any(other.id not in one.peers for other in chosen if other is not one):
                yield f"{a.replica} needs linked devices, and {host.id} {one.id} is not a peer of all others"
    yield from _topology(a, launch, chosen, [d for d in (report.devices if report is not None else ()) if d.parent])
    config = made_by(view.profiles.get(a.profile), launch)
    if config is not None:
        yield from _divided(a, launch, config)


def _topology(a: Assignment, launch: Launch, chosen: list[Device], parts: list[DeviceReport]) -> Iterator[str]:
    """What the config asks of the way between its devices is known to hold; what nobody says does not."""
    wanted, instances = launch.devices, {d.id for d in parts} | {d.id for d in chosen if d.parent is not None}
    if len(chosen) > 1 and any(d.id in instances for d in chosen):
        yield f"{a.replica} works over parts of cards on {a.seat.host}"
    if wanted.pcie_bps is not None and any(d.pcie_bps is None or d.pcie_bps < wanted.pcie_bps for d in chosen):
        yield f"{a.replica} asks for a PCIe rate that is not known of all its devices on {a.seat.host}"
    domains = {d.numa for d in chosen}
    if wanted.numa is not None and len(chosen) > 1 and (len(domains) > 1 or None in domains):
        yield f"{a.replica} asks for one NUMA domain, and its devices on {a.seat.host} are not known to share one"


def _divided(a: Assignment, launch: Launch, config: Config) -> Iterator[str]:
    """A tensor split divides everything evenly; KV heads may also be copied to the same number of devices each."""
    count, heads = launch.devices.count, config.heads
    unsaid = "tensor" if launch.engine in ("mindie", "sglang", "vllm") else None
    if (launch.devices.shard or unsaid) != "tensor":
        return
    for what in (heads.attention, heads.vision, heads.vocabulary):
        if what is not None and what % count:
            yield f"{a.replica} divides {what} by {count}"
    if heads.kv is not None and heads.kv % count and count % heads.kv:
        yield f"{a.replica} divides {heads.kv} KV heads by {count}"


def _disk(view: View) -> Iterator[str]:
    """What has to be fetched for new seats fits the disk."""
    for host, arriving in sorted(view.arriving.items()):
        report, declared = view.reports.get(host), view.hosts.get(host)
        if declared is None:
            continue
        keep = declared.disk.keep_free_bytes if declared.disk is not None else 0
        room = declared.disk.artifacts_bytes if declared.disk is not None else None
        if report is not None and report.disk_free_bytes is not None:
            room = report.disk_free_bytes
        cached = set(report.cached) if report is not None else set()
        launches = [view.launches[a.launch] for a in arriving if a.launch in view.launches]
        files = {f.sha256: f.size_bytes for launch in launches for f in launch.artifact.files if f.sha256 not in cached}
        if files and room is not None and sum(files.values()) > room - keep:
            yield f"{host} has no disk for the artifacts of its new replicas"


def made_by(profile: Profile | None, launch: Launch) -> Config | None:
    """The config of the profile that becomes this command."""
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


def _seen(view: View, a: Assignment, config: Config, launch: Launch) -> tuple[int, int] | None:
    """What was measured of this config, on this host or on the same card elsewhere, for no less than it asks."""
    here = view.reports.get(a.seat.host)
    if here is None or (launch.engine in ("mindie", "sglang", "vllm") and launch.backend != "cpu"):
        return None
    alike = {(d.kind, d.model, d.total_bytes) for d in here.devices if d.id in a.seat.devices}
    kinds = {(kind, model) for kind, model, _ in alike}
    of, by = revision(config.artifact), settings(config.args, config.devices)
    found = [
        m
        for report in view.reports.values()
        for m in report.measured or ()
        if (m.engine, m.backend, m.revision, m.settings) == (config.engine, launch.backend, of, by)
        and m.context >= config.context
        and m.lanes >= config.lanes
        and (m.kind, m.device) in kinds
        and (report.host == a.seat.host or (m.device is not None and (m.kind, m.device, m.total_bytes) in alike))
    ]
    best = min(found, key=lambda m: (m.context, m.lanes, -m.at_ms, m.evidence), default=None)
    return (best.device_bytes, best.host_bytes) if best is not None else None


def known_needs(view: View, a: Assignment, launch: Launch) -> list[tuple[int, int]]:
    """What may be known of a command on its seat, by files and by measuring; nothing where no config makes it.

    A config may have got another name since: what it needs is true of the same command all the same.
    """
    profile = view.profiles.get(a.profile)
    called = (replace(launch, config=c.name) for c in (profile.configs if profile is not None else ()))
    config = next((made for one in called if (made := made_by(profile, one)) is not None), None)
    if config is None:
        return []
    return [need for need in (_need(config), _seen(view, a, config, launch)) if need is not None]


def claims(view: View) -> Iterator[str]:
    """A new seat takes what its config needs, and one that stands no less than that or than what it took."""
    for a in view.plan.placement:
        launch, profile, old = view.launches.get(a.launch), view.profiles.get(a.profile), view.former(a)
        config = made_by(profile, launch) if launch is not None else None
        need = _need(config) if config is not None else None
        if config is not None and launch is not None:
            need = _seen(view, a, config, launch) or need
        if need is None:
            if a.replica in view.fresh and config is not None:
                yield f"{a.replica} is placed although nobody knows what it takes"
            continue
        device, beside = need
        if ram_of(view, a.seat.host) in a.seat.devices:
            device, beside = device + beside, 0
        if a.replica in view.fresh and (a.device_bytes, a.host_bytes) != (device, beside):
            yield f"{a.replica} takes {a.device_bytes} and {a.host_bytes} bytes, {device} and {beside} needed"
        elif old is not None and a.device_bytes + a.host_bytes < min(
            device + beside, old.device_bytes + old.host_bytes
        ):
            yield f"{a.replica} is said to take less than it needs and than it took"
        names = view.known_as(a) if a.replica not in view.fresh else ()
        for r in view.live(a.seat.host) if names else ():
            runs = r.replica in names and r.identity == a.launch and r.ownership is Ownership.MANAGED
            if runs and (a.device_bytes < r.device_bytes or a.host_bytes < r.host_bytes):
                yield f"{a.replica} is said to take less than its process was started with"


def _need(config: Config) -> tuple[int, int] | None:
    """Bytes on each device and of RAM on top, by arithmetic of its own; None where nobody knows."""
    known, count = config.footprint, config.devices.count
    lanes = config.lanes * ((known.fixed_per_sequence_bytes or 0) + (known.spike_per_lane_bytes or 0))
    cells = _up((known.kv_per_1k_bytes or 0) * config.context, 1000)
    if known.source is FootprintSource.UNKNOWN:
        return None
    if known.device_bytes is not None:
        return known.device_bytes + cells + lanes, known.host_bytes or 0
    weights, heads = sum(f.size_bytes for f in config.artifact.files), config.heads.attention
    if known.source is not FootprintSource.DERIVED or not weights:
        return None
    if known.kv_per_1k_bytes is None:
        kv = config.heads.kv if config.heads.kv is not None else heads
        if not heads or not kv:
            return None
        cells = _up(_up(weights * kv * config.context, 96 * heads**2), count)
    host = known.host_bytes if known.host_bytes is not None else 512 << 20
    return _up(_up(weights * 11, 10), count) + cells + lanes, host


def _up(amount: int, parts: int) -> int:
    return -(-amount // parts)


def ram_of(view: View, host_id: HostId) -> DeviceId | None:
    """The device that is the host's RAM, of those that are there."""
    host, report = view.hosts.get(host_id), view.reports.get(host_id)
    there = [d for d in host.devices if _there(report, d.id)] if host is not None else []
    pools = sorted((d.kind is DeviceKind.UNIFIED, d.id) for d in there if d.kind is not DeviceKind.GPU)
    return pools[0][1] if pools else None


def memory(view: View) -> Iterator[str]:
    """Per device: everything planned fits; where something is new or has grown, the headroom stays free too."""
    excused = {s.detail.split(" ")[0] for s in view.plan.report.shortfalls if s.code == OVER_MEMORY}
    for host_id in sorted(view.on):
        host, report = view.hosts.get(host_id), view.reports.get(host_id)
        there = [d for d in host.devices if _there(report, d.id)] if host is not None else []
        pools = sorted((d.kind is DeviceKind.UNIFIED, d.id) for d in there if d.kind is not DeviceKind.GPU)
        ram = pools[0][1] if pools else None
        for device in there:
            raw, margin, share = bounds(view, host_id, device)
            taken, gpu, grows = _load(view, host_id, device.id, ram=device.id == ram)
            where = f"{host_id} {device.id}: {taken} bytes planned"
            if grows and (taken > raw - margin or gpu > share):
                yield f"{where}, {raw - margin} may be with something new there"
            elif (taken > max(0, raw) or gpu > share) and not (view.partial or host_id in excused):
                yield f"{where}, {raw} there, and the report does not say so"


def bounds(view: View, host: HostId, device: Device) -> tuple[int, int, int]:
    """Bytes that may be planned on a device, how many of them new work leaves free, and the most for GPU work."""
    report = view.reports.get(host)
    seen = report.device(device.id) if report is not None else None
    total = min(device.memory_bytes, seen.total_bytes) if seen is not None else device.memory_bytes
    theirs = [r for r in view.live(host) if r.ownership is Ownership.EXTERNAL and device.id in r.devices]
    external = max(seen.external_bytes if seen is not None else 0, sum(r.device_bytes for r in theirs))
    raw = total - device.reserve_bytes - external
    margin = -(-total * view.desired.planning.headroom.memory_ppm // PPM)
    if report is not None and report.state is HostState.THROTTLED:
        margin = max(margin, raw - raw * view.throttled(report) // PPM)
    return raw, margin, total * device.gpu_share_ppm // PPM


def _load(view: View, host: HostId, device: DeviceId, *, ram: bool) -> tuple[int, int, bool]:
    """Bytes planned on a device, GPU work among them, and whether anything of it is new or has grown."""
    taken = gpu = 0
    grows = False
    for a in view.on[host]:
        here, old = device in a.seat.devices, view.former(a)
        own = (a.device_bytes if here else 0) + (a.host_bytes if ram else 0)
        launch = view.launches.get(a.launch)
        taken += own
        gpu += a.device_bytes if here and launch is not None and launch.backend != "cpu" else 0
        before = _held(view, old) if old is not None and old.seat == a.seat else -1
        grows = grows or (own > 0 and a.replica in view.fresh and before < a.device_bytes + a.host_bytes)
    for r in view.strangers(host):
        if r.ownership is Ownership.MANAGED:
            part = r.device_bytes if device in r.devices else 0
            taken += part + (r.host_bytes if ram else 0)
            gpu += part
    return taken, gpu, grows


def _held(view: View, old: Assignment) -> int:
    """The most that its former self is known to take there: by the parent, or by what its file says today."""
    launch = view.old_launches.get(old.launch)
    known = known_needs(view, old, launch) if launch is not None else []
    return max(old.device_bytes + old.host_bytes, *(device + beside for device, beside in known), 0)


def _as_started(view: View, a: Assignment) -> Assignment:
    """A seat with what its running process was given, where one is reported."""
    names = view.known_as(a)
    mine = next((r for r in view.live(a.seat.host) if r.replica in names and r.identity == a.launch), None)
    return a if mine is None else replace(a, device_bytes=mine.device_bytes, host_bytes=mine.host_bytes)


def beside(view: View) -> Iterator[str]:
    """The other ledger: what serves and is started anew on its own host runs twice for a while, or is said to be down.

    Whoever arrives can wait for them, so only those who stand there count besides, each as it was started: what its
    file says today is true of it when it is started anew.
    """
    stated = {d.replica for d in view.plan.decisions if d.cost.dip}
    fresh = {a.replica for a in view.new}
    for a in view.new:
        old = view.former(a)
        if a.replica in stated or old is None or old.seat.host != a.seat.host or view.partial:
            continue
        names = {old.replica, *view.known_as(a)}
        twin = next((r for r in view.live(a.seat.host) if r.replica in names and r.identity == old.launch), None)
        host = view.hosts.get(a.seat.host)
        if twin is None or host is None or twin.state is not ResidencyState.READY:
            continue
        pools = sorted((d.kind is DeviceKind.UNIFIED, d.id) for d in host.devices if d.kind is not DeviceKind.GPU)
        ram = pools[0][1] if pools else None
        for device in host.devices:
            raw, margin, share = bounds(view, host.id, device)
            mine = (a.device_bytes if device.id in a.seat.devices else 0) + (a.host_bytes if device.id == ram else 0)
            others = [_as_started(view, b) for b in view.on[host.id] if b.replica not in fresh]
            taken = mine + (twin.device_bytes if device.id in twin.devices else 0)
            taken += sum(b.device_bytes for b in others if device.id in b.seat.devices)
            taken += twin.host_bytes + sum(b.host_bytes for b in others) if device.id == ram else 0
            gpu = sum(b.device_bytes for b in (a, *others) if device.id in b.seat.devices and _on_gpu(view, b))
            gpu += twin.device_bytes if device.id in twin.devices and _on_gpu(view, old) else 0
            if mine and (taken > raw - margin or (_on_gpu(view, a) and gpu > share)):
                yield f"{a.replica} cannot run twice on {host.id} {device.id}, and nothing says that it is down"


def _on_gpu(view: View, a: Assignment) -> bool:
    launch = view.launches.get(a.launch) or view.old_launches.get(a.launch)
    return launch is None or launch.backend != "cpu"


def _there(report: HostReport | None, device: str) -> bool:
    return report is None or any(d.id == device for d in report.devices)


def price(view: View) -> Iterator[str]:
    """Whoever opens another host stays below the ceiling with all that is held then, and knows what it costs."""
    ceiling = view.desired.budgets.of(view.plan.scope).price
    before = {a.seat.host for a in view.before.values()}
    opened = {a.seat.host for a in view.new if a.seat.host not in before and not _managed(view, a.seat.host)}
    if ceiling is None or not opened:
        return
    for host in sorted(opened):
        declared = view.hosts.get(host)
        if declared is not None and declared.price_per_hour_micro is None and ceiling.unknown == "refuse":
            yield f"{host} is opened, nobody knows its price, and there is a ceiling"
    heard = [h for h in view.reports if view.beat(h) is None]
    stuck = {h for h in heard if any(r.ownership is Ownership.MANAGED for r in view.strangers(h))}
    held = [view.hosts[h] for h in sorted(stuck | set(view.on)) if h in view.hosts]
    spent = sum(h.price_per_hour_micro or 0 for h in held)
    if spent > ceiling.max_per_hour_micro:
        yield f"{', '.join(sorted(opened))} opened for {spent} micro an hour, {ceiling.max_per_hour_micro} may be spent"


def _managed(view: View, host: HostId) -> bool:
    return any(r.ownership is Ownership.MANAGED for r in view.live(host))


def counts(view: View) -> Iterator[str]:
    """Slots, replicas per host and company, wherever something new arrives."""
    for host_id in sorted(view.arriving):
        host, seats = view.hosts.get(host_id), view.on[host_id]
        if host is None:
            continue
        everybody = [a.profile for a in seats] + [r.profile for r in view.strangers(host_id)]
        if host.max_replicas is not None and len(everybody) > host.max_replicas:
            yield f"{host_id} would hold {len(everybody)} residencies of at most {host.max_replicas}"
        arriving = {a.profile for a in view.arriving[host_id]}
        for name, number in sorted(Counter(everybody).items()):
            profile = view.profiles.get(name)
            if profile is None:
                continue
            if name in arriving and profile.max_per_host is not None and number > profile.max_per_host:
                yield f"{host_id} would hold {number} replicas of {name}"
            others = set(everybody) - {name}
            touched = name in arriving or bool(arriving & others)
            company = len(others) + 1 if others else 0
            if touched and profile.colocation.max is not None and company > profile.colocation.max:
                yield f"{name} would share {host_id} with {len(others)} other models"
            for other in sorted(others & set(profile.colocation.exclude)):
                if name in arriving or other in arriving:
                    yield f"{name} and {other} exclude each other and would share {host_id}"
