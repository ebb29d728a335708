"""The price ceiling: what counts, what it refuses, what it never takes, and what a preview of it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName, ReplicaId, short
from gridops.model.fleet import Drain
from gridops.model.plan import Cause, CauseKind, Change, DecisionKind, Seat
from gridops.model.policy import BudgetPolicy, PriceCeiling, ScopeBudgets
from gridops.model.profile import PlacementRules
from gridops.model.snapshot import Residency, ResidencyState
from gridops.planner.check import check
from gridops.planner.planner import plan
from gridops.planner.price_preview import TRIALS, Preview, preview, sentences
from gridops.planner.world import Stray
from tests.planner.fleet import GIB, NOW, SCOPE, Fleet, decisions, digest, host, profile

CENT = 10_000


def ceiling(cents: int, unknown: str = "refuse") -> dict[str, BudgetPolicy]:
    price = PriceCeiling(max_per_hour_micro=cents * CENT, unknown=unknown)
    return {"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=price),))}


def priced(*cents: int | None) -> tuple[object, ...]:
    """Hosts h0, h1, ... with room for one replica of 18 GiB and their price per hour."""
    return tuple(host(f"h{n}", price_per_hour_micro=None if c is None else c * CENT) for n, c in enumerate(cents))


def fleet_of(*cents: int | None, most: int, replicas: int = 1, **more: object) -> Fleet:
    return Fleet(hosts=priced(*cents), profiles=(profile("c", replicas, gib=18),), more=ceiling(most), **more)  # type: ignore[arg-type]


def with_unknown(fleet: Fleet, name: str) -> Fleet:
    """A process of ours runs on the host that nobody can vouch for and no plan speaks of."""
    lost = Residency(
        profile=ProfileName("old"),
        replica=ReplicaId("old/1"),
        state=ResidencyState.UNKNOWN,
        devices=("gpu0",),  # type: ignore[arg-type]
        device_bytes=2 * GIB,
    )
    return fleet.reporting(name, residencies=(lost,))


def test_a_ceiling_is_kept_to_the_micro_unit() -> None:
    assert decisions(fleet_of(80, 80, most=160, replicas=2).plan()) == ["place c/1 -> h0", "place c/2 -> h1"]
    made = fleet_of(80, 80, most=159, replicas=2).plan()
    assert decisions(made) == ["place c/1 -> h0", "cannot_place c/2"]
    (missing,) = made.report.unplaced
    assert missing.code == codes.PRICE_CEILING.code
    assert missing.hosts[1].detail == "it costs 0.80 an hour, and 0.80 of at most 1.59 are spent"


def test_what_nobody_can_vouch_for_keeps_its_host_on_the_bill() -> None:
    """It may still run: its host is paid for, so it may be used further, and another may not be opened."""
    fleet = fleet_of(80, 80, most=80)
    assert decisions(fleet.plan()) == ["place c/1 -> h0"]
    assert decisions(with_unknown(fleet, "h1").plan()) == ["place c/1 -> h1"]
    small = fleet.but(profiles=(profile("c", gib=23),))
    (missing,) = with_unknown(small, "h1").plan().report.unplaced
    assert missing.hosts[0].detail == "it costs 0.80 an hour, and 0.80 of at most 0.80 are spent"


def test_a_host_of_unknown_price_is_refused_and_says_so_and_one_in_use_goes_on() -> None:
    (missing,) = fleet_of(None, most=100).plan().report.unplaced
    assert (missing.code, missing.hosts[0].code) == (codes.PRICE_UNKNOWN.code, codes.PRICE_UNKNOWN.code)
    free = fleet_of(None, most=100).but(more={})
    running = free.applied(free.plan()).but(more=ceiling(100))
    assert running.plan().to_do == ()
    assert decisions(
        running.but(more=ceiling(100, "allow"), profiles=(profile("d", gib=3), *running.profiles)).plan()
    ) == ["place d/1 -> h0"]


@pytest.mark.parametrize("most", [0, 50, 159])
def test_a_ceiling_never_removes_what_runs_and_opens_nothing_more(most: int) -> None:
    fleet = fleet_of(80, 80, 0, most=160, replicas=2)
    fleet = fleet.but(hosts=fleet.hosts[:2])
    running = fleet.applied(fleet.plan()).but(more=ceiling(most))
    assert running.plan().to_do == ()
    more = running.but(hosts=priced(80, 80, 80), profiles=(profile("c", 3, gib=18),)).plan()
    assert [d.kind for d in more.decisions] == [DecisionKind.CANNOT_PLACE]


def test_who_gives_a_host_up_may_open_another_for_what_is_saved() -> None:
    """The ceiling bounds where the plan leads: one host before and one after, also off a drained or a lost one."""
    fleet = fleet_of(80, 90, most=90)
    running = fleet.applied(fleet.plan())
    drained = running.but(drains=(Drain(host=HostId("h0"), reason="x"),))
    assert decisions(drained.plan()) == ["move c/1 h0 -> h1"]
    lost = running.reporting("h0", observed_ms=NOW - 24 * 3_600_000)
    assert decisions(lost.plan()) == ["move c/1 h0 -> h1"]
    assert drained.but(more=ceiling(89)).plan().to_do == (), "it stays where it is, and that is said"
    assert drained.but(more=ceiling(89)).plan().report.waiting != ()


@pytest.mark.parametrize("state", [ResidencyState.READY, ResidencyState.UNKNOWN])
def test_a_host_is_given_up_only_by_who_can_be_stopped_there(state: ResidencyState) -> None:
    """It should leave the drained host; while nobody can vouch for its process, that host goes on costing."""
    fleet = fleet_of(80, 80, most=80)
    fleet = fleet.applied(fleet.plan())
    (ran,) = fleet.snapshot().hosts[0].residencies
    fleet = fleet.reporting("h0", residencies=(replace(ran, state=state),))
    made = fleet.but(drains=(Drain(host=HostId("h0"), reason="fan"),)).plan()
    assert decisions(made) == (["move c/1 h0 -> h1"] if state is ResidencyState.READY else [])


def test_a_host_is_given_up_only_by_the_last_one_there() -> None:
    fleet = Fleet(hosts=priced(80, 90), profiles=(profile("c", gib=8), profile("d", gib=8)), more=ceiling(90))  # type: ignore[arg-type]
    running = fleet.applied(fleet.plan())
    assert {a.seat.host for a in running.parent.placement} == {"h0"}  # type: ignore[union-attr]
    away = replace(running.profiles[0], placement=PlacementRules(deny_hosts=(HostId("h0"),)))
    assert running.but(profiles=(away, running.profiles[1])).plan().to_do == ()


def test_the_checker_knows_the_ceiling_by_itself() -> None:
    fleet = fleet_of(80, 80, most=160, replicas=2)
    made = fleet.plan()
    dear = fleet.but(more=ceiling(159)).inputs()
    notes = check(replace(made, intent=replace(made.intent)), dear)
    assert "h0, h1 opened for 1600000 micro an hour, 1590000 may be spent" in notes
    unknown = fleet.but(hosts=priced(80, None)).inputs()
    assert "h1 is opened, nobody knows its price, and there is a ceiling" in check(made, unknown)
    allowed = fleet.but(hosts=priced(80, None), more=ceiling(160, "allow")).inputs()
    assert not [n for n in check(made, allowed) if "price" in n]
    known = with_unknown(fleet.but(hosts=priced(80, 80, 80)), "h2").inputs()
    assert any(n.startswith("h0, h1 opened for 2400000") for n in check(made, known))


# The preview.


def seen(fleet: Fleet) -> tuple[Preview | None, tuple[str, ...]]:
    found = preview(fleet.inputs(), fleet.plan())
    return found, sentences(found) if found is not None else ()


def test_nothing_is_said_where_a_ceiling_costs_nothing() -> None:
    assert seen(fleet_of(80, 80, most=80)) == (None, ())
    assert seen(fleet_of(80, most=800, replicas=2))[0] is None, "there is no room, whatever it costs"
    assert seen(fleet_of(80, 80, most=80, replicas=2).but(more={}))[0] is None


def test_a_preview_names_who_is_lost_and_the_lowest_ceiling_that_was_planned_to_do() -> None:
    found, lines = seen(fleet_of(80, 50, 70, 90, most=60, replicas=3))
    assert found is not None
    assert (found.lost, found.spent_micro) == ((ReplicaId("c/2"), ReplicaId("c/3")), 50 * CENT)
    assert (found.enough_micro, found.exact) == (200 * CENT, True)
    assert lines == (
        (
            "the price ceiling of 0.60 leaves c/2, c/3 out (GO527): "
            "price.max_per_hour has to be at least 2.00 for all of them"
        ),
    )


@pytest.mark.parametrize("prices", [(30, 80, 50, 20), (81, 17, 33, 9), (100, 100, 1, 1)])
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_under_the_lowest_ceiling_all_stand_and_under_the_next_lower_one_they_do_not(
    prices: tuple[int, ...], replicas: int
) -> None:
    fleet = fleet_of(*prices, most=min(prices), replicas=replicas)
    found, _ = seen(fleet)
    assert found is not None
    assert found.enough_micro is not None
    assert found.exact
    cents = found.enough_micro // CENT
    assert cents == sum(sorted(prices)[:replicas])
    assert fleet.but(more=ceiling(cents)).plan().report.unplaced == ()
    assert fleet.but(more=ceiling(cents - 1)).plan().report.unplaced != ()


def test_the_lowest_ceiling_may_be_below_what_is_spent_without_one() -> None:
    """Without a ceiling the dear host would be taken, for the files are there; the cheap one would do."""
    fleet = fleet_of(90, 50, 70, most=40)
    (file,) = fleet.profiles[0].configs[0].artifact.files
    fleet = fleet.reporting("h0", cached=(file.sha256,))
    assert decisions(fleet.but(more={}).plan()) == ["place c/1 -> h0"]
    found, _ = seen(fleet)
    assert found is not None
    assert (found.enough_micro, found.exact) == (50 * CENT, True)


def test_who_would_stand_only_where_nobody_states_a_price_is_named_apart() -> None:
    found, lines = seen(fleet_of(80, None, most=80, replicas=2))
    assert found is not None
    assert (found.lost, found.unpriced) == ((), (ReplicaId("c/2"),))
    assert lines == ("c/2 would stand only on hosts whose price nobody states (GO528)",)


def test_below_what_is_spent_a_ceiling_removes_nothing_and_says_what_would_not_come_back() -> None:
    fleet = fleet_of(80, 80, 80, most=240, replicas=2).but(
        profiles=(profile("c", 2, gib=18), profile("d", gib=18, priority=50))
    )
    running = fleet.applied(fleet.plan()).but(more=ceiling(100))
    assert running.plan().to_do == ()
    found, lines = seen(running)
    assert found is not None
    assert found.beyond == (("c", 1), ("d", 1))
    assert lines == (
        (
            "2.40 an hour are spent, 1.00 may be: nothing is removed for it, and if everything had to be placed again, "
            "1 of c, 1 of d would stand nowhere (GO527)"
        ),
    )


def test_what_runs_beside_the_plan_hides_nothing_of_what_would_not_come_back() -> None:
    """Everybody's processes are gone in that question, so there is none to be ended."""
    fleet = fleet_of(80, 80, most=160, replicas=2)
    placed = fleet.applied(fleet.plan()).but(more=ceiling(100))
    (process, *_) = placed.snapshot().hosts[0].residencies
    copy = replace(process, replica=ReplicaId("c/9"), incarnation=digest("another"), device_bytes=GIB)
    running = placed.reporting("h0", residencies=(process, copy))
    still = Cause(kind=CauseKind.INTENT, detail="still runs on h0, and the plan in force has no c/9")
    ended = Change(field="process", old=f"h0 {short(digest('another'))}", new="ended")
    seat = Seat(host=HostId("h0"), devices=copy.devices)
    asked = replace(running.inputs(), strays=(Stray(ReplicaId("c/9"), copy.profile, seat, still, (ended,)),))
    made = plan(asked)
    assert check(made, asked) == ()
    assert decisions(made) == ["remove c/9 h0"]
    found = preview(asked, made)
    assert found is not None
    assert found.beyond == (("c", 1),)


def test_a_preview_changes_no_plan_and_its_work_is_bounded() -> None:
    fleet = fleet_of(*range(100, 116), most=100, replicas=16)
    before = fleet.plan()
    found = preview(fleet.inputs(), before)
    assert found is not None
    assert found.tried <= TRIALS + 4
    assert fleet.plan() == before
