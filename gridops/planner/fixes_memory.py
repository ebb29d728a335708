"""Changes that might place a replica for which memory or disk is too small: it asks for less, or a host gives more.

Called by `fixes`. The numbers come from the finished board, so that each idea is the smallest of its kind; whether it
really places the replica is shown by planning it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId
from gridops.base.units import PPM, exact_bytes, render_ppm
from gridops.footprint.ledger import DeviceRoom
from gridops.model.fleet import Device, Host
from gridops.model.intent import Desired
from gridops.model.plan import Cause, CauseKind, HostLine
from gridops.model.profile import Config, Footprint
from gridops.planner.draft import Item, Seated
from gridops.planner.fixes_ideas import (
    NEAR_HOSTS,
    WHOLE,
    Change,
    Edit,
    FixKind,
    Idea,
    Question,
    host_is,
    host_paths,
    profile_is,
    profile_paths,
    share,
)
from gridops.planner.why import closest
from gridops.planner.world import HostView

STEP = 64 << 20
"""Sizes that are proposed are multiples of this, so that a person can write them; smaller ones are whole MiB."""
CONTEXT_STEP = 256
"""Contexts that are proposed are multiples of this many cells."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """What one device of a host lacks: all others that the seat needs have room."""

    view: HostView
    room: DeviceRoom
    bytes: int


def memory_ideas(asked: Question) -> Iterator[Idea]:
    """For the hosts that lack device memory, host memory or disk."""
    yield from _less(asked)
    for line in asked.of(codes.INSUFFICIENT_DEVICE_MEMORY.code, codes.INSUFFICIENT_HOST_MEMORY.code)[:NEAR_HOSTS]:
        lack = _lack(asked, line)
        if lack is not None:
            yield from _more(asked, lack)
            yield from _moves(asked, lack)
    for line in asked.of(codes.DISK_FULL.code)[:NEAR_HOSTS]:
        yield from _disk(asked, line)


def _less(asked: Question) -> Iterator[Idea]:
    """The replica asks for less: as little less as the host needs that is nearest once those before it are served."""
    device = asked.of(codes.INSUFFICIENT_DEVICE_MEMORY.code)[asked.turn :]
    for line in device[:2]:
        config, print_ = _config(asked, line.host)
        missing = (line.need or 0) - (line.have or 0)
        if print_.device_bytes is not None and 0 < missing < print_.device_bytes and 2 * missing <= (line.need or 0):
            less = _down(print_.device_bytes - missing)
            yield _footprint(asked, config, "device", print_.device_bytes, replace(print_, device_bytes=less))
        if print_.kv_per_1k_bytes:
            cells = config.context + -missing * 1000 // print_.kv_per_1k_bytes
            cells -= cells % CONTEXT_STEP
            if 2 * cells >= config.context:
                yield _shorter(asked, config, cells)
    for line in asked.of(codes.INSUFFICIENT_HOST_MEMORY.code)[asked.turn :][:2]:
        config, print_ = _config(asked, line.host)
        missing = (line.need or 0) - (line.have or 0)
        if print_.host_bytes is not None and 0 < missing <= print_.host_bytes:
            less = _down(print_.host_bytes - missing)
            yield _footprint(asked, config, "host", print_.host_bytes, replace(print_, host_bytes=less))


def _config(asked: Question, host: HostId) -> tuple[Config, Footprint]:
    found = closest(asked.draft, asked.item, host)
    assert found is not None, "only hosts with a line are asked"
    config = asked.profile.configs[found[0]]
    return config, config.footprint


def _footprint(asked: Question, config: Config, part: str, old: int, print_: Footprint) -> Idea:
    new = (print_.device_bytes if part == "device" else print_.host_bytes) or 0
    edit = Edit(
        field=f"footprint.{part}",
        old=exact_bytes(old),
        new=exact_bytes(new),
        paths=(f"profiles/{asked.profile.name}/configs/{config.name}/footprint", f"profiles/{asked.profile.name}"),
        of=f"config {config.name}",
    )
    changed = _with_config(asked, replace(config, footprint=print_))
    return Idea(FixKind.FOOTPRINT, share(old - new, old), edit, changed)


def _shorter(asked: Question, config: Config, cells: int) -> Idea:
    edit = Edit(
        field="context",
        old=str(config.context),
        new=str(cells),
        paths=(f"profiles/{asked.profile.name}/configs/{config.name}/context", f"profiles/{asked.profile.name}"),
        of=f"config {config.name}",
    )
    changed = _with_config(asked, replace(config, context=cells))
    return Idea(FixKind.CONTEXT, share(config.context - cells, config.context), edit, changed)


def _with_config(asked: Question, new: Config) -> Change:
    configs = tuple(new if c.name == new.name else c for c in asked.profile.configs)
    return profile_is(replace(asked.profile, configs=configs))


def _lack(asked: Question, line: HostLine) -> _Lack | None:
    """The one device that stands in the way; None where several do."""
    grid = asked.walk.seats.grid
    row, view = grid.row[line.host], asked.draft.world.hosts[line.host]
    if line.code == codes.INSUFFICIENT_HOST_MEMORY.code:
        assert view.ram is not None, "it has too little of it"
        return _Lack(view, view.ram, (line.need or 0) - (line.have or 0))
    config, _ = _config(asked, line.host)
    position = asked.profile.configs.index(config)
    opening = asked.walk.seats.openings(asked.profile)[position]
    usable = {room.id for room in opening.way(row).rooms}
    free = [
        (int(min(grid.open[row, n] - grid.used[row, n], grid.gpu[row, n] - grid.used_gpu[row, n])), room)
        for n, room in enumerate(view.rooms)
        if room.id in usable
    ]
    best = sorted(free, key=lambda pair: (-pair[0], pair[1].id))[: config.devices.count]
    lacking = [(room, (line.need or 0) - have) for have, room in best if have < (line.need or 0)]
    return _Lack(view, *lacking[0]) if len(lacking) == 1 else None


def _more(asked: Question, lack: _Lack) -> Iterator[Idea]:
    """The host gives more: less in reserve, a ceiling as high as what is reported, less headroom everywhere."""
    host, room = lack.view.host, lack.room
    device = next(d for d in host.devices if d.id == room.id)
    paths, of = host_paths(host.id, "devices"), f"{host.id} {device.id}"
    if device.reserve_bytes >= lack.bytes:
        new = _down(device.reserve_bytes - lack.bytes)
        edit = Edit("reserve", exact_bytes(device.reserve_bytes), exact_bytes(new), paths, of)
        changed = _with_device(host, replace(device, reserve_bytes=new))
        yield Idea(FixKind.RESERVE, share(device.reserve_bytes - new, device.reserve_bytes), edit, changed)
    seen = lack.view.report.device(device.id) if lack.view.report is not None else None
    planning = asked.draft.world.planning
    kept = planning.headroom.memory_ppm
    if seen is not None and kept < PPM:
        new = _up(device.memory_bytes + -(-lack.bytes * PPM // (PPM - kept)))
        if new <= seen.total_bytes:
            edit = Edit("memory", exact_bytes(device.memory_bytes), exact_bytes(new), paths, of)
            changed = _with_device(host, replace(device, memory_bytes=new))
            yield Idea(FixKind.CEILING, share(new - device.memory_bytes, device.memory_bytes), edit, changed)
    left = (room.headroom_bytes - lack.bytes) * PPM // max(1, room.total_bytes)
    left -= left % 1_000
    if kept <= 2 * left < 2 * kept:  # a margin that is all but gone is none
        yield _headroom(kept, left)


def _headroom(old: int, new: int) -> Idea:
    edit = Edit("headroom.memory", render_ppm(old), render_ppm(new), ("planning/headroom", "planning"), "every host")

    def change(desired: Desired) -> Desired:
        planning = desired.planning
        return replace(desired, planning=replace(planning, headroom=replace(planning.headroom, memory_ppm=new)))

    return Idea(FixKind.HEADROOM, share(old - new, old), edit, change)


def _with_device(host: Host, new: Device) -> Change:
    return host_is(replace(host, devices=tuple(new if d.id == new.id else d for d in host.devices)))


def _moves(asked: Question, lack: _Lack) -> Iterator[Idea]:
    """Somebody on that device goes to a host that has room for it: it must not use this one any more."""
    draft, here = asked.draft, lack.view.host.id
    enough = [
        s
        for _, s in sorted(draft.seats.items())
        if s.assignment.seat.host == here and _held(s, lack) >= lack.bytes and _declared(asked, s)
    ]
    for seated in sorted(enough, key=lambda s: (_held(s, lack), s.assignment.replica))[:NEAR_HOSTS]:
        profile = draft.world.profiles[seated.assignment.profile]
        if (other := _other_host(asked, seated)) is None:
            continue
        replica = seated.assignment.replica
        rules = profile.placement
        edit = Edit(
            field="placement.deny_hosts",
            old="",
            new=here,
            paths=profile_paths(profile.name, "placement"),
            of=f"{replica}: {here} => {other}",
        )
        denied = replace(profile, placement=replace(rules, deny_hosts=tuple(sorted({*rules.deny_hosts, here}))))
        yield Idea(FixKind.MOVE, WHOLE, edit, profile_is(denied), moves=replica, off=here)


def _held(seated: Seated, lack: _Lack) -> int:
    a = seated.assignment
    ram = lack.view.ram is not None and lack.view.ram.id == lack.room.id
    return (a.device_bytes if lack.room.id in a.seat.devices else 0) + (a.host_bytes if ram else 0)


def _declared(asked: Question, seated: Seated) -> bool:
    return seated.assignment.profile in asked.draft.world.profiles and seated.assignment.profile != asked.profile.name


def _other_host(asked: Question, seated: Seated) -> HostId | None:
    """The best host beside its own that has room for it now."""
    assignment, seats = seated.assignment, asked.walk.seats
    profile = seats.draft.world.profiles[assignment.profile]
    found = seats.find(Item(assignment.replica, profile, Cause(kind=CauseKind.REBALANCE, detail="makes room")))
    if found is None:
        return None
    here = assignment.seat.host
    return found.best.host if found.best.host != here else found.second[1] if found.second is not None else None


def _disk(asked: Question, line: HostLine) -> Iterator[Idea]:
    view = asked.draft.world.hosts[line.host]
    disk, missing = view.host.disk, (line.need or 0) - (line.have or 0)
    if disk is None:
        return
    paths, of = host_paths(line.host, "disk"), line.host
    if disk.keep_free_bytes >= missing:
        new = _down(disk.keep_free_bytes - missing)
        edit = Edit("disk.keep_free", exact_bytes(disk.keep_free_bytes), exact_bytes(new), paths, of)
        changed = host_is(replace(view.host, disk=replace(disk, keep_free_bytes=new)))
        yield Idea(FixKind.DISK, share(missing, disk.keep_free_bytes), edit, changed)
    if view.report is None or view.report.disk_free_bytes is None:
        new = _up(disk.artifacts_bytes + missing)
        edit = Edit("disk.artifacts", exact_bytes(disk.artifacts_bytes), exact_bytes(new), paths, of)
        changed = host_is(replace(view.host, disk=replace(disk, artifacts_bytes=new)))
        yield Idea(FixKind.DISK, share(missing, disk.artifacts_bytes), edit, changed)


def _down(size: int) -> int:
    """A size that people write, not larger."""
    return size - size % (STEP if size >= STEP else 1 << 20)


def _up(size: int) -> int:
    """A size that people write, not smaller."""
    return -(-size // STEP) * STEP
