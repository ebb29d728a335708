"""Which hosts may hold a config at all: every rule that does not depend on what else is planned.

`judge` answers for one (profile, config, host): how it would run there, or the first rule that forbids it, as one
coded line. Rules are checked in one fixed order, structural ones first, so that the line is stable. Called by `why` and
`look_ahead` host by host, by `fittings` once for each shape of host (`suits`; names, state and contents are added by
`prospects`), and by `verdicts` for who stands (`allowed`). Counts and memory are `capacity`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.ids import DeviceId, HostId
from gridops.base.units import counted
from gridops.footprint.ledger import DeviceRoom
from gridops.footprint.measured import measured_need
from gridops.footprint.need import Need, UnknownNeed, identity, need
from gridops.model.fleet import DeviceKind
from gridops.model.plan import HostLine, Launch
from gridops.model.policy import PlanningPolicy
from gridops.model.profile import Config, DeviceNeed, Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.signed import Signed
from gridops.planner.together import usable
from gridops.planner.world import HostView

BACKEND_KINDS: dict[str, tuple[DeviceKind, ...]] = {
    "cann": (DeviceKind.GPU,),
    "cpu": (DeviceKind.CPU, DeviceKind.UNIFIED),
    "cuda": (DeviceKind.GPU, DeviceKind.UNIFIED),
    "metal": (DeviceKind.UNIFIED,),
    "mps": (DeviceKind.UNIFIED,),
    "rocm": (DeviceKind.GPU, DeviceKind.UNIFIED),
    "vulkan": (DeviceKind.GPU, DeviceKind.UNIFIED),
}
"""Which kind of device a backend uses, preferred first. A backend without a line here runs nowhere."""

SIGN_IT = "to sign it: gridops trust catalog"
SPLITS_BY = {"mindie": "tensor", "sglang": "tensor", "vllm": "tensor"}
"""How an engine cuts a model over several devices when nobody says. Others may cut by layers, which divides nothing."""


class Way(NamedTuple):
    """How a config runs on a host: its launch, what it needs, and the devices to choose from."""

    launch: Launch
    need: Need
    rooms: tuple[DeviceRoom, ...]
    gpu: bool
    """GPU work: counts toward the GPU share of unified memory."""


class Wanted(NamedTuple):
    """What a config asks of a host, whichever it is: said once, however many are asked."""

    profile: Profile
    config: Config
    planning: PlanningPolicy
    need: Need | UnknownNeed
    divisor: str | None
    """What so many devices would tear apart."""
    launches: dict[str, Launch]
    """Its command by backend, as far as somebody asked."""
    signed: Signed | None

    def launch(self, backend: str) -> Launch:
        known = self.launches.get(backend)
        if known is None:
            known = self.launches[backend] = launch_of(self.profile, self.config, backend)
        return known

    def unsigned(self, backend: str, here: Need, *, shared: bool) -> str | None:
        """Why nobody may start it so, by what people signed. `shared`: its devices are the host's RAM."""
        if self.signed is None:
            return None
        taken = (here.device_bytes + here.host_bytes, 0) if shared else (here.device_bytes, here.host_bytes)
        return self.signed.config(self.config, self.launch(backend), taken)


def wanted_of(profile: Profile, config: Config, planning: PlanningPolicy, signed: Signed | None) -> Wanted:
    return Wanted(profile, config, planning, need(config, planning), indivisible(config), {}, signed)


def judge(profile: Profile, config: Config, view: HostView, planning: PlanningPolicy) -> Way | HostLine:
    """How `config` would run on the host, or the first rule that forbids it."""
    line = _refused(profile, config, view, planning)
    if line is not None:
        return line
    way = _way(wanted_of(profile, config, planning, view.signed), view)
    if isinstance(way, HostLine):
        return way
    return view.closed if view.closed is not None else way


def open_way(profile: Profile, config: Config, view: HostView, planning: PlanningPolicy) -> Way | HostLine:
    """How a new replica would run on the host: what `judge` says, unless this very command has failed there."""
    way = judge(profile, config, view, planning)
    if isinstance(way, HostLine):
        return way
    failed = [r for r in view.ours if r.state is ResidencyState.FAILED]
    if failed and (launch := identity(way.launch)) in {r.identity for r in failed}:
        detail = next(r.detail for r in failed if r.identity == launch)
        return _line(view, codes.FAILED_HERE, f"config {config.name} failed there: {detail or 'no reason given'}")
    return way


def suits(asked: Wanted, view: HostView) -> Way | None:
    """How the config runs on hosts like this one, whatever their name, state and contents; None: it does not.

    Equal answers for hosts of one shape (`grid.shape_of`): what this reads must stand there.
    """
    if _no_runtime(asked.config, view) is not None or _traits(asked.profile, view, asked.planning) is not None:
        return None
    way = _way(asked, view)
    return way if isinstance(way, Way) else None


def named(profile: Profile, host: HostId) -> bool:
    """May a host of this name be used at all?"""
    rules = profile.placement
    return (not rules.allow_hosts or host in rules.allow_hosts) and host not in rules.deny_hosts


def allowed(profile: Profile, view: HostView, planning: PlanningPolicy) -> HostLine | None:
    """The policy rules alone (tags, tier, allow and deny): what a running replica must go on meeting."""
    if (line := _traits(profile, view, planning)) is not None or named(profile, view.host.id):
        return line
    if profile.placement.allow_hosts and view.host.id not in profile.placement.allow_hosts:
        return _line(view, codes.NOT_ALLOWED, "it is not among `allow_hosts`")
    return _line(view, codes.DENIED, "it is named in `deny_hosts`")


def _traits(profile: Profile, view: HostView, planning: PlanningPolicy) -> HostLine | None:
    rules, host = profile.placement, view.host
    missing = [t for t in rules.require_tags if t not in host.tags]
    if missing:
        return _line(view, codes.MISSING_TAG, f"it lacks the tag {missing[0]}")
    forbidden = [t for t in rules.forbid_tags if t in host.tags]
    if forbidden:
        return _line(view, codes.FORBIDDEN_TAG, f"it carries the tag {forbidden[0]}")
    if _tier(rules.tier, planning, unknown=len(planning.tiers)) > _tier(host.tier, planning, unknown=0):
        return _line(view, codes.TIER_TOO_LOW, f"its tier is {host.tier or 'the lowest'}, {rules.tier} is needed")
    return None


def launch_of(profile: Profile, config: Config, backend: str) -> Launch:
    """The command a config becomes on a backend."""
    return Launch(
        profile=profile.name,
        config=config.name,
        engine=config.engine,
        backend=backend,
        artifact=config.artifact,
        context=config.context,
        lanes=config.lanes,
        devices=config.devices,
        args=config.args,
    )


def is_gpu_work(backend: str) -> bool:
    return backend != "cpu"


def _refused(profile: Profile, config: Config, view: HostView, planning: PlanningPolicy) -> HostLine | None:
    if view.closed is not None and view.closed.code in (codes.OTHER_SCOPE.code, codes.EXTERNAL_HOST.code):
        return view.closed
    return _no_runtime(config, view) or allowed(profile, view, planning)


def _no_runtime(config: Config, view: HostView) -> HostLine | None:
    engines = [r for r in view.runtimes if r.engine == config.engine]
    if not engines:
        return _line(view, codes.NO_RUNTIME, f"it has no {config.engine}")
    if not any(r.backend in config.backends for r in engines):
        has = ", ".join(sorted({r.backend for r in engines}))
        return _line(view, codes.WRONG_BACKEND, f"its {config.engine} is for {has}, not {' or '.join(config.backends)}")
    return None


def _way(asked: Wanted, view: HostView) -> Way | HostLine:
    config, wanted = asked.config, asked.need
    if isinstance(wanted, UnknownNeed) and (not view.measured or config.devices.count < 1):
        return _line(view, codes.FOOTPRINT_UNKNOWN, f"config {config.name}: {wanted.reason}")
    if asked.divisor is not None:
        return _line(
            view,
            codes.SHARD_INDIVISIBLE,
            f"config {config.name}: {asked.divisor} cannot be divided by {config.devices.count}",
        )
    backends = [b for b in config.backends if any(r.engine == config.engine and r.backend == b for r in view.runtimes)]
    first: HostLine | None = None
    for backend in backends:
        rooms = _devices(config.devices, view, backend)
        if isinstance(rooms, HostLine):
            first = first or rooms
            continue
        measured = measured_need(config, backend, view.places(rooms), view.measured) if view.measured else None
        here = measured or wanted
        if isinstance(here, UnknownNeed):
            first = first or _line(view, codes.FOOTPRINT_UNKNOWN, f"config {config.name}: {here.reason}")
            continue
        if here.host_bytes and view.ram is None:
            return _line(view, codes.HOST_MEMORY_UNKNOWN, "it declares no cpu or unified device")
        unsigned = asked.unsigned(backend, here, shared=view.ram in rooms)
        if unsigned is not None:
            first = first or _line(view, codes.NOT_IN_CATALOG, f"config {config.name}: {unsigned} ({SIGN_IT})")
            continue
        return Way(asked.launch(backend), here, rooms, is_gpu_work(backend))
    assert first is not None, "_refused admitted a host without any backend of the config"
    return first


def need_at(
    config: Config, planning: PlanningPolicy, view: HostView, backend: str, on: Iterable[DeviceId]
) -> Need | None:
    """What a replica needs on these devices of a host; None when nobody knows."""
    devices = frozenset(on)
    rooms = [room for room in view.rooms if room.id in devices]
    measured = measured_need(config, backend, view.places(rooms), view.measured) if view.measured else None
    wanted = measured or need(config, planning)
    return wanted if isinstance(wanted, Need) else None


def indivisible(config: Config) -> str | None:
    """What of the model a tensor split over so many devices would tear apart, in words; None for nothing known.

    An engine that splits tensors where nobody says how is taken to do so.
    """
    heads, devices = config.heads, config.devices
    shard = devices.shard or SPLITS_BY.get(config.engine)
    if devices.count <= 1 or shard != "tensor":
        return None
    named = (("attention heads", heads.attention), ("vision heads", heads.vision), ("vocabulary", heads.vocabulary))
    for name, value in named:
        if value is not None and value % devices.count:
            return f"{value} {name}" if name != "vocabulary" else f"a vocabulary of {value}"
    # KV heads may also be fewer than devices, when each is copied to the same number of them.
    if heads.kv is not None and heads.kv % devices.count and devices.count % heads.kv:
        return f"{heads.kv} KV heads"
    return None


def _devices(wanted: DeviceNeed, view: HostView, backend: str) -> tuple[DeviceRoom, ...] | HostLine:
    """The devices to choose from, or why there are not enough of them."""
    kinds = BACKEND_KINDS.get(backend, ())
    have, rooms = 0, None
    for kind in kinds:
        found = tuple([r for r in view.rooms if r.kind is kind and r.backend in (None, backend)])
        have = max(have, len(found))
        if len(found) >= wanted.count:
            rooms = found
            break
    if rooms is None:
        names = " or ".join(k.value for k in kinds) or "known"
        others = any(r.kind in kinds and r.backend not in (None, backend) for r in view.rooms)
        detail = (
            f"it has {counted(have, f'{names} device')}{f' for {backend}' if others else ''}, {wanted.count} needed"
        )
        return _line(view, codes.NO_DEVICES, detail, wanted.count, have)
    able = usable(rooms, wanted)
    return able if isinstance(able, tuple) else _line(view, able.code, able.detail, wanted.count, able.have)


def _tier(name: str | None, planning: PlanningPolicy, *, unknown: int) -> int:
    """Rank of a tier; none is the lowest. A name nobody ordered is never met when wanted, worth nothing when had."""
    if name is None:
        return 0
    return planning.tiers.index(name) if name in planning.tiers else unknown


def _line(view: HostView, code: Code, detail: str, need_: int | None = None, have: int | None = None) -> HostLine:
    unit = "count" if need_ is not None else None
    return HostLine(host=view.host.id, code=code.code, detail=detail, need=need_, have=have, unit=unit)
