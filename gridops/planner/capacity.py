"""The board: what is planned on each host so far, and whether one more replica has room there.

Two sums per device. *Desired* is the complete intended set: everything that shall stand when the plan is carried out.
*Live* adds what still runs and will leave; a new seat that fits desired but not live has to wait for a departure.
What nobody can vouch for (state unknown) is on both and is never freed by planning. Used by every step of the planner
and mutable while a plan is made; nothing outside the planner sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.ids import DeviceId, HostId, ProfileName, ReplicaId
from gridops.base.units import PPM, counted, render_bytes, render_price
from gridops.footprint.ledger import Answer, DeviceRoom, fits
from gridops.model.fleet import DeviceKind
from gridops.model.plan import HostLine
from gridops.model.profile import Artifact, Profile
from gridops.model.snapshot import Residency
from gridops.planner.company import conflict, has_rules
from gridops.planner.eligible import Way
from gridops.planner.host_board import Claim, HostBoard
from gridops.planner.together import sets
from gridops.planner.world import HostView, World


class Ask(NamedTuple):
    """One replica that looks for a seat, in one way of running."""

    replica: ReplicaId
    profile: Profile
    way: Way
    leaves: HostId | None = None
    """The host on which it stands now, and which it gives up for the seat."""


class Offer(NamedTuple):
    """A seat that a host can give. `left_bytes` is what its fullest device keeps.

    `waits`: something else has to leave first. `breaks`: its own former self has to, so the replica is down meanwhile.
    """

    claim: Claim
    left_bytes: int
    waits: bool = False
    breaks: bool = False


@dataclass(slots=True)
class Board:
    """Every declared host; what a plan may use of those that are not the scope's is decided before (`eligible`)."""

    world: World
    hosts: dict[HostId, HostBoard]
    rows: tuple[HostBoard, ...]
    """The same, by row."""
    log: list[int]
    """Row of each host that has changed, once for each change."""
    price_micro: int = 0
    """Hourly price of the hosts that hold something."""
    choosy: bool = True
    """Some declared profile has a rule about the company that it keeps."""

    @classmethod
    def of(cls, world: World, known: Mapping[HostId, HostBoard] = MappingProxyType({})) -> Board:
        """Empty, but for hosts of which it is `known` how they stand."""
        log: list[int] = []
        rows = tuple(
            HostBoard(view, row=n, log=log) if (was := known.get(host)) is None else was.again(view, n, log)
            for n, (host, view) in enumerate(world.hosts.items())
        )
        choosy = any(has_rules(p) for p in world.profiles.values())
        return cls(world, dict(zip(world.hosts, rows, strict=True)), rows, log, choosy=choosy)

    def put(self, host: HostId, claim: Claim) -> None:
        board = self.hosts[host]
        was = board.is_paid()
        board.put(claim)
        self._pay(board, was)

    def take(self, host: HostId, replica: ReplicaId, *, runs: bool) -> None:
        board = self.hosts[host]
        was = board.is_paid()
        board.take(replica, runs=runs)
        self._pay(board, was)

    def back(self, host: HostId, claim: Claim) -> None:
        board = self.hosts[host]
        was = board.is_paid()
        board.back(claim)
        self._pay(board, was)

    def hold(self, host: HostId, claim: Claim, *, stuck: bool) -> None:
        board = self.hosts[host]
        was = board.is_paid()
        board.hold(claim, stuck=stuck)
        self._pay(board, was)

    def _pay(self, board: HostBoard, was: bool) -> None:
        """A host costs its price once, from the first that stands there to the last."""
        self.price_micro += (board.is_paid() - was) * (board.view.host.price_per_hour_micro or 0)

    def offer(self, host: HostId, ask: Ask, *, instead: ReplicaId | None = None) -> Offer | HostLine:
        """A seat for the replica on the host, or the first rule that stands against it.

        `instead` names a replica here whose place is taken over (its own former self): it does not count, but while
        it runs its memory is not free yet.
        """
        board = self.hosts[host]
        present = board.profiles(instead)
        refused = (
            self._counts(board, ask.profile, present)
            or self._price(board, ask)
            or _disk(board, ask.way.launch.artifact)
        )
        if refused is not None:
            return refused
        former = board.desired.get(instead) if instead is not None else None
        found = _memory(board, ask, former)
        if isinstance(found, HostLine):
            return found
        limit = board.view.host.max_replicas
        breaks = found.breaks or (former is not None and limit is not None and len(board.profiles()) >= limit)
        waits = found.waits or self.crowded_now(board, ask.profile, instead)
        if breaks == found.breaks and waits == found.waits:
            return found
        return found._replace(breaks=breaks, waits=waits)

    def _counts(self, board: HostBoard, profile: Profile, present: Sequence[ProfileName]) -> HostLine | None:
        limit = board.view.host.max_replicas
        if limit is not None and len(present) >= limit:
            detail = f"it holds {len(present)} of at most {counted(limit, 'residency', 'residencies')}"
            return _line(board, codes.MAX_REPLICAS, detail, limit + 1, limit)
        most, mine = profile.max_per_host, present.count(profile.name)
        if most is not None and mine >= most:
            return _line(
                board,
                codes.MAX_PER_HOST,
                f"it holds {mine} of at most {counted(most, 'replica')} of {profile.name}",
                most + 1,
                most,
            )
        return bad_company(board, profile, present, self.world) if self.choosy or has_rules(profile) else None

    def crowded_now(self, board: HostBoard, profile: Profile, instead: ReplicaId | None) -> bool:
        """True while something that leaves still takes the last slot, or must not be met."""
        if not board.leaving:
            return False
        leaving = [c.profile for c in board.leaving]
        running = len(board.profiles(instead)) + len(leaving)
        limit = board.view.host.max_replicas
        full = limit is not None and running >= limit
        return full or bad_company(board, profile, board.profiles(instead) + leaving, self.world) is not None

    def price_saved(self, host: HostId | None, replica: ReplicaId) -> int:
        """What is saved when the replica leaves the host: its price, if nothing else is left there."""
        board = self.hosts.get(host) if host is not None else None
        if board is None or not board.is_given_up_by(replica):
            return 0
        return board.view.host.price_per_hour_micro or 0

    def _price(self, board: HostBoard, ask: Ask) -> HostLine | None:
        ceiling = self.world.budgets.price
        if ceiling is None or board.is_paid():
            return None
        price = board.view.host.price_per_hour_micro
        if price is None:
            return _line(board, codes.PRICE_UNKNOWN, "its price is unknown") if ceiling.unknown == "refuse" else None
        others = self.price_micro - self.price_saved(ask.leaves, ask.replica)
        if others + price > ceiling.max_per_hour_micro:
            spent, most = (render_price(v) for v in (others, ceiling.max_per_hour_micro))
            return _line(
                board,
                codes.PRICE_CEILING,
                f"it costs {render_price(price)} an hour, and {spent} of at most {most} are spent",
            )
        return None


def bad_company(board: HostBoard, profile: Profile, present: Iterable[ProfileName], world: World) -> HostLine | None:
    """The line for a conflict of company, or None."""
    found = conflict(profile, present, world.profiles)
    return None if found is None else _line(board, codes.COLOCATION, found.detail, found.together, found.most)


def admits(board: HostBoard, claim: Claim, world: World) -> bool:
    """Whether counts, company and memory let this claim come to the host beside all that shall stand there."""
    present, limit = board.profiles(), board.view.host.max_replicas
    profile = world.profiles.get(claim.profile)
    if limit is not None and len(present) >= limit:
        return False
    if profile is not None:
        if profile.max_per_host is not None and present.count(profile.name) >= profile.max_per_host:
            return False
        if bad_company(board, profile, present, world) is not None:
            return False
    rooms = {r.id: r for r in board.view.rooms}
    parts = [(device, claim.device_bytes, claim.gpu) for device in claim.devices]
    if claim.host_bytes and board.view.ram is not None:
        parts.append((board.view.ram.id, claim.host_bytes, False))
    return all(
        fits(rooms.get(device), board.use(device, live=False), amount, gpu=gpu, new=True).answer is Answer.FITS
        for device, amount, gpu in parts
        if device in rooms
    )


def claim_of(
    replica: ReplicaId, profile: ProfileName, way: Way, devices: tuple[DeviceId, ...], view: HostView
) -> Claim:
    """What the replica takes. Where a device is the RAM itself, the host part is taken there and not on top."""
    device, host = way.need.device_bytes, way.need.host_bytes
    if view.ram is not None and view.ram.id in devices:
        device, host = device + host, 0
    return Claim(replica, profile, devices, device, host, way.gpu)


def residency_claim(residency: Residency) -> Claim:
    """What a residency holds that no plan speaks of. Its devices' kind is unknown here: taken as GPU work."""
    replica = residency.replica or ReplicaId(f"{residency.profile}/0")
    return Claim(replica, residency.profile, residency.devices, residency.device_bytes, residency.host_bytes, gpu=True)


def _disk(board: HostBoard, artifact: Artifact) -> HostLine | None:
    if board.view.disk_bytes is None:
        return None
    missing = [f for f in artifact.files if f.sha256 not in board.view.cached and f.sha256 not in board.artifacts]
    if not missing:
        return None
    wanted, free = sum(f.size_bytes for f in missing), board.view.disk_bytes - board.disk_bytes
    if wanted <= free:
        return None
    return _line(board, codes.DISK_FULL, "its disk has no room for the artifact", wanted, max(0, free), "bytes")


def _memory(board: HostBoard, ask: Ask, former: Claim | None) -> Offer | HostLine:
    """The tightest set of devices that fits: at once, else after others have left, else after its former self has."""
    now = _seat(board, ask, None, live=True)
    if isinstance(now, Offer) or (former is None and not board.leaving):
        return now
    later = _seat(board, ask, None, live=False)
    if isinstance(later, Offer):
        return later._replace(waits=True)
    if former is None:
        return later
    last = _seat(board, ask, former, live=False)
    return last._replace(breaks=True) if isinstance(last, Offer) else last


def _seat(board: HostBoard, ask: Ask, former: Claim | None, *, live: bool) -> Offer | HostLine:
    view, way = board.view, ask.way
    per_device = way.need.device_bytes + (way.need.host_bytes if on_ram(view, way) else 0)
    free = [(board.free_bytes(room, per_device, gpu=way.gpu, live=live, former=former), room) for room in way.rooms]
    fitting = _by_fill([found for found in free if found[0] >= per_device], ask.profile, per_device)
    chosen = _choose(fitting, way, even=ask.profile.placement.even)
    if not chosen:
        return _no_set(board, way, {room.id: amount for amount, room in free}, per_device)
    devices = (chosen[0].id,) if len(chosen) == 1 else tuple(sorted([r.id for r in chosen]))
    claim = claim_of(ask.replica, ask.profile.name, way, devices, view)
    ram = view.ram
    if claim.host_bytes:
        assert ram is not None, "eligible refuses a host without RAM"
        have = board.free_bytes(ram, claim.host_bytes, gpu=False, live=live, former=former)
        if have < claim.host_bytes:
            return _line(
                board,
                codes.INSUFFICIENT_HOST_MEMORY,
                _short("of RAM", way) + others_hold(ram),
                claim.host_bytes,
                max(0, have),
                "bytes",
            )
    # The best comes first.
    left = fitting[0][0] if len(chosen) == 1 else min(f for f, r in fitting if r in chosen)
    return Offer(claim, left - per_device)


def _no_set(board: HostBoard, way: Way, free: Mapping[DeviceId, int], need: int) -> HostLine:
    """The line of the set of devices that comes nearest, told by the device of it that lacks most."""
    count = way.launch.devices.count
    best = [sorted(group, key=lambda r: -free[r.id])[:count] for group in sets(way.rooms, way.launch.devices)]
    # A seat that is kept may be on devices that no longer work together: then any of them tells.
    whole = [group for group in best if len(group) == count] or [sorted(way.rooms, key=lambda r: -free[r.id])[:count]]
    fullest = max((group[-1] for group in whole), key=lambda r: free[r.id])
    detail = _short("on a device", way) + others_hold(fullest)
    return _line(board, codes.INSUFFICIENT_DEVICE_MEMORY, detail, need, max(0, free[fullest.id]), "bytes")


def others_hold(room: DeviceRoom) -> str:
    """How much of a device is not ours to give, in words that continue a sentence; nothing where it is nothing."""
    if room.external_bytes <= 0:
        return ""
    return f"; others hold {render_bytes(room.external_bytes)} of its {render_bytes(room.total_bytes)}"


def _by_fill(fitting: list[tuple[int, DeviceRoom]], profile: Profile, need: int) -> list[tuple[int, DeviceRoom]]:
    """Devices that fit, with what is free on each: tightest first, or by the share that would be left, most first."""
    if len(fitting) < 2:
        return fitting
    if not profile.placement.even:
        return sorted(fitting, key=lambda f: (f[0], _natural(f[1])))
    return sorted(fitting, key=lambda f: (-((f[0] - need) * PPM // max(1, f[1].total_bytes)), _natural(f[1])))


def _choose(fitting: Sequence[tuple[int, DeviceRoom]], way: Way, *, even: bool) -> tuple[DeviceRoom, ...]:
    """So many of the fitting devices, given best first, as may work together: those whose best comes first.

    Where they shall be filled evenly it is the last of them that counts: the fullest of all that are taken. Nothing
    where so many are not to be had.
    """
    count = way.launch.devices.count
    if count == 1:
        return (fitting[0][1],) if fitting else ()
    rooms = tuple([room for _, room in fitting])
    place = {room.id: n for n, room in enumerate(rooms)}
    found = [group[:count] for group in sets(rooms, way.launch.devices) if len(group) >= count]

    def worth(group: tuple[DeviceRoom, ...]) -> list[int]:
        places = [place[room.id] for room in group]
        return places[::-1] if even else places

    return min(found, key=worth, default=())


def on_ram(view: HostView, way: Way) -> bool:
    """The devices to choose from are the host's RAM, or hold it."""
    return way.rooms[0].kind is not DeviceKind.GPU and view.ram in way.rooms


def _short(where: str, way: Way) -> str:
    return f"too little memory {where} for config {way.launch.config}"


def _natural(room: DeviceRoom) -> tuple[int, str]:
    """`gpu2` before `gpu10`."""
    return len(room.id), room.id


def _line(
    board: HostBoard, code: Code, detail: str, need: int | None = None, have: int | None = None, unit: str = "count"
) -> HostLine:
    return HostLine(
        host=board.view.host.id,
        code=code.code,
        detail=detail,
        need=need,
        have=have,
        unit=unit if need is not None else None,
    )
