"""Whoever was moved for others, or gave way, and need not have goes back; causes name those who really come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import HostId, ReplicaId
from gridops.model.plan import Cause, CauseKind
from gridops.model.profile import Downtime, Profile, Spread
from gridops.planner.capacity import Ask, Offer
from gridops.planner.draft import Draft, Item, begin
from gridops.planner.eligible import Way, judge
from gridops.planner.gather import gather
from gridops.planner.homing import send_home, stay_after_all
from gridops.planner.incumbents import Verdict
from gridops.planner.movers import gather_movers
from gridops.planner.place import place
from gridops.planner.room import carry_out
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.contest import HIGH, LOW, on, standing, wants
from tests.planner.fleet import Fleet, config, decisions, host, profile, running

HOSTS = (host("ant", rack="r1"), host("bee", rack="r2"))
MOVED = Cause(kind=CauseKind.REBALANCE, detail="makes room for x/1")
YIELDED = Cause(kind=CauseKind.DISPLACED, detail="gives way to x/1")
NEW = Cause(kind=CauseKind.INTENT, detail="profile is new")


def drafted(*profiles: Profile, wanted: tuple[Profile, ...] = (), hosts: tuple[object, ...] = HOSTS) -> Draft:
    """Everybody stands on ant, and these are wanted now."""
    start = Fleet(hosts=hosts[:1], profiles=profiles)  # type: ignore[arg-type]
    fleet = start.applied(start.plan()).but(hosts=hosts, profiles=wanted or profiles)
    world = look(fleet.inputs())
    return begin(world, choose(world, gather(world)))


def sit(draft: Draft, replica: str, name: str, cause: Cause) -> None:
    """The replica gets a seat on the host, as the search would give it one."""
    world, there = draft.world, HostId(name)
    mine = draft.seats.get(ReplicaId(replica))
    profile_ = world.profiles[next(p for p in world.profiles if replica.startswith(f"{p}/"))]
    way = judge(profile_, profile_.configs[0], world.hosts[there], world.planning)
    assert isinstance(way, Way)
    origin = None if mine is None or mine.origin is None else mine.origin._replace(verdict=Verdict.LEAVE, cause=cause)
    offer = draft.board.offer(there, Ask(ReplicaId(replica), profile_, way))
    assert isinstance(offer, Offer)
    draft.sit(Item(ReplicaId(replica), profile_, cause, origin), there, offer, way.launch)


def where(draft: Draft) -> dict[str, str]:
    return {r: s.assignment.seat.host for r, s in sorted(draft.seats.items())}


def test_who_was_moved_and_whose_place_is_free_goes_back() -> None:
    draft = drafted(profile("c"))
    sit(draft, "c/1", "bee", MOVED)
    assert where(draft) == {"c/1": "bee"}
    send_home(draft)
    assert where(draft) == {"c/1": "ant"}
    assert draft.seats[ReplicaId("c/1")].cause is None
    assert not draft.board.hosts[HostId("ant")].leaving


def test_who_was_moved_for_somebody_stays_away() -> None:
    draft = drafted(profile("c", gib=14), wanted=(profile("c", gib=14), profile("x", gib=14)))
    sit(draft, "c/1", "bee", MOVED)
    sit(draft, "x/1", "ant", NEW)
    send_home(draft)
    assert where(draft) == {"c/1": "bee", "x/1": "ant"}


def test_who_was_moved_so_that_its_like_comes_changes_with_it() -> None:
    was = profile("c", gib=14)
    draft = drafted(was, wanted=(replace(was, replicas_min=2, replicas_max=2),))
    sit(draft, "c/1", "bee", MOVED)
    sit(draft, "c/2", "ant", NEW)
    send_home(draft)
    assert where(draft) == {"c/1": "ant", "c/2": "bee"}
    assert draft.seats[ReplicaId("c/2")].cause == NEW


def test_who_was_moved_into_another_failure_domain_stays_there() -> None:
    was = profile("c", 2, gib=4, max_per_host=9)
    draft = drafted(was, wanted=(replace(was, spread=Spread(by="rack", min=2)),))
    sit(draft, "c/2", "bee", MOVED)
    send_home(draft)
    assert where(draft) == {"c/1": "ant", "c/2": "bee"}


def exchanged(newcomer: float | None = None, *, size: float = 14, spread: Spread | None = None) -> Draft:
    """`c` stood on ant and `d` on bee; they changed places, and somebody may have come to ant. Another c is on cat."""
    racks = {"ant": "r1", "bee": "r2", "cat": "r1", "dog": "r1"}
    ant, bee, cat, dog = (host(name, rack=rack) for name, rack in racks.items())
    c, d = profile("c", 2, gib=14), profile("d", gib=size)
    fleet = Fleet(hosts=(ant, cat), profiles=(c,))
    fleet = fleet.applied(fleet.plan()).but(hosts=(bee,), profiles=(d,))
    fleet = fleet.but(hosts=(ant, bee, cat), profiles=(c, d))
    fleet = fleet.applied(fleet.plan())
    wanted = (replace(c, spread=spread), d, *([profile("x", gib=newcomer)] if newcomer is not None else ()))
    world = look(fleet.but(hosts=(ant, bee, cat, dog), profiles=wanted).inputs())
    draft = begin(world, choose(world, gather(world)))
    assert where(draft) == {"c/1": "ant", "c/2": "cat", "d/1": "bee"}
    for replica, name in (("c/1", "dog"), ("d/1", "ant"), ("c/1", "bee")):
        sit(draft, replica, name, MOVED)
    if newcomer is not None:
        sit(draft, "x/1", "ant", NEW)
    return draft


def boards(draft: Draft) -> dict[str, object]:
    found = draft.board.hosts.items()
    return {h: (dict(b.desired), sorted(b.leaving), tuple(b.sums())) for h, b in found}


@pytest.mark.parametrize("newcomer", [None, 8])
def test_who_changed_places_for_nobody_go_back_together(newcomer: float | None) -> None:
    draft = exchanged(newcomer)
    send_home(draft)
    back = {"c/1": "ant", "c/2": "cat", "d/1": "bee"}
    assert where(draft) == (back if newcomer is None else {**back, "x/1": "ant"})
    assert not any(s.cause for r, s in draft.seats.items() if r != "x/1")
    assert not any(b.leaving for b in draft.board.hosts.values())


def test_who_changed_places_stay_if_one_of_them_finds_its_home_taken() -> None:
    """One of them would fit at home again and the other would not: then neither goes, and boards are as they were."""
    draft = exchanged(10, size=10)
    before = boards(draft)
    send_home(draft)
    assert where(draft) == {"c/1": "bee", "c/2": "cat", "d/1": "ant", "x/1": "ant"}
    assert boards(draft) == before


def test_who_changed_places_stay_if_going_back_would_cost_a_failure_domain() -> None:
    draft = exchanged(spread=Spread(by="rack", min=2))
    before = boards(draft)
    send_home(draft)
    assert where(draft) == {"c/1": "bee", "c/2": "cat", "d/1": "ant"}
    assert boards(draft) == before


def displaced(draft: Draft, replica: str = "c/1") -> Item:
    """The replica gave way, and looks for another place."""
    seated = draft.lift(ReplicaId(replica))
    assert seated.origin is not None
    origin = seated.origin._replace(verdict=Verdict.RELEASE, cause=YIELDED)
    return Item(ReplicaId(replica), draft.world.profiles[seated.assignment.profile], YIELDED, origin)


def test_who_gave_way_stays_if_nobody_comes_after_all() -> None:
    draft = drafted(profile("c", gib=14))
    assert stay_after_all(draft, (displaced(draft),)) == ()
    assert where(draft) == {"c/1": "ant"}
    assert draft.seats[ReplicaId("c/1")].cause is None
    assert not draft.board.hosts[HostId("ant")].leaving


def test_who_gave_way_to_somebody_who_came_stays_away() -> None:
    draft = drafted(profile("c", gib=14), wanted=(profile("c", gib=14), profile("x", gib=14)))
    item = displaced(draft)
    sit(draft, "x/1", "ant", NEW)
    assert stay_after_all(draft, (item,)) == (item,)
    assert where(draft) == {"x/1": "ant"}


def test_nobody_gives_way_to_somebody_new_of_its_kind() -> None:
    was = profile("c", gib=14)
    draft = drafted(was, wanted=(replace(was, replicas_min=2, replicas_max=2),))
    item = displaced(draft)
    sit(draft, "c/2", "ant", NEW)
    (left,) = stay_after_all(draft, (item,))
    assert (left.replica, left.cause, left.origin) == ("c/2", NEW, None)
    assert where(draft) == {"c/1": "ant"}
    assert draft.seats[ReplicaId("c/1")].cause is None
    assert not draft.board.hosts[HostId("ant")].leaving


def crossed(*, pin: str | None = None) -> tuple[Draft, Item]:
    """c/1 gave way on ant to c/2, which x moved from bee, while c/3, which is new, has a seat on cat."""
    was, hosts = profile("c", 2, gib=14), (*HOSTS, host("cat", rack="r3"))
    start = Fleet(hosts=hosts[:2], profiles=(was,))
    more = replace(was, replicas_min=3, replicas_max=3)
    fleet = start.applied(start.plan()).but(hosts=hosts, profiles=(more, profile("x", gib=14)))
    world = look(fleet.inputs())
    draft = begin(world, choose(world, gather(world)))
    if pin is not None:
        draft.items = [i._replace(pin=HostId(pin)) for i in draft.items]
    item = displaced(draft)
    sit(draft, "c/2", "ant", MOVED)
    sit(draft, "x/1", "bee", NEW)
    sit(draft, "c/3", "cat", NEW)
    return draft, item


def test_nobody_gives_way_to_its_like_that_was_moved_while_one_that_is_new_has_a_seat() -> None:
    draft, item = crossed()
    (left,) = stay_after_all(draft, (item,))
    assert (left.replica, left.cause, left.origin) == ("c/3", NEW, None)
    assert where(draft) == {"c/1": "ant", "c/2": "cat", "x/1": "bee"}
    assert draft.seats[ReplicaId("c/2")].cause == MOVED
    assert set(draft.board.hosts[HostId("cat")].desired) == {"c/2"}
    assert set(draft.board.hosts[HostId("ant")].desired) == {"c/1"}


def test_whom_a_pin_asks_for_gives_its_seat_to_nobody() -> None:
    draft, item = crossed(pin="cat")
    before = boards(draft), where(draft)
    assert stay_after_all(draft, (item,)) == (item,)
    assert (boards(draft), where(draft)) == before


@pytest.mark.parametrize(("gib", "home"), [(8, "ant"), (9, "bee")])
def test_who_would_come_back_to_where_another_has_to_run_twice_stays_away(gib: float, home: str) -> None:
    """All would fit in the end. But until d has changed it runs twice, and counted on the place that c left."""
    c, d = profile("c", gib=6), profile("d", gib=gib)
    changed = profile("d", configs=(config("d-q4", gib, context=8192),), downtime=Downtime.NEVER)
    draft = drafted(c, d, wanted=(c, changed))
    sit(draft, "c/1", "bee", MOVED)
    assert place(Seats(draft)) == ()
    assert where(draft) == {"c/1": "bee", "d/1": "ant"}
    assert not draft.seats[ReplicaId("d/1")].dip
    send_home(draft)
    assert where(draft) == {"c/1": home, "d/1": "ant"}


@pytest.mark.parametrize("gib", [14, 9])
def test_who_gave_way_and_finds_its_seat_where_it_stood_has_not_given_way(gib: float) -> None:
    """A search may seat it there again, with what its config takes by now: it goes on as it is, whatever would fit."""
    draft = drafted(profile("c", gib=14), wanted=(profile("c", gib=gib),))
    item, seats = displaced(draft), Seats(draft)
    movers = gather_movers(seats, [item])
    (n,) = [n for n, m in enumerate(movers.movers) if m.item is item]
    ant = next(h for h, row in enumerate(movers.rows) if seats.grid.ids[row] == "ant")
    spot = movers.puzzle.seat(movers.puzzle.pieces[n].kind, ant)
    assert spot is not None
    movers.puzzle.put(n, spot)
    assert carry_out(movers) == ()
    assert where(draft) == {"c/1": "ant"}
    assert draft.seats[ReplicaId("c/1")].cause is None
    assert not draft.board.hosts[HostId("ant")].leaving


def test_nobody_leaves_its_place_for_nobody() -> None:
    """A search may end with everybody new left out and somebody moved: then it has found nothing."""
    draft = drafted(profile("c", gib=14), wanted=(profile("c", gib=14), profile("x", gib=14)))
    (item,) = draft.items
    movers = gather_movers(Seats(draft), [item])
    puzzle, seats = movers.puzzle, draft.seats[ReplicaId("c/1")]
    (n,) = [n for n, m in enumerate(movers.movers) if m.replica == "c/1"]
    home = puzzle.take(n)
    spot = puzzle.seat(puzzle.pieces[n].kind, 1 - home.host)
    assert spot is not None
    puzzle.put(n, spot)
    assert carry_out(movers) is None
    assert draft.seats == {ReplicaId("c/1"): seats}


def test_who_was_found_running_is_nobody_to_give_way_to() -> None:
    """`high` leaves h0 for h1, where `low` gives way. On h0 runs a chat that no plan knew, and that remains there."""
    fleet = standing(on(HIGH, "h0"), on(LOW, "h1", "h2"), hosts=3)
    chat = profile("chat", gib=8)
    other = Fleet(hosts=(host("h0"),), profiles=(chat,)).plan()
    seen = fleet.reports["h0"]
    assert seen is not None
    fleet = fleet.reporting("h0", residencies=(*seen.residencies, running(other.placement[0], other)))
    made = wants(fleet, on(HIGH, "h1"), on(chat, "h0")).plan()
    gone = next(d for d in made.decisions if d.cause.kind is CauseKind.DISPLACED)
    assert made.assignment(ReplicaId("chat/1")) is not None
    assert "place chat/1 -> h0" in decisions(made)
    assert gone.cause.detail == "gives way to high/1"
