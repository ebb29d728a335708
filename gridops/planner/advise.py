"""Advice for disks, made when the plan is finished: what to fetch ahead of demand and for whom, and what may go.

Never a decision: whatever is said here changes no memory and no process. First what is certain: files of replicas that
will stand where others have to leave first, so that the fetch is over before the drain begins. Then guesses from the
forecast, bounded per plan, on the disk that the plan leaves free, each choice counted before the next. Called by
`planner.plan`; what files are worth is `cache`'s question, and where they could go `advise_options`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gridops.base.ids import ProfileName, ReplicaId, replica_key
from gridops.model.advice import Advice, Evict, EvictCause, Prefetch, Prefetched
from gridops.model.plan import Plan
from gridops.model.profile import Profile
from gridops.planner.advise_options import Disks, Option
from gridops.planner.cache import Guesses, Newcomer, Worths
from gridops.planner.constants import EXPIRIES, GUESSED_PROFILES
from gridops.planner.draft import Seated
from gridops.planner.seats import Seats
from gridops.planner.world import clock


def advised(plan: Plan, seats: Seats) -> Plan:
    """The plan with the advice in its report."""
    advice = advise(seats)
    return plan if advice is None else replace(plan, report=replace(plan.report, advice=advice))


def advise(seats: Seats) -> Advice | None:
    """Advice on the finished draft; None when there is nothing to say, and while nothing may be concluded."""
    draft = seats.draft
    if draft.world.mass_stale or draft.world.hypothetical:
        return None
    adviser = _Adviser(seats)
    for replica in sorted((r for r, s in draft.seats.items() if s.cause is not None), key=replica_key):
        adviser.before_the_drain(replica, draft.seats[replica])
    if draft.world.inputs.forecast is not None:
        adviser.guess()
    # Without a forecast nobody knows that demand has gone, except where the profile has.
    adviser.expire()
    found = Advice(prefetch=tuple(adviser.prefetch), evict=tuple(adviser.evict))
    return found if found.prefetch or found.evict else None


class _Adviser:
    """Collects the advice of one plan."""

    def __init__(self, seats: Seats) -> None:
        self.seats, self.draft = seats, seats.draft
        self.prefetch: list[Prefetch] = []
        self.evict: list[Evict] = []
        self._worths = Worths(self.draft.world, seats.harms.experience)
        self._guesses = Guesses(self.draft, self._worths)
        self._served: set[ProfileName] = set()

    def before_the_drain(self, replica: ReplicaId, seated: Seated) -> None:
        """Files of a replica that waits for others to leave: they can come while those still serve."""
        host, artifact = seated.assignment.seat.host, seated.launch.artifact
        board, profile = self.draft.board.hosts.get(host), self.draft.world.profiles.get(seated.assignment.profile)
        if board is None or profile is None or board.view.closed is not None or artifact.source is None:
            return
        devices = set(seated.assignment.seat.devices)
        first = sorted({c.replica for c in board.leaving if devices.intersection(c.devices)}, key=replica_key)
        missing = {f.sha256: f.size_bytes for f in artifact.files if f.sha256 not in board.view.cached}
        if not first or not missing:
            return
        opening = next(o for o in self.seats.openings(profile) if o.config.name == seated.launch.config)
        place = int(opening.place[self.seats.grid.row[host]])
        self.prefetch.append(
            Prefetch(
                host=host,
                profile=profile.name,
                config=opening.config.name,
                files=tuple(sorted(missing)),
                size_bytes=sum(missing.values()),
                detail=f"{replica} stands here once {_names(first)} left: fetched before the drain",
                fetch_ms=int(opening.fetch_ms(np.array([place]))[0]) if place >= 0 else profile.timing.load_ms,
                replica=replica,
            )
        )

    def guess(self) -> None:
        """The best options by worth for each byte, so many as the policy allows, each on what the last has left."""
        disks = Disks(self.seats)
        for _ in range(self.draft.world.planning.prefetch.per_plan):
            wanted = self._candidates()
            asked = (disks.options(p, self._worths.of(p), self._guesses.hosts) for p in wanted)
            found = [o for o in asked if o is not None]
            if not found:
                return
            best = min(found, key=lambda o: o.best.key)
            # Weaker guesses may go only for the best of all, and only where no host has room for it.
            if best.roomy is None and self._replace(best.crowded):
                continue
            roomy = [o.roomy for o in found if o.roomy is not None]
            if not roomy:
                return
            chosen = min(roomy, key=lambda o: o.key)
            self._fetch(chosen)
            disks.take(chosen)

    def _candidates(self) -> list[Profile]:
        """Profiles that demand may give another replica: those with most at stake, so many as are looked at."""
        found = []
        for name, profile in sorted(self.draft.world.profiles.items()):
            if name not in self._served and len(self.draft.of(name)) < profile.replicas_max:
                stake = self._worths.of(profile).of(profile.timing.load_ms)
                found += [(-stake, name)] if stake else []
        return [self.draft.world.profiles[name] for _, name in sorted(found)[:GUESSED_PROFILES]]

    def _fetch(self, option: Option) -> None:
        world, lead = self.draft.world, self._worths.of(option.profile).lead_ms
        now, name = clock(world.inputs), option.profile.name
        self._served.add(name)
        self.prefetch.append(
            Prefetch(
                host=option.host,
                profile=name,
                config=option.opening.config.name,
                files=option.missing(),
                size_bytes=option.size_bytes,
                detail=f"demand for {name} is expected, and no host that could start it now has its files",
                fetch_ms=option.fetch_ms,
                value=option.value,
                per_gib=option.per_gib,
                deadline_ms=None if lead is None else now + lead,
                expires_ms=now + world.planning.prefetch.ttl_ms,
            )
        )

    def _replace(self, crowded: Sequence[Option]) -> bool:
        """Let weaker guesses go on one host. The fetch itself waits until that host reports the room."""
        for option in crowded:
            name = option.profile.name
            newcomer = Newcomer(option.value, option.size_bytes)
            if group := self._guesses.victims(option.host, option.short_bytes, newcomer):
                self._served.add(name)
                detail = f"{name} is worth more for each byte, and needs the room"
                self.evict += [_evict(one, EvictCause.REPLACED, detail, name) for one in group]
                return True
        return False

    def expire(self) -> None:
        """Guesses that nobody used in time."""
        gone = {(e.host, e.files) for e in self.evict}
        late = [p for p in self._guesses.expired() if (p.host, p.files) not in gone]
        for one in late[:EXPIRIES]:
            self.evict.append(_evict(one, EvictCause.EXPIRED, f"fetched for {one.profile} on a guess, and never used"))


def _evict(one: Prefetched, cause: EvictCause, detail: str, instead: ProfileName | None = None) -> Evict:
    return Evict(
        host=one.host,
        profile=one.profile,
        files=one.files,
        size_bytes=one.size_bytes,
        cause=cause,
        detail=detail,
        instead=instead,
    )


def _names(replicas: Sequence[ReplicaId]) -> str:
    more = f" and {len(replicas) - 3} more" if len(replicas) > 3 else ""
    return f"{', '.join(replicas[:3])}{more} {'has' if len(replicas) == 1 else 'have'}"
