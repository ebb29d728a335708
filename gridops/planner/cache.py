"""What files on a disk are worth before anybody asks for them, and which of those fetched on a guess may go.

Worth is request-milliseconds: how much sooner the next replica would serve, times the requests expected to wait for
it, by confidence. What somebody uses, asks for, pinned or put there is never a victim, and room that a deletion will
make is never counted before a host reports it. Called by `advise`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId
from gridops.base.units import PPM
from gridops.model.advice import Prefetched
from gridops.model.forecast import Evidence, ProfileForecast
from gridops.model.profile import ArtifactFile, Profile
from gridops.planner.constants import VICTIM_AGE_MS, VICTIM_CANDIDATES, VICTIM_GAIN_PPM, VICTIMS
from gridops.planner.draft import Draft
from gridops.planner.learned import Experience
from gridops.planner.pressure import MILLI, ahead, is_asked, known, offered, pressure_of
from gridops.planner.world import World, clock


@dataclass(frozen=True, slots=True)
class Worth:
    """What is expected of one profile."""

    waiting_mlanes: int
    """Requests that would wait for the next replica, by confidence and pressure."""
    lead_ms: int | None
    """Time until they come. None: nobody knows."""

    def of(self, gain_ms: int) -> int:
        """Request-milliseconds saved by serving so much sooner."""
        return max(0, gain_ms) * self.waiting_mlanes // MILLI


class Worths:
    """Expectations of all profiles of a world."""

    def __init__(self, world: World, experience: Experience) -> None:
        self._world, self._experience = world, experience
        self._entries: Mapping[ProfileName, ProfileForecast] = known(world)

    def of(self, profile: Profile) -> Worth:
        """Nothing where nothing is known: unknown demand is no reason to move bytes."""
        entry, lead = self._entries.get(profile.name), self._experience.lead_ms(profile.name)
        if entry is None or not is_asked(self._world, profile, entry):
            return Worth(0, lead)
        rule = self._world.planning.look_ahead
        rate = ahead(entry, rule.max_ms if lead is None else lead, rule)
        pressed = pressure_of(profile, entry, offered(profile, entry, rate))
        weighed = pressed.offered_mlanes * pressed.latency_ppm // PPM * pressed.error_ppm // PPM
        return Worth(weighed * min(PPM, max(0, entry.confidence_ppm)) // PPM, lead)

    def idle(self, name: ProfileName) -> bool:
        """It is known that nobody asks for it: it is gone, or its forecast says so."""
        profile, entry = self._world.profiles.get(name), self._entries.get(name)
        if profile is None:
            return True
        return entry is not None and not is_asked(self._world, profile, entry)

    def wanted_now(self, name: ProfileName) -> bool:
        """Somebody has asked for it, or waits for it: more than a guess."""
        profile, entry = self._world.profiles.get(name), self._entries.get(name)
        if profile is None or entry is None:
            return False
        return entry.queue > 0 or (entry.evidence is not Evidence.CORRELATED and is_asked(self._world, profile, entry))


class Guesses:
    """Files that were fetched on advice, and which of them may go."""

    def __init__(self, draft: Draft, worths: Worths) -> None:
        self._draft, self._worths = draft, worths
        self._now_ms = clock(draft.world.inputs)
        self._at: dict[HostId, list[Prefetched]] = {}
        for one in sorted(draft.world.inputs.prefetched, key=lambda p: (p.host, p.since_ms, p.profile, p.files)):
            self._at.setdefault(one.host, []).append(one)

    @property
    def hosts(self) -> Collection[HostId]:
        """Hosts that hold any."""
        return self._at.keys()

    def expired(self) -> list[Prefetched]:
        """Old, never used, and known to be asked for by nobody; oldest first."""
        ttl = self._draft.world.planning.prefetch.ttl_ms
        found = [p for here in self._at.values() for p in here if self._loose(p) and self._worths.idle(p.profile)]
        return sorted(
            (p for p in found if self._now_ms - p.since_ms >= ttl), key=lambda p: (p.since_ms, p.host, p.profile)
        )

    def victims(self, host: HostId, short_bytes: int, newcomer: Newcomer) -> tuple[Prefetched, ...]:
        """The group that may go for the newcomer: it makes the room, and is worth less by far. Empty: there is none."""
        mature = [
            (p, self._value(p))
            for p in self._at.get(host, ())
            if self._loose(p) and self._now_ms - p.since_ms >= VICTIM_AGE_MS and not self._worths.wanted_now(p.profile)
        ]
        groups = [
            group
            for many in range(1, VICTIMS + 1)
            for group in combinations(_chosen(mature), many)
            if sum(p.size_bytes for p, _ in group) >= short_bytes and newcomer.beats(group)
        ]
        if not groups:
            return ()
        best = min(groups, key=_least)
        return tuple(p for p, _ in best)

    def _loose(self, one: Prefetched) -> bool:
        """Nothing uses it or will, it is there just as it was fetched, and no person has a say in it."""
        view, board = self._draft.world.hosts.get(one.host), self._draft.board.hosts.get(one.host)
        if one.used or view is None or board is None or view.closed is not None:
            return False
        profile = self._draft.world.profiles.get(one.profile)
        if profile is not None and one.host in profile.placement.pins:
            return False
        there = bool(one.files) and view.cached.issuperset(one.files)
        present = {c.profile for c in (*board.desired.values(), *board.leaving, *board.kept)}
        present |= {r.profile for r in (*view.ours, *view.stuck, *view.external)}
        return there and one.profile not in present and not self._needed(one).intersection(one.files)

    def _needed(self, one: Prefetched) -> set[Digest]:
        """Files that replicas of the plan use there, and those that came there for somebody else as well."""
        found = {f.sha256 for r in self._draft.board.hosts[one.host].desired for f in self._files(r)}
        return found | {f for other in self._at[one.host] if other is not one for f in other.files}

    def _files(self, replica: ReplicaId) -> Sequence[ArtifactFile]:
        seated = self._draft.seats.get(replica)
        return seated.launch.artifact.files if seated is not None else ()

    def _value(self, one: Prefetched) -> int:
        """What would be lost with it: the fetch that it saves."""
        profile = self._draft.world.profiles.get(one.profile)
        return 0 if profile is None else self._worths.of(profile).of(profile.timing.load_ms)


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What would be fetched instead."""

    value: int
    size_bytes: int

    def beats(self, group: Collection[tuple[Prefetched, int]]) -> bool:
        """It is worth no less than all of them, and for each byte so much more as the policy asks."""
        value, size = sum(v for _, v in group), sum(p.size_bytes for p, _ in group)
        return self.value >= value and self.value * size * PPM >= VICTIM_GAIN_PPM * value * self.size_bytes


def _chosen(mature: Sequence[tuple[Prefetched, int]]) -> list[tuple[Prefetched, int]]:
    """A bounded number: those worth least and, so that few suffice, the largest."""
    half = max(1, VICTIM_CANDIDATES // 2)
    cheap = sorted(mature, key=lambda m: (m[1], -m[0].size_bytes, m[0].since_ms, m[0].files))[:half]
    large = sorted(mature, key=lambda m: (-m[0].size_bytes, m[1], m[0].since_ms, m[0].files))
    found = [*cheap, *(m for m in large if m not in cheap)]
    return found[:VICTIM_CANDIDATES]


def _least(group: Sequence[tuple[Prefetched, int]]) -> tuple[int, int, int, tuple[tuple[Digest, ...], ...]]:
    """Loses least worth, deletes fewest and least; the names of files at last."""
    value, size = sum(v for _, v in group), sum(p.size_bytes for p, _ in group)
    return value, len(group), size, tuple(sorted(p.files for p, _ in group))
