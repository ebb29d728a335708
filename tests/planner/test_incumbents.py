"""Who may stay: silence, drains, illness, lost hosts, laptops, pins, rules, and many hosts silent at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Absence, HostKey, OnReturn
from gridops.model.plan import CauseKind
from gridops.model.policy import ActionClass, Heartbeat, MassStale, PlanningPolicy, Risk
from gridops.model.profile import PlacementRules
from gridops.model.snapshot import HostState, ResidencyState
from tests.planner.fleet import (
    NOW,
    Fleet,
    codes_of,
    config,
    decisions,
    host,
    laptop,
    profile,
    report,
    running,
    seats,
    with_external,
)
from tests.planner.settled import HOSTS, STALE, converged, drained, silent, undeclared


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
    made = undeclared(fleet, "ant").plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].cause.detail == "host ant is no longer declared"


def test_a_serving_replica_stays_on_a_host_that_left_the_files_until_it_can_go() -> None:
    fleet = undeclared(converged(profile("c"), hosts=(host("ant"),)), "ant")
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


def test_who_leaves_an_expunged_host_for_where_it_still_runs_leaves_it_for_that() -> None:
    """It runs on a drained host still, and its new one is taken out: the drain is not why it moves."""
    fleet = drained(converged(profile("c"), hosts=HOSTS[:2]), "bee")
    assert fleet.parent is not None
    still = running(fleet.parent.placement[0], fleet.parent)
    keys = tuple(HostKey(host=h.id, key="k", expunged=h.id == "ant") for h in HOSTS[:2])
    made = fleet.but(keys=keys).reporting("bee", residencies=(still,)).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].cause.kind is CauseKind.HOST_LOST


def test_who_leaves_an_expunged_host_for_where_it_may_not_stay_leaves_it_for_that() -> None:
    """There another one of it stands, as many as may; both stay, for want of another host."""
    fleet = converged(profile("c", replicas=2, max_per_host=1), hosts=HOSTS[:2])
    assert fleet.parent is not None
    one, two = (running(a, fleet.parent) for a in fleet.parent.placement)
    keys = tuple(HostKey(host=h.id, key="k", expunged=h.id == "bee") for h in HOSTS[:2])
    made = fleet.but(keys=keys).reporting("ant", residencies=(one, two)).plan()
    assert decisions(made) == ["move c/2 bee -> ant"]
    assert made.decisions[0].cause.kind is CauseKind.HOST_LOST


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


def test_a_pin_holds_through_drain_silence_and_illness() -> None:
    pinned = profile("c", placement=PlacementRules(pins=(HostId("ant"),)))
    fleet = converged(pinned)
    assert seats(fleet.plan()) == {"c/1": "ant"}
    made = drained(fleet, "ant").plan()
    assert made.to_do == ()
    assert [w.code for w in made.report.waiting] == [codes.HOST_DRAINING.code]
    assert silent(fleet, "ant", STALE * 5).plan().to_do == ()
    assert fleet.reporting("ant", state=HostState.UNHEALTHY).plan().to_do == ()


def test_who_does_not_fit_beside_others_any_more_goes_to_another_card_of_its_host() -> None:
    """It leaves its card and not its host, whose slots it does not take twice; nobody gives way for that."""
    both = (profile("c", gib=10, priority=200), profile("d", gib=6, priority=50))
    fleet = Fleet(hosts=(host("ant", (24, 24), max_replicas=2),), profiles=both)
    fleet = fleet.applied(fleet.plan())
    (heard,) = fleet.snapshot().hosts
    assert {r.devices for r in heard.residencies} == {("gpu0",)}
    made = fleet.reporting("ant", devices=with_external(heard, "gpu0", 16).devices).plan()
    assert decisions(made) == ["move c/1 ant -> ant"]
    assert [a.seat.devices for a in made.placement] == [("gpu1",), ("gpu0",)]


@pytest.mark.parametrize("name", ["c", "b"])
def test_who_is_crowded_out_does_not_shrink_on_its_own_card(name: str) -> None:
    """Its file says less of it by now, which would fit; the process goes on with what it has, under whatever name."""
    was = profile("c", gib=10)
    fleet = converged(was, hosts=(host("ant"),))
    again = replace(was, name=ProfileName(name), renamed_from=ProfileName("c") if name != "c" else None)
    fleet = fleet.but(profiles=(again,))
    fleet = fleet.applied(fleet.plan())
    (heard,) = fleet.snapshot().hosts
    smaller = replace(again, configs=(config("c-q4", 4),))
    made = fleet.but(profiles=(smaller,)).reporting("ant", devices=with_external(heard, "gpu0", 16).devices).plan()
    assert made.to_do == ()
    assert [a.device_bytes >> 30 for a in made.placement] == [10]


def test_who_should_leave_and_cannot_holds_what_its_process_was_started_with() -> None:
    """Also where the plan in force says less: its host counts it so."""
    fleet = drained(converged(profile("c", gib=10), hosts=(host("ant"),)), "ant").restarted("c/1", 14)
    assert [a.device_bytes >> 30 for a in fleet.plan().placement] == [14]
