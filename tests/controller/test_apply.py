"""One apply by people: whose word counts, when a plan is stale, and that two never run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.errors import Busy, GridopsError, Refusal
from gridops.base.ids import PlanId, ProfileName, short
from gridops.controller import views
from gridops.controller.core.apply import find
from gridops.controller.core.progress import LOCK_IDLE_MS
from gridops.controller.core.state import Attempt
from gridops.model.plan import Generation, ReadSet
from gridops.model.snapshot import SnapshotSource
from gridops.protocol.messages import Outcome
from gridops.trust.keys import PersonSigner
from tests.controller.fleet import AUTOMATIC, DEFAULT, NOW, Desk, Fleet, profile, run

STRANGER = PersonSigner.from_seed(b"s" * 32)


def proposed(desk: Desk) -> Desk:
    desk.beat()
    desk.beat()
    desk.pass_()
    return desk


def refusal(act: Callable[[], object]) -> GridopsError:
    with pytest.raises(GridopsError) as no:
        act()
    return no.value


def code(error: GridopsError) -> str:
    return str(getattr(error, "code", ""))


APPROVALS: dict[str, tuple[Callable[[Desk], tuple[str, ...]], str]] = {
    "none": (lambda d: (), "GO413"),
    "expired": (lambda d: (d.fleet.approval(d.proposal(), d.now - 900_000, not_after_ms=d.now - 1),), "GO413"),
    "for other decisions": (
        lambda d: (d.fleet.approval(replace(d.proposal(), decisions_digest="sha256:" + "0" * 64), d.now),),  # type: ignore[arg-type]
        "GO413",
    ),
    "for another scope": (lambda d: (d.fleet.approval(replace(d.proposal(), scope="lab"), d.now),), "GO413"),  # type: ignore[arg-type]
    "for what was read before": (
        lambda d: (d.fleet.approval(d.proposal(), d.now, reads=_older(d.proposal().reads)),),
        "GO413",
    ),
    "for no tree of decisions": (lambda d: (d.fleet.approval(d.proposal(), d.now, tree=None),), "GO413"),
    "for another tree of decisions": (
        lambda d: (d.fleet.approval(d.proposal(), d.now, tree=d.fleet.chain.fleet),),
        "GO413",
    ),
    "by an unknown key": (lambda d: (d.fleet.approval(d.proposal(), d.now, signer=STRANGER),), "GO414"),
    "a rejection": (lambda d: (d.fleet.approval(d.proposal(), d.now, decision="reject"),), "GO421"),
    "an approval and a rejection": (
        lambda d: (d.fleet.approval(d.proposal(), d.now), d.fleet.approval(d.proposal(), d.now, decision="reject")),
        "GO421",
    ),
    "not an envelope": (lambda d: ("hello",), "GO413"),
}


def _older(reads: ReadSet) -> ReadSet:
    return replace(reads, hosts=tuple(Generation(host=h.host, generation=h.generation + 7) for h in reads.hosts))


@pytest.mark.parametrize("name", sorted(APPROVALS))
def test_an_approval_counts_for_exactly_this_or_not_at_all(desk: Desk, name: str) -> None:
    make, expected = APPROVALS[name]
    proposed(desk)
    rows = desk.controller.writer.length
    error = refusal(lambda: desk.apply(approvals=make(desk)))
    assert code(error) == expected, error
    assert desk.book().target is None
    assert desk.book().under_way is None
    assert desk.controller.writer.length == rows + 1, "only the used nonce is remembered"
    desk.settle(2)
    assert desk.executed() == []


def test_an_approval_survives_a_disjoint_change(desk: Desk) -> None:
    """A commit that touches neither the decisions nor what they read leaves the approval as it was: GO411."""
    proposed(desk)
    plan = desk.proposal()
    approval = desk.fleet.approval(plan, desk.now)
    desk.commit({"profiles.d/spare.yaml": profile("spare", 0, context=1024)})
    desk.pass_()
    answer = desk.apply(plan, approvals=(approval,))
    assert answer["applied"]
    assert any("GO411" in note for note in answer["notes"])


def test_approvals_are_judged_once_and_the_target_then_carries_them(desk: Desk) -> None:
    """A long load outlives the approval's own expiry: what was approved in time is still carried out."""
    proposed(desk)
    desk.fleet.agents["alpha"].room.slow.add("load")
    desk.fleet.agents["beta"].room.slow.add("load")
    desk.apply()
    desk.settle(3)
    desk.clock.pass_by(3_600_000)
    desk.settle(1)
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("load")
    desk.settle()
    assert desk.ready() == ["coder/1"]


def test_the_target_carries_authority_for_execute_within_and_no_longer(desk: Desk) -> None:
    proposed(desk)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("load")
    desk.apply()
    desk.settle(2)
    desk.clock.pass_by(86_400_000)
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("load")
    desk.settle()
    assert desk.ready() == []
    held = views.status(desk.controller.view()).scopes[0].held
    assert any("authority" in line for line in held)


def test_a_stale_plan_is_refused_with_both_lists_of_decisions(desk: Desk) -> None:
    proposed(desk)
    plan = desk.proposal()
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)}, "two coders")
    error = refusal(lambda: desk.apply(plan))
    assert isinstance(error, Refusal)
    assert error.code == "GO412"
    text = "\n".join(error.evidence)
    assert "two coders" in text
    assert text.count("place coder/1") == 2
    assert "* place coder/2" in text
    assert desk.book().target is None


def test_a_plan_is_stale_because_a_host_went_silent_and_that_host_is_named(desk: Desk) -> None:
    """The new decisions touch others: who is not heard any more is no part of what they read."""
    proposed(desk)
    plan = desk.proposal()
    (seat,) = (d.target for d in plan.decisions if d.target is not None)
    del desk.fleet.agents[seat.host]
    desk.settle(12, 10_000)
    error = refusal(lambda: desk.apply(plan))
    assert isinstance(error, Refusal)
    assert error.code == "GO412"
    reviewed = f"plan {short(plan.decisions_digest)}, as reviewed"
    assert error.evidence[1:3] == (f"  host {seat.host} is not heard", reviewed)


def test_a_plan_made_before_another_was_applied_is_told_which_one_is_in_force_by_a_name_that_commands_take(
    desk: Desk,
) -> None:
    proposed(desk)
    early = desk.proposal()
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)}, "two coders")
    desk.pass_()
    later = desk.proposal()
    desk.apply(later)
    desk.settle()
    error = refusal(lambda: desk.apply(early))
    assert isinstance(error, Refusal)
    named = next(line for line in error.evidence if "plan in force" in line).split()[-1]
    assert find(desk.state, PlanId(named)) == later


def test_a_commit_that_means_the_same_makes_no_plan_stale(desk: Desk) -> None:
    proposed(desk)
    plan = desk.proposal()
    desk.commit({"README.md": "hello\n"}, "docs")
    assert desk.apply(plan)["notes"] == []


def test_the_same_plan_twice_is_told_that_it_is_in_force_and_sends_nothing(desk: Desk) -> None:
    proposed(desk)
    plan = desk.proposal()
    desk.apply(plan)
    error = refusal(lambda: desk.apply(plan))
    assert isinstance(error, Busy)
    assert error.exit_code == 75
    assert "locked by mira" in error.message
    desk.settle()
    done = desk.executed()
    answer = desk.apply(plan)
    assert answer["already"]
    assert answer["outcome"] == "done"
    desk.settle(3)
    assert desk.executed() == done


def test_two_applies_at_once_give_one_target_and_one_busy(desk: Desk) -> None:
    proposed(desk)
    plan = desk.proposal()
    document = views.plan(desk.controller.view(), plan, desk.controller.signer)
    approval = desk.fleet.approval(plan, desk.now, reads=document.binding.reads)
    requests = [desk.fleet.request("apply", desk.now, plan=PlanId(plan.id), approvals=(approval,)) for _ in range(2)]

    async def both() -> list[object]:
        return list(await asyncio.gather(*(desk.planning.operator(r) for r in requests), return_exceptions=True))

    first, second = run(both())
    assert isinstance(first, dict)
    assert isinstance(second, Busy)
    assert len(desk.book().applies) == 1


def test_a_dead_lock_ends_by_itself_and_can_be_broken(desk: Desk) -> None:
    proposed(desk)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("load")
    desk.apply()
    desk.ask("unlock", scope=DEFAULT, reason="mira went home")
    assert desk.book().under_way is None
    assert refusal(lambda: desk.ask("unlock", scope=DEFAULT, reason="again")).exit_code == 4
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(2)
    desk.apply()
    desk.clock.pass_by(LOCK_IDLE_MS)
    desk.settle(1)
    assert desk.book().applies[-1].outcome == "expired"


@pytest.mark.parametrize("how", ["unlocked", "expired"])
def test_what_an_apply_left_under_way_is_told_as_it_goes_on(desk: Desk, how: str) -> None:
    """Its lock is gone, its plan is in force: nobody reads of a start under way when the replica is ready."""
    proposed(desk)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("load")
    desk.apply()
    desk.settle(1)
    if how == "unlocked":
        desk.ask("unlock", scope=DEFAULT, reason="nobody waits for it")
    else:
        desk.clock.pass_by(LOCK_IDLE_MS)
    desk.settle(1)
    apply = desk.book().applies[-1]
    assert (apply.outcome is None, desk.ready()) == (False, [])
    assert [line.state for line in desk.controller.progress[apply.plan.id]] == ["running"]
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("load", Outcome.SUCCEEDED)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert [(line.state, line.phase) for line in desk.controller.progress[apply.plan.id]] == [("done", "ready")]


def test_the_last_replica_goes_only_with_its_name_typed(desk: Desk) -> None:
    proposed(desk)
    desk.apply()
    desk.settle()
    desk.commit({"profiles.d/coder.yaml": None}, "drop coder")
    desk.pass_()
    error = refusal(desk.apply)
    assert code(error) == "GO422"
    assert "coder" in error.message
    assert code(refusal(lambda: desk.apply(names=("spare",)))) == "GO422"
    assert desk.apply(names=("coder",))["applied"]
    desk.settle()
    assert desk.ready() == []
    assert [r.profile for r in desk.book().target.retirements] == ["coder"]
    kinds = [k for _, k, _ in desk.executed()]
    assert kinds == ["load", "warm", "drain", "unload"]
    desk.commit({"profiles.d/coder.yaml": profile()}, "coder again")
    desk.pass_()
    assert desk.proposal().retirements == ()


def test_the_name_may_also_stand_in_the_signed_request(desk: Desk) -> None:
    proposed(desk)
    desk.apply()
    desk.settle()
    desk.commit({"profiles.d/coder.yaml": None}, "drop coder")
    desk.pass_()
    assert desk.apply(last_replicas=("coder",))["applied"]


def test_a_failed_step_ends_the_apply_and_resume_tries_it_again(desk: Desk) -> None:
    proposed(desk)
    for agent in desk.fleet.agents.values():
        agent.room.fails["warm"] = "start_failed"
    plan = desk.proposal()
    desk.apply()
    desk.settle()
    apply = desk.book().applies[-1]
    assert apply.outcome == "failed"
    assert apply.failures["coder/1"].code == "start_failed"
    document = views.status(desk.controller.view()).scopes[0].apply
    assert document is not None
    assert document.exit_code == 6
    assert [(s.state, s.code) for s in document.steps] == [("failed", "start_failed")]
    for agent in desk.fleet.agents.values():
        agent.room.fails.clear()
    tries = len(desk.executed())
    desk.settle(3)
    assert len(desk.executed()) == tries, "back-off keeps it from trying at once"
    assert desk.ask("apply", plan=plan.id, resume=True)["resumed"]
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert desk.book().applies[-1].outcome == "done"
    assert code(refusal(lambda: desk.ask("apply", plan=plan.id, resume=True))) == "GO428"


def test_a_plan_that_nobody_made_or_asked_of_a_host_is_never_applied(desk: Desk) -> None:
    proposed(desk)
    plan = desk.proposal()
    assert code(refusal(lambda: desk.ask("apply", plan="20200101T0000Z-00000000"))) == "GO424"
    hypothetical = replace(plan, snapshot=replace(plan.snapshot, source=SnapshotSource.DECLARED))
    desk.state.plans[plan.id] = hypothetical
    assert code(refusal(lambda: desk.apply(plan))) == "GO423"


REQUESTS: dict[str, tuple[Callable[[Desk], str], str]] = {
    "an unknown key": (lambda d: d.fleet.request("freeze", d.now, signer=STRANGER, reason="x"), "GO414"),
    "another fleet": (
        lambda d: Fleet(d.fleet.path.parent / "elsewhere", now_ms=NOW + 1).request("freeze", d.now, reason="x"),
        "wrong_fleet",
    ),
    "yesterday": (lambda d: d.fleet.request("freeze", d.now - 86_400_000, reason="x"), "request_expired"),
    "tomorrow": (lambda d: d.fleet.request("freeze", d.now + 86_400_000, reason="x"), "request_not_yet"),
    "no signature": (lambda d: "{}", "bad_envelope"),
}


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_a_request_that_nobody_entitled_signed_changes_nothing(desk: Desk, name: str) -> None:
    make, expected = REQUESTS[name]
    rows = desk.controller.writer.length
    assert code(refusal(lambda: run(desk.planning.operator(make(desk))))) == expected
    assert desk.controller.writer.length == rows


def test_a_request_counts_once(desk: Desk) -> None:
    request = desk.fleet.request("freeze", desk.now, reason="smoke")
    run(desk.planning.operator(request))
    desk.ask("thaw")
    assert code(refusal(lambda: run(desk.planning.operator(request)))) == "GO425"
    desk.restart()
    assert code(refusal(lambda: run(desk.planning.operator(request)))) == "GO425"


def test_a_rejected_plan_is_not_proposed_again_until_the_question_changes(desk: Desk) -> None:
    proposed(desk)
    desk.ask("reject", plan=desk.proposal().id)
    assert desk.book().proposal is None
    desk.fleet.agents["alpha"].room.bump()
    desk.settle(3)
    assert desk.book().proposal is None
    desk.commit({"README.md": "hello\n"}, "docs")
    desk.pass_()
    assert desk.book().proposal is None
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.pass_()
    assert len(desk.proposal().to_do) == 2
    desk.commit({"profiles.d/coder.yaml": profile()})
    desk.pass_()
    assert len(desk.proposal().to_do) == 1, "asked for again by a commit, it is asked again"


def test_an_apply_of_a_plan_on_the_branch_alone_works_after_the_journal_forgot_it(desk: Desk) -> None:
    proposed(desk)
    desk.project()
    plan = desk.proposal()
    desk.state.plans.clear()
    assert desk.apply(plan)["applied"]


def test_a_hand_edited_plan_document_is_refused_by_name(desk: Desk) -> None:
    proposed(desk)
    desk.project()
    plan = desk.proposal()
    fleet = desk.fleet
    fleet.git("switch", "-q", "gridops/plans")
    path = fleet.path / "plans" / "default" / plan.id / "plan.yaml"
    path.write_text(path.read_text().replace("alpha", "beta"))
    fleet.git("commit", "-q", "-am", "a small edit")
    fleet.git("switch", "-q", "main")
    desk.state.plans.clear()
    error = refusal(lambda: desk.apply(plan))
    assert code(error) == "GO415"
    assert plan.id in error.message


def test_while_people_apply_automatic_mode_only_repairs(desk: Desk) -> None:
    proposed(desk)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("load")
    desk.apply()
    desk.commit({"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(3)
    assert desk.book().target.assignment("coder/2") is None
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("load", Outcome.SUCCEEDED)
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]


def test_what_is_shown_of_applies_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLANS_IN_MEMORY", 2)
    for replicas in (1, 2, 1, 2):
        desk.commit({"profiles.d/coder.yaml": profile(replicas=replicas)})
        desk.settle(2)
        desk.apply()
        desk.settle(8)
    assert len(desk.controller.progress) == 2
    assert desk.book().applies[-1].plan.id in desk.controller.progress


def test_a_second_attempt_that_nobody_needs_any_more_is_forgotten(desk: Desk) -> None:
    """A replica that was taken away leaves no leave behind to clear away a failure of a later one by that name."""
    proposed(desk)
    desk.apply()
    desk.settle()
    desk.commit({"profiles.d/coder.yaml": None})
    desk.settle(2)
    desk.apply(names=("coder",))
    desk.settle()
    desk.commit({"profiles.d/other.yaml": profile("other")})
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["other/1"]
    assert desk.book().retry == set()


def renaming(desk: Desk) -> Desk:
    """coder is serving, and people apply its new name together with a new command."""
    proposed(desk)
    desk.apply()
    desk.settle()
    renamed = profile("writer", context=4096) + "renamed_from: coder\n"
    desk.commit({"profiles.d/coder.yaml": None, "profiles.d/writer.yaml": renamed})
    desk.pass_()
    return desk


def test_an_apply_that_renames_goes_on_until_the_process_with_the_old_name_is_gone(desk: Desk) -> None:
    renaming(desk)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("drain")
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1", "writer/1"]
    apply = views.status(desk.controller.view()).scopes[0].apply
    assert apply is not None
    assert [(s.replica, s.state, s.phase) for s in apply.steps] == [("writer/1", "running", "draining")]
    assert desk.book().under_way is not None
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("drain")
    desk.settle()
    assert desk.ready() == ["writer/1"]
    assert desk.book().applies[-1].outcome == "done"


def test_what_fails_under_the_old_name_fails_the_apply_that_renames(desk: Desk) -> None:
    renaming(desk)
    for agent in desk.fleet.agents.values():
        agent.room.fails["drain"] = "wedged"
    desk.apply()
    desk.settle()
    apply = desk.book().applies[-1]
    assert apply.outcome == "failed"
    assert {replica: failure.code for replica, failure in apply.failures.items()} == {"writer/1": "wedged"}
    for agent in desk.fleet.agents.values():
        agent.room.fails.clear()
    desk.ask("apply", plan=apply.plan.id, resume=True)
    desk.settle()
    assert desk.ready() == ["writer/1"]
    assert desk.book().applies[-1].outcome == "done"


def test_resume_tries_again_what_failed_and_lets_other_profiles_on_the_host_go_on_waiting(desk: Desk) -> None:
    proposed(desk)
    for agent in desk.fleet.agents.values():
        agent.room.fails["warm"] = "start_failed"
    plan = desk.proposal()
    desk.apply()
    desk.settle()
    host = desk.book().applies[-1].failures["coder/1"].host
    attempts = desk.state.hosts[host].attempts
    other = Attempt(3, desk.now, "no_artifact")
    attempts[("load", ProfileName("other"))] = other
    assert ("warm", "coder") in attempts
    desk.ask("apply", plan=plan.id, resume=True)
    assert attempts[("load", ProfileName("other"))] == other
    assert ("warm", "coder") not in attempts or attempts[("warm", "coder")].last_ms == desk.now
