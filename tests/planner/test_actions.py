"""Steps, one situation at a time: what may begin, what waits and for what, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import EngineName, HostId, ProfileName, ReplicaId
from gridops.model.action import Drain, Load, Operate, Unload, Warm
from gridops.model.fleet import Drain as HostDrain
from gridops.model.fleet import HostKey, Runtime
from gridops.model.plan import Plan
from gridops.model.policy import ActionClass
from gridops.model.profile import Colocation, Downtime, PlacementRules, Restart
from gridops.model.snapshot import HostState, Ownership, Residency, ResidencyState
from gridops.planner.actions import Step, actions
from gridops.planner.scene import unseen
from gridops.planner.targets import terms_of
from tests.planner.fleet import GIB, NOW, Fleet, config, device, digest, host, laptop, profile, running
from tests.planner.walk import Walk

HOSTS = (host("ant"), host("bee"), host("cat"))


def converged(*profiles: object, hosts: tuple[object, ...] = HOSTS) -> Fleet:
    fleet = Fleet(hosts=hosts, profiles=profiles)  # type: ignore[arg-type]
    return fleet.applied(fleet.plan())


def steps(fleet: Fleet, target: Plan, **more: Any) -> tuple[Step, ...]:
    return actions(target, fleet.snapshot(), fleet.now, desired=fleet.inputs().intent.desired, **more)


def told(found: tuple[Step, ...]) -> list[str]:
    """`warm c/1 ant` or `warm c/1 ant: its artifact`."""
    return [f"{s.action.kind} {s.replica} {s.action.host}" + (f": {s.waits_for}" if s.waits_for else "") for s in found]


def drained(fleet: Fleet, name: str) -> Fleet:
    return fleet.but(drains=(HostDrain(host=HostId(name), reason="fan"),))


def alter(fleet: Fleet, replica: str, change: Callable[[Residency], Residency]) -> Fleet:
    """The fleet with one residency changed wherever it runs."""
    for seen in fleet.snapshot().hosts:
        if any(r.replica == replica for r in seen.residencies):
            changed = tuple(change(r) if r.replica == replica else r for r in seen.residencies)
            fleet = fleet.reporting(seen.host, residencies=changed)
    return fleet


def state(to: ResidencyState, **more: Any) -> Callable[[Residency], Residency]:
    return lambda r: replace(r, state=to, **more)


def test_a_new_replica_is_fetched_then_warmed() -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(profile("c"),))
    made = fleet.plan()
    assert told(steps(fleet, made)) == ["load c/1 ant", "warm c/1 ant: its artifact"]
    cached = fleet.reporting("ant", cached=(digest("c-q4"),))
    (warm,) = steps(cached, made)
    assert told((warm,)) == ["warm c/1 ant"]
    action = warm.action
    assert isinstance(action, Warm)
    assert (action.devices, action.device_bytes, action.serves) == (("gpu0",), 10 * GIB, ("c",))
    assert (action.drain_ms, action.warm_ms, action.restart) == (120_000, 5_000, Restart())
    assert warm.action_class is ActionClass.SCALE_UP


def test_one_artifact_is_fetched_once_for_two_replicas() -> None:
    fleet = Fleet(hosts=(host("ant", (24, 24)),), profiles=(profile("c", 2, max_per_host=2),))
    assert [s.action.kind for s in steps(fleet, fleet.plan())] == ["load", "warm", "warm"]


def test_part_of_an_artifact_is_not_an_artifact() -> None:
    one = config("q4", 10)
    split = replace(
        one.artifact, files=(*one.artifact.files, replace(one.artifact.files[0], path="b", sha256=digest("b")))
    )
    fleet = Fleet(hosts=HOSTS, profiles=(profile("c", configs=(replace(one, artifact=split),)),))
    half = fleet.reporting("ant", cached=(digest("q4"),))
    (load, _) = steps(half, half.plan())
    assert isinstance(load.action, Load)
    assert len(load.action.artifact.files) == 2


@pytest.mark.parametrize("coming", [ResidencyState.LOADING, ResidencyState.WARMING, ResidencyState.READY])
def test_what_is_there_or_on_its_way_needs_nothing(coming: ResidencyState) -> None:
    fleet = alter(converged(profile("c")), "c/1", state(coming))
    assert steps(fleet, fleet.plan()) == ()


def test_a_process_on_other_devices_or_of_another_command_is_not_it() -> None:
    fleet = converged(profile("c", gib=18), hosts=(host("ant", (24, 24)),))
    made = fleet.plan()
    elsewhere = alter(fleet, "c/1", lambda r: replace(r, devices=("gpu1",)))
    assert told(steps(elsewhere, made))[0] == "warm c/1 ant"
    other = alter(fleet, "c/1", lambda r: replace(r, identity=digest("other")))
    assert told(steps(other, made))[0] == "warm c/1 ant: memory on gpu0, held by c/1 (ready)"


SILENT = {
    "stale": lambda f: f.reporting("ant", observed_ms=NOW - 90_001),
    "from the future": lambda f: f.reporting("ant", observed_ms=NOW + 30_001),
    "goodbye": lambda f: f.reporting("ant", goodbye=True),
    "no key": lambda f: f.but(keys=()),
    "expunged": lambda f: f.but(keys=(HostKey(host=HostId("ant"), key="k", expunged=True),)),
}


@pytest.mark.parametrize("name", SILENT)
def test_no_step_for_a_host_that_cannot_be_reached_or_trusted(name: str) -> None:
    fleet = Fleet(hosts=HOSTS[:1], profiles=(profile("c"),))
    made = fleet.plan()
    assert steps(SILENT[name](fleet), made) == ()
    ready = fleet.applied(made)
    gone = ready.but(profiles=()).plan()
    assert steps(SILENT[name](ready), gone) == ()


CLOSED = {
    "drained": lambda f: drained(f, "ant"),
    "paused": lambda f: f.reporting("ant", state=HostState.PAUSED),
    "draining itself": lambda f: f.reporting("ant", state=HostState.DRAINING),
    "quarantined": lambda f: f.reporting("ant", state=HostState.QUARANTINED),
}


@pytest.mark.parametrize("name", CLOSED)
def test_nothing_is_started_on_a_host_that_is_closed(name: str) -> None:
    fleet = Fleet(hosts=HOSTS[:1], profiles=(profile("c"),))
    assert steps(CLOSED[name](fleet), fleet.plan()) == ()


def test_a_throttled_host_may_start_what_was_planned() -> None:
    fleet = Fleet(hosts=HOSTS[:1], profiles=(profile("c"),))
    assert told(steps(fleet.reporting("ant", state=HostState.THROTTLED), fleet.plan())) == [
        "load c/1 ant",
        "warm c/1 ant: its artifact",
    ]


def test_a_move_makes_before_it_breaks() -> None:
    fleet = drained(converged(profile("c")), "ant")
    made = fleet.plan()
    assert told(steps(fleet, made)) == [
        "load c/1 bee",
        "warm c/1 bee: its artifact",
        "drain c/1 ant: c/1 to be ready on bee",
    ]
    starting = running(made.placement[0], made, ResidencyState.WARMING)
    half = fleet.reporting("bee", residencies=(starting,))
    assert told(steps(half, made)) == ["drain c/1 ant: c/1 to be ready on bee"]
    ready = fleet.reporting("bee", residencies=(replace(starting, state=ResidencyState.READY),))
    (drain,) = steps(ready, made)
    assert isinstance(drain.action, Drain)
    assert (drain.waits_for, drain.action.grace_ms, drain.action_class) == (None, 120_000, ActionClass.REPAIR)
    paused = ready.reporting("bee", state=HostState.PAUSED)
    assert told(steps(paused, made)) == ["drain c/1 ant: c/1 to be ready on bee"]


@pytest.mark.parametrize("coming", [ResidencyState.LOADING, ResidencyState.WARMING])
def test_what_comes_back_is_kept_until_what_takes_its_place_serves(coming: ResidencyState) -> None:
    """It died and its host starts it again, so it may serve sooner; what never served is not waited for."""
    fleet = drained(converged(profile("c")), "ant")
    made = fleet.plan()
    back = alter(fleet, "c/1", state(coming, restarts=1))
    assert told(steps(back, made))[-1] == "drain c/1 ant: c/1 to be ready on bee"
    first = alter(fleet, "c/1", state(coming, restarts=0))
    assert "drain c/1 ant" in told(steps(first, made))


def test_what_is_planned_and_not_there_is_told_from_what_is() -> None:
    fleet = converged(profile("c", 2))
    desired = fleet.inputs().intent.desired
    assert fleet.parent is not None
    assert unseen(fleet.parent, fleet.snapshot(), fleet.now, desired) == ()
    failed = alter(fleet, "c/2", state(ResidencyState.FAILED))
    assert unseen(fleet.parent, failed.snapshot(), fleet.now, desired) == ("c/2",)
    assert unseen(fleet.parent, fleet.snapshot(), fleet.now + 3_600_000, desired) == ("c/1", "c/2")


def test_a_drained_process_is_stopped_once_it_is_idle() -> None:
    fleet = converged(profile("c"))
    gone = fleet.but(profiles=())
    made = gone.plan()
    assert told(steps(gone, made)) == ["drain c/1 ant"]
    busy = alter(gone, "c/1", state(ResidencyState.DRAINING, in_flight=2))
    assert told(steps(busy, made)) == ["unload c/1 ant: 2 requests in flight"]
    (unload,) = steps(alter(gone, "c/1", state(ResidencyState.DRAINING)), made)
    assert isinstance(unload.action, Unload)
    assert (unload.waits_for, unload.action.force, unload.action_class) == (None, False, ActionClass.REMOVE)


def test_surplus_goes_only_when_as_many_as_are_wanted_serve() -> None:
    fleet = converged(profile("c", 2)).but(profiles=(profile("c", 1),))
    made = fleet.plan()
    assert told(steps(fleet, made)) == ["drain c/2 bee"]
    assert steps(fleet, made)[0].action_class is ActionClass.SCALE_DOWN
    late = alter(fleet, "c/1", state(ResidencyState.WARMING))
    assert told(steps(late, made)) == ["drain c/2 bee: c/1 to be ready"]
    sick = alter(fleet, "c/2", state(ResidencyState.WARMING))
    assert told(steps(sick, made)) == ["drain c/2 bee"], "what does not serve is not missed"


def test_two_surplus_replicas_do_not_vouch_for_each_other() -> None:
    fleet = converged(profile("c", 3)).but(profiles=(profile("c", 1),))
    made = fleet.plan()
    late = alter(fleet, "c/1", state(ResidencyState.WARMING))
    assert told(steps(late, made)) == ["drain c/2 bee", "drain c/3 cat: c/1 to be ready"]


def test_a_copy_too_many_goes_where_somebody_waits_for_its_room() -> None:
    """Two that serve twice each stand in each other's way (after a journal was restored): neither could begin."""
    once, target = crossed(18)
    assert "drain c/1 ant: c/1 to be ready on bee" in told(steps(once, target)), "the only one that serves stays"
    assert drains(steps(and_again(once), target)) == [
        "drain c/1 ant",
        "drain c/1 cat: c/1 to be ready on bee",
        "drain d/1 bee",
        "drain d/1 dog: d/1 to be ready on ant",
    ]
    roomy, target = crossed(8)
    assert all(": " in line for line in drains(steps(and_again(roomy), target))), "nobody waits for its room"


def crossed(gib: float) -> tuple[Fleet, Plan]:
    """c/1 runs on ant and d/1 on bee, and the plan asks for the other way round."""
    pinned = {name: PlacementRules(pins=(seat.id,)) for name, seat in zip("cd", HOSTS, strict=False)}
    apart = [profile(name, gib=gib, placement=where) for name, where in pinned.items()]
    fleet = converged(*apart, hosts=(*HOSTS, host("dog")))
    for name in ("ant", "bee"):
        fleet = fleet.reporting(name, cached=(digest("c-q4"), digest("d-q4")))
    made = fleet.plan()
    one, two = made.placement
    return fleet, replace(made, placement=(replace(one, seat=two.seat), replace(two, seat=one.seat)))


def and_again(fleet: Fleet) -> Fleet:
    """Each of the two runs once more, on a host of its own."""
    for name, spare in (("ant", "cat"), ("bee", "dog")):
        seen = fleet.snapshot().host(HostId(name))
        assert seen is not None
        (now,) = seen.residencies
        fleet = fleet.reporting(spare, residencies=(replace(now, incarnation=digest(f"again {name}")),))
    return fleet


def drains(found: tuple[Step, ...]) -> list[str]:
    return [line for line in told(found) if line.startswith("drain")]


def test_who_was_told_to_end_vouches_for_nobody_whatever_its_host_reported_last() -> None:
    fleet = converged(profile("c", 3)).but(profiles=(profile("c", 1),))
    made = fleet.plan()
    broken = alter(fleet, "c/1", state(ResidencyState.FAILED))
    told_to = {r.replica: r.incarnation for seen in broken.snapshot().hosts for r in seen.residencies}
    for gone, other in (("c/2", "c/3 cat"), ("c/3", "c/2 bee")):
        ending = frozenset(i for replica, i in told_to.items() if replica == gone and i is not None)
        assert f"drain {other}: c/1 to be ready" in told(steps(broken, made, ending=ending))
        assert f"drain {other}" in told(steps(fleet, made, ending=ending)), "the one that stays suffices"


def test_what_takes_a_place_counts_only_while_it_was_not_told_to_end() -> None:
    fleet = drained(converged(profile("c")), "ant")
    made = fleet.plan()
    there = running(made.placement[0], made)
    both = fleet.reporting("bee", residencies=(there,))
    assert there.incarnation is not None
    assert told(steps(both, made)) == ["drain c/1 ant"]
    ending = frozenset({there.incarnation})
    assert told(steps(both, made, ending=ending)) == ["drain c/1 ant: c/1 to be ready on bee"]


def rollout(gib: float, replicas: int = 1, **more: Any) -> tuple[Fleet, Plan]:
    """A fleet that runs the old command, and the plan for the new one, whose weights are there."""
    old = profile("c", replicas, gib=gib, **more)
    fleet = converged(old, hosts=HOSTS[: max(1, replicas)])
    fleet = fleet.but(profiles=(replace(old, configs=(replace(old.configs[0], context=8192),)),))
    return fleet, fleet.plan()


def test_a_change_with_room_for_two_starts_beside_the_old_one() -> None:
    fleet, made = rollout(8)
    assert told(steps(fleet, made)) == ["warm c/1 ant", "drain c/1 ant: c/1 to be ready on ant"]


def test_a_change_without_room_breaks_first_where_downtime_is_allowed() -> None:
    fleet, made = rollout(18)
    assert told(steps(fleet, made)) == ["warm c/1 ant: memory on gpu0, held by c/1 (ready)", "drain c/1 ant"]
    draining = alter(fleet, "c/1", state(ResidencyState.DRAINING))
    assert told(steps(draining, made)) == ["warm c/1 ant: memory on gpu0, held by c/1 (draining)", "unload c/1 ant"]
    free = fleet.reporting("ant", residencies=())
    assert told(steps(free, made)) == ["warm c/1 ant"]


def test_nobody_is_stopped_for_room_that_a_process_on_its_way_out_will_give_back() -> None:
    """The plan counted on that room: it said of no gap, and an engine that does not end is no reason for one."""
    fleet, made = rollout(8)
    (now,) = fleet.snapshot().host(HostId("ant")).residencies  # type: ignore[union-attr]
    before = replace(now, incarnation=digest("before"), state=ResidencyState.DRAINING, detail="release_stuck")
    stuck = fleet.reporting("ant", residencies=(now, before))
    assert told(steps(stuck, made)) == [
        "warm c/1 ant: memory on gpu0, held by c/1 (draining), c/1 (ready)",
        "unload c/1 ant",
        "drain c/1 ant: c/1 to be ready on ant",
    ]


def test_a_target_that_would_break_is_not_carried_out_where_downtime_is_refused() -> None:
    fleet, made = rollout(18)
    terms = tuple(replace(t, downtime=Downtime.NEVER) for t in made.terms)
    assert told(steps(fleet, replace(made, terms=terms)))[1] == "drain c/1 ant: c/1 to be ready on ant"


def test_a_rollout_breaks_one_replica_at_a_time() -> None:
    fleet, made = rollout(18, 2)
    assert told(steps(fleet, made)) == [
        "warm c/1 ant: memory on gpu0, held by c/1 (ready)",
        "warm c/2 bee: memory on gpu0, held by c/2 (ready)",
        "drain c/1 ant",
        "drain c/2 bee: c/2 to be ready on bee",
    ]
    one_down = alter(fleet, "c/1", state(ResidencyState.DRAINING))
    assert "drain c/2 bee: c/2 to be ready on bee" in told(steps(one_down, made))
    half = Walk(fleet, made).run()
    order = [line for line in half.taken if line.startswith(("drain", "warm"))]
    assert order == ["drain c/1 ant", "warm c/1 ant", "drain c/2 bee", "warm c/2 bee"]


def test_starts_on_one_device_add_up() -> None:
    """Both new ones fit beside the old one alone, but not together."""
    fleet = converged(profile("old", gib=8), hosts=HOSTS[:1])
    fleet = fleet.but(profiles=(profile("a", gib=8, priority=200), profile("b", gib=8)))
    fleet = fleet.reporting("ant", cached=(digest("a-q4"), digest("b-q4"), digest("old-q4")))
    assert told(steps(fleet, fleet.plan()))[:2] == [
        "warm a/1 ant",
        "warm b/1 ant: memory on gpu0, held by old/1 (ready)",
    ]


def test_host_memory_is_waited_for_like_any_device() -> None:
    heavy = profile("old", configs=(config("o", 2, host_gib=5),))
    fleet = converged(heavy, hosts=(host("ant", (24, 24), ram=9),))
    after = fleet.but(profiles=(profile("new", configs=(config("n", 2, host_gib=5),)),)).reporting(
        "ant", cached=(digest("n"),)
    )
    assert told(steps(after, after.plan()))[0] == "warm new/1 ant: memory on cpu0, held by old/1 (ready)"


def test_a_slot_and_other_company_are_waited_for() -> None:
    fleet = converged(profile("old", gib=4), hosts=(host("ant", max_replicas=1),))
    after = fleet.but(profiles=(profile("new", gib=4),)).reporting("ant", cached=(digest("new-q4"), digest("old-q4")))
    assert told(steps(after, after.plan()))[0] == "warm new/1 ant: a slot: 1 of at most 1 residency there"
    roomy = converged(profile("old", gib=4), hosts=HOSTS[:1])
    picky = profile("new", gib=4, colocation=Colocation(exclude=(ProfileName("old"),)))
    apart = roomy.but(profiles=(picky,)).reporting("ant", cached=(digest("new-q4"), digest("old-q4")))
    assert told(steps(apart, apart.plan()))[0].startswith("warm new/1 ant: other company: old is there")


def test_a_failed_process_at_its_seat_waits_for_somebody_to_look() -> None:
    fleet = alter(converged(profile("c"), hosts=HOSTS[:1]), "c/1", state(ResidencyState.FAILED, detail="no kernel"))
    made = fleet.plan()
    assert told(steps(fleet, made)) == ["warm c/1 ant: somebody to look: it failed (no kernel)"]
    again = steps(fleet, made, retry=frozenset({ReplicaId("c/1")}))
    assert told(again) == ["warm c/1 ant: its former process (failed)", "unload c/1 ant"]


def test_a_failed_process_that_is_not_wanted_is_cleared_away() -> None:
    fleet = alter(converged(profile("c")), "c/1", state(ResidencyState.FAILED))
    made = fleet.plan()
    assert "unload c/1 ant" in told(steps(fleet, made))


def test_what_nobody_can_vouch_for_is_left_alone() -> None:
    fleet = alter(converged(profile("c")), "c/1", state(ResidencyState.UNKNOWN))
    assert told(steps(fleet, fleet.plan())) == ["warm c/1 ant: its former process (unknown)"]
    gone = fleet.but(profiles=())
    assert steps(gone, gone.plan()) == ()


def test_foreign_engines_are_never_touched() -> None:
    """Also when one is said to be a replica of ours: only what its agent started and can prove is."""
    fleet = alter(converged(profile("c"), hosts=HOSTS[:1]), "c/1", lambda r: replace(r, ownership=Ownership.EXTERNAL))
    gone = fleet.but(profiles=())
    assert steps(gone, gone.plan()) == ()


def test_a_process_that_drains_is_not_called_back_but_started_anew() -> None:
    fleet = alter(converged(profile("c"), hosts=HOSTS[:1]), "c/1", state(ResidencyState.DRAINING, in_flight=1))
    assert told(steps(fleet, fleet.plan())) == [
        "warm c/1 ant: its former process (draining)",
        "unload c/1 ant: 1 request in flight",
    ]


def test_terms_reach_the_host_when_they_are_known_to_differ() -> None:
    fleet = converged(profile("c"))
    (residency,) = next(h.residencies for h in fleet.snapshot().hosts if h.host == "ant")
    incarnation = residency.incarnation
    assert incarnation is not None
    changed = fleet.but(profiles=(replace(profile("c"), serves=("chat",), restart=Restart(max=9)),))
    made = changed.plan()
    (step,) = steps(changed, made, applied_terms={incarnation: terms_of(profile("c"))})
    assert isinstance(step.action, Operate)
    assert (step.action.serves, step.action.restart.max) == (("c", "chat"), 9)
    assert steps(changed, made, applied_terms={incarnation: made.terms[0]}) == ()
    assert steps(changed, made) == (), "what a host acts by is not guessed"


def test_a_renamed_replica_keeps_its_process_and_gets_its_label() -> None:
    fleet = converged(profile("old"))
    new = profile("new", configs=profile("old").configs, renamed_from=ProfileName("old"))
    renamed = fleet.but(profiles=(new,))
    made = renamed.plan()
    (step,) = steps(renamed, made)
    assert isinstance(step.action, Operate)
    assert (step.action.replica, step.action.profile, step.action.serves) == ("new/1", "new", ("new",))
    assert Walk(renamed, made).run().taken == ["operate new/1 ant"]


def test_a_renamed_and_changed_replica_is_made_before_the_old_one_breaks() -> None:
    fleet = converged(profile("old", gib=8))
    new = profile(
        "new", configs=(config("old-q4", 8, context=9),), renamed_from=ProfileName("old"), downtime=Downtime.NEVER
    )
    renamed = fleet.but(profiles=(new,))
    assert told(steps(renamed, renamed.plan())) == ["warm new/1 ant", "drain old/1 ant: new/1 to be ready on ant"]


def test_important_replicas_come_first() -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(profile("a", gib=18, priority=1), profile("z", gib=18, priority=9)))
    assert [s.replica for s in steps(fleet, fleet.plan())] == ["z/1", "z/1", "a/1", "a/1"]


def test_a_host_that_left_the_files_is_still_emptied_while_its_key_stands() -> None:
    fleet = converged(profile("c"))
    seen = fleet.snapshot().host(HostId("ant"))
    assert seen is not None
    keys = tuple(HostKey(host=h.id, key="k") for h in fleet.hosts)
    without = fleet.but(hosts=HOSTS[1:], keys=keys, strangers=(seen,))
    made = without.plan()
    assert told(steps(without, made))[-1] == "drain c/1 ant: c/1 to be ready on bee"


def test_keeping_what_stands_is_repair() -> None:
    fleet = converged(profile("c"))
    quiet = fleet.plan()
    assert quiet.to_do == ()
    (warm,) = steps(fleet.reporting("ant", residencies=()), quiet)
    assert (warm.action.kind, warm.action_class) == ("warm", ActionClass.REPAIR)


def test_without_an_intent_every_host_that_reports_counts() -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(profile("c"),))
    found = actions(fleet.plan(), fleet.snapshot(), NOW)
    assert [s.action.kind for s in found] == ["load", "warm"]


def test_gpu_work_waits_for_its_share_of_shared_memory_although_the_pool_has_room() -> None:
    """40 GiB, half of them for GPU work: 15 leave and 10 come. Both fit the memory, not the share."""
    mac = laptop("mac", devices=(device("unified0", 40, gpu_share_ppm=500_000),))
    old = profile("c", configs=(config("c", 15, backends=("metal",)),))
    new = profile("d", configs=(config("d", 10, backends=("metal",)),))
    before = converged(old, hosts=(mac,))
    fleet = before.but(profiles=(new,)).reporting("mac", cached=(digest("d"),))
    assert told(steps(fleet, fleet.plan())) == [
        "warm d/1 mac: memory on unified0, held by c/1 (ready)",
        "drain c/1 mac",
    ]


def test_work_on_the_cpu_needs_no_share_of_it() -> None:
    both = tuple(Runtime(engine=EngineName("llama.cpp"), backend=b) for b in ("cpu", "metal"))
    mac = laptop("mac", devices=(device("unified0", 40, gpu_share_ppm=500_000),), runtimes=both)
    old = profile("c", configs=(config("c", 15, backends=("metal",)),))
    new = profile("d", configs=(config("d", 10, backends=("cpu",)),))
    fleet = converged(old, hosts=(mac,)).but(profiles=(old, new)).reporting("mac", cached=(digest("d"),))
    assert told(steps(fleet, fleet.plan())) == ["warm d/1 mac"]
