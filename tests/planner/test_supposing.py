"""What is asked as if another plan were in force: what was said beside the old one is not said of it."""

from __future__ import annotations

from dataclasses import replace

from gridops.base.ids import HostId, ReplicaId, short
from gridops.model.plan import Cause, CauseKind, Change, Plan, Seat
from gridops.planner.check import check
from gridops.planner.planner import Inputs, plan
from gridops.planner.world import GivenUp, Stray, supposing
from tests.planner.fleet import Fleet, config, decisions, profile
from tests.planner.settled import HOSTS, converged

C1, D1 = ReplicaId("c/1"), ReplicaId("d/1")
STILL = Cause(kind=CauseKind.INTENT, detail="still runs on ant, and c/1 stands on ant")
GONE = Cause(kind=CauseKind.UNHEALTHY, detail="restart on ant: failed once")


def made_from(inputs: Inputs) -> Plan:
    made = plan(inputs)
    assert check(made, inputs) == ()
    return made


def taken_back() -> Inputs:
    """A context was changed and changed back; the process of before still runs, and d/1 was given up."""
    fleet = converged(profile("c"), profile("d"), hosts=HOSTS[:1])
    (process,) = (r for r in fleet.snapshot().hosts[0].residencies if r.replica == C1)
    other = profile("c", configs=(config("c-q4", context=2048),))
    changed = fleet.but(profiles=(other, fleet.profiles[1]))
    inputs = fleet.but(parent=changed.plan()).reporting("ant", residencies=(process,)).inputs()
    assert process.incarnation is not None
    ended = Change(field="process", old=f"ant {short(process.incarnation)}", new="ended")
    return replace(
        inputs,
        strays=(Stray(C1, process.profile, Seat(host=HostId("ant"), devices=process.devices), STILL, (ended,)),),
        given_up=(GivenUp(D1, GONE, Change(field="process", old="failed 1234", new="started again")),),
    )


def test_what_a_plan_takes_up_again_is_not_ended_by_the_next() -> None:
    inputs = taken_back()
    first = made_from(inputs)
    assert decisions(first) == ["place d/1 -> ant", "change c/1 ant -> ant"]
    then = made_from(supposing(inputs, first))
    assert then.placement == first.placement
    assert decisions(then) == [], "the first has decided about everything"


def test_what_is_being_started_goes_on_where_the_other_plan_leaves_it() -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(profile("c"), profile("d")))
    first = fleet.plan()
    asked = replace(fleet.but(parent=first).inputs(), under_way=frozenset({C1, D1}))
    moved = tuple(
        replace(a, seat=replace(a.seat, host=HostId("cat"))) if a.replica == D1 else a for a in first.placement
    )
    assert supposing(asked, first).under_way == {C1, D1}
    assert supposing(asked, replace(first, placement=moved)).under_way == {C1}
    assert supposing(asked, None).under_way == frozenset()


def test_nor_does_a_proposal_of_before_say_anything() -> None:
    fleet = converged(profile("c"), hosts=HOSTS[:1])
    waits = replace(fleet.inputs(), waiting=fleet.parent)
    then = supposing(waits, fleet.parent)
    assert (then.waiting, then.given_up, then.strays) == (None, (), ()), "it is known that there is nothing"
