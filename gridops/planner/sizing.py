"""How many replicas of a profile are wanted, and why in numbers.

The file's minimum and the pins are the baseline. Demand adds to it: lanes, turned into replicas by the lanes of what
stands, narrowest first, and for the rest by those of the preferred config. Whoever finds a seat with another config
brings other lanes, so a size carries what was asked (`Ask`), and `enough` counts again. What stands is given up only
when even the high estimate, the last peak within the cooldown and the age of every replica allow it; what is unknown
changes nothing. Called by `targets` once per profile and plan.

Why this cannot climb by itself: lanes wanted depend on the forecast alone, also those of the safety replica under
pressure. Each replica that is added brings lanes of its own, so the same forecast asks for it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridops.base.ids import ProfileName
from gridops.base.units import PPM, counted, render_ms, render_ppm
from gridops.model.forecast import Evidence, ProfileForecast
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.constants import WEAK_CONFIDENCE_PPM
from gridops.planner.incumbents import Incumbent, Verdict, names_of, residency_of
from gridops.planner.look_ahead import Starts
from gridops.planner.pressure import (
    MILLI,
    Pressure,
    ahead,
    ceil,
    is_asked,
    is_recent,
    is_used,
    known,
    observed,
    offered,
    pressure_of,
    slots,
)
from gridops.planner.world import World, clock

NO_LIMIT = 1 << 53


@dataclass(frozen=True, slots=True)
class Ask:
    """What demand asks for: so many lanes, and no fewer replicas than that."""

    replicas: int
    slots: int


class Size(NamedTuple):
    """What is wanted of one profile."""

    replicas: int
    baseline: int
    """Of which the files ask for so many, whatever the demand."""
    why: str = ""
    """The numbers behind what demand adds or gives up. Empty: no forecast speaks about the profile."""
    asks: tuple[Ask, ...] = ()
    """Any one of these is enough; none: nothing is asked beyond `least`."""
    least: int = 0
    most: int = NO_LIMIT
    each: int = 1
    """Lanes of a replica with the preferred config."""
    widest: int = 1
    reserve: int = 0
    """Replicas if all who look for a seat found the narrowest config. As many may be tried, no more."""
    varies: bool = False
    """How many are wanted depends on the configs they find seats with."""

    def suffices(self, count: int, lanes: int) -> bool:
        """So many replicas with so many lanes together are enough, or all there may be."""
        if count >= self.most or not self.asks:
            return count >= min(self.most, self.least)
        return count >= self.least and any(count >= a.replicas and lanes >= a.slots for a in self.asks)

    def of(self, lanes: Sequence[int]) -> int:
        """How many replicas, where some with these lanes stand; what is kept for other reasons not included."""
        return min(self.most, max(self.least, _count(self.asks, sorted(lanes), self.each)))


class Sizes:
    """Sizes profiles of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: Mapping[ProfileName, ProfileForecast] = known(world)
        self._starts = Starts(world)

    def of(self, profile: Profile, baseline: int, standing: Sequence[Incumbent]) -> Size:
        """`standing`: the profile's incumbents, whatever their verdict."""
        world = self._world
        if world.inputs.forecast is None:
            return Size(baseline, baseline, least=baseline)
        most = max(baseline, profile.replicas_max)
        here = [i for i in standing if i.verdict is not Verdict.RELEASE]
        entry = self._known.get(profile.name)
        if entry is None:
            wanted = min(most, max(baseline, len(here)))
            return Size(wanted, baseline, least=wanted)
        lanes = tuple(sorted(i.launch.lanes for i in here))
        asks, why = self._asked(profile, entry, baseline, here)
        widths = [c.lanes for c in profile.configs] or [profile.lanes]
        size = Size(
            0,
            baseline,
            asks=asks,
            least=max(baseline, 1 if is_used(world, profile, entry) else 0),
            most=most,
            each=widths[0],
            widest=max(widths),
            varies=bool(asks) and len({*widths, *(i.launch.lanes for i in here if i.verdict is not Verdict.STAY)}) > 1,
        )
        wanted, narrow = size.of(lanes), size._replace(each=min(widths))
        reserve = narrow.of([i.launch.lanes if i.verdict is Verdict.STAY else min(widths) for i in here])
        if wanted < min(most, len(here)):
            kept, words = self._kept(profile, entry, lanes, here)
            wanted, why = (min(most, kept), f"{why}; {words}") if kept > wanted else (wanted, why)
        return size._replace(replicas=wanted, reserve=reserve, why=f"{why} => {counted(wanted, 'replica')}")

    def _asked(
        self, profile: Profile, entry: ProfileForecast, baseline: int, here: Sequence[Incumbent]
    ) -> tuple[tuple[Ask, ...], str]:
        """What demand asks for, and the sentence with its numbers."""
        world = self._world
        now = offered(profile, entry, entry.rate_mrpm.likely)
        if not is_asked(world, profile, entry):
            return (), "no demand" if entry.last_used_ms is None or not now else "no demand within the cooldown"
        headroom = world.planning.headroom.demand_ppm
        rate, reach = entry.rate_mrpm.likely, 0
        if entry.trend_mrpm > 0 and entry.confidence_ppm > 0 and rate > 0:
            reach = self._starts.fastest_ms(profile, [i.host for i in here])
            rate = ahead(entry, reach, world.planning.look_ahead)
        pressed = pressure_of(profile, entry, offered(profile, entry, rate))
        lanes, each = tuple(sorted(i.launch.lanes for i in here)), profile.lanes
        wanted = Ask(0, slots(profile, pressed, headroom))
        why = _words(profile, entry, now, headroom)
        if pressed.offered_mlanes > now:
            why += f", rising to {_lanes(pressed.offered_mlanes)} in {render_ms(reach)}"
        if pressed.felt(profile):
            why += _press(profile, pressed, entry)
            if any(i.ready for i in here):
                plain = slots(profile, Pressure(pressed.offered_mlanes), headroom)
                spare = Ask(baseline + 1, max(wanted.slots, plain + each))
                why += ", one to spare" if _count((spare,), lanes, each) > _count((wanted,), lanes, each) else ""
                wanted = spare
        sure = self._sure(profile, entry) if entry.confidence_ppm < WEAK_CONFIDENCE_PPM else None
        if sure is None:
            return (wanted,), why
        if _count((sure,), lanes, each) < _count((wanted,), lanes, each):
            why = f"{why}, on weak evidence ({render_ppm(max(0, entry.confidence_ppm))})"
        return (wanted, sure), why

    def _sure(self, profile: Profile, entry: ProfileForecast) -> Ask | None:
        """What weak evidence is worth: the demand that was observed, else one canary. None: all that it says."""
        if entry.inferred_mrpm <= 0 and entry.evidence is Evidence.DIRECT:
            return None
        seen = observed(profile, entry) if entry.evidence is Evidence.DIRECT else 0
        headroom = self._world.planning.headroom.demand_ppm
        return Ask(1, slots(profile, pressure_of(profile, entry, seen), headroom))

    def _kept(
        self, profile: Profile, entry: ProfileForecast, lanes: tuple[int, ...], here: Sequence[Incumbent]
    ) -> tuple[int, str]:
        """How many of those that stand are kept although demand asks for fewer, and for what."""
        world = self._world
        if any(_is_young(world, profile, i) for i in here):
            return len(here), "kept, as one is new"
        headroom, each = world.planning.headroom.demand_ppm, profile.lanes
        reasons = [(0, "")]
        if is_asked(world, profile, entry):
            high = offered(profile, entry, max(entry.rate_mrpm.likely, entry.rate_mrpm.high))
            wanted = replicas(slots(profile, pressure_of(profile, entry, high), headroom), lanes, each)
            reasons.append((wanted, f"kept, as it may be {_lanes(high)}"))
        cooldown = profile.timing.scale_down_after_ms
        recent = [w.offered_mlanes for w in entry.watermarks if is_recent(world, w.at_ms, cooldown)]
        if recent:
            wanted = replicas(slots(profile, Pressure(max(0, *recent)), headroom), lanes, each)
            reasons.append((wanted, f"kept, as it was {_lanes(max(recent))} within {render_ms(cooldown)}"))
        elif not entry.watermarks and is_used(world, profile, entry):
            reasons.append((sum(1 for i in here if i.ready), f"kept, as used within {render_ms(cooldown)}"))
        most, words = max(reasons, key=lambda r: r[0])
        return min(len(here), most), words


def replicas(wanted: int, lanes: Sequence[int], each: int) -> int:
    """Replicas whose lanes suffice: of those that stand the narrowest first, then new ones of `each` lanes.

    Narrowest first, so that whichever of them stay in the end, they suffice. `lanes` are sorted.
    """
    count = 0
    for width in lanes:
        if wanted <= 0:
            return count
        wanted -= width
        count += 1
    return count + ceil(max(0, wanted), max(1, each))


def _count(asks: Sequence[Ask], lanes: Sequence[int], each: int) -> int:
    """Replicas that the least of the asks wants. `lanes` are sorted."""
    return min((max(a.replicas, replicas(a.slots, lanes, each)) for a in asks), default=0)


def _is_young(world: World, profile: Profile, incumbent: Incumbent) -> bool:
    """On its way, or ready for less than its minimum residency: what was just started is not stopped for a reading."""
    at_least = profile.timing.min_residency_ms
    view = world.hosts.get(incumbent.host)
    names = names_of(world, incumbent.replica, incumbent.former)
    residency = residency_of(view, names, incumbent.assignment.launch)
    if residency is None:
        parent = world.inputs.parent
        return parent is not None and clock(world.inputs) - parent.created_ms < at_least
    if residency.state in (ResidencyState.LOADING, ResidencyState.WARMING):
        return True
    since = residency.since_ms
    return residency.state is ResidencyState.READY and since is not None and is_recent(world, since, at_least)


def _words(profile: Profile, entry: ProfileForecast, now_mlanes: int, headroom_ppm: int) -> str:
    """`offered 7.2 lanes + 20% of 4 x 0.70`."""
    source = {Evidence.DIRECT: "offered", Evidence.AUTHORISED: "workloads offer", Evidence.CORRELATED: "inferred"}
    each, share = profile.lanes, profile.demand.utilization_ppm * 100 // PPM
    amount = _lanes(now_mlanes)
    lanes = f"{source[entry.evidence]} {amount} {'lane' if amount == '1' else 'lanes'} + {render_ppm(headroom_ppm)}"
    return f"{lanes} of {each} x {share // 100}.{share % 100:02d}"


def _press(profile: Profile, pressed: Pressure, entry: ProfileForecast) -> str:
    words = [f", queue {pressed.queue}" if pressed.queue >= profile.demand.queue_per_replica else ""]
    if pressed.latency_ppm > PPM:
        words.append(f", p95 {render_ms(entry.p95_ms or 0)} over {render_ms(profile.demand.latency_slo_ms)}")
    if pressed.error_ppm > PPM:
        words.append(f", {render_ppm(entry.error_ppm)} errors")
    return "".join(words)


def _lanes(mlanes: int) -> str:
    """`7.2`, `6`: milli-lanes as lanes, rounded up to a tenth."""
    whole, tenth = divmod(ceil(mlanes * 10, MILLI), 10)
    return f"{whole}.{tenth}" if tenth else str(whole)
