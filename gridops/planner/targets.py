"""How many replicas of each profile are wanted, which incumbents go on being wanted, and which numbers are missing.

Without a forecast a profile's target is its baseline: its minimum, with pins as a floor. `sizing` says what demand adds
to it. Nothing here looks at memory. Called by `planner.plan` between `gather` and `draft`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_id, replica_key, split_replica
from gridops.base.units import counted
from gridops.model.plan import Cause, CauseKind, Plan, Retirement, Terms
from gridops.model.profile import Profile
from gridops.planner.incumbents import Incumbent, Verdict, mark
from gridops.planner.recall import Shelf
from gridops.planner.sizing import Size, Sizes
from gridops.planner.views import strays
from gridops.planner.world import World


class Missing(NamedTuple):
    """A wanted replica that stands nowhere yet."""

    replica: ReplicaId
    cause: Cause


class Before(NamedTuple):
    """What the parent says of profiles."""

    wanted: Mapping[ProfileName, int]
    """Replicas of those that it knew."""
    retired: Collection[ProfileName]

    @classmethod
    def of(cls, world: World) -> Before:
        parent = world.inputs.parent
        if parent is None:
            return cls({}, ())
        shelf: Shelf[Before] = world.recall.shelf("wanted before")
        return shelf.of("all", (parent,), lambda: cls._read(parent))

    @classmethod
    def _read(cls, parent: Plan) -> Before:
        wanted = {t.profile: t.replicas_min for t in reversed(parent.terms)}
        return cls(wanted, {r.profile for r in parent.retirements})


@dataclass(frozen=True, slots=True)
class Targets:
    """The incumbents that go on being wanted, those that do not (with the cause), and what is missing."""

    wanted: tuple[Incumbent, ...]
    removed: tuple[Incumbent, ...]
    missing: tuple[Missing, ...]
    sizes: Mapping[ProfileName, Size] = field(default_factory=dict)
    """Of every declared profile of the scope."""


def choose(world: World, incumbents: Sequence[Incumbent]) -> Targets:
    """Decide for every profile of the scope, and for profiles that only the parent knows."""
    by_profile: dict[ProfileName, list[Incumbent]] = {name: [] for name in world.profiles}
    for incumbent in incumbents:
        by_profile.setdefault(incumbent.assignment.profile, []).append(incumbent)
    wanted: list[Incumbent] = []
    removed: list[Incumbent] = []
    missing: list[Missing] = []
    rule, sizes, told = Sizes(world), dict[ProfileName, Size](), Before.of(world)
    for name in sorted(by_profile):
        profile = world.profiles.get(name)
        standing = by_profile[name]
        kept = standing
        size = None if profile is None else rule.of(profile, count(profile, world), standing)
        if size is not None:
            sizes[name] = size
        if world.mass_stale:
            pass
        elif profile is None or size is None:
            kept = []
            removed += [i._replace(cause=_profile_gone(world, name)) for i in standing]
        else:
            kept = _towards_pins(world, profile, _keep(world, profile, standing, size.replicas), size.replicas)
            ids = {i.replica for i in kept}
            if len(ids) < len(standing):
                cause = _fewer(world, profile, size, told)
                removed += [i._replace(cause=cause) for i in standing if i.replica not in ids]
        wanted += kept
        if profile is not None and size is not None:
            missing += _missing(world, profile, kept, size, told)
    # An adopted residency that is not wanted was never in any plan: nothing is decided by leaving it out.
    return Targets(tuple(wanted), tuple(i for i in removed if not i.adopted), tuple(missing), sizes)


def count(profile: Profile, world: World) -> int:
    """The baseline: the minimum, and at least one for each pin on a declared host of the scope."""
    return max(profile.replicas_min, len(pins(profile, world)))


def pins(profile: Profile, world: World) -> list[HostId]:
    """Hosts of the scope on each of which the profile shall have a replica."""
    hosts = world.hosts
    if not profile.placement.pins:
        return []
    return [h for h in sorted(profile.placement.pins) if h in hosts and hosts[h].host.scope == profile.scope]


def terms_of(profile: Profile) -> Terms:
    """What holds for every replica of the profile."""
    return Terms(
        profile=profile.name,
        serves=profile.model_ids,
        replicas_min=profile.replicas_min,
        priority=profile.priority,
        timing=profile.timing,
        restart=profile.restart,
        downtime=profile.downtime,
        idle_unload_ms=profile.idle_unload_ms,
        renamed_from=profile.renamed_from,
    )


def retirements(world: World, renamed: set[ProfileName], removed: Sequence[Incumbent]) -> tuple[Retirement, ...]:
    """Profiles whose target is zero until somebody declares them again."""
    parent, inputs = world.inputs.parent, world.inputs
    found = {r.profile: r for r in parent.retirements} if parent is not None else {}
    ended = {i.assignment.profile for i in removed} | {s.profile for s in strays(inputs)}
    for name in sorted(ended - set(world.profiles) - renamed):
        found.setdefault(name, Retirement(profile=name, since_ms=inputs.now_ms, commit=inputs.intent.commit))
    return tuple(found[name] for name in sorted(found) if name not in world.profiles)


def domain(world: World, host: str, level: str) -> str | None:
    """The failure domain of a host at a level; every host is a domain of level `host`."""
    view = world.hosts.get(host)  # type: ignore[call-overload]
    if view is None:
        return None
    return str(host) if level == "host" else view.host.domain(level)


def _keep(world: World, profile: Profile, standing: Sequence[Incumbent], wanted: int) -> list[Incumbent]:
    """The incumbents to keep when there are more than wanted: pins, then failure domains, then who need not move.

    By number, as they come.
    """
    if len(standing) <= wanted:
        return list(standing)
    left, kept = list(standing), list[Incumbent]()
    spread = profile.spread
    places = {i.replica: domain(world, i.host, spread.by) if spread is not None else None for i in standing}
    used: set[str] = set()
    while left and len(kept) < wanted:
        unmet = spread is not None and len(used) < spread.min
        met = used if unmet else set()
        best = min(left, key=lambda i: _worth(i, places[i.replica], met))
        left.remove(best)
        kept.append(best)
        if (place := places[best.replica]) is not None:
            used.add(place)
    return sorted(kept, key=lambda i: replica_key(i.replica))


def _worth(incumbent: Incumbent, place: str | None, met: set[str]) -> tuple[bool, int, bool, bool, tuple[str, int]]:
    """Lower is kept first. `met`: domains that have a replica already while more are needed."""
    again = bool(met) and (place is None or place in met)
    return not incumbent.pinned, incumbent.verdict, again, not incumbent.ready, replica_key(incumbent.replica)


def _towards_pins(world: World, profile: Profile, kept: list[Incumbent], wanted: int) -> list[Incumbent]:
    """Where nobody is free to take a pin's place, replicas that could stay set out for it, highest numbers first."""
    wished = pins(profile, world)
    if not wished:
        return kept
    stands = {i.host for i in kept if i.verdict <= Verdict.CHANGE}
    lacking = [h for h in wished if h not in stands]
    free = wanted - len(kept) + sum(1 for i in kept if i.verdict > Verdict.CHANGE)
    moved: dict[ReplicaId, Incumbent] = {}
    for host in lacking[max(0, free) :]:
        could = [i for i in _could_move(kept) if i.replica not in moved]
        if not could:
            break
        leaver = max(could, key=lambda i: replica_key(i.replica))
        at = mark(world, f"profiles/{profile.name}/placement", f"profiles/{profile.name}")
        cause = Cause(kind=CauseKind.POLICY, detail=f"pinned to {host}", at=at)
        moved[leaver.replica] = leaver._replace(verdict=Verdict.LEAVE, cause=cause, only_to=host)
    return [moved.get(i.replica, i) for i in kept]


def _could_move(kept: Sequence[Incumbent]) -> list[Incumbent]:
    """Who may stay, and keeps no pin by it: of several on a pinned host only the first does."""
    keeps: dict[HostId, ReplicaId] = {}
    staying = [i for i in kept if i.verdict <= Verdict.CHANGE]
    for incumbent in sorted(staying, key=lambda i: replica_key(i.replica)):
        if incumbent.pinned:
            keeps.setdefault(incumbent.host, incumbent.replica)
    return [i for i in staying if keeps.get(i.host) != i.replica]


def _missing(world: World, profile: Profile, kept: Sequence[Incumbent], size: Size, told: Before) -> list[Missing]:
    """The lowest free numbers, as many as are missing: first those of the baseline, then those that demand adds.

    More are named than needed where seats may turn out narrower than hoped; `enough` lets go of the rest.
    """
    lacking = max(size.replicas, size.reserve if size.varies else 0) - len(kept)
    if lacking <= 0:
        return []
    taken = {split_replica(i.replica)[1] for i in kept}
    cause = _more(world, profile, told)
    more = Cause(kind=CauseKind.DEMAND, detail=size.why) if size.why else cause
    found: list[Missing] = []
    number = 0
    while len(found) < lacking:
        number += 1
        if number not in taken:
            is_baseline = len(kept) + len(found) < size.baseline
            found.append(Missing(replica_id(profile.name, number), cause if is_baseline else more))
    return found


def _more(world: World, profile: Profile, told: Before) -> Cause:
    was, now, wished = told.wanted.get(profile.name), profile.replicas_min, len(pins(profile, world))
    if profile.name in told.retired:
        detail = "profile is declared again"
    elif was is None:
        detail = "profile is new"
    elif was < now:
        detail = f"replicas {was} => {now}"
    elif wished > now:
        detail = f"pinned to {counted(wished, 'host')}"
    else:
        detail = "was not placed before"
    at = mark(world, f"profiles/{profile.name}/replicas", f"profiles/{profile.name}")
    return Cause(kind=CauseKind.INTENT, detail=detail, at=at)


def _fewer(world: World, profile: Profile, size: Size, told: Before) -> Cause:
    """People asked for fewer, or demand does."""
    parent = world.inputs.parent
    stood = sum(1 for a in parent.placement if a.profile == profile.name) if parent is not None else 0
    asked = told.wanted.get(profile.name)
    was = max(stood, asked or 0)
    by_file = size.replicas >= max(size.baseline, profile.replicas_max) or (
        size.replicas == size.baseline and asked is not None and asked > size.baseline
    )
    if size.why and not by_file:
        return Cause(kind=CauseKind.DEMAND, detail=size.why)
    at = mark(world, f"profiles/{profile.name}/replicas", f"profiles/{profile.name}")
    return Cause(kind=CauseKind.INTENT, detail=f"replicas {was} => {size.replicas}", at=at)


def _profile_gone(world: World, name: ProfileName) -> Cause:
    commit = world.inputs.intent.commit
    return Cause(kind=CauseKind.INTENT, detail="profile removed" + (f" in {commit[:7]}" if commit else ""))
