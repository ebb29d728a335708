"""Placement cases of our own about rules: domains, pins, tiers, company, prices, silence, downtime (`cases_fresh`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Drain, HostClass
from gridops.model.policy import BudgetPolicy, PriceCeiling, ScopeBudgets
from gridops.model.profile import Colocation, Downtime, EngineArg, PlacementRules, Spread
from tests.planner.cases_fresh import GUEST, NONE, Case, applied, guest
from tests.planner.fleet import NOW, SCOPE, Fleet, host, laptop, profile, report


def cases() -> Iterator[Case]:
    """Seven kinds, each in a few variants."""
    for kind in (_domains, _pins, _tiers, _company, _prices, _silence, _downtime):
        yield from kind()


def _domains() -> Iterator[Case]:
    """Failure domains are kept while they can be; else the replica stands, and the shortfall is said."""
    a1, a2, b1 = host("a1", rack="a"), host("a2", rack="a"), host("b1", (80.0,), rack="b")
    nowhere = host("x1")
    two = guest(20, replicas=2, spread=Spread(by="rack", min=2))
    yield Case("domains: the far rack, however large", Fleet((a1, a2, b1), (two,)), ("a1", "a2", "b1"))
    short = Case("domains: one rack", Fleet((a1, a2), (two,)), ("a1", "a2"), short=codes.SPREAD_SHORT)
    yield replace(short, others={"guest/2": ("a1", "a2")})
    three = guest(20, replicas=3, spread=Spread(by="rack", min=3))
    wanted = Case("domains: two of three", Fleet((a1, a2, b1), (three,)), ("a1", "a2", "b1"))
    yield replace(
        wanted, short=codes.SPREAD_SHORT, others={"guest/2": ("a1", "a2", "b1"), "guest/3": ("a1", "a2", "b1")}
    )
    unnamed = Case("domains: a host of no rack is no second rack", Fleet((a1, nowhere), (two,)), ("a1", "x1"))
    yield replace(unnamed, short=codes.SPREAD_SHORT)


def _pins() -> Iterator[Case]:
    """A pin is that host or nothing."""
    small, large = host("small", (12.0,)), host("large", (80.0,))
    pinned = guest(20, placement=PlacementRules(pins=(HostId("small"),)))
    said = {"small": codes.INSUFFICIENT_DEVICE_MEMORY, "large": codes.PINNED_ELSEWHERE}
    yield Case("pins: the host is too small", Fleet((small, large), (pinned,)), (NONE,), said)
    drained = guest(10, placement=PlacementRules(pins=(HostId("small"),)))
    drains = (Drain(host=HostId("small"), reason="fans"),)
    said = {"small": codes.HOST_DRAINING, "large": codes.PINNED_ELSEWHERE}
    yield Case("pins: the host is being emptied", Fleet((small, large), (drained,), drains=drains), (NONE,), said)
    second = guest(20, replicas=2, placement=PlacementRules(pins=(HostId("small"),)))
    free = Case("pins: the floor is not met", Fleet((small, large), (second,)), (NONE, "large"))
    yield free
    forbidden = guest(10, placement=PlacementRules(pins=(HostId("small"),), deny_hosts=(HostId("small"),)))
    yield Case("pins: and denied", Fleet((small, large), (forbidden,)), (NONE,), {"small": codes.DENIED})
    tenant = profile("tenant", gib=10, priority=500)
    held = applied((small,), tenant)
    wants = guest(10, priority=100, placement=PlacementRules(pins=(HostId("small"),)))
    moved = held.but(hosts=(small, large), profiles=(tenant, wants))
    yield Case(
        "pins: who stands there goes elsewhere, however important", moved, ("small",), others={"tenant/1": ("large",)}
    )


def _tiers() -> Iterator[Case]:
    """A host without a tier has the lowest; a tier that nobody lists is no host's."""
    hosts = (host("bare"), host("inner", tier="internal"), host("safe", (12.0,), tier="confidential"))
    secret = guest(20, placement=PlacementRules(tier="confidential"))
    said = {
        "bare": codes.TIER_TOO_LOW,
        "inner": codes.TIER_TOO_LOW,
        "safe": codes.INSUFFICIENT_DEVICE_MEMORY,
    }
    yield Case("tiers: the only safe one is small", Fleet(hosts, (secret,)), (NONE,), said)
    inner = guest(20, placement=PlacementRules(tier="internal"))
    yield Case("tiers: high enough", Fleet(hosts, (inner,)), ("inner",))
    light = guest(10, placement=PlacementRules(tier="internal"))
    yield Case("tiers: higher does as well, and the tighter one is taken", Fleet(hosts, (light,)), ("safe",))
    open_ = guest(20, placement=PlacementRules(tier="public"))
    yield Case("tiers: the lowest is everybody's", Fleet(hosts[:1], (open_,)), ("bare",))


def _company() -> Iterator[Case]:
    """Who shares a host: both have to accept it."""
    wide, spare = host("wide", (80.0,)), host("spare", (80.0,))
    shy = profile("tenant", gib=10, colocation=Colocation(exclude=(ProfileName(GUEST),)))
    held = applied((wide,), shy)
    friend = guest(10)
    said = {"wide": codes.COLOCATION}
    yield Case("company: the other one refuses", held.but(profiles=(shy, friend)), (NONE,), said)
    two = held.but(hosts=(wide, spare), profiles=(shy, friend))
    yield Case("company: elsewhere", two, ("spare",), kinds=("place",))
    alone = guest(10, colocation=Colocation(max=1))
    plain = profile("tenant", gib=10)
    yield Case("company: who wants to be alone", applied((wide,), plain).but(profiles=(plain, alone)), (NONE,), said)
    pair = guest(10, colocation=Colocation(max=2))
    yield Case("company: two are two", applied((wide,), plain).but(profiles=(plain, pair)), ("wide",))


def _ceiling(cents: int, unknown: str = "refuse") -> Mapping[str, Any]:
    price = PriceCeiling(max_per_hour_micro=cents * 10_000, unknown=unknown)
    return {"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=price),))}


def _prices() -> Iterator[Case]:
    """Under a ceiling a host of unknown price is refused, unless the file says otherwise."""
    gift, cheap, dear = (
        host("gift"),
        host("cheap", price_per_hour_micro=20_000),
        host("dear", price_per_hour_micro=30_001),
    )
    all_three = (gift, cheap, dear)
    yield Case("prices: the known one", Fleet(all_three, (guest(),), more=_ceiling(3)), ("cheap",))
    said = {"gift": codes.PRICE_UNKNOWN, "dear": codes.PRICE_CEILING}
    yield Case("prices: unknown or too dear", Fleet((gift, dear), (guest(),), more=_ceiling(3)), (NONE,), said)
    yield Case("prices: unknown allowed", Fleet((gift, dear), (guest(),), more=_ceiling(3, "allow")), ("gift",))
    exact = Fleet((gift, dear), (guest(),), more={"budgets": _ceiling(3)["budgets"]})
    raised = BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=PriceCeiling(max_per_hour_micro=30_001)),))
    yield Case("prices: to the last millionth", exact.but(more={"budgets": raised}), ("dear",))


def _silence() -> Iterator[Case]:
    """Old, future, away, unknown: nothing new goes there; nothing is taken from many at once."""
    late, good = host("late"), host("good", (80.0,))

    def at(age: int) -> Fleet:
        return Fleet((late, good), (guest(),), reports={"late": report(late, at=NOW - age)})

    yield Case("silence: just in time", at(90_000), ("late",))
    yield Case("silence: a millisecond late", at(90_001), ("good",))
    yield Case("silence: a clock somewhat ahead", at(-30_000), ("late",))
    yield Case("silence: a clock too far ahead", at(-30_001), ("good",))
    away, back = laptop("away"), laptop("back")
    mine = guest(10, backends=("metal",))
    gone = Fleet((away, back), (mine,), reports={"away": report(away, goodbye=True)})
    yield Case("silence: a laptop that said goodbye", gone, ("back",))
    alone = Fleet((away,), (mine,), reports={"away": report(away, goodbye=True)})
    yield Case("silence: the only laptop is away", alone, (NONE,), {"away": codes.HOST_AWAY})
    strange = Fleet((late,), (guest(),), keys=())
    yield Case("silence: nobody admitted it", strange, (NONE,), {"late": codes.NOT_ADMITTED})
    endpoint = host("cloud", host_class=HostClass.EXTERNAL, endpoint="https://example.invalid", models=(GUEST,))
    yield Case(
        "silence: an endpoint is used and holds nothing",
        Fleet((endpoint,), (guest(),)),
        (NONE,),
        {"cloud": codes.EXTERNAL_HOST},
    )
    five = tuple(host(f"h{n}") for n in range(5))
    busy = applied(five[:3], guest(replicas=3)).but(hosts=five)
    hours = {h.id: replace(busy.reports[h.id], observed_ms=busy.now - 100_000) for h in five[:3]}  # type: ignore[type-var]
    mass = busy.but(reports={**hours})
    stays = Case("silence: of many at once nobody is taken", mass, ("h0", "h1", "h2"), kinds=())
    yield replace(stays, short=codes.NOT_SERVING)


def _downtime() -> Iterator[Case]:
    """A change of command: twice where there is room, elsewhere where not, and never down where the file says so."""
    card, peer = host("card"), host("peer")
    old = guest(10)

    def changed(gib: float, hosts: tuple[Any, ...], downtime: Downtime) -> Fleet:
        args = (EngineArg(name="flash_attn", value="on"),)
        return applied((card,), replace(old, downtime=downtime)).but(
            hosts=hosts, profiles=(guest(gib, args=args, downtime=downtime),)
        )

    never, may = Downtime.NEVER, Downtime.ALLOWED
    yield Case("downtime: both fit", changed(12.8, (card,), never), ("card[0]",), kinds=("change",))
    yield Case("downtime: refused", changed(12.9, (card,), never), ("card[0]",), kinds=(), short=codes.DOWNTIME_NEVER)
    yield Case("downtime: allowed", changed(12.9, (card,), may), ("card[0]",), kinds=("change",))
    yield Case("downtime: a peer takes it", changed(12.9, (card, peer), never), ("peer[0]",), kinds=("move",))
