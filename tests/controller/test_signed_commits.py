"""Where commits must be signed: what an unsigned tip can still do, what is remembered, how the level comes and goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import CommitId, HostId, PersonName
from gridops.controller import intake, views
from gridops.controller.core.intend import Found, judge_commit, judge_unread
from gridops.controller.core.modes import drains, permitted
from gridops.controller.core.rows import IntentRefused
from gridops.controller.lineage import Base, line_to
from gridops.model.fleet import Drain
from gridops.model.policy import Mode, ModePolicy
from gridops.trust import amend
from gridops.trust.approval import Approval, seal_approval
from gridops.trust.approved import tree_of
from gridops.trust.line import Line
from gridops.trust.release import seal_catalog
from gridops.trust.root import RoleName
from tests.attacks.desk import JON, SignedDesk
from tests.builders.commits import unsigned
from tests.controller.fleet import AUTOMATIC, DEFAULT, NOW, OBSERVE, POLICIES, profile
from tests.trust import catalogs

DRAIN = "apiVersion: gridops/v1\nkind: Drain\nhost: alpha\nreason: somebody says so\n"
CATALOG = "policies/trust/catalog.json"
BROKEN = {"profiles.d/coder.yaml": "kind: Nonsense\n"}


def mode_of(desk: SignedDesk) -> Mode:
    return permitted(desk.state, DEFAULT, desk.now).mode.mode


def test_an_unsigned_tip_may_stop_and_may_move_nothing(signed: SignedDesk) -> None:
    """The kill switch has no lock on it; a drain moves models, so it takes a key."""
    desk = signed
    desk.writer.push({"policies/mode.yaml": AUTOMATIC}, desk.mira)
    desk.look()
    assert mode_of(desk) is Mode.AUTOMATIC
    force = desk.force
    desk.writer.push({"policies/mode.yaml": OBSERVE, "fleet.d/drains/alpha.yaml": DRAIN}, None)
    desk.look()
    assert mode_of(desk) is Mode.OBSERVE
    assert drains(desk.state) == ()
    assert desk.force == force
    assert "intake_refused" in desk.state.alarms
    desk.restart()
    assert mode_of(desk) is Mode.OBSERVE
    assert drains(desk.state) == ()
    desk.writer.git("update-ref", "refs/heads/main", force)
    desk.look()
    assert mode_of(desk) is Mode.AUTOMATIC
    assert "intake_refused" not in desk.state.alarms


def test_an_unsigned_tip_loosens_nothing_that_a_signed_one_tightened(signed: SignedDesk) -> None:
    desk = signed
    desk.writer.push({"policies/mode.yaml": AUTOMATIC}, desk.mira)
    desk.look()
    stop = {"policies/mode.yaml": OBSERVE, "fleet.d/drains/alpha.yaml": DRAIN, **BROKEN}
    believed = desk.writer.push(stop, desk.mira)
    desk.look()
    assert mode_of(desk) is Mode.OBSERVE
    assert [d.host for d in drains(desk.state)] == ["alpha"], "signed, and wrong elsewhere: it drains"
    assert not desk.alarm(), "wrong is not unbelieved"
    desk.writer.push({"policies/mode.yaml": AUTOMATIC, "fleet.d/drains/alpha.yaml": None}, None)
    desk.look()
    assert mode_of(desk) is Mode.OBSERVE
    assert [d.host for d in drains(desk.state)] == ["alpha"]
    assert desk.alarm()
    desk.writer.git("update-ref", "refs/heads/main", believed)
    desk.look()
    assert mode_of(desk) is Mode.OBSERVE
    assert not desk.alarm()
    assert desk.state.off_line is None


def test_a_mode_file_that_is_gone_in_an_unsigned_tip_means_recommend(signed: SignedDesk) -> None:
    desk = signed
    desk.writer.push({"policies/mode.yaml": AUTOMATIC}, desk.mira)
    desk.look()
    desk.writer.push({"policies/mode.yaml": None}, None)
    desk.look()
    assert mode_of(desk) is Mode.RECOMMEND


def test_several_signed_commits_count_at_once_also_over_one_that_says_something_wrong(signed: SignedDesk) -> None:
    desk = signed
    desk.writer.push(BROKEN, desk.mira)
    desk.look()
    assert desk.state.refused is not None
    desk.writer.push({"README.md": "more\n"}, desk.mira)
    desk.writer.push({"profiles.d/coder.yaml": profile(replicas=2)}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip
    assert desk.state.refused is None


def test_a_new_key_counts_from_the_commit_after_the_one_that_names_it(signed: SignedDesk) -> None:
    desk = signed
    desk.writer.push(desk.next_root(desk.added("jon", JON)), desk.mira)
    desk.writer.push({"README.md": "jon\n"}, JON)
    desk.look()
    assert desk.force == desk.writer.tip, "both at once: each by its parent's documents"
    assert desk.controller.soft.chain.root.version == 3


def test_the_level_goes_as_it_came_by_the_roots_people_in_a_signed_commit(signed: SignedDesk) -> None:
    desk = signed
    files = desk.next_root(amend.signing_commits(desk.chain, False, NOW))
    desk.writer.push(files, None)
    desk.look()
    assert "commit_unsigned" in desk.alarm()
    desk.writer.git("update-ref", "refs/heads/main", desk.force)
    desk.writer.push(files, desk.mira)
    desk.writer.push({"README.md": "anybody\n"}, None)
    desk.look()
    assert desk.force == desk.writer.tip, "from then on nobody has to sign"


def test_what_comes_on_top_of_the_commit_that_switches_it_on_is_signed_already(signed: SignedDesk) -> None:
    desk = signed
    desk.writer.push(desk.next_root(amend.signing_commits(desk.chain, False, NOW)), desk.mira)
    desk.look()
    force = desk.force
    desk.writer.push(desk.next_root(amend.signing_commits(desk.chain, True, NOW)), None)
    desk.writer.push({"profiles.d/coder.yaml": profile(replicas=2)}, None)
    desk.look()
    assert "commit_unsigned" in desk.alarm()
    assert desk.force == force


def test_what_tightens_in_a_commit_that_is_not_believed_is_its_mode_alone(signed: SignedDesk) -> None:
    """Whoever read the commit: the judgement itself leaves its drains out."""
    desk = signed
    drain = Drain(host=HostId("alpha"), reason="says somebody")
    line = Line(desk.force, desk.force, refusal=Refusal("commit_unsigned", "not signed"))
    found = Found(CommitId("f" * 40), "", "", None, (), ModePolicy(), (drain,), (), line=line)
    for judged in (judge_commit(desk.state, desk.chain, found).rows, judge_unread(desk.state, desk.chain, found)):
        (refused,) = [row for row in judged if isinstance(row, IntentRefused)]
        assert refused.drains == ()
        assert refused.off_line == "commit_unsigned"


def test_who_signed_a_commit_may_be_barred_from_approving_what_it_causes(signed: SignedDesk) -> None:
    """Until people have approved a plan: then what comes next is again somebody else's. A no of theirs counts."""
    desk = signed
    both = {"policies/approvals.yaml": POLICIES["policies/approvals.yaml"].replace("[mira]", "[mira, jon]")}
    strict = {"policies/approvals.yaml": f"{both['policies/approvals.yaml']}author_may_approve: false\n"}
    roles = (RoleName.CHANGE, RoleName.APPROVER)
    desk.writer.push({**desk.next_root(desk.added("jon", JON, *roles)), **both}, desk.mira)
    desk.writer.push(strict, JON)
    desk.look()
    assert desk.force == desk.writer.tip, desk.state.newest_refused
    desk.settle(2)
    for name in ("mira", "jon"):
        with pytest.raises(Refusal) as refusal:
            desk.apply(approvals=(yes(desk, name),))
        assert refusal.value.code == "GO413"
        assert any("author_may_approve is false" in line for line in refusal.value.evidence)
    assert status(desk).scopes[0].proposal.needs[0].people == ()
    desk.writer.push({"policies/approvals.yaml": both["policies/approvals.yaml"]}, desk.mira)
    desk.look()
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.clock.pass_by(1_000)
    desk.writer.push({"profiles.d/coder.yaml": profile(replicas=2), **strict}, JON)
    desk.look()
    desk.writer.push({"README.md": "mira\n"}, desk.mira)
    desk.look()
    desk.settle(2)
    with pytest.raises(Refusal, match="approval missing"):
        desk.apply(approvals=(yes(desk, "jon"),))
    assert status(desk).scopes[0].proposal.needs[0].people == ("mira",)
    desk.restart()
    desk.settle(2)
    with pytest.raises(Refusal, match="approval missing"):
        desk.apply(approvals=(yes(desk, "jon"),))
    with pytest.raises(Refusal, match="jon rejected"):
        desk.apply(approvals=(yes(desk, "mira"), yes(desk, "jon", decision="reject")))
    assert desk.apply(approvals=(yes(desk, "mira"),))["applied"], "what she signed since changed nothing that is meant"


def yes(desk: SignedDesk, name: str, **fields: str) -> str:
    """What a person says to the proposal."""
    plan = desk.proposal()
    approval = Approval(
        fleet=plan.fleet,
        scope=plan.scope,
        decisions_digest=plan.decisions_digest,
        reads=views.plan(desk.controller.view(), plan, desk.controller.signer).binding.reads,
        decision=fields.get("decision", "approve"),  # type: ignore[arg-type]
        approver=PersonName(name),
        issued_ms=desk.now,
        not_after_ms=desk.now + 600_000,
        decisions_tree=tree_of(plan),
    )
    return seal_approval(approval, desk.mira if name == "mira" else JON)


def status(desk: SignedDesk) -> Any:
    return views.status(desk.controller.view())


def test_a_fault_while_reading_is_no_reason_to_believe(signed: SignedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = signed
    made = desk.writer.push({"policies/mode.yaml": OBSERVE, "fleet.d/drains/alpha.yaml": DRAIN}, None)

    def broken(*_: object) -> None:
        raise RuntimeError("ours")

    with monkeypatch.context() as breaking:
        breaking.setattr(intake, "line_to", broken)
        with pytest.raises(intake.Unread) as unread:
            intake.look(desk.checkout, made, desk.controller.base())
    desk.controller.tightened(unread.value.found)
    assert mode_of(desk) is Mode.OBSERVE
    assert drains(desk.state) == ()
    assert desk.state.off_line is not None


def test_more_commits_than_are_verified_at_once_are_refused_by_name(
    signed: SignedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = signed
    monkeypatch.setattr("gridops.base.limits.COMMITS_PER_INTAKE", 3)
    for number in range(3):
        desk.writer.push({"README.md": f"{number}\n"}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip
    for number in range(4):
        desk.writer.push({"README.md": f"more {number}\n"}, desk.mira)
    desk.look()
    assert "commit_too_many" in desk.alarm()


def test_what_lies_before_the_level_is_not_held_to_its_form_nor_counted(
    signed: SignedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that another tool once wrote, and a long one: it ends where commits began to be signed."""
    desk = signed
    force, tree = desk.force, desk.writer.git("rev-parse", "main^{tree}")
    old = desk.writer.tree_with({"policies/trust/root/2.json": None})
    desk.writer.commit(unsigned([f"{desk.writer.git('rev-parse', force + '~1')}"], tree=old, more=[b"HG:extra a:b"]))
    odd = desk.writer.tip
    on = desk.writer.commit(unsigned([odd], tree=tree))
    desk.writer.push({"README.md": "one\n"}, desk.mira)
    desk.writer.push({"README.md": "two\n"}, desk.mira)
    monkeypatch.setattr("gridops.base.limits.COMMITS_PER_INTAKE", 3)
    nothing = Base(None, desk.chain, tuple(desk.roots))
    line = line_to(desk.checkout, desk.writer.tip, nothing)
    assert line.refusal is None, line.refusal
    assert line_to(desk.checkout, desk.writer.tip, Base(odd, desk.fleet.chain, (desk.fleet.root_text,))).refusal is None
    desk.writer.push({"README.md": "three\n"}, desk.mira)
    desk.writer.push({"README.md": "four\n"}, desk.mira)
    refused = line_to(desk.checkout, desk.writer.tip, nothing).refusal
    assert refused is not None
    assert refused.code == "commit_too_many"
    assert line_to(desk.checkout, desk.writer.tip, Base(on, desk.chain, tuple(desk.roots))).refusal is not None
    monkeypatch.undo()
    assert line_to(desk.checkout, desk.writer.tip, nothing).refusal is None


def test_a_remote_is_fetched_and_judged_as_the_checkout_is(signed: SignedDesk, tmp_path: Path) -> None:
    """The watched branch of a remote: an unsigned push is refused, a signed one counts, a forced one is refused."""
    desk = signed
    mirror = tmp_path / "mirror.git"
    desk.writer.git("clone", "-q", "--bare", str(desk.fleet.path), str(mirror))
    checkout = intake.Checkout(mirror)
    source = intake.Source("main", f"file://{desk.fleet.path}")

    def code() -> str | None:
        tip = intake.tip(checkout, source, True)
        line = intake.look(checkout, tip, desk.controller.base()).line
        assert line is not None
        return line.refusal.code if line.refusal is not None else None

    assert code() is None
    desk.writer.push({"README.md": "signed\n"}, desk.mira)
    assert code() is None
    desk.writer.push({"README.md": "unsigned\n"}, None)
    assert code() == "commit_unsigned"
    desk.writer.git("update-ref", "refs/heads/main", f"{desk.force}~1")
    assert code() == "commit_rewound"


def test_a_catalog_that_nobody_looked_at_counts_as_seen_once_it_lies_on_the_line(signed: SignedDesk) -> None:
    """The controller was away when people pushed it: an older one above it, by whoever may commit, is refused too."""
    desk = signed
    one, two, three = (
        seal_catalog(catalogs.catalog(desk.fleet.chain.fleet, version=n), desk.fleet.person) for n in (1, 2, 3)
    )
    desk.writer.push({CATALOG: one}, desk.mira)
    desk.look()
    before = desk.force
    assert desk.state.catalog is not None
    desk.writer.push({CATALOG: two}, desk.mira)
    desk.writer.push({CATALOG: "{}"}, desk.mira)  # what does not hold says nothing
    desk.writer.push({CATALOG: one}, desk.mira)
    desk.look()
    assert desk.force == before
    assert desk.state.refused is not None
    assert "catalog 1 came, and version 2 is the least that counts here" in "; ".join(desk.state.refused.problems)
    desk.writer.push({CATALOG: three}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip
    assert desk.state.catalog.version == 3
