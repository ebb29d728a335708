"""The checker notices when the reason of a decision is not so: for each pair of a decision and a cause, a lie.

The true causes are those of the planner, on fleets that bring them about; every other kind of cause, written over it,
has to be refused. What is told here in words is a lie within one kind: a number, a host or a name that is not so.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import HostId, ProfileName, ReplicaId
from gridops.model.fleet import HostKey, Runtime
from gridops.model.forecast import Watermark
from gridops.model.plan import Cause, CauseKind, Decision, DecisionKind, Plan
from gridops.model.profile import Colocation, PlacementRules
from gridops.model.snapshot import ResidencyState
from gridops.planner import authority, check_causes, check_places, constants, standing
from gridops.planner.check import check
from gridops.planner.check_causes import causes
from gridops.planner.check_gains import displaced, gainers
from gridops.planner.check_leaves import leaves
from gridops.planner.check_view import View
from tests.planner.contest import HIGH, LOW
from tests.planner.contest import standing as crowd
from tests.planner.contest import wants as also
from tests.planner.fleet import Fleet, config, decisions, host, profile, running, seats, with_external
from tests.planner.settled import converged, drained, undeclared
from tests.planner.test_targets_forecast import entry, expect

ANT, BEE = HostId("ant"), HostId("bee")
K = CauseKind
DAY = 86_400_000


def ruled(**rules: object) -> Fleet:
    """`c` stands on ant, and its file says something new about where it may stand."""
    was = profile("c")
    return converged(was).but(profiles=(replace(was, placement=PlacementRules(**rules)),))  # type: ignore[arg-type]


def hosted(**changes: object) -> Fleet:
    """`c` stands on ant, and the file of ant says something new."""
    fleet = converged(profile("c"))
    return fleet.but(hosts=tuple(replace(h, **changes) if h.id == ANT else h for h in fleet.hosts))  # type: ignore[arg-type]


def tagged() -> Fleet:
    fleet = ruled(require_tags=("x",))
    return fleet.but(hosts=tuple(replace(h, tags=("x",)) if h.id == BEE else h for h in fleet.hosts))


def asked(lanes: float, most: int = 4, least: int = 1, stands: int = 1) -> Fleet:
    """So many stand, and so many lanes of demand are expected."""
    was = profile("c", stands, max_per_host=9, gib=1)
    fleet = Fleet(hosts=(host("ant"), host("bee")), profiles=(was,))
    fleet = fleet.applied(fleet.plan(), later_ms=DAY)
    now = replace(was, replicas_min=least, replicas_max=most)
    peak = Watermark(at_ms=fleet.now, offered_mlanes=int(lanes * 1000))
    demand = entry(lanes, name="c", last_used_ms=fleet.now, watermarks=(peak,))
    return fleet.but(profiles=(now,), forecast=expect(demand, made=fleet.now))


def beside(**more: object) -> Fleet:
    """`c` and `d` share ant, and one of them may not any more."""
    both = (profile("c", gib=4, placement=PlacementRules(allow_hosts=(ANT,))), profile("d", gib=4))
    fleet = converged(*both, hosts=(host("ant"), host("bee")))
    return fleet.but(profiles=(both[0], replace(both[1], **more)))  # type: ignore[arg-type]


def tight() -> Fleet:
    fleet = converged(profile("c"))
    (heard,) = (h for h in fleet.snapshot().hosts if h.host == ANT)
    return fleet.reporting("ant", devices=with_external(heard, "gpu0", 20).devices)


def failed() -> Fleet:
    fleet = converged(profile("c"))
    (heard,) = (h for h in fleet.snapshot().hosts if h.host == ANT)
    broken = tuple(replace(r, state=ResidencyState.FAILED, detail="out of memory") for r in heard.residencies)
    return fleet.reporting("ant", residencies=broken)


def gone_device() -> Fleet:
    fleet = converged(profile("c"), hosts=(host("ant", (24, 24)),))
    (heard,) = fleet.snapshot().hosts
    (mine,) = heard.residencies
    return fleet.reporting("ant", devices=tuple(d for d in heard.devices if d.id not in mine.devices))


def spread_out() -> Fleet:
    """Chains: the new one fits on one host only, from which the standing one has to move."""
    small = profile("low", gib=10, priority=LOW.priority)
    fleet = Fleet(hosts=(host("ant"),), profiles=(small,))
    fleet = fleet.applied(fleet.plan(), later_ms=DAY)
    big = profile("high", gib=20, priority=HIGH.priority, placement=PlacementRules(allow_hosts=(ANT,)))
    return fleet.but(hosts=(host("ant"), host("bee", (12,))), profiles=(big, small))


TRUE: dict[str, tuple[Fleet, DecisionKind, CauseKind]] = {
    "place for its file": (Fleet(hosts=(host("ant"),), profiles=(profile("c"),)), DecisionKind.PLACE, K.INTENT),
    "place for demand": (asked(5), DecisionKind.PLACE, K.DEMAND),
    "move from a drain": (drained(converged(profile("c")), "ant"), DecisionKind.MOVE, K.DRAIN),
    "move from a host that is gone": (undeclared(converged(profile("c")), "ant"), DecisionKind.MOVE, K.INTENT),
    "move from a tag": (tagged(), DecisionKind.MOVE, K.POLICY),
    "move from a denied host": (ruled(deny_hosts=(ANT,)), DecisionKind.MOVE, K.POLICY),
    "move to a pin": (ruled(pins=(BEE,)), DecisionKind.MOVE, K.POLICY),
    "move from an engine that is not declared": (
        hosted(runtimes=(Runtime(engine="vllm", backend="cuda"),)),  # type: ignore[arg-type]
        DecisionKind.MOVE,
        K.POLICY,
    ),
    "move from company": (beside(colocation=Colocation(exclude=(ProfileName("c"),))), DecisionKind.MOVE, K.POLICY),
    "move from want of memory": (tight(), DecisionKind.MOVE, K.UNHEALTHY),
    "move from a failure": (failed(), DecisionKind.MOVE, K.UNHEALTHY),
    "move from a device that is gone": (gone_device(), DecisionKind.MOVE, K.UNHEALTHY),
    "move to make room": (spread_out(), DecisionKind.MOVE, K.REBALANCE),
    "change of a config": (
        converged(profile("c")).but(profiles=(profile("c", configs=(config("c-q4", 10, context=8192),)),)),
        DecisionKind.CHANGE,
        K.INTENT,
    ),
    "change of a name": (
        converged(profile("c")).but(
            profiles=(replace(profile("c"), name=ProfileName("b"), renamed_from=ProfileName("c")),)
        ),
        DecisionKind.CHANGE,
        K.RENAMED,
    ),
    "fewer by the file": (converged(profile("c", 2)).but(profiles=(profile("c", 1),)), DecisionKind.REMOVE, K.INTENT),
    "fewer by the maximum": (asked(5, most=1, least=0, stands=3), DecisionKind.REMOVE, K.INTENT),
    "fewer by demand": (asked(0.1, least=0, stands=3), DecisionKind.REMOVE, K.DEMAND),
    "giving way": (also(crowd(LOW), HIGH), DecisionKind.REMOVE, K.DISPLACED),
}


def reasons_against(made: Plan, fleet: Fleet) -> list[str]:
    """What the rules about causes say; what the class and the risk would tell besides is left out."""
    view = View(made, fleet.inputs(), partial=False)
    return [*causes(view), *leaves(view), *displaced(view)]


def first(made: Plan, kind: DecisionKind, cause: CauseKind) -> Decision:
    return next(d for d in made.decisions if (d.kind, d.cause.kind) == (kind, cause))


def told(made: Plan, d: Decision, cause: Cause) -> Plan:
    return replace(made, decisions=tuple(replace(x, cause=cause) if x is d else x for x in made.decisions))


@pytest.mark.parametrize("name", TRUE)
def test_no_other_reason_is_believed(name: str) -> None:
    fleet, kind, cause = TRUE[name]
    made = fleet.plan()
    d = first(made, kind, cause)
    assert reasons_against(made, fleet) == []
    for other in CauseKind:
        if other is not cause:
            lie = told(made, d, Cause(kind=other, detail=d.cause.detail))
            assert reasons_against(lie, fleet), other


def test_every_pair_is_either_never_or_has_its_reasons() -> None:
    """The table of classes and the checker know the same pairs."""
    spoken = set(check_causes.REASONS) | {K.DEMAND, K.RENAMED, K.FAILED_START}
    assert {pair for pair in authority.TABLE if pair[1] not in spoken} == set()
    assert set(check_causes.NEVER) < set(authority.TABLE)


@pytest.mark.parametrize("words", ["", "x/1", "d/1"])
def test_who_comes_nowhere_is_nobody_to_give_way_to(words: str) -> None:
    """The name of nobody, of somebody unknown, and of somebody who stays where it was."""
    fleet = also(crowd(LOW, profile("d", gib=1)), HIGH)
    made = fleet.plan()
    d = first(made, DecisionKind.REMOVE, K.DISPLACED)
    assert reasons_against(made, fleet) == []
    assert reasons_against(told(made, d, replace(d.cause, detail=f"gives way to {words}")), fleet)


def test_who_comes_elsewhere_is_nobody_to_give_way_to() -> None:
    fleet = also(crowd(LOW), HIGH, profile("e", gib=1))
    fleet = fleet.but(hosts=(*fleet.hosts, host("h7", (2,))))
    made = fleet.plan()
    elsewhere = next(a for a in made.placement if a.profile == "e")
    assert elsewhere.seat.host == "h7"
    d = first(made, DecisionKind.REMOVE, K.DISPLACED)
    (note,) = reasons_against(told(made, d, replace(d.cause, detail="gives way to e/1")), fleet)
    assert "e/1 does not come to what it leaves" in note


def test_who_moves_for_somebody_of_its_change_set_moves_for_who_comes_to_what_it_leaves() -> None:
    fleet = spread_out()
    fleet = fleet.but(hosts=(*fleet.hosts, host("cat", (2,))), profiles=(*fleet.profiles, profile("e", gib=1)))
    made = fleet.plan()
    d = first(made, DecisionKind.MOVE, K.REBALANCE)
    assert made.assignment(ReplicaId("e/1")).seat.host == "cat"  # type: ignore[union-attr]
    lie = told(made, d, replace(d.cause, detail="makes room for e/1"))
    together = tuple(replace(x, change_set=d.change_set) for x in lie.decisions)
    (note,) = reasons_against(replace(lie, decisions=together), fleet)
    assert "e/1 does not come to what it leaves" in note


@pytest.mark.parametrize(("gib", "believed"), [(20, True), (2, False)])
def test_who_remains_on_a_host_with_too_little_memory_is_somebody_to_leave_it_for(gib: float, believed: bool) -> None:
    """Where there was enough memory for all, nobody has to go for who stays."""
    both = profile("c", gib=4, priority=200), profile("d", gib=4, placement=PlacementRules(allow_hosts=(ANT,)))
    fleet = converged(*both, hosts=(host("ant"), host("bee")))
    assert fleet.parent is not None
    assert set(seats(fleet.parent).values()) == {"ant"}
    (heard,) = (h for h in fleet.snapshot().hosts if h.host == ANT)
    crowd = fleet.reporting("ant", devices=with_external(heard, "gpu0", 18).devices)
    made = crowd.plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    (d,) = made.decisions
    told_so = told(made, d, Cause(kind=K.REBALANCE, detail="makes room for d/1"))
    view = View(told_so, fleet.reporting("ant", devices=with_external(heard, "gpu0", gib).devices).inputs(), False)
    assert (gainers(view, told_so.decisions[0], ANT) is None) == believed


def test_a_pretext_is_no_reason_to_give_way() -> None:
    """Somebody who matters more came, and only from elsewhere: nobody new is behind it."""
    fleet = also(crowd(LOW), HIGH)
    made = fleet.plan()
    comes = next(d for d in made.decisions if d.profile == "high")
    passing = told(made, comes, Cause(kind=K.REBALANCE, detail="makes room for low/2"))
    assert any("nobody who matters more comes" in note for note in displaced(View(passing, fleet.inputs(), False)))


def test_demand_takes_away_by_its_old_name_what_has_another_by_now() -> None:
    fleet = asked(0.1, least=0, stands=3)
    renamed = replace(fleet.profiles[0], name=ProfileName("b"), renamed_from=ProfileName("c"))
    fleet = fleet.but(profiles=(renamed,))
    made = fleet.plan()
    gone = [d for d in made.decisions if d.kind is DecisionKind.REMOVE]
    assert {(d.profile, d.cause.kind) for d in gone} == {("c", K.DEMAND)}
    assert reasons_against(made, fleet) == []


def test_numbers_of_the_checker_are_those_of_the_planner() -> None:
    assert check_causes.FORECAST_VALID_MS == constants.FORECAST_VALID_MS
    assert check_places.REPLACE_AFTER_MS == standing.REPLACE_AFTER_MS


def test_who_is_named_comes_somewhere_also_where_nobody_comes_to_what_was_left() -> None:
    """As where a host was given up for its price: then anybody may be meant who comes."""
    fleet = also(crowd(LOW, profile("d", gib=1)), HIGH)
    view = View(made := fleet.plan(), fleet.inputs(), partial=False)
    d = first(made, DecisionKind.REMOVE, K.DISPLACED)
    assert gainers(view, replace(d, cause=replace(d.cause, detail="gives way to high/1")), HostId("x")) is None
    assert gainers(view, replace(d, cause=replace(d.cause, detail="gives way to d/1")), HostId("x")) is not None


def test_a_drained_host_is_no_reason_to_take_somebody_away() -> None:
    """It is drained, and that is why its replica moves; the other is one too many by the file."""
    fleet = drained(converged(profile("c", 2)).but(profiles=(profile("c", 1),)), "bee")
    made = fleet.plan()
    d = first(made, DecisionKind.REMOVE, K.INTENT)
    assert d.source is not None
    assert d.source.host == BEE
    (note,) = reasons_against(told(made, d, Cause(kind=K.DRAIN, detail="fan alarm")), fleet)
    assert "stays until it has another place" in note


def test_who_is_found_where_it_still_runs_leaves_no_room_for_the_one_that_was_to_come_there() -> None:
    """Its host is gone, and another copy of it lives on bee: that counts as standing there for the rule as well."""
    four = tuple(host(name) for name in ("ant", "bee", "cat", "dog"))
    fleet = Fleet(hosts=four, profiles=(profile("c", 2, max_per_host=1),))
    made = fleet.plan()
    assert seats(made) == {"c/1": "ant", "c/2": "bee"}
    (first, _) = made.placement
    stays = running(first, made)
    now = fleet.applied(made).reporting("bee", residencies=(stays,)).reporting("ant", residencies=())
    now = now.but(hosts=four[1:], keys=tuple(HostKey(host=h.id, key="k") for h in four[1:]))
    plan = now.plan()
    assert seats(plan)["c/1"] == "bee"
    (moved,) = [d for d in plan.to_do if d.replica == "c/2"]
    assert (moved.kind, moved.cause.kind) == (DecisionKind.MOVE, K.POLICY)
    assert check(plan, now.inputs()) == ()
