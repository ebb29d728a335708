"""Whoever was moved for others and need not have been goes back, and causes name those who really come."""

from __future__ import annotations

from dataclasses import replace

from gridops.base.ids import HostId, ReplicaId
from gridops.model.plan import Cause, CauseKind
from gridops.model.profile import Profile, Spread
from gridops.planner.capacity import Ask, Offer
from gridops.planner.draft import Draft, Item, begin
from gridops.planner.eligible import Way, judge
from gridops.planner.gather import gather
from gridops.planner.homing import send_home
from gridops.planner.incumbents import Verdict
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.fleet import Fleet, host, profile

HOSTS = (host("ant", rack="r1"), host("bee", rack="r2"))
MOVED = Cause(kind=CauseKind.REBALANCE, detail="makes room for x/1")
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
