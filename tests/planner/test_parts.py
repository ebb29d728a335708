"""Decisions, their digest, the change sets that tie them, and plans with only a part of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import HostId, ProfileName
from gridops.base.record import digest_of
from gridops.model.fleet import Drain
from gridops.model.plan import Change, Cost, DecisionKind, Plan
from gridops.model.policy import BudgetPolicy, PriceCeiling, ScopeBudgets
from gridops.model.profile import Colocation, DeviceNeed, EngineArg, PlacementRules, Restart
from gridops.planner.check import check
from gridops.planner.diff import decisions_digest, differences
from gridops.planner.eligible import launch_of
from gridops.planner.restrict import restrict
from tests.planner.fleet import SCOPE, Fleet, config, decisions, host, profile, seats

HOSTS = (host("ant"), host("bee"), host("cat"))


def converged(*profiles: object, hosts: tuple[object, ...] = HOSTS, **more: object) -> Fleet:
    fleet = Fleet(hosts=hosts, profiles=profiles, **more)  # type: ignore[arg-type]
    return fleet.applied(fleet.plan())


def sets(made: Plan) -> list[int]:
    return [d.change_set for d in made.decisions]


def part(fleet: Fleet, made: Plan, *keep: int) -> Plan:
    found = restrict(made, fleet.parent, frozenset(keep))
    assert check(found, fleet.inputs(), partial=True) == ()
    return found


def test_the_digest_names_what_is_done_and_nothing_else() -> None:
    fleet = converged(profile("c"), profile("d", gib=20))
    made = fleet.but(profiles=(profile("c", 2), profile("d", gib=20, configs=(config("d-q4", 20, context=1),)))).plan()
    name = decisions_digest(made.decisions)
    assert name == made.decisions_digest
    loud = [
        replace(d, n=d.n + 5, change_set=9, cost=Cost(start_ms=1), cause=replace(d.cause, detail="x"))
        for d in made.decisions
    ]
    assert decisions_digest(loud[::-1]) == name
    first = made.decisions[0]
    for other in (
        replace(first, replica="c/9"),
        replace(first, target=None),
        replace(first, source=first.target),
        replace(first, launch=made.decisions[1].launch),
        replace(first, changes=(Change(field="context", old="1", new="2"),)),
    ):
        assert decisions_digest((other, *made.decisions[1:])) != name


def test_what_cannot_be_placed_is_no_part_of_what_is_done() -> None:
    fleet = converged(profile("c"))
    quiet = fleet.plan()
    crowded = fleet.but(profiles=(profile("c"), profile("big", gib=90))).plan()
    assert decisions(crowded) == ["cannot_place big/1"]
    assert crowded.decisions_digest == quiet.decisions_digest
    assert crowded.id.endswith(quiet.decisions_digest.removeprefix("sha256:")[:8])


def test_a_plan_names_its_parent_and_what_it_read() -> None:
    fleet = converged(profile("c")).reporting("bee", generation=7)
    made = fleet.but(profiles=(profile("c", 2),)).plan()
    assert fleet.parent is not None
    assert made.parent == digest_of(fleet.parent)
    assert [(p.profile, p.digest) for p in made.reads.profiles] == [("c", digest_of(profile("c", 2)))]
    assert [(g.host, g.generation) for g in made.reads.hosts] == [("bee", 7)]
    assert made.id.startswith("20261130T")


CHANGES = {
    "context": (config("a", context=1), config("a", context=2), ("context", "1", "2")),
    "lanes": (config("a"), config("a", lanes=4), ("lanes", "1", "4")),
    "devices": (config("a"), config("a", devices=DeviceNeed(count=2, shard="tensor")), ("devices", "1", "2 tensor")),
    "argument": (
        config("a"),
        config("a", args=(EngineArg(name="flash_attn", value="true"),)),
        ("args.flash_attn", "", "true"),
    ),
    "config": (config("a", weights="w"), config("b", weights="w"), ("config", "a", "b")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_differences_are_told_by_field(name: str) -> None:
    old, new, expected = CHANGES[name]
    found = differences(launch_of(profile("c"), old, "cuda"), launch_of(profile("c"), new, "cuda"))
    assert expected in [(c.field, c.old, c.new) for c in found]


def test_another_artifact_is_told_by_its_digest() -> None:
    found = differences(
        launch_of(profile("c"), config("a", weights="x"), "cuda"),
        launch_of(profile("c"), config("a", weights="y"), "cuda"),
    )
    assert [c.field for c in found] == ["artifact"]
    assert found[0].old != found[0].new


def test_independent_decisions_are_sets_of_their_own() -> None:
    fleet = converged(profile("c"), profile("d"))
    made = fleet.but(profiles=(profile("c", 2), profile("new"))).plan()
    assert sorted(sets(made)) == [1, 2, 3]


TIED = {
    "memory": (
        (host("ant"),),
        (profile("old", gib=18), profile("small", gib=1)),
        (profile("new", gib=18), profile("small", gib=1)),
    ),
    "a slot": (
        (host("ant", max_replicas=1),),
        (profile("old", gib=4),),
        (profile("new", gib=4),),
    ),
    "company": (
        (host("ant"),),
        (profile("old", gib=4),),
        (profile("new", gib=4, colocation=Colocation(exclude=(ProfileName("old"),))),),
    ),
}


@pytest.mark.parametrize("name", TIED)
def test_who_needs_what_another_gives_up_is_tied_to_it(name: str) -> None:
    hosts, before, after = TIED[name]
    fleet = converged(*before, hosts=hosts).but(profiles=after)
    made = fleet.plan()
    assert decisions(made) == ["place new/1 -> ant", "remove old/1 ant"]
    assert sets(made) == [1, 1]
    # With room for both they are independent.
    roomy = converged(*before, hosts=(host("ant", (48,)),)).but(profiles=after)
    assert name == "company" or sets(roomy.plan()) == [1, 2]


def test_a_price_ceiling_ties_a_new_host_to_the_one_given_up() -> None:
    hosts = (host("ant", price_per_hour_micro=6), host("bee", price_per_hour_micro=6))
    more = {"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=PriceCeiling(max_per_hour_micro=6)),))}
    fleet = converged(profile("old"), hosts=hosts, more=more)
    only_bee = profile("new", placement=PlacementRules(allow_hosts=(HostId("bee"),)))
    made = fleet.but(profiles=(only_bee,)).plan()
    assert decisions(made) == ["place new/1 -> bee", "remove old/1 ant"]
    assert sets(made) == [1, 1]


def test_repair_is_not_tied_to_optional_work_on_its_host() -> None:
    """The move off the drained host fits as things are; only the new profile needs what the removal gives up."""
    at_bee = PlacementRules(allow_hosts=(HostId("bee"),))
    fleet = converged(
        profile("a", gib=6), profile("b", gib=10, placement=at_bee), hosts=(host("ant", (12,)), host("bee"))
    )
    assert seats(fleet.plan()) == {"a/1": "ant", "b/1": "bee"}
    after = fleet.but(
        drains=(Drain(host=HostId("ant"), reason="fan"),),
        profiles=(profile("a", gib=6), profile("new", gib=12)),
    )
    made = after.plan()
    by_replica = {d.replica: d.change_set for d in made.decisions}
    assert decisions(made) == ["place new/1 -> bee", "move a/1 ant -> bee", "remove b/1 bee"]
    assert by_replica["new/1"] == by_replica["b/1"] != by_replica["a/1"]


def test_a_part_of_a_plan_carries_out_only_that_part() -> None:
    fleet = converged(profile("c"), profile("d"))
    wanted = fleet.but(profiles=(profile("c", 2), profile("new")))
    made = wanted.plan()
    number = {d.replica: d.change_set for d in made.decisions}
    grown = part(wanted, made, number["c/2"])
    assert [d.replica for d in grown.decisions] == ["c/2"]
    assert set(seats(grown)) == {"c/1", "c/2", "d/1"}
    assert grown.retirements == ()
    assert {t.profile: t.replicas_min for t in grown.terms} == {"c": 2, "d": 1}
    assert [p.profile for p in grown.reads.profiles] == ["c"]
    assert grown.decisions_digest != made.decisions_digest
    assert grown.parent == made.parent
    removed = part(wanted, made, number["d/1"])
    assert [r.profile for r in removed.retirements] == ["d"]
    nothing = part(wanted, made)
    assert fleet.parent is not None
    assert (nothing.decisions, nothing.placement) == ((), fleet.parent.placement)


def test_all_of_a_plan_is_the_plan_itself() -> None:
    fleet = converged(profile("c")).but(profiles=(profile("c", 2),))
    made = fleet.plan()
    assert part(fleet, made, 1) is made


def test_held_terms_stay_as_they_are() -> None:
    fleet = converged(profile("c", 2)).but(profiles=(replace(profile("c", 3), restart=Restart(max=9)),))
    made = fleet.plan()
    number = {d.replica: d.change_set for d in made.decisions}
    assert number["c/1"] == number["c/2"] != number["c/3"]
    grown = part(fleet, made, number["c/3"])
    assert [t.restart.max for t in grown.terms] == [5]
    changed = part(fleet, made, number["c/1"])
    assert [t.restart.max for t in changed.terms] == [9]


def test_a_held_rename_keeps_the_old_name() -> None:
    fleet = converged(profile("old", 2))
    new = profile("new", 2, configs=profile("old").configs, renamed_from=ProfileName("old"))
    wanted = fleet.but(profiles=(new, profile("other")))
    made = wanted.plan()
    number = {d.replica: d.change_set for d in made.decisions}
    held = part(wanted, made, number["other/1"])
    assert set(seats(held)) == {"old/1", "old/2", "other/1"}
    assert {t.profile for t in held.terms} == {"old", "other"}


def test_a_replica_that_moves_after_its_profile_was_renamed_keeps_its_name_where_the_move_is_held() -> None:
    """What runs was started under the old name; the move starts it anew under the one that it has had since."""
    fleet = converged(profile("old", 2))
    new = profile("new", 2, configs=profile("old").configs, renamed_from=ProfileName("old"))
    renamed = fleet.but(profiles=(new,))
    renamed = renamed.applied(renamed.plan())
    wanted = renamed.but(profiles=(new, profile("other")), drains=(Drain(host=HOSTS[0].id, reason="fan"),))
    made = wanted.plan()
    (move,) = (d for d in made.decisions if d.kind is DecisionKind.MOVE)
    assert move.changes == ()
    held = part(wanted, made, next(d.change_set for d in made.decisions if d.replica == "other/1"))
    assert seats(held) == {**seats(renamed.parent), "other/1": seats(made)["other/1"]}  # type: ignore[arg-type]


def test_a_first_plan_in_part_has_no_terms_of_what_is_held() -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(profile("c"), profile("d")))
    made = fleet.plan()
    first = part(fleet, made, 1)
    assert [t.profile for t in first.terms] == ["c"]
    later = fleet.applied(first).plan()
    assert [d.cause.detail for d in later.to_do] == ["profile is new"]
