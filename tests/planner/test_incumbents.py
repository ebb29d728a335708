"""Who may stay: silence, drains, illness, lost hosts, laptops, renames, adoption, and many hosts silent at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName, ReplicaId
from gridops.model.fleet import Absence, Drain, HostKey, OnReturn
from gridops.model.intent import Where
from gridops.model.plan import Cause, CauseKind, Change, Plan
from gridops.model.policy import ActionClass, Heartbeat, MassStale, PlanningPolicy, Risk
from gridops.model.profile import Colocation, Downtime, PlacementRules, Spread
from gridops.model.snapshot import LIVE_STATES, HostState, ResidencyState
from gridops.planner.check import check
from gridops.planner.planner import plan
from gridops.planner.restrict import restrict
from gridops.planner.world import GivenUp
from tests.planner.fleet import (
    GIB,
    NOW,
    Fleet,
    codes_of,
    config,
    decisions,
    device,
    host,
    laptop,
    profile,
    report,
    running,
    seats,
    with_external,
)

STALE = 90_000
HOSTS = (host("ant"), host("bee"), host("cat"))


def converged(*profiles: object, hosts: tuple[object, ...] = HOSTS, **more: object) -> Fleet:
    """A fleet whose first plan has been carried out."""
    fleet = Fleet(hosts=hosts, profiles=profiles, **more)  # type: ignore[arg-type]
    return fleet.applied(fleet.plan())


def drained(fleet: Fleet, name: str) -> Fleet:
    return fleet.but(
        drains=(Drain(host=HostId(name), reason="fan alarm"),),
        marks={f"drains/{name}": Where(f"fleet.d/drains/{name}.yaml", 3, 1)},
    )


def silent(fleet: Fleet, name: str, age_ms: int) -> Fleet:
    return fleet.reporting(name, observed_ms=fleet.now - age_ms)


def test_what_may_stay_stays_although_another_host_would_rank_better() -> None:
    fleet = converged(profile("c", gib=10))
    assert seats(fleet.but(parent=None, reports={}).plan()) == {"c/1": "ant"}
    better = fleet.but(hosts=(*HOSTS, host("aaa", (11,), price_per_hour_micro=0)))
    assert better.plan().to_do == ()


def test_a_drain_moves_replicas_and_says_where_it_was_asked_for() -> None:
    made = drained(converged(profile("c")), "ant").plan()
    (decision,) = made.decisions
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert (decision.cause.kind, decision.cause.detail) == (CauseKind.DRAIN, "fan alarm")
    assert decision.cause.at == "fleet.d/drains/ant.yaml:3:1"
    assert (decision.action_class, decision.risk) == (ActionClass.REPAIR, Risk.DISRUPTIVE)


def test_a_drain_with_nowhere_to_go_keeps_the_replica_and_says_so() -> None:
    made = drained(converged(profile("c"), hosts=(host("ant"),)), "ant").plan()
    assert (made.to_do, seats(made)) == ((), {"c/1": "ant"})
    assert [(w.host, w.code) for w in made.report.waiting] == [("ant", codes.NOWHERE_ELSE.code)]
    assert "c/1 should leave (fan alarm)" in made.report.waiting[0].detail


def test_a_host_that_drains_itself_is_left_too() -> None:
    fleet = converged(profile("c")).reporting("ant", state=HostState.DRAINING, reasons=("owner is back",))
    assert decisions(fleet.plan()) == ["move c/1 ant -> bee"]


def test_a_laptop_that_drains_itself_is_waited_for() -> None:
    wanted = profile("c", configs=(config("q4", 10, backends=("metal", "cuda")),))
    fleet = converged(wanted, hosts=(laptop("ana"),))
    fleet = fleet.but(hosts=(*fleet.hosts, host("zeb")))
    assert fleet.reporting("ana", state=HostState.DRAINING, since_ms=NOW - 599_999).plan().to_do == ()
    made = fleet.reporting("ana", state=HostState.DRAINING, since_ms=NOW - 600_000).plan()
    assert decisions(made) == ["move c/1 ana -> zeb"]


@pytest.mark.parametrize("state", [HostState.PAUSED, HostState.UNHEALTHY, HostState.QUARANTINED])
def test_a_host_that_does_not_serve_is_left_after_the_grace(state: HostState) -> None:
    fleet = converged(profile("c"))
    assert fleet.reporting("ant", state=state, since_ms=NOW - STALE + 1).plan().to_do == ()
    made = fleet.reporting("ant", state=state, since_ms=NOW - STALE).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].action_class is ActionClass.REPAIR


def test_a_throttled_host_keeps_what_it_has() -> None:
    assert converged(profile("c", gib=18)).reporting("ant", state=HostState.THROTTLED).plan().to_do == ()


def test_a_silent_dedicated_host_is_replaced_once_it_is_lost() -> None:
    fleet = converged(profile("c"))
    assert silent(fleet, "ant", STALE).plan().to_do == ()
    made = silent(fleet, "ant", STALE + 1).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].cause.kind is CauseKind.HOST_LOST
    assert (made.decisions[0].action_class, made.decisions[0].risk) == (ActionClass.REPAIR, Risk.ROUTINE)


def test_a_lost_host_with_no_replacement_keeps_its_seats_and_counts_as_zero() -> None:
    made = silent(converged(profile("c"), hosts=(host("ant"),)), "ant", STALE + 1).plan()
    assert (made.to_do, seats(made)) == ((), {"c/1": "ant"})
    assert [(s.code, s.want, s.have) for s in made.report.shortfalls] == [(codes.NOT_SERVING.code, 1, 0)]


def test_a_silent_host_gets_nothing_new_and_keeps_its_own_memory() -> None:
    fleet = silent(converged(profile("c"), hosts=(host("ant", (24, 24)),)), "ant", STALE + 1)
    made = fleet.but(profiles=(profile("c"), profile("d"))).plan()
    assert codes_of(made, "d/1") == {"ant": codes.HOST_STALE.code}
    assert seats(made) == {"c/1": "ant"}


LAPTOPS = {
    "its own patience": (Absence(replace_after_ms=300_000), 300_000),
    "ten minutes where none is stated": (None, 600_000),
}


@pytest.mark.parametrize("name", LAPTOPS)
def test_an_absent_laptop_is_waited_for(name: str) -> None:
    absence, patience = LAPTOPS[name]
    wanted = profile("c", configs=(config("q4", 10, backends=("metal", "cuda")),))
    fleet = converged(wanted, hosts=(laptop("ana", absence=absence),))
    fleet = fleet.but(hosts=(*fleet.hosts, host("zeb")))
    assert silent(fleet, "ana", patience - 1).plan().to_do == ()
    assert decisions(silent(fleet, "ana", patience).plan()) == ["move c/1 ana -> zeb"]


def test_a_laptop_that_said_goodbye_is_away_and_not_lost() -> None:
    wanted = profile("c", configs=(config("q4", 10, backends=("metal", "cuda")),))
    fleet = converged(wanted, hosts=(laptop("ana"),))
    fleet = fleet.but(hosts=(*fleet.hosts, host("zeb"))).reporting("ana", goodbye=True)
    assert fleet.plan().to_do == ()
    assert decisions(silent(fleet, "ana", 600_000).plan()) == ["move c/1 ana -> zeb"]


def test_a_host_that_comes_back_loses_what_was_replaced() -> None:
    fleet = converged(profile("c"))
    moved = silent(fleet, "ant", STALE + 1)
    back = moved.applied(moved.plan()).reporting("ant", observed_ms=NOW)
    assert back.plan().to_do == (), "the newest stands; the old one is only drained"


def test_an_owner_who_wants_the_oldest_kept_gets_it_back() -> None:
    wanted = profile("c", configs=(config("q4", 10, backends=("metal", "cuda")),))
    keep = Absence(replace_after_ms=60_000, on_return=OnReturn.KEEP_OLDEST)
    fleet = converged(wanted, hosts=(laptop("ana", absence=keep),))
    old = tuple(replace(r, since_ms=NOW - 500_000) for h in fleet.snapshot().hosts for r in h.residencies)
    away = silent(fleet.but(hosts=(*fleet.hosts, host("zeb"))).reporting("ana", residencies=old), "ana", 100_000)
    moved = away.applied(away.plan(), later_ms=1000)
    assert seats(moved.plan()) == {"c/1": "zeb"}
    new = tuple(replace(r, since_ms=NOW) for h in moved.snapshot().hosts if h.host == "zeb" for r in h.residencies)
    back = moved.reporting("ana", observed_ms=moved.now).reporting("zeb", residencies=new)
    made = back.plan()
    assert decisions(made) == ["move c/1 zeb -> ana"]
    assert made.decisions[0].action_class is ActionClass.REBALANCE
    assert back.applied(made, later_ms=1000).plan().to_do == ()


def test_after_a_restart_nobody_is_lost_before_the_grace_is_over() -> None:
    fleet = silent(converged(profile("c")), "ant", STALE * 10)
    assert fleet.but(watching_since=NOW - STALE + 1).plan().to_do == ()
    assert decisions(fleet.but(watching_since=NOW - STALE).plan()) == ["move c/1 ant -> bee"]


def test_a_host_that_never_reported_is_lost_only_to_someone_who_has_listened() -> None:
    fleet = converged(profile("c"))
    unseen = fleet.but(reports={**fleet.reports, "ant": None})
    assert unseen.plan().to_do == ()
    assert decisions(unseen.but(watching_since=NOW - STALE * 2).plan()) == ["move c/1 ant -> bee"]


MANY = tuple(host(f"h{n}", (12,)) for n in range(8))


def test_many_hosts_silent_at_once_take_nothing_away() -> None:
    fleet = converged(profile("c", 6, gib=10, max_per_host=1), hosts=MANY)
    gone = fleet
    for n in range(3):
        gone = silent(gone, f"h{n}", STALE + 1 + n)
    made = gone.plan()
    assert made.to_do == ()
    assert "3 hosts fell silent at once" in made.report.notes[0]
    # Fewer, or one after the other, are ordinary losses.
    assert len(silent(silent(fleet, "h0", STALE + 1), "h1", STALE + 1).plan().to_do) == 2
    spread = silent(silent(silent(fleet, "h0", STALE + 1), "h1", STALE + 70_000), "h2", STALE + 140_000)
    assert spread.plan().to_do != ()


def test_mass_silence_holds_back_drains_removals_and_changes_but_not_new_replicas() -> None:
    first = profile("c", 4, gib=4)
    fleet = converged(first, profile("gone"), hosts=MANY)
    for n in range(3):
        fleet = silent(fleet, f"h{n}", STALE + 1)
    changed = profile("c", 4, configs=(config("c-q4", 4, context=8192),))
    made = drained(fleet, "h3").but(profiles=(changed, profile("new", gib=4))).plan()
    assert decisions(made) == ["place new/1 -> h4"]
    assert sum(1 for a in made.placement if a.profile == "gone") == 1


def test_a_drained_host_is_no_evidence_of_mass_silence() -> None:
    fleet = converged(profile("c", 6, gib=10), hosts=MANY)
    for n in range(3):
        fleet = silent(fleet, f"h{n}", STALE + 1)
    assert drained(fleet, "h0").plan().to_do != ()


def test_thresholds_of_mass_silence_come_from_the_policy() -> None:
    policy = PlanningPolicy(heartbeat=Heartbeat(mass_stale=MassStale(share_ppm=500_000, at_least=3)))
    fleet = converged(profile("c", 6, gib=10), hosts=MANY, policy=policy)
    for n in range(3):
        fleet = silent(fleet, f"h{n}", STALE + 1)
    assert fleet.plan().to_do != ()
    assert silent(fleet, "h3", STALE + 1).plan().to_do == ()


def test_a_host_taken_out_of_the_files_is_left_only_for_somewhere() -> None:
    fleet = converged(profile("c"))
    made = _undeclared(fleet, "ant").plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].cause.detail == "host ant is no longer declared"


def test_a_serving_replica_stays_on_a_host_that_left_the_files_until_it_can_go() -> None:
    fleet = _undeclared(converged(profile("c"), hosts=(host("ant"),)), "ant")
    made = fleet.plan()
    assert (made.to_do, seats(made)) == ((), {"c/1": "ant"})
    assert [w.code for w in made.report.waiting] == [codes.NOWHERE_ELSE.code]
    assert made.intent.empty == ("hosts",)


def test_an_expunged_host_releases_what_it_held() -> None:
    fleet = converged(profile("c"), hosts=(host("ant"),))
    made = fleet.but(keys=(HostKey(host=HostId("ant"), key="k", expunged=True),)).plan()
    assert decisions(made) == ["remove c/1 ant", "cannot_place c/1"]
    removal = made.decisions[0]
    assert (removal.action_class, removal.risk, removal.last_replica) == (ActionClass.REMOVE, Risk.DESTRUCTIVE, False)
    two = converged(profile("c"))
    keys = tuple(HostKey(host=h.id, key="k", expunged=h.id == "ant") for h in two.hosts)
    assert decisions(two.but(keys=keys).plan()) == ["move c/1 ant -> bee"]


def test_a_failed_replica_moves_and_leaves_the_host_alone() -> None:
    fleet = converged(profile("c"))
    assert fleet.parent is not None
    failed = running(fleet.parent.placement[0], fleet.parent, ResidencyState.FAILED, detail="out of memory")
    made = fleet.reporting("ant", residencies=(failed,)).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].cause.detail == "failed on ant: out of memory"


def test_an_unknown_replica_keeps_its_seat() -> None:
    fleet = converged(profile("c"))
    assert fleet.parent is not None
    unknown = running(fleet.parent.placement[0], fleet.parent, ResidencyState.UNKNOWN)
    assert fleet.reporting("ant", residencies=(unknown,)).plan().to_do == ()


def test_a_device_that_is_gone_is_left_for_another_of_the_same_host() -> None:
    fleet = converged(profile("c"), hosts=(host("ant", (24, 24)),))
    seen = report(fleet.hosts[0]).devices
    made = fleet.reporting("ant", devices=seen[1:], residencies=()).plan()
    assert [(d.kind.value, d.source.devices, d.target.devices) for d in made.decisions] == [
        ("move", ("gpu0",), ("gpu1",))
    ]


POLICY = {
    "denied": PlacementRules(deny_hosts=(HostId("ant"),)),
    "not allowed": PlacementRules(allow_hosts=(HostId("bee"),)),
    "tag missing": PlacementRules(require_tags=("always-on",)),
    "tier": PlacementRules(tier="internal"),
}


@pytest.mark.parametrize("name", POLICY)
def test_a_rule_that_a_host_no_longer_meets_moves_the_replica(name: str) -> None:
    hosts = (host("ant"), host("bee", tags=("always-on",), tier="internal"))
    made = converged(profile("c"), hosts=hosts).but(profiles=(profile("c", placement=POLICY[name]),)).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].cause.kind is CauseKind.POLICY
    assert made.decisions[0].action_class is ActionClass.ROLLOUT


def test_the_lowest_priority_goes_first_when_a_reserve_grows() -> None:
    fleet = converged(profile("low", gib=8, priority=10), profile("top", gib=8, priority=90), hosts=(host("ant"),))
    fleet = fleet.but(
        hosts=(host("ant", devices=(device("gpu0", 24, reserve_bytes=12 * GIB), device("cpu0", 64))), host("bee"))
    )
    assert decisions(fleet.plan()) == ["move low/1 ant -> bee"]
    stuck = fleet.but(hosts=fleet.hosts[:1])
    made = stuck.plan()
    assert made.to_do == ()
    assert [(s.code, s.profile) for s in made.report.shortfalls] == [(codes.OVER_MEMORY.code, "low")]


def test_external_use_that_grows_beyond_the_headroom_moves_a_replica() -> None:
    fleet = converged(profile("c", gib=15))
    seen = fleet.snapshot().host(HostId("ant"))
    assert seen is not None
    assert fleet.but(reports={**fleet.reports, "ant": with_external(seen, "gpu0", 9)}).plan().to_do == ()
    made = fleet.but(reports={**fleet.reports, "ant": with_external(seen, "gpu0", 9.5)}).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].action_class is ActionClass.REPAIR


def test_a_lower_slot_limit_and_new_exclusions_move_the_less_important() -> None:
    fleet = converged(profile("low", gib=4, priority=10), profile("top", gib=4, priority=90), hosts=(host("ant"),))
    limit = fleet.but(hosts=(host("ant", max_replicas=1), host("bee")))
    assert decisions(limit.plan()) == ["move low/1 ant -> bee"]
    picky = profile("top", gib=4, priority=90, colocation=Colocation(exclude=(ProfileName("low"),)))
    apart = fleet.but(hosts=(host("ant"), host("bee")), profiles=(profile("low", gib=4, priority=10), picky))
    assert decisions(apart.plan()) == ["move low/1 ant -> bee"]
    both = converged(profile("c", 2, gib=4, max_per_host=2), hosts=(host("ant"),))
    spread = both.but(hosts=(host("ant"), host("bee")), profiles=(profile("c", 2, gib=4),))
    assert decisions(spread.plan()) == ["move c/2 ant -> bee"]


def test_a_footprint_that_grows_is_accounted_without_a_restart() -> None:
    fleet = converged(profile("c", gib=10), hosts=(host("ant"), host("bee", (48,))))
    grown = fleet.but(profiles=(profile("c", gib=20),)).plan()
    assert (grown.to_do, grown.placement[0].device_bytes) == ((), 20 * GIB)
    assert decisions(fleet.but(profiles=(profile("c", gib=30),)).plan()) == ["move c/1 ant -> bee"]


def test_a_pin_holds_through_drain_silence_and_illness() -> None:
    pinned = profile("c", placement=PlacementRules(pins=(HostId("ant"),)))
    fleet = converged(pinned)
    assert seats(fleet.plan()) == {"c/1": "ant"}
    made = drained(fleet, "ant").plan()
    assert made.to_do == ()
    assert [w.code for w in made.report.waiting] == [codes.HOST_DRAINING.code]
    assert silent(fleet, "ant", STALE * 5).plan().to_do == ()
    assert fleet.reporting("ant", state=HostState.UNHEALTHY).plan().to_do == ()


def test_a_renamed_profile_takes_its_replicas_over() -> None:
    fleet = converged(profile("old", 2))
    new = profile("new", 2, configs=profile("old").configs, renamed_from=ProfileName("old"))
    made = fleet.but(profiles=(new,)).plan()
    assert decisions(made) == ["change new/1 ant -> ant", "change new/2 bee -> bee"]
    assert {d.cause.kind for d in made.decisions} == {CauseKind.RENAMED}
    assert {d.risk for d in made.decisions} == {Risk.ROUTINE}
    assert {d.change_set for d in made.decisions} == {1}
    assert made.retirements == ()
    before = {a.seat.host: a.launch for a in fleet.parent.placement} if fleet.parent else {}
    assert {a.seat.host: a.launch for a in made.placement} == before, "the same processes"


def test_a_rename_from_a_profile_that_still_stands_takes_nothing() -> None:
    fleet = converged(profile("old"))
    new = profile("new", renamed_from=ProfileName("old"))
    assert decisions(fleet.but(profiles=(new, profile("old"))).plan()) == ["place new/1 -> ant"]


def test_residencies_that_nobody_planned_are_adopted_when_they_are_what_is_wanted() -> None:
    fleet = converged(profile("c", 2))
    lost = fleet.but(parent=None)
    made = lost.plan()
    assert decisions(made) == ["place c/1 -> ant", "place c/2 -> bee"]
    assert {d.cause.detail for d in made.decisions} == {"already runs there"}
    other = lost.but(profiles=(profile("c", 1, configs=(config("c-q4", 10, context=1),)),))
    assert "already runs there" not in {d.cause.detail for d in other.plan().decisions}


def test_a_change_moves_nothing_where_the_new_command_fits_beside_the_old() -> None:
    fleet = converged(profile("c", gib=8))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 8, context=8192),)),)).plan()
    (decision,) = made.decisions
    assert decisions(made) == ["change c/1 ant -> ant"]
    assert [(c.field, c.old, c.new) for c in decision.changes] == [("context", "4096", "8192")]
    assert (decision.cost.dip, decision.risk, decision.action_class) == (0, Risk.DISRUPTIVE, ActionClass.ROLLOUT)


def test_a_change_without_room_for_two_is_break_before_make_and_says_its_seconds() -> None:
    fleet = converged(profile("c", gib=18), hosts=(host("ant"), host("bee")))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 18, context=8192),)),)).plan()
    (decision,) = made.decisions
    assert decisions(made) == ["change c/1 ant -> ant"]
    assert (decision.cost.dip, decision.cost.start_ms) == (1, 5_000)


def test_a_free_device_beside_is_better_than_a_break_in_place() -> None:
    fleet = converged(profile("c", gib=18), hosts=(host("ant", (24, 24)),))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 18, context=8192),)),)).plan()
    (decision,) = made.decisions
    assert decision.target is not None
    assert (decision.target.devices, decision.cost.dip) == (("gpu1",), 0)


def test_a_profile_that_refuses_downtime_moves_or_waits() -> None:
    never = profile("c", gib=18, downtime=Downtime.NEVER)
    changed = profile("c", configs=(config("c-q4", 18, context=8192),), downtime=Downtime.NEVER)
    two = converged(never, hosts=(host("ant"), host("bee"))).but(profiles=(changed,)).plan()
    assert decisions(two) == ["move c/1 ant -> bee"]
    assert two.decisions[0].cost.dip == 0
    one = converged(never, hosts=(host("ant"),)).but(profiles=(changed,)).plan()
    assert one.to_do == ()
    assert [w.code for w in one.report.waiting] == [codes.DOWNTIME_NEVER.code]


def test_a_slot_limit_makes_a_change_break_first() -> None:
    fleet = converged(profile("c", gib=4), hosts=(host("ant", max_replicas=1),))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 4, context=8192),)),)).plan()
    assert made.decisions[0].cost.dip == 1


def test_what_does_not_serve_may_break_at_no_cost() -> None:
    fleet = converged(profile("c", gib=18, downtime=Downtime.NEVER), hosts=(host("ant"),))
    changed = profile("c", configs=(config("c-q4", 18, context=8192),), downtime=Downtime.NEVER)
    made = fleet.but(profiles=(changed,)).reporting("ant", residencies=()).plan()
    assert decisions(made) == ["change c/1 ant -> ant"]
    assert made.decisions[0].cost.dip == 0


def test_changed_terms_are_a_decision_of_their_own_without_a_restart() -> None:
    fleet = converged(profile("c", 2))
    made = fleet.but(profiles=(replace(profile("c", 2), serves=("chat",)),)).plan()
    assert decisions(made) == ["change c/1 ant -> ant", "change c/2 bee -> bee"]
    assert [(c.field, c.old, c.new) for c in made.decisions[0].changes] == [("serves", "c", "c, chat")]
    assert {(d.risk, d.change_set, d.cost.start_ms) for d in made.decisions} == {(Risk.ROUTINE, 1, 0)}
    assert {d.cause.detail for d in made.decisions} == {"serves c => c, chat"}


def test_where_the_weights_come_from_is_no_reason_to_restart() -> None:
    fleet = converged(profile("c"))
    one = config("c-q4", 10)
    moved = replace(one, artifact=replace(one.artifact, source="https://elsewhere.example/m.gguf"))
    assert fleet.but(profiles=(profile("c", configs=(moved,)),)).plan().to_do == ()


def test_a_spread_that_is_broken_by_incumbents_is_reported_and_moves_nobody() -> None:
    hosts = (host("ant", rack="r1"), host("bee", rack="r1"), host("cat", rack="r2"))
    fleet = converged(profile("c", 2), hosts=hosts)
    made = fleet.but(profiles=(profile("c", 2, spread=Spread(by="rack", min=2)),)).plan()
    assert made.to_do == ()
    assert [(s.code, s.want, s.have) for s in made.report.shortfalls] == [(codes.SPREAD_SHORT.code, 2, 1)]


def test_two_that_must_change_places_do_not_wait_for_each_other_for_ever() -> None:
    """Each would need the other's memory first: neither is promised, and both say that they wait."""
    fleet = converged(profile("a", gib=18), profile("b", gib=18), hosts=(host("ant"), host("bee")))
    swap = (
        profile("a", gib=18, placement=PlacementRules(deny_hosts=(HostId("ant"),))),
        profile("b", gib=18, placement=PlacementRules(deny_hosts=(HostId("bee"),))),
    )
    made: Plan = fleet.but(profiles=swap).plan()
    assert made.to_do == ()
    assert [w.code for w in made.report.waiting] == [codes.NOWHERE_ELSE.code] * 2


def _undeclared(fleet: Fleet, name: str) -> Fleet:
    """The host's file is gone; its agent still reports."""
    keys = tuple(HostKey(host=h.id, key="k") for h in fleet.hosts)
    kept = tuple(h for h in fleet.hosts if h.id != name)
    seen = fleet.snapshot().host(HostId(name))
    return fleet.but(hosts=kept, keys=keys, strangers=(seen,) if seen is not None else ())


GONE = Cause(kind=CauseKind.UNHEALTHY, detail="restart on ant: failed once")
WAS = Change(field="process", old="failed 1234", new="started again")


def given_up(fleet: Fleet, **more: object) -> Plan:
    inputs = replace(fleet.inputs(), given_up=(GivenUp(ReplicaId("c/1"), GONE, WAS),), **more)  # type: ignore[arg-type]
    made = plan(inputs)
    assert check(made, inputs) == ()
    return made


def lone(state: ResidencyState | None, **more: object) -> Fleet:
    """One replica on one host, and what its process is in."""
    fleet = converged(profile("c"), hosts=HOSTS[:1])
    assert fleet.parent is not None
    found = () if state is None else (running(fleet.parent.placement[0], fleet.parent, state),)
    return fleet.reporting("ant", residencies=found, **more)


@pytest.mark.parametrize("state", [None, ResidencyState.FAILED])
def test_what_was_given_up_is_placed_again_where_it_stands(state: ResidencyState | None) -> None:
    made = given_up(lone(state))
    assert decisions(made) == ["place c/1 -> ant"]
    (decision,) = made.to_do
    assert (decision.action_class, decision.risk, decision.changes) == (ActionClass.REPAIR, Risk.ROUTINE, (WAS,))
    assert decision.cause == GONE
    assert made.placement == lone(state).parent.placement  # type: ignore[union-attr]
    assert made.decisions_digest != lone(state).but(parent=None).plan().decisions_digest, "not the first one's name"


ALIVE = tuple(s for s in ResidencyState if s in LIVE_STATES and s is not ResidencyState.FAILED)


@pytest.mark.parametrize("state", ALIVE)
def test_what_may_still_be_alive_is_never_started_again(state: ResidencyState) -> None:
    assert given_up(lone(state)).to_do == ()


CLOSED: dict[str, Callable[[Fleet], Fleet]] = {
    "silent": lambda f: silent(f, "ant", STALE + 1),
    "paused": lambda f: f.reporting("ant", state=HostState.PAUSED),
    "drained": lambda f: drained(f, "ant"),
    "said goodbye": lambda f: f.reporting("ant", goodbye=True),
    "forbidden now": lambda f: f.but(profiles=(profile("c", placement=PlacementRules(deny_hosts=("ant",))),)),
    "without its device": lambda f: f.reporting("ant", devices=()),
}


@pytest.mark.parametrize("why", sorted(CLOSED))
def test_nothing_is_started_again_on_a_host_that_may_not_take_it(why: str) -> None:
    assert given_up(CLOSED[why](lone(None))).to_do == ()


def test_what_failed_moves_rather_than_starts_again_where_another_host_has_room() -> None:
    fleet = converged(profile("c"))
    assert fleet.parent is not None
    failed = running(fleet.parent.placement[0], fleet.parent, ResidencyState.FAILED)
    assert decisions(given_up(fleet.reporting("ant", residencies=(failed,)))) == ["move c/1 ant -> bee"]


def test_who_plans_without_the_controllers_memory_asks_what_its_proposal_asks() -> None:
    fleet = lone(None)
    proposal = given_up(fleet)
    inputs = replace(fleet.inputs(), waiting=proposal)
    again = plan(inputs)
    assert check(again, inputs) == ()
    assert again.decisions_digest == proposal.decisions_digest
    served = replace(lone(ResidencyState.READY).inputs(), waiting=proposal)
    assert plan(served).to_do == ()
    known = replace(inputs, given_up=())
    assert plan(known).to_do == (), "who knows better is believed"


def test_the_checker_objects_to_starting_again_what_runs_or_cannot_be_seen() -> None:
    made = given_up(lone(None))
    for fleet in (lone(ResidencyState.READY), lone(ResidencyState.UNKNOWN), silent(lone(None), "ant", STALE + 1)):
        assert any("has no difference behind it" in note for note in check(made, fleet.inputs()))


def test_a_restart_that_is_held_back_leaves_the_parents_placement() -> None:
    fleet = lone(None)
    made = given_up(fleet.but(profiles=(profile("c"), profile("d"))))
    assert decisions(made) == ["place c/1 -> ant", "place d/1 -> ant"]
    first, second = (d.change_set for d in made.decisions)
    part = restrict(made, fleet.parent, frozenset({second}))
    assert seats(part) == {"c/1": "ant", "d/1": "ant"}
    assert decisions(part) == ["place d/1 -> ant"]
    assert decisions(restrict(made, fleet.parent, frozenset({first}))) == ["place c/1 -> ant"]


def test_first_to_go_is_somebody_on_the_device_that_is_too_small() -> None:
    """The other one has the lower priority and stands on the other device."""
    here, there = profile("here", gib=18, priority=200), profile("there", gib=18, priority=50)
    fleet = Fleet(hosts=(host("ant", (24, 24)),), profiles=(here, there))
    stands = fleet.plan()
    seat = next(a.seat for a in stands.placement if a.profile == "here")
    fleet = fleet.applied(stands, later_ms=1_000)
    taken = with_external(fleet.snapshot().hosts[0], seat.devices[0], 20)
    made = fleet.reporting("ant", devices=taken.devices).plan()
    (short,) = made.report.shortfalls
    assert (short.code, short.profile) == (codes.OVER_MEMORY.code, "here")
    assert short.detail.startswith(f"ant {seat.devices[0]}: ")
