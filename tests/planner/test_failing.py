"""Who never comes up where it stands is tried on a healthy peer, and stays where there is none; nobody is chased."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from bench.constants import changed
from gridops.base.codes import placement as codes
from gridops.base.codes.host import NO_SPACE, START_FAILED
from gridops.base.ids import HostId, ReplicaId
from gridops.model.fleet import Drain
from gridops.model.learned import FailedStarts, Learned
from gridops.model.plan import CauseKind, Decision, Plan
from gridops.model.policy import ActionClass, Automatic, Mode, Risk, ScopeBudgets, ScopeMode, Window
from gridops.model.profile import PlacementRules, Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner import constants
from gridops.planner.actions import actions
from gridops.planner.authority import judge
from gridops.planner.budgets import Circumstances
from gridops.planner.check import check
from gridops.planner.explain import told, walk
from gridops.planner.learned import revision_of
from gridops.planner.planner import Inputs, Recall, plan
from gridops.planner.render_explain import explain_document, explain_lines
from gridops.planner.render_text import Style, render_text
from gridops.planner.render_words import Context
from tests.planner.fleet import NOW, SCOPE, Fleet, config, decisions, host, profile, running, seats

C = profile("c")
ANT, BEE, CAT = (host(name) for name in ("ant", "bee", "cat"))
DAY_MS = 86_400_000


def failed(on: str, count: int = 3, of: Profile = C, **more: Any) -> FailedStarts:
    revision = revision_of(of.configs[0].artifact)
    more.setdefault("last_ms", NOW)
    return FailedStarts(
        host=HostId(on), profile=of.name, config=of.configs[0].name, revision=revision, count=count, **more
    )


def lesson(*failures: FailedStarts) -> Learned:
    return Learned(failures=failures)


def decided(*hosts: Any, profiles: tuple[Profile, ...] = (C,), **more: Any) -> Fleet:
    """The plan is in force, c/1 is meant to stand on the first host, and nothing of it ever ran."""
    fleet = Fleet(hosts=hosts or (ANT, BEE, CAT), profiles=profiles, **more)
    first = fleet.but(learned=None).plan()
    assert seats(first)["c/1"] == fleet.hosts[0].id
    return fleet.but(parent=first)


def asked(fleet: Fleet, **more: Any) -> tuple[Plan, Inputs]:
    """A checked plan of inputs that a controller gives: it knows what it has given up, and what is under way."""
    inputs = replace(fleet.inputs(), **{"given_up": (), **more})
    made = plan(inputs)
    assert check(made, inputs) == ()
    return made, inputs


def only(made: Plan) -> Decision:
    (decision,) = made.decisions
    return decision


# -- when it leaves ----------------------------------------------------------------------------------------------------


def test_after_so_many_failed_attempts_a_healthy_peer_is_tried() -> None:
    made = decided(learned=lesson(failed("ant", code=START_FAILED.code))).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    decision = only(made)
    assert (decision.action_class, decision.risk) == (ActionClass.REPAIR, Risk.ROUTINE)
    assert decision.cause.kind is CauseKind.FAILED_START
    assert decision.cause.detail == "does not come up on ant: 3 attempts failed, last: start_failed"
    assert decision.cost.dip == 0


@pytest.mark.parametrize("count", [1, 2])
def test_before_that_it_is_tried_again_where_it_is(count: int) -> None:
    assert decided(learned=lesson(failed("ant", count))).plan().decisions == ()


def test_a_host_that_says_it_has_no_disk_for_it_is_not_asked_twice() -> None:
    made = decided(learned=lesson(failed("ant", 1, code=NO_SPACE.code))).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert only(made).cause.detail == "does not come up on ant: 1 attempt failed, last: no_space"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (failed("ant", last_ms=NOW - constants.LEARN_VALID_MS), "too old"),
        (failed("ant", last_ms=NOW + DAY_MS), "of the future"),
        (replace(failed("ant"), revision=revision_of(config("other").artifact)), "of other weights"),
        (replace(failed("ant"), config="q8"), "of another config"),
        (replace(failed("ant"), profile="d"), "of another profile"),
        (failed("bee"), "of another host"),
        (failed("ant", 0, code=NO_SPACE.code), "of nothing"),
    ],
)
def test_failures_that_say_nothing_about_it_move_nobody(record: FailedStarts, why: str) -> None:
    assert decided(learned=lesson(record)).plan().decisions == (), why


@pytest.mark.parametrize(
    "state", [s for s in ResidencyState if s not in (ResidencyState.ABSENT, ResidencyState.CACHED)]
)
def test_nothing_that_lives_there_is_ever_moved_for_it(state: ResidencyState) -> None:
    """Also when it is the process of an earlier command, which goes on serving while the new one does not come up."""
    fleet = decided(learned=lesson(failed("ant")))
    assert fleet.parent is not None
    here = running(fleet.parent.placement[0], fleet.parent, state)
    for residency in (here, replace(here, identity=revision_of(config("before").artifact))):
        made = fleet.reporting("ant", residencies=(residency,)).plan()
        causes = [d.cause.kind for d in made.decisions]
        if state is ResidencyState.FAILED:
            assert causes == [CauseKind.UNHEALTHY if residency is here else CauseKind.FAILED_START]
        else:
            assert CauseKind.FAILED_START not in causes
            assert causes == [] or residency is not here


def test_an_attempt_that_is_under_way_keeps_the_seat() -> None:
    fleet = decided(learned=lesson(failed("ant")))
    made, _ = asked(fleet, under_way=frozenset({ReplicaId("c/1")}))
    assert made.decisions == ()
    made, _ = asked(fleet, under_way=frozenset({ReplicaId("d/1")}))
    assert decisions(made) == ["move c/1 ant -> bee"]


@pytest.mark.parametrize("state", [None, ResidencyState.LOADING, ResidencyState.WARMING])
def test_a_question_that_people_have_before_them_is_taken_back_by_success_alone(state: ResidencyState | None) -> None:
    fleet = decided(learned=lesson(failed("ant")))
    waiting, _ = asked(fleet)
    assert fleet.parent is not None
    here = () if state is None else (running(fleet.parent.placement[0], fleet.parent, state),)
    more = {"waiting": waiting, "under_way": frozenset({ReplicaId("c/1")})}
    again, _ = asked(fleet.reporting("ant", residencies=here), **more)
    assert again.decisions_digest == waiting.decisions_digest
    ready = running(fleet.parent.placement[0], fleet.parent)
    made, _ = asked(fleet.reporting("ant", residencies=(ready,)), **more)
    assert made.decisions == ()


def test_who_plans_without_the_controllers_memory_asks_what_its_proposal_asks() -> None:
    fleet = decided(learned=lesson(failed("ant")))
    waiting, _ = asked(fleet)
    elsewhere = replace(fleet.but(learned=None).inputs(), waiting=waiting)
    made = plan(elsewhere)
    assert made.decisions_digest == waiting.decisions_digest
    assert check(made, elsewhere) == ()
    made, _ = asked(fleet.but(learned=None), waiting=waiting)
    assert made.decisions == (), "the controller itself knows that it came up meanwhile"


# -- where it goes -----------------------------------------------------------------------------------------------------


def test_a_third_host_is_preferred_to_one_on_which_it_fails_as_well() -> None:
    fleet = decided(learned=lesson(failed("ant"), failed("bee")))
    made = fleet.plan()
    assert decisions(made) == ["move c/1 ant -> cat"]
    choice = next(c for c in made.report.choices if c.replica == "c/1")
    assert choice.host == "cat"
    assert {r.host: r.code for r in choice.rejected}["bee"] == codes.FAILED_HERE.code


def test_the_failed_host_remains_the_fallback_and_says_so() -> None:
    fleet = decided(ANT, learned=lesson(failed("ant", 7)))
    made = fleet.plan()
    assert (made.decisions, seats(made)) == ((), {"c/1": "ant"})
    (line,) = made.report.waiting
    assert (line.host, line.code) == ("ant", codes.KEEPS_FAILING.code)
    words = "c/1 does not come up on ant: 7 attempts failed, and no other host may take it, so it stays"
    assert line.detail.startswith(words)
    context, style = Context(now_ms=NOW), Style()
    assert words in " ".join(" ".join(render_text(made, context, style)).split())
    walked = walk(fleet.inputs())
    explained = explain_lines(told(made, walked, ReplicaId("c/1")), ReplicaId("c/1"), context, style)
    assert explained is not None
    assert words in " ".join(" ".join(explained).split())
    document = explain_document(made, ReplicaId("c/1"))
    assert document is not None
    assert [w["code"] for w in document["waiting"]] == [codes.KEEPS_FAILING.code]


def test_explain_says_why_it_moves() -> None:
    fleet = decided(learned=lesson(failed("ant"), failed("cat")))
    made, walked = fleet.plan(), walk(fleet.inputs())
    lines = explain_lines(told(made, walked, ReplicaId("c/1")), ReplicaId("c/1"), Context(now_ms=NOW), Style())
    assert lines is not None
    text = " ".join(" ".join(lines).split())
    assert "because does not come up on ant: 3 attempts failed" in text
    assert "it did not come up there: 3 attempts failed" in text


def test_it_does_not_go_where_it_fails_too_although_nothing_else_is_free() -> None:
    made = decided(ANT, BEE, learned=lesson(failed("ant", 9), failed("bee"))).plan()
    assert (made.decisions, [w.code for w in made.report.waiting]) == ((), [codes.KEEPS_FAILING.code])


def test_a_copy_that_serves_elsewhere_is_gone_back_to_or_stays_until_another_is_ready() -> None:
    """It was on its way from cat when the new host failed it: where it serves nothing is to be done."""
    fleet = decided(learned=lesson(failed("ant")))
    assert fleet.parent is not None
    fleet = fleet.reporting("cat", residencies=(running(fleet.parent.placement[0], fleet.parent),))
    made = fleet.plan()
    assert decisions(made) == ["move c/1 ant -> cat"]
    assert actions(made, fleet.snapshot(), NOW) == ()
    drained = fleet.but(drains=(Drain(host=HostId("cat"), reason="fan"),))
    made = drained.plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    steps = actions(made, drained.snapshot(), NOW, desired=drained.inputs().intent.desired)
    assert [(s.action.kind, s.action.host, s.waits_for) for s in steps] == [
        ("load", "bee", None),
        ("warm", "bee", "its artifact"),
        ("drain", "cat", "c/1 to be ready on bee"),
    ]


def test_nobody_gives_way_or_moves_for_it() -> None:
    """It may yet come up where it stands; who serves is not disturbed for a mere hope."""
    lesser = profile("b", 2, priority=1, gib=20)
    greater = replace(C, priority=90, configs=(config("c-q4", 20),))
    fleet = Fleet(hosts=(ANT, BEE, CAT), profiles=(lesser, greater))
    fleet = fleet.applied(fleet.plan())
    assert fleet.parent is not None
    at = seats(fleet.parent)["c/1"]
    lost = fleet.reporting(at, residencies=()).but(learned=lesson(failed(at, of=greater)))
    made = lost.plan()
    assert (made.decisions, [w.code for w in made.report.waiting]) == ((), [codes.KEEPS_FAILING.code])


def test_who_looks_for_room_does_not_send_it_where_it_fails() -> None:
    """The rearranging search knows nothing of failures: it leaves alone who leaves for them."""
    greater = replace(C, priority=90)
    late = replace(profile("d", gib=20), priority=10, placement=PlacementRules(allow_hosts=(HostId("cat"),)))
    fleet = decided(profiles=(greater,), learned=lesson(failed("ant"), failed("bee")))
    made = fleet.but(profiles=(greater, late)).plan()
    assert decisions(made) == ["move c/1 ant -> cat", "cannot_place d/1"]


def test_what_fails_everywhere_is_tried_no_further() -> None:
    """The fault is then more likely the model's than the hosts'. Where it serves somewhere, it is the hosts'."""
    hosts = tuple(host(f"h{n}") for n in range(6))
    fleet = decided(*hosts, learned=lesson(*(failed(f"h{n}") for n in range(3))))
    assert decisions(fleet.plan()) == ["move c/1 h0 -> h3"]
    four = fleet.but(learned=lesson(*(failed(f"h{n}") for n in range(4))))
    assert (four.plan().decisions, [w.code for w in four.plan().report.waiting]) == ((), [codes.KEEPS_FAILING.code])
    two = decided(*hosts, profiles=(profile("c", 2),), learned=four.learned)
    assert two.parent is not None
    second = two.parent.placement[1]
    serves = two.reporting(second.seat.host, residencies=(running(second, two.parent),))
    assert decisions(serves.plan()) == ["move c/1 h0 -> h4"]


# -- what goes before --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 2])
def test_a_pin_holds_it(many: int) -> None:
    pinned = replace(profile("c", many), placement=PlacementRules(pins=(HostId("ant"),)))
    made = decided(profiles=(pinned,), learned=lesson(failed("ant"))).plan()
    assert (made.decisions, made.report.waiting) == ((), ())


def test_a_drain_is_the_cause_where_there_is_one() -> None:
    fleet = decided(learned=lesson(failed("ant")), drains=())
    made = fleet.but(drains=(Drain(host=HostId("ant"), reason="fan"),)).plan()
    assert only(made).cause.kind is CauseKind.DRAIN


def test_a_command_that_changed_is_tried_first() -> None:
    """The failures were of the old one; the change may be the cure."""
    fleet = decided(learned=lesson(failed("ant")))
    made = fleet.but(profiles=(replace(C, configs=(replace(C.configs[0], context=8192),)),)).plan()
    assert [(d.kind.value, d.cause.kind) for d in made.decisions] == [("change", CauseKind.INTENT)]


def test_a_silent_host_keeps_it() -> None:
    fleet = decided(learned=lesson(failed("ant")))
    assert fleet.reporting("ant", goodbye=True).plan().decisions == ()


def test_nothing_is_moved_while_many_hosts_are_silent_at_once() -> None:
    hosts = tuple(host(f"h{n}") for n in range(8))
    fleet = decided(*hosts, learned=lesson(failed("h0")))
    assert decisions(fleet.plan()) == ["move c/1 h0 -> h1"]
    for n in range(3, 8):
        fleet = fleet.reporting(f"h{n}", observed_ms=NOW - 600_000)
    made = fleet.plan()
    assert made.decisions == ()
    assert any(codes.MASS_STALE.code in note for note in made.report.notes)


# -- by itself ---------------------------------------------------------------------------------------------------------

REPAIRS = ScopeMode(scope=SCOPE, mode=Mode.AUTOMATIC, automatic=Automatic(allow=(ActionClass.REPAIR,)))


def test_it_is_repair_that_waits_for_an_attempt_and_for_windows() -> None:
    made = decided(learned=lesson(failed("ant"))).plan()
    assert judge(made, REPAIRS, NOW).allowed == {1}
    assert judge(made, replace(REPAIRS, automatic=Automatic(allow=(ActionClass.SCALE_UP,))), NOW).allowed == frozenset()
    trying = judge(made, REPAIRS, NOW, Circumstances(under_way=frozenset({ReplicaId("c/1")})))
    assert [(n, code) for n, code, _ in trying.held] == [(1, codes.HELD_ATTEMPT.code)]
    assert judge(made, REPAIRS, NOW, Circumstances(under_way=frozenset({ReplicaId("d/1")}))).allowed == {1}
    shut = ScopeBudgets(scope=made.scope, windows=(Window(deny="Mon-Sun 00:00-24:00 UTC", exclude=()),))
    assert [code for _, code, _ in judge(made, REPAIRS, NOW, Circumstances(budgets=shut)).held] == [
        codes.HELD_WINDOW.code
    ]


# -- over time ---------------------------------------------------------------------------------------------------------


def lived(fleet: Fleet, bad: frozenset[str], ticks: int) -> tuple[list[str], Fleet]:
    """A hundred turns of: plan, carry out, try. Where it fails, one more failure is learned; else it comes up."""
    stood, counts, recall = list[str](), dict[str, int](), Recall()
    for tick in range(ticks):
        now = NOW + tick * 60_000
        fleet = fleet.but(now=now, reports={h.id: replace(fleet.reports[h.id], observed_ms=now) for h in fleet.hosts})  # type: ignore[type-var]
        made, inputs = asked(fleet)
        assert made == plan(inputs, recall), "what was remembered is what is true"
        at = seats(made)["c/1"]
        stood.append(at)
        fleet = fleet.but(parent=made)
        if at in bad:
            counts[at] = counts.get(at, 0) + 1
            fleet = fleet.but(learned=lesson(*(failed(h, n, last_ms=now) for h, n in sorted(counts.items()))))
        else:
            fleet = fleet.reporting(at, residencies=(running(made.placement[0], made),))
    return stood, fleet


def with_reports(fleet: Fleet) -> Fleet:
    return fleet.but(reports={r.host: r for r in fleet.snapshot().hosts})


def moves(stood: list[str]) -> int:
    return sum(1 for a, b in itertools.pairwise(stood) if a != b)


@pytest.mark.parametrize("many", [1, 2, 3, 6])
def test_with_all_failing_it_stays_put_after_each_was_tried_once(many: int) -> None:
    hosts = tuple(host(f"h{n}") for n in range(many))
    stood, _ = lived(with_reports(decided(*hosts)), frozenset(h.id for h in hosts), 100)
    tried = min(many, constants.FAILING_HOSTS)
    assert moves(stood) == tried - 1 == len(set(stood)) - 1, "each is left once and never come back to"
    assert len(set(stood[tried * constants.LEAVE_AFTER :])) == 1, "and then it stays"


@pytest.mark.parametrize("seed", range(8))
def test_it_comes_to_rest_on_a_host_that_is_well(seed: int) -> None:
    chance = random.Random(seed)
    hosts = tuple(host(f"h{n}") for n in range(chance.randint(2, 7)))
    bad = frozenset(h.id for h in hosts[: min(3, len(hosts) - 1)])
    stood, fleet = lived(with_reports(decided(*hosts)), bad, 40)
    assert stood[-1] not in bad
    assert moves(stood) <= len(bad)
    assert asked(fleet)[0].decisions == ()


def test_a_success_makes_a_host_healthy_again() -> None:
    fleet = decided(ANT, BEE, learned=lesson(failed("ant"), failed("bee")))
    assert fleet.plan().decisions == ()
    assert decisions(fleet.but(learned=lesson(failed("ant"))).plan()) == ["move c/1 ant -> bee"]


@pytest.mark.parametrize("turn", ["fails", "comes round"])
def test_what_is_remembered_of_the_last_plan_does_not_hide_it(turn: str) -> None:
    fleet, recall = decided(), Recall()
    worse = fleet.but(learned=lesson(failed("ant")))
    first, then = (fleet, worse) if turn == "fails" else (worse, fleet)
    for one in (first, first, then, first):
        inputs = one.inputs()
        assert plan(inputs, recall) == plan(inputs)


# -- numbers, and what is not asked again ------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", ["half", "as it is", "twice"])
def test_half_and_twice_of_the_constants_do_what_their_rows_say(factor: str) -> None:
    """After how many attempts a host is left, and of ten hosts on which it fails, how many are tried."""
    scale = {"half": (1, 2), "as it is": (3, 4), "twice": (6, 8)}[factor]
    with changed("LEAVE_AFTER", scale[0]):
        left = [n for n in range(1, 9) if plan(decided(learned=lesson(failed("ant", n))).inputs()).to_do]
    assert left == list(range(scale[0], 9))
    hosts, tried = tuple(host(f"h{n}") for n in range(10)), 0
    with changed("FAILING_HOSTS", scale[1]):
        for n in range(1, 11):
            fleet = decided(*hosts, learned=lesson(*(failed(h.id) for h in hosts[:n])))
            tried += bool(plan(fleet.inputs()).to_do)
    assert tried + 1 == scale[1]


def test_a_repaired_host_is_asked_again_by_a_pin_and_not_by_itself() -> None:
    fleet = decided()
    stands = fleet.applied(fleet.plan()).but(learned=lesson(failed("bee", 9)))
    assert stands.plan().to_do == ()
    pinned = replace(C, placement=PlacementRules(pins=(HostId("bee"),)))
    assert decisions(stands.but(profiles=(pinned,)).plan()) == ["move c/1 ant -> bee"]
