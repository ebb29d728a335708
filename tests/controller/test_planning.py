"""What makes a plan necessary, what makes it quiet, what becomes of commits, and that emptiness is never acted on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import HostId, PersonName
from gridops.controller import planning, views
from gridops.controller.core import propose
from gridops.controller.core import rows as r
from gridops.controller.core.modes import permitted
from gridops.controller.core.observe import JOINING_BEATS, recovering
from gridops.controller.core.propose import cause_of, fingerprint
from gridops.model.plan import Plan
from gridops.planner.planner import Inputs
from gridops.trust.root import seal_root
from tests.controller.fleet import AUTOMATIC, DEFAULT, HOSTS, POLICIES, Desk, Fleet, mode, profile

EVERYTHING = mode(
    "{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, rollout, rebalance, remove], "
    "last_replica: [coder, spare]}}"
)


def print_of(desk: Desk) -> propose.Fingerprint:
    controller = desk.controller
    standing = permitted(desk.state, DEFAULT, desk.now)
    return fingerprint(desk.state, controller.soft, controller.roster, DEFAULT, standing, desk.now)


def plans(desk: Desk) -> int:
    return desk.controller.soft.scope(DEFAULT).plans


def test_a_new_reading_is_no_trigger(desk: Desk) -> None:
    desk.settle(2)
    before, made = print_of(desk), plans(desk)
    for agent in desk.fleet.agents.values():
        agent.room.devices = tuple(replace(d, external_bytes=123_456_789) for d in agent.room.devices)
    desk.settle(5)
    assert print_of(desk) == before
    assert plans(desk) == made


def while_it_plans(desk: Desk, *commits: dict[str, str | None]) -> None:
    """Let a commit arrive while each of the next plans is being made."""
    made, left = desk.planning._plan, list(commits)

    async def meanwhile(question: Inputs) -> Plan | None:
        plan = await made(question)
        if left:
            desk.commit(left.pop(0))
        return plan

    desk.planning._plan = meanwhile  # type: ignore[method-assign]


def test_a_plan_that_a_commit_overtook_is_not_carried_out(fleet: Fleet) -> None:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    desk.beat()
    while_it_plans(desk, {"profiles.d/coder.yaml": profile(replicas=0)})
    desk.pass_()
    assert desk.book().target is None
    desk.settle(3)
    assert desk.executed() == []
    desk.controller.close()


def test_an_apply_that_a_commit_overtook_is_judged_by_the_new_commit(desk: Desk) -> None:
    desk.settle(1)
    plan = desk.proposal()
    while_it_plans(desk, {"profiles.d/coder.yaml": profile(replicas=0)})
    with pytest.raises(Refusal) as no:
        desk.apply(plan)
    assert no.value.code == "GO412"
    assert desk.book().target is None


def test_an_apply_gives_up_when_commits_keep_overtaking_it(desk: Desk) -> None:
    desk.settle(1)
    plan = desk.proposal()
    while_it_plans(desk, *({"profiles.d/coder.yaml": profile(replicas=n)} for n in (2, 1, 2, 1)))
    with pytest.raises(Refusal, match="nothing was changed"):
        desk.apply(plan)
    assert desk.book().target is None


TRIGGERS = {
    "a commit": lambda d: d.commit({"profiles.d/coder.yaml": profile(replicas=2)}),
    "a drain": lambda d: d.commit(
        {"fleet.d/drains/alpha.yaml": "apiVersion: gridops/v1\nkind: Drain\nhost: alpha\nreason: fan\n"}
    ),
    "a mode": lambda d: d.commit({"policies/mode.yaml": AUTOMATIC}),
    "a freeze": lambda d: d.ask("freeze", reason="smoke"),
    "a generation": lambda d: d.fleet.agents["alpha"].room.bump() or d.beat(),
    "a host that falls silent": lambda d: d.clock.pass_by(15_001) or d.beat("alpha"),
    "a goodbye": lambda d: setattr(d.fleet.agents["alpha"], "goodbye", True) or d.beat(),
}


@pytest.mark.parametrize("name", sorted(TRIGGERS))
def test_a_material_change_is_a_trigger(desk: Desk, name: str) -> None:
    desk.settle(2)
    before = print_of(desk)
    TRIGGERS[name](desk)
    assert print_of(desk) != before


def test_the_end_of_a_drain_is_a_trigger(desk: Desk) -> None:
    until = "2027-01-01T00:00:00Z"
    desk.commit(
        {"fleet.d/drains/alpha.yaml": f"apiVersion: gridops/v1\nkind: Drain\nhost: alpha\nreason: x\nuntil: {until}\n"}
    )
    desk.settle(1)
    before = print_of(desk)
    desk.clock.wall = 1_798_761_600_001
    desk.beat()
    assert print_of(desk).drains != before.drains


def test_a_commit_of_other_files_is_no_trigger(desk: Desk) -> None:
    desk.settle(2)
    before = print_of(desk)
    desk.commit({"README.md": "hello\n"})
    assert desk.state.accepted.subject == "change"
    assert print_of(desk) == before


def test_equal_decisions_write_nothing_and_are_counted(desk: Desk) -> None:
    desk.settle(2)
    plan = desk.proposal()
    desk.project()
    tip = desk.fleet.git("rev-parse", "gridops/plans")
    quiet = desk.controller.soft.scope(DEFAULT).quiet
    for _ in range(3):
        desk.fleet.agents["alpha"].room.bump()
        desk.settle(1)
    desk.project()
    assert desk.proposal() == plan
    assert desk.controller.soft.scope(DEFAULT).quiet >= quiet + 3
    assert desk.fleet.git("rev-parse", "gridops/plans") == tip


def test_a_newer_proposal_replaces_the_open_one(desk: Desk) -> None:
    desk.settle(2)
    first = desk.proposal()
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.pass_()
    assert desk.proposal().decisions_digest != first.decisions_digest
    closed = [e.text for e in desk.controller.events.after(0) if e.kind == "proposal_closed"]
    assert len(closed) == 1
    assert "replaced" in closed[0]


def test_a_proposal_is_withdrawn_when_nothing_is_to_be_done(desk: Desk) -> None:
    desk.settle(2)
    assert desk.proposal()
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
    desk.pass_()
    assert desk.book().proposal is None


EMPTY = {
    "no hosts": {"fleet.d/hosts.yaml": None, "fleet.d/keys/alpha.yaml": None, "fleet.d/keys/beta.yaml": None},
    "no profiles": {"profiles.d/coder.yaml": None, "profiles.d/spare.yaml": None},
}


@pytest.mark.parametrize("name", sorted(EMPTY))
def test_an_empty_set_never_removes_anything_by_itself(fleet: Fleet, name: str) -> None:
    fleet.begin(**{"policies/mode.yaml": EVERYTHING})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    done = desk.executed()
    desk.commit(EMPTY[name], "oops")
    for _ in range(5):
        desk.clock.pass_by(1_000)
        for host in desk.fleet.agents:
            try:
                desk.beat(host)
            except Refusal as error:
                assert error.code == "not_admitted"  # noqa: PT017 - an undeclared host is not heard
        desk.pass_()
    assert desk.executed() == done
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_a_restarted_controller_waits_for_its_hosts_before_it_plans(fleet: Fleet) -> None:
    planning = POLICIES["policies/planning.yaml"].replace("recovery_grace: 2s", "recovery_grace: 60s")
    fleet.begin(**{"policies/mode.yaml": EVERYTHING, "policies/planning.yaml": planning})
    desk = Desk(fleet)
    desk.settle()
    done = desk.executed()
    desk.restart()
    assert not desk.controller.ready
    desk.beat("alpha")
    desk.pass_()
    assert plans(desk) == 0
    assert "beta" in desk.controller.why_not_ready()[0]
    desk.beat("beta")
    desk.settle(3)
    assert desk.controller.ready
    assert desk.executed() == done
    desk.controller.close()


def test_a_plan_that_the_checker_objects_to_is_never_used(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "check", lambda plan, question: ("alpha holds more than it has",))
    desk.settle(2)
    assert desk.book().proposal is None
    assert any(key.startswith("unsafe_plan") for key in desk.state.alarms)
    monkeypatch.undo()
    desk.fleet.agents["alpha"].room.bump()
    desk.settle(2)
    assert desk.proposal()
    assert desk.state.alarms == {}


def test_an_automatic_plan_that_does_not_last_is_not_a_loop(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that always wants the same again gets one try a minute."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    desk.beat()
    real = propose.restrict
    monkeypatch.setattr(planning, "check", lambda plan, question, partial=False: ())  # it would refuse such a target
    monkeypatch.setattr(propose, "restrict", lambda plan, parent, keep: replace(real(plan, parent, keep), placement=()))
    for _ in range(20):
        desk.clock.pass_by(1_000)
        desk.beat()
        desk.pass_()
    targets = [e for e in desk.controller.events.after(0) if e.kind == "target_set"]
    assert len(targets) == 1
    desk.controller.close()


def test_a_window_holds_automatic_mode_back_and_its_end_lets_it_go(fleet: Fleet) -> None:
    # The test's clock begins on Monday 2026-11-30 at 00:53 UTC.
    budgets = (
        POLICIES["policies/budgets.yaml"] + '    windows: [{deny: "Mon 00:00 - Mon 01:00 UTC", except: [repair]}]\n'
    )
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, "policies/budgets.yaml": budgets})
    desk = Desk(fleet)
    desk.settle(2)
    assert desk.ready() == []
    assert "Mon 00:00" in "\n".join(views.status(desk.controller.view()).scopes[0].held)
    for _ in range(70):
        desk.clock.pass_by(10_000)
        desk.beat()
        desk.pass_()
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


ROOT_2 = "policies/trust/root/2.json"


def test_root_documents_only_ever_grow_and_a_wrong_one_refuses_the_whole_commit(desk: Desk) -> None:
    fleet = desk.fleet
    root = fleet.chain.root
    second = replace(root, version=2, fleet=fleet.chain.fleet, agent_min_version="0.2.0")
    stranger = seal_root(second, fleet.person)
    desk.commit({ROOT_2: stranger, "profiles.d/coder.yaml": profile(replicas=2)})
    assert desk.state.refused is not None
    assert "policies/trust/root" in desk.state.refused.problems[0]
    assert len(desk.state.roots) == 1
    desk.commit({ROOT_2: seal_root(second, fleet.root_signer)})
    assert desk.state.refused is None
    assert desk.controller.soft.chain.root.version == 2
    desk.beat("alpha")
    assert fleet.agents["alpha"].chain.root.version == 2
    desk.commit({ROOT_2: None})
    assert desk.state.refused is not None
    assert desk.controller.soft.chain.root.version == 2


def test_a_rotated_controller_key_takes_a_new_epoch_and_its_absence_is_an_alarm(desk: Desk) -> None:
    fleet = desk.fleet
    desk.beat()
    second = replace(fleet.chain.root, version=2, fleet=fleet.chain.fleet, controller_epoch=2)
    desk.commit({ROOT_2: seal_root(second, fleet.root_signer)})
    assert desk.state.term.epoch == 2
    desk.beat()
    desk.beat()
    assert fleet.agents["alpha"].fence.term.epoch == 2


def test_a_rewritten_branch_is_an_alarm(desk: Desk) -> None:
    first = desk.fleet.git("rev-parse", "HEAD")
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.fleet.git("reset", "-q", "--hard", first)
    desk.commit({"README.md": "other history\n"})
    assert "history_rewritten" in desk.state.alarms
    desk.commit({"README.md": "and on\n"})
    assert "history_rewritten" not in desk.state.alarms


def test_a_hosts_share_of_one_scope_never_reaches_another(fleet: Fleet) -> None:
    """Two scopes with their own modes: one acts by itself, the other only proposes."""
    lines = HOSTS.splitlines()
    alpha, beta = (next(line for line in lines if line.startswith(f"  {name}:")) for name in ("alpha", "beta"))
    hosts = HOSTS.replace(beta, "")
    others = HOSTS.replace(alpha, "").replace("kind: Hosts", "kind: Hosts\nscope: lab")
    lab = profile("other").replace("replicas: 1", "scope: lab\nreplicas: 1")
    modes = (
        "apiVersion: gridops/v1\nkind: Mode\nscopes:\n  default: {mode: recommend}\n"
        "  lab: {mode: automatic, automatic: {allow: [scale_up]}}\n"
    )
    fleet.begin(hosts=hosts, **{"fleet.d/lab.yaml": others, "profiles.d/other.yaml": lab, "policies/mode.yaml": modes})
    desk = Desk(fleet)
    for _ in range(8):
        desk.clock.pass_by(1_000)
        desk.beat()
        desk.pass_()
        desk.pass_("lab")  # type: ignore[arg-type]
    assert desk.ready() == ["other/1"]
    assert [d.replica for d in desk.proposal().to_do] == ["coder/1"]
    desk.controller.close()


def test_what_automatic_mode_would_do_is_checked_by_itself(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole plan may be clean and the part of it that the mode allows may not."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    real = propose.restrict
    monkeypatch.setattr(propose, "restrict", lambda plan, parent, keep: replace(real(plan, parent, keep), placement=()))
    desk.settle(3)
    assert desk.book().target is None
    assert desk.executed() == []
    assert any(key.startswith("unsafe_plan") for key in desk.state.alarms)
    desk.controller.close()


def test_giving_a_host_up_and_narrowing_the_mode_are_triggers(desk: Desk) -> None:
    desk.settle(2)
    before = print_of(desk)
    desk.controller.commit((r.WrittenOff(host=HostId("alpha"), by=PersonName("mira"), reason="burnt"),), desk.now)
    after = print_of(desk)
    assert after != before
    assert cause_of(before, after) == "hosts"
    desk.commit({"policies/mode.yaml": EVERYTHING})
    wide = print_of(desk)
    desk.commit({"policies/mode.yaml": EVERYTHING.replace("last_replica: [coder, spare]", "last_replica: [coder]")})
    assert cause_of(replace(wide, desired=print_of(desk).desired), print_of(desk)) == "mode"


def test_hosts_admitted_together_are_planned_for_together(desk: Desk) -> None:
    """The first of two equal hosts to be heard must not get a proposal that the second one overturns."""
    controller, late = desk.controller, "beta"
    controller.soft.hosts.pop(late, None)
    since_ms = controller.soft.started_ms + 10 * 60_000
    every_ms = controller.roster.desired.planning.heartbeat.every_ms
    controller.soft.joined[late] = since_ms
    assert recovering(desk.state, controller.soft, controller.roster, since_ms + every_ms) == (late,)
    bound_ms = since_ms + JOINING_BEATS * every_ms
    assert recovering(desk.state, controller.soft, controller.roster, bound_ms) == ()
