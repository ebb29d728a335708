"""One host's part of the board: what is planned there so far, summed per device in both ledgers. `capacity` asks it.

*Desired* is what shall stand when the plan is carried out, *live* adds what still runs and will leave. A board may
begin as one of the last plan (`again`), and shares its contents with it until something changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gridops.base.ids import DeviceId, Digest, ProfileName, ReplicaId
from gridops.footprint.ledger import DeviceRoom, Use, fits, left_of
from gridops.model.profile import Artifact
from gridops.planner.world import HostView, Standing


class Claim(NamedTuple):
    """What one replica takes on one host."""

    replica: ReplicaId
    profile: ProfileName
    devices: tuple[DeviceId, ...]
    device_bytes: int
    host_bytes: int
    gpu: bool


@dataclass(slots=True)
class HostBoard:
    """One host's part of the board. Every change is noted in `log`, so that answers can be remembered."""

    view: HostView
    desired: dict[ReplicaId, Claim] = field(default_factory=dict)
    leaving: list[Claim] = field(default_factory=list)
    """Who runs and is on the way out. Never added to, but made anew: few hosts have any, and most share their board."""
    kept: list[Claim] = field(default_factory=list)
    """Claims of nobody's plan that hold memory all the same (state unknown). Made anew like those."""
    artifacts: set[Digest] = field(default_factory=set)
    """Files that will be fetched here."""
    disk_bytes: int = 0
    row: int = 0
    log: list[int] = field(default_factory=list)
    """The board's list of changes: this host's row, once for each of them."""
    origin: HostBoard | None = None
    """The board that this one is as, until something changes on it."""
    found_crowded: tuple[DeviceRoom | None] | None = None
    """What `crowded` says as long as nothing changes; only on a board that others begin as."""
    _taken: dict[DeviceId, int] = field(default_factory=dict)
    """Bytes that the desired set takes of each device, in the view's order."""
    _taken_gpu: dict[DeviceId, int] = field(default_factory=dict)
    """The part of it that is GPU work, where that has a limit of its own. Made anew like `leaving`, as what follows."""
    _going: dict[DeviceId, int] = field(default_factory=dict)
    """Bytes that what leaves takes live beside that; devices that nobody leaves may have no line."""
    _going_gpu: dict[DeviceId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.origin is None:
            self._taken = {r.id: 0 for r in self.view.rooms}
            self._taken_gpu = {r.id: 0 for r in self.view.rooms if r.gpu_bytes is not None}

    def again(self, view: HostView, row: int, log: list[int]) -> HostBoard:
        """The same once more, for a view that differs in nothing that is planned by; a copy as soon as it changes."""
        return HostBoard(
            view,
            self.desired,
            self.leaving,
            self.kept,
            self.artifacts,
            self.disk_bytes,
            row,
            log,
            self,
            None,
            self._taken,
            self._taken_gpu,
            self._going,
            self._going_gpu,
        )

    def keep(self) -> HostBoard:
        """How it stands now, for the next plan to begin with."""
        kept = self.again(self.view, self.row, [])
        self.origin = kept.origin = kept
        return kept

    def _own(self) -> None:
        """Something is about to change: what is shared becomes a copy."""
        if self.origin is not None:
            self.origin = None
            self.desired, self.artifacts = dict(self.desired), set(self.artifacts)
            self._taken = self._taken.copy()

    def put(self, claim: Claim) -> None:
        """The replica shall stand here."""
        self._own()
        self.desired[claim.replica] = claim
        self._count(claim, 1)
        self.log.append(self.row)

    def take(self, replica: ReplicaId, *, runs: bool) -> None:
        """The replica shall not stand here any more; while it `runs`, its memory is still taken live."""
        self._own()
        claim = self.desired.pop(replica)
        if self.is_stuck(replica):
            self.kept = [*self.kept, claim]  # and counts as it did
        else:
            self._count(claim, -1)
            if runs:
                self._leave(claim)
        self.log.append(self.row)

    def back(self, claim: Claim) -> None:
        """Who was on the way out stays."""
        self._own()
        if claim in self.leaving:
            self.leaving = [*self.leaving]
            self.leaving.remove(claim)
            self._count(claim, -1, leaving=True)
            self.desired[claim.replica] = claim
            self._count(claim, 1)
            self.log.append(self.row)
        else:
            self.put(claim)

    def hold(self, claim: Claim, *, stuck: bool) -> None:
        """Something runs here that no plan wants. `stuck`: it will not leave by itself either."""
        self._own()
        if stuck:
            self.kept = [*self.kept, claim]
            self._count(claim, 1)
        else:
            self._leave(claim)
        self.log.append(self.row)

    def fetch(self, artifact: Artifact) -> None:
        """Reserve disk for what is not here yet."""
        self._own()
        for file in artifact.files:
            if file.sha256 not in self.view.cached and file.sha256 not in self.artifacts:
                self.artifacts.add(file.sha256)
                self.disk_bytes += file.size_bytes
        self.log.append(self.row)

    def is_stuck(self, replica: ReplicaId) -> bool:
        """Nobody can vouch for its process here: it stays whatever is planned."""
        return any(r.replica == replica for r in self.view.stuck)

    def is_paid(self) -> bool:
        """Its price counts: something managed stands here, or nobody can vouch that it is gone."""
        return bool(self.desired) or (bool(self.kept) and self.view.standing < Standing.LOST)

    def is_given_up_by(self, replica: ReplicaId) -> bool:
        """Its price is saved when the replica leaves: nothing else stands here, and what runs can be stopped."""
        goes_on = self.is_stuck(replica) and self.view.standing < Standing.LOST
        return list(self.desired) == [replica] and not self.kept and not goes_on

    def holds_anything(self) -> bool:
        """Something stands here, runs here or is on its way."""
        return bool(self.desired or self.leaving or self.kept or self.artifacts or self.view.external)

    def sums(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Bytes per pool in the view's order: desired and live, each as (all work, GPU work that has a limit)."""
        for room in self.view.rooms:
            yield self.use(room.id, live=False), self.use(room.id, live=True)

    def taken(self) -> Iterable[int]:
        """Bytes of the desired set per pool, in the view's order."""
        return self._taken.values()

    def use(self, device: DeviceId, *, live: bool, without: Claim | None = None) -> Use:
        """What is taken on a device, of GPU work where that has a limit; `without` leaves one claim out."""
        everything, gpu = self._taken[device], self._taken_gpu.get(device, 0)
        if live:
            everything += self._going.get(device, 0)
            gpu += self._going_gpu.get(device, 0)
        if without is None:
            return Use(everything, gpu)
        part = part_of(without, device, self.view)
        limited = without.gpu and device in without.devices and device in self._taken_gpu
        return Use(everything - part, gpu - (part if limited else 0))

    def free_bytes(self, room: DeviceRoom, need: int, *, gpu: bool, live: bool, former: Claim | None = None) -> int:
        """What a claim of so many bytes finds free on a device, where `former`, the replica's own, does not count.

        Headroom is kept free unless the claim only takes over what is held there already.
        """
        if former is None and (room.gpu_bytes is None or not gpu):
            taken = self._taken[room.id]
            return left_of(room, taken + self._going.get(room.id, 0) if live else taken)
        grows = former is None or need > part_of(former, room.id, self.view)
        return fits(room, self.use(room.id, live=live, without=former), need, gpu=gpu, new=grows).free_bytes

    def profiles(self, without: ReplicaId | None = None) -> list[ProfileName]:
        """Profile of every residency that counts here, one entry each; external ones and stuck ones included."""
        found = [c.profile for r, c in self.desired.items() if r != without]
        if self.kept or self.view.external:
            found += [*(c.profile for c in self.kept), *(r.profile for r in self.view.external)]
        return found

    def crowded(self) -> DeviceRoom | None:
        """The first device whose desired set does not fit its raw memory."""
        if self.origin is None:
            return self._find_crowded()
        if self.origin.found_crowded is None:
            self.origin.found_crowded = (self._find_crowded(),)
        return self.origin.found_crowded[0]

    def _find_crowded(self) -> DeviceRoom | None:
        for room in self.view.rooms:
            over_gpu = room.gpu_bytes is not None and self._taken_gpu[room.id] > room.gpu_bytes
            if self._taken[room.id] > max(0, room.raw_bytes) or over_gpu:
                return room
        return None

    def over_with(self, claim: Claim) -> bool:
        """Would the desired set, this claim included, be too much for the raw memory?"""
        self._own()
        self._count(claim, 1)
        over = self.crowded() is not None
        self._count(claim, -1)
        return over

    def _leave(self, claim: Claim) -> None:
        self.leaving = [*self.leaving, claim]
        self._count(claim, 1, leaving=True)

    def _count(self, claim: Claim, sign: int, *, leaving: bool = False) -> None:
        """In the desired set, or beside it."""
        if leaving:
            self._going, self._going_gpu = self._going.copy(), self._going_gpu.copy()
        elif self._taken_gpu:
            self._taken_gpu = self._taken_gpu.copy()
        sums, gpu_sums = (self._going, self._going_gpu) if leaving else (self._taken, self._taken_gpu)
        for device in claim.devices:
            if device in self._taken:
                sums[device] = sums.get(device, 0) + sign * claim.device_bytes
                if claim.gpu and device in self._taken_gpu:
                    gpu_sums[device] = gpu_sums.get(device, 0) + sign * claim.device_bytes
        if claim.host_bytes and self.view.ram is not None:
            ram = self.view.ram.id
            sums[ram] = sums.get(ram, 0) + sign * claim.host_bytes


def part_of(claim: Claim, device: DeviceId, view: HostView) -> int:
    ram = claim.host_bytes if view.ram is not None and view.ram.id == device else 0
    return ram + (claim.device_bytes if device in claim.devices else 0)
