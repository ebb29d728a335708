"""The checker notices what a plan says falsely about itself: inputs, read set, terms, numbers, claims, class and cause.

Like `test_check`, one tampering per rule; these are the rules that bind approvals, hosts and later plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import HostId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.model.plan import Cause, CauseKind, Change, DecisionKind, HostLine, Plan, Retirement
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Downtime, Footprint, FootprintSource, Heads
from gridops.model.snapshot import SnapshotSource
from gridops.planner.check import check
from gridops.planner.planner import plan
from tests.planner.fleet import GIB, NOW, Fleet, config, digest, host, profile
from tests.planner.test_check import BASE, BROKEN, GONE, MANY, MOVED, SCALED, Lie, assignment, decision, wants
from tests.planner.test_check import after as changed
from tests.planner.test_room import HIGH, LOW, standing
from tests.planner.test_room import wants as and_also

MISSING = BASE.but(profiles=(profile("c", 3), profile("d")))
RENAMED = changed(replace(BASE.profiles[0], name=ProfileName("b"), renamed_from=ProfileName("c")), BASE.profiles[1])
KEPT = changed(*BASE.profiles)
PREEMPTED = and_also(standing(LOW), HIGH)
SILENT = MANY.applied(MANY.plan())
for name in ("h1", "h2", "h3"):
    SILENT = SILENT.reporting(name, observed_ms=NOW - 100_000)


RENAMED_TWICE = changed(
    replace(BASE.profiles[0], name=ProfileName("b"), renamed_from=ProfileName("c"), replicas_min=2),
    BASE.profiles[1],
    start=BASE.but(profiles=(replace(BASE.profiles[0], replicas_min=2), BASE.profiles[1])),
)
REPLACED = changed(profile("c", configs=(config("c-q4", 10, weights="other"),)), *BASE.profiles[1:])


def change(field: str, old: str, new: str) -> Change:
    return Change(field=field, old=old, new=new)


def altered(field: str, old: str, new: str) -> Callable[[Plan], Plan]:
    """One line of the first decision is another."""
    return lambda p: decision(
        p, 1, changes=tuple(change(field, old, new) if c.field == field else c for c in p.decisions[0].changes)
    )


def torn(made: Plan) -> Plan:
    """Every decision stands for itself."""
    return replace(made, decisions=tuple(replace(d, change_set=d.n) for d in made.decisions))


def told(made: Plan, **more: Any) -> Plan:
    return replace(made, report=replace(made.report, **more))


def unplaced(**more: Any) -> Callable[[Plan], Plan]:
    return lambda p: told(p, unplaced=(replace(p.report.unplaced[0], **more),))


def because(kind: CauseKind) -> Callable[[Plan], Plan]:
    return lambda p: decision(p, 1, cause=Cause(kind=kind, detail="x"))


def with_footprint(**more: Any) -> Fleet:
    """`c` in one config whose footprint has all of these parts."""
    print_ = Footprint(**{"source": FootprintSource.DECLARED, "device_bytes": 4 * GIB, "host_bytes": GIB, **more})
    one = config("c-q4", footprint=print_, context=4096, lanes=3, heads=Heads(attention=32, kv=8))
    return BASE.but(profiles=(profile("c", configs=(one,)),))


LIES: dict[str, Lie] = {
    # What it was made from
    "another version of the document": Lie("of version 2", lambda p: replace(p, v=2)),
    "another fleet": Lie("plan's fleet", lambda p: replace(p, fleet=digest("x"))),
    "another scope": Lie("plan's scope", lambda p: replace(p, scope=ScopeName("lab"))),
    "another moment": Lie("plan's moment", lambda p: replace(p, created_ms=p.created_ms + 1)),
    "another commit": Lie("plan's commit", lambda p: replace(p, intent=replace(p.intent, commit="ab"))),  # type: ignore[arg-type]
    "stored state that calls itself live": Lie(
        "plan's source", lambda p: replace(p, snapshot=replace(p.snapshot, source=SnapshotSource.STATE))
    ),
    "a younger snapshot": Lie(
        "plan's moment of the snapshot", lambda p: replace(p, snapshot=replace(p.snapshot, observed_ms=NOW + 1))
    ),
    "an empty set in silence": Lie(
        "plan's empty sets", lambda p: replace(p, intent=replace(p.intent, empty=())), BASE.but(profiles=())
    ),
    "a profile that was not read": Lie(
        "plan's read set", lambda p: replace(p, reads=replace(p.reads, profiles=p.reads.profiles[1:]))
    ),
    "a profile as it is now": Lie("plan's read set", truth=wants(priority=7)),
    "a host that was not read": Lie(
        "plan's read set", lambda p: replace(p, reads=replace(p.reads, hosts=p.reads.hosts[1:]))
    ),
    "a host as it is now": Lie("plan's read set", truth=lambda f: f.reporting("ant", generation=7)),
    # Terms
    "terms of no file": Lie(
        "terms of c are not", lambda p: replace(p, terms=(replace(p.terms[0], downtime=Downtime.NEVER), *p.terms[1:]))
    ),
    "terms of nobody": Lie(
        "terms of x are not", lambda p: replace(p, terms=(*p.terms, replace(p.terms[0], profile=ProfileName("x"))))
    ),
    "terms twice": Lie("hold a profile twice", lambda p: replace(p, terms=(p.terms[0], *p.terms))),
    "a profile without terms": Lie("d has no terms", lambda p: replace(p, terms=p.terms[:1])),
    # Numbers and the report
    "a number that leaves one out": Lie(
        "c/3 is new although c/1 is free",
        lambda p: replace(p, placement=(replace(p.placement[0], replica=ReplicaId("c/3")), *p.placement[1:])),
    ),
    "another count of who stays": Lie("counts other replicas", lambda p: told(p, unchanged=9)),
    "many silent hosts without a note": Lie("no note says so", lambda p: told(p, notes=()), SILENT),
    "nearest to nowhere": Lie("which is not declared", unplaced(nearest=HostId("x")), MISSING),
    "for a reason that is none": Lie("which is no reason", unplaced(code="GO599"), MISSING),
    "for want of what is there": Lie(
        "is said to need 5 bytes on ant",
        unplaced(
            hosts=tuple(
                HostLine(host=HostId("ant"), code="GO521", detail="x", need=5, have=5, unit="bytes") for _ in "x"
            )
        ),
        MISSING,
    ),
    "the retirement of somebody unknown": Lie(
        "nobody knows it", lambda p: replace(p, retirements=(Retirement(profile=ProfileName("x"), since_ms=0),))
    ),
    # What replicas take
    "less than it needs": Lie("needed", lambda p: assignment(p, "c/1", device_bytes=GIB)),
    "less RAM than it needs": Lie("needed", truth=wants(configs=(config("c-q4", 10, host_gib=1),))),
    "less than it took": Lie("and than it took", lambda p: assignment(p, "c/1", device_bytes=GIB), KEPT),
    "less than its process was started with": Lie(
        "than its process was started with",
        lambda p: assignment(p, "c/1", device_bytes=4 * GIB),
        KEPT.but(profiles=(profile("c", gib=4), *BASE.profiles[1:])),
    ),
    "what nobody knows": Lie(
        "nobody knows what it takes",
        truth=wants(configs=(config("c-q4", footprint=Footprint(source=FootprintSource.UNKNOWN)),)),
    ),
    # Class, risk and cause
    "another change than the command's": Lie("says of context", altered("context", "4096", "8192"), BROKEN),
    "a change that is none": Lie(
        "says of lanes", lambda p: decision(p, 1, changes=(*p.decisions[0].changes, change("lanes", "1", "2"))), BROKEN
    ),
    "a change in silence": Lie("says of context", lambda p: decision(p, 1, changes=()), BROKEN),
    "an argument that is not there": Lie(
        "says of args.x", lambda p: decision(p, 1, changes=(*p.decisions[0].changes, change("args.x", "", "1"))), BROKEN
    ),
    "other files in silence": Lie("says of its files", lambda p: decision(p, 1, changes=()), REPLACED),
    "an arrival torn from who makes room": Lie("another one gives it up", torn, PREEMPTED),
    "a rename in two steps": Lie("b gets its new name in 2", torn, RENAMED_TWICE),
    "called a repair": Lie("is called repair", lambda p: decision(p, 1, action_class=ActionClass.REPAIR)),
    "a removal called a rollout": Lie(
        "is called rollout", lambda p: decision(p, 1, action_class=ActionClass.ROLLOUT), SCALED
    ),
    "disruption called routine": Lie("is called routine", lambda p: decision(p, 1, risk=Risk.ROUTINE), MOVED),
    "downtime called routine": Lie("is called routine", lambda p: decision(p, 1, risk=Risk.ROUTINE), BROKEN),
    "routine called destructive": Lie("is called destructive", lambda p: decision(p, 1, risk=Risk.DESTRUCTIVE)),
    "a drain of nobody": Lie("h0 is not drained", truth=lambda f: f.but(drains=()), fleet=MOVED),
    "the loss of a host that is there": Lie(
        "h0 is there", because(CauseKind.HOST_LOST), MOVED, lambda f: f.but(drains=())
    ),
    "a demand that nobody foresees": Lie("no forecast speaks of c", because(CauseKind.DEMAND)),
    "an end of what is placed": Lie("removes nothing", lambda p: decision(p, 1, last_replica=True)),
    "a decision about somebody else": Lie("said to be about d", lambda p: decision(p, 1, profile=ProfileName("d"))),
    "a rename in silence": Lie("by which name", lambda p: decision(p, 1, changes=()), RENAMED),
    "giving way to nobody": Lie(
        "nobody who matters more",
        fleet=PREEMPTED,
        truth=lambda f: f.but(profiles=tuple(replace(p, priority=50) for p in f.profiles)),
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_the_checker_notices(name: str) -> None:
    lie = LIES[name]
    inputs = lie.fleet.inputs()
    made = plan(inputs)
    assert check(made, inputs) == (), "clean before it is tampered with"
    notes = check(lie.tell(made), lie.truth(lie.fleet).inputs())
    assert any(lie.says in note for note in notes), notes


@pytest.mark.parametrize(
    "parts",
    [
        {"kv_per_1k_bytes": 300 << 20},
        {"fixed_per_sequence_bytes": 11 << 20},
        {"spike_per_lane_bytes": 7 << 20},
        {"source": FootprintSource.DERIVED, "device_bytes": None, "host_bytes": None},
        {"source": FootprintSource.DERIVED, "device_bytes": None, "kv_per_1k_bytes": 1 << 20},
    ],
    ids=lambda parts: " ".join(parts),
)
def test_what_a_replica_takes_is_summed_a_second_time(parts: dict[str, Any]) -> None:
    """Every part of a footprint counts: a byte less is noticed, and so is a byte more."""
    fleet = with_footprint(**parts)
    inputs = fleet.inputs()
    made = plan(inputs)
    assert check(made, inputs) == ()
    (seat,) = made.placement
    for wrong in (-1, 1):
        notes = check(assignment(made, "c/1", device_bytes=seat.device_bytes + wrong), inputs)
        assert any("needed" in note for note in notes)


def test_an_end_of_a_profile_that_is_gone_stays_a_removal() -> None:
    inputs = GONE.inputs()
    made = plan(inputs)
    assert made.decisions[0].action_class is ActionClass.REMOVE
    assert check(made, inputs) == ()


def test_what_a_new_footprint_frees_is_nobodys_to_give_up() -> None:
    """Files that say less of who stands there make room once it was started by them, in a change set of its own."""
    large = Fleet(hosts=(host("h0"),), profiles=(profile("c", gib=20),))
    start = large.applied(large.plan())
    smaller = start.but(profiles=(profile("c", gib=10), profile("d", gib=10)))
    assert [d.kind for d in smaller.plan().decisions] == [DecisionKind.CANNOT_PLACE], "its host counts all of it"
    made = smaller.restarted("c/1", 10).plan()
    assert [(d.kind, d.replica) for d in made.decisions] == [(DecisionKind.PLACE, ReplicaId("d/1"))]


def test_who_leaves_counts_no_more_than_its_footprint_of_today() -> None:
    """One of the small ones goes and another profile comes: they need nothing of each other."""
    large = Fleet(hosts=(host("h0"),), profiles=(profile("c", gib=8), profile("e", gib=12)))
    start = large.applied(large.plan())
    smaller = start.but(profiles=(profile("c", 0, gib=8), profile("e", gib=4), profile("d", gib=8)))
    made = smaller.restarted("e/1", 4).plan()
    assert len({d.change_set for d in made.decisions}) == 2


def test_what_runs_already_where_it_is_placed_needs_no_room() -> None:
    """It runs there and no plan knew it: that its host is too full is reported, and is no change set's fault."""
    both = Fleet(hosts=(host("h0"),), profiles=(profile("c", gib=12), profile("d", gib=10)))
    full = both.applied(both.plan())
    assert full.parent is not None
    known = tuple(a for a in full.parent.placement if a.profile == "c")
    commands = {a.launch for a in known}
    parent = replace(
        full.parent,
        placement=known,
        launches=tuple(n for n in full.parent.launches if digest_of(n) in commands),
        terms=tuple(t for t in full.parent.terms if t.profile == "c"),
    )
    grown = full.but(parent=parent, profiles=(profile("c", gib=12), profile("d", gib=14)))
    made = grown.plan()
    assert [(d.kind, d.replica) for d in made.decisions] == [(DecisionKind.PLACE, ReplicaId("d/1"))]


def test_an_arrival_torn_from_who_gives_up_another_command_is_noticed() -> None:
    """Nobody's file knows the old command any more: it counts as it was, whether its profile goes on or is gone."""
    start = Fleet(hosts=(host("h0"),), profiles=(profile("c", gib=18),))
    start = start.applied(start.plan())
    smaller = profile("c", configs=(config("c-q4", 4, context=8192),))
    for mine in ((smaller,), ()):
        fleet = start.but(profiles=(*mine, profile("n", gib=12)))
        made = plan(fleet.inputs())
        assert len({d.change_set for d in made.to_do}) == 1
        notes = check(torn(made), fleet.inputs())
        assert any("another one gives it up" in note for note in notes), mine


def test_a_device_that_was_too_full_before_is_no_change_sets_fault() -> None:
    """Who stands on the smaller device is of a profile that is gone, and leaves in a change set of its own."""
    start = Fleet(hosts=(host("h0", (24, 24)),), profiles=(profile("g", gib=22),))
    start = start.applied(start.plan())
    (there,) = start.parent.placement if start.parent is not None else ()
    sizes = (20, 24) if there.seat.devices == ("gpu0",) else (24, 20)
    made = start.but(hosts=(host("h0", sizes),), reports={}, profiles=(profile("n", gib=21),)).plan()
    assert sorted(d.kind for d in made.to_do) == [DecisionKind.PLACE, DecisionKind.REMOVE]
    assert len({d.change_set for d in made.to_do}) == 2
