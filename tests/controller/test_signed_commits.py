"""Where commits must be signed: what an unsigned tip can still do, what is remembered, how the level comes and goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import BadSetup, ConfigError, Refusal
from gridops.base.ids import CommitId, HostId, PersonName
from gridops.controller import intake, views
from gridops.controller.core.intend import Found, judge_commit, judge_unread
from gridops.controller.core.modes import drains, permitted
from gridops.controller.core.rows import IntentRefused
from gridops.controller.lineage import Base, known_roots, line_to
from gridops.controller.rebuild import rebuild
from gridops.controller.service import Controller, state_dir
from gridops.controller.start import ground, opening
from gridops.controller.statedir import ACCEPTED, Kept
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
from tests.controller.fleet import AUTOMATIC, DEFAULT, NOW, OBSERVE, POLICIES, FakeClock, profile
from tests.trust import catalogs

DRAIN = "apiVersion: gridops/v1\nkind: Drain\nhost: alpha\nreason: somebody says so\n"
CATALOG = "policies/trust/catalog.json"
BROKEN = {"profiles.d/coder.yaml": "kind: Nonsense\n"}


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[SignedDesk]:
    made = SignedDesk.opened(tmp_path)
    yield made
    made.controller.close()


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


def test_a_restart_goes_on_from_what_was_in_force_whatever_the_branch_says_now(signed: SignedDesk) -> None:
    """Also where the tip's root documents are rubbish: whoever may only push keeps no controller from starting."""
    desk = signed
    force = desk.force
    desk.writer.push({"policies/trust/root/1.json": "rubbish\n", "policies/trust/root/2.json": None}, None)
    desk.controller.close()
    found = ground(desk.fleet.path)
    begun = opening(found, desk.fleet.state, desk.clock)
    assert begun.roots == tuple(desk.roots)
    desk.controller = Controller(begun)
    desk.look()
    assert desk.force == force
    assert "trust_documents" in desk.alarm()


def test_a_lost_journal_does_not_let_the_branch_begin_anew(signed: SignedDesk) -> None:
    """`accepted.json` beside the journal: a rebuild goes on from the commit that was in force, and from no other."""
    desk = signed
    force = desk.force
    desk.writer.git("update-ref", "refs/heads/main", f"{force}~1")
    desk.writer.push({"profiles.d/coder.yaml": profile(replicas=2)}, None)
    desk.controller.close()
    found = ground(desk.fleet.path)
    folder = state_dir(desk.fleet.state)
    assert known_roots(folder, found.roots) == folder.accepted().roots  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="commit_off_line"):
        rebuild(found, opening(found, desk.fleet.state, FakeClock()))
    desk.writer.git("update-ref", "refs/heads/main", force)
    desk.writer.push({"README.md": "ours\n"}, desk.mira)
    tip = desk.writer.tip
    desk.writer.push({"profiles.d/coder.yaml": profile(replicas=2)}, None)
    found = ground(desk.fleet.path)
    assert rebuild(found, opening(found, desk.fleet.state, FakeClock())).commit == tip, "the newest that is believed"
    desk.start()
    assert desk.force == tip
    assert "commit_unsigned" in desk.alarm()


def test_after_a_loss_too_a_root_that_people_signed_does_not_speak_for_what_brings_it(signed: SignedDesk) -> None:
    """It names the very key that pushes it. A controller that runs judges that commit by the root before it; so does a
    rebuild, and a controller that begins on a new journal."""
    desk = signed
    force, roots = desk.force, tuple(desk.roots)
    desk.writer.push(desk.next_root(desk.added("jon", JON)), JON)
    desk.look()
    assert desk.force == force
    desk.controller.close()
    for file in desk.fleet.state.glob("journal*"):
        file.unlink()
    found = ground(desk.fleet.path)
    begun = opening(found, desk.fleet.state, FakeClock())
    assert begun.roots == roots
    assert rebuild(found, begun).commit == force


def test_a_new_journal_begins_where_the_old_one_was(signed: SignedDesk) -> None:
    """The journal is gone and nobody ran a rebuild: another line of commits is believed no more than before."""
    desk = signed
    force = desk.force
    desk.controller.close()
    for file in desk.fleet.state.glob("journal*"):
        file.unlink()
    desk.writer.push({"README.md": "signed, on an old commit\n"}, desk.mira, on=f"{force}~1")
    desk.start()
    assert desk.state.accepted is None
    assert "commit_off_line" in desk.alarm()
    desk.writer.git("update-ref", "refs/heads/main", force)
    desk.look()
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


def test_without_journal_and_memory_the_line_begins_where_commits_began_to_be_signed(signed: SignedDesk) -> None:
    desk = signed
    desk.writer.push({"README.md": "ours\n"}, desk.mira)
    good = desk.writer.tip
    desk.writer.push({"README.md": "theirs\n"}, None)
    desk.controller.close()
    for file in desk.fleet.state.glob("*"):
        if file.is_file():
            file.unlink()
    desk.start()
    assert desk.state.accepted is None
    assert "nothing is in force" in desk.alarm()
    assert "commit_unsigned" in desk.alarm()
    desk.writer.git("update-ref", "refs/heads/main", good)
    desk.look()
    assert desk.force == good
    assert not desk.alarm()


def test_what_was_in_force_is_kept_beside_the_journal_at_every_level(signed: SignedDesk) -> None:
    folder = state_dir(signed.fleet.state)
    assert folder.accepted() == Kept(commit=signed.force, roots=tuple(signed.roots))
    (signed.fleet.state / ACCEPTED).write_text("rubbish")
    with pytest.raises(BadSetup, match=r"accepted\.json"):
        folder.accepted()


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


def test_a_journal_that_is_an_older_copy_of_itself_lets_no_branch_be_wound_back(signed: SignedDesk) -> None:
    """The note beside it knows what was in force since, and goes on to whatever the branch shows meanwhile."""
    desk = signed
    older = desk.force
    desk.writer.push({"README.md": "one\n"}, desk.mira)
    desk.look()
    newer, accepted = desk.force, desk.state.accepted
    assert accepted is not None
    desk.state.accepted = replace(accepted, commit=older)
    desk.writer.git("update-ref", "refs/heads/main", older)
    desk.look()
    desk.writer.push({"README.md": "side\n"}, desk.mira)
    desk.look()
    assert desk.force == older
    assert desk.state.off_line is not None
    kept = desk.controller.dir.accepted()
    assert kept is not None
    assert kept.commit == newer
    desk.writer.git("update-ref", "refs/heads/main", newer)
    desk.writer.push({"README.md": "on\n"}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip


def rewritten(desk: SignedDesk, message: bytes = b"history as it should have been\n") -> CommitId:
    """People rewrote all of it: an unsigned line with the same trust, which git says begins elsewhere."""
    tree = desk.writer.tree_with({"README.md": "as it should have been\n"})
    older = desk.writer.object("commit", unsigned([], tree=tree, message=message))
    return desk.writer.commit(unsigned([older], tree=tree, message=b"the newest of it\n"))


def anew(desk: SignedDesk, begin: str, *, by: Any = None, signer: Any = None) -> CommitId:
    """The document that lets the line begin there, in a commit of a change key."""
    files = desk.next_root(amend.beginning_anew(desk.chain, CommitId(begin), NOW), *((by,) if by else ()))
    return desk.writer.push(files, signer or desk.mira)


def test_a_branch_that_people_rewrote_is_taken_when_the_roots_people_say_where_it_begins(signed: SignedDesk) -> None:
    desk = signed
    desk.writer.push({"README.md": "a password\n"}, desk.mira)
    desk.look()
    before = desk.force
    begin = rewritten(desk)
    desk.look()
    assert (desk.force, "commit_off_line" in desk.alarm()) == (before, True)
    made = anew(desk, begin)
    desk.writer.push({"README.md": "no password\n"}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip != made
    assert not desk.alarm()
    assert "root 3 lets the line begin anew" in desk.state.alarms["history_rewritten"].text, "people are told of it"
    desk.writer.push({"README.md": "as ever\n"}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip
    assert "history_rewritten" not in desk.state.alarms
    desk.writer.push({"README.md": "anybody\n"}, None)
    desk.look()
    assert "commit_unsigned" in desk.alarm(), "the level is on as before"


def test_what_was_said_once_lets_nobody_wind_the_new_line_back(signed: SignedDesk) -> None:
    desk = signed
    made = anew(desk, rewritten(desk))
    desk.look()
    assert desk.force == made
    good = desk.writer.push({"README.md": "later\n"}, desk.mira)
    desk.look()
    desk.writer.git("update-ref", "refs/heads/main", made)
    desk.look()
    assert (desk.force, "commit_rewound" in desk.alarm()) == (good, True)
    desk.writer.push({"README.md": "beside\n"}, desk.mira)
    desk.look()
    assert (desk.force, "commit_off_line" in desk.alarm()) == (good, True)
    # Nor with the next document, whatever it is about: where the line begins is said anew or not at all.
    assert desk.chain.root.from_commit is not None
    later = desk.next_root(desk.added("jon", JON))
    desk.writer.git("update-ref", "refs/heads/main", made)
    desk.writer.push(later, desk.mira)
    desk.look()
    assert (desk.force, "commit_off_line" in desk.alarm()) == (good, True)


def _older_trust(desk: SignedDesk) -> None:
    old = desk.force
    desk.writer.push(desk.next_root(desk.added("jon", JON)), desk.mira)
    desk.look()
    tree = desk.writer.git("rev-parse", f"{old}^{{tree}}")
    begin = desk.writer.commit(unsigned([], tree=tree))
    texts = {f"policies/trust/root/{n}.json": text for n, text in enumerate(desk.roots, 1)}
    desk.writer.push(texts | desk.next_root(amend.beginning_anew(desk.chain, begin, NOW)), desk.mira)


def _elsewhere(desk: SignedDesk) -> None:
    other = rewritten(desk)
    rewritten(desk, b"and another one\n")
    desk.writer.push({"README.md": "x\n"}, desk.mira)
    anew(desk, other)


def _unsigned_behind(desk: SignedDesk) -> None:
    anew(desk, rewritten(desk))
    desk.writer.push({"README.md": "x\n"}, None)


def _own_key(desk: SignedDesk) -> None:
    begin = rewritten(desk)
    root = replace(amend.beginning_anew(desk.chain, begin, NOW), roles=desk.added("jon", JON).roles)
    desk.writer.push(desk.next_root(root), JON)


NOT_SO = {
    "a key that is no root key": (lambda d: anew(d, rewritten(d), by=JON), "commit_off_line"),
    "an unsigned commit with the document": (
        lambda d: d.writer.push(d.next_root(amend.beginning_anew(d.chain, rewritten(d), NOW)), None),
        "commit_unsigned",
    ),
    "an unsigned commit after it": (_unsigned_behind, "commit_unsigned"),
    "a commit that is not there": (lambda d: (rewritten(d), anew(d, "0" * 39 + "1")), "commit_off_line"),
    "a commit of another line": (_elsewhere, "commit_off_line"),
    "older documents of trust": (_older_trust, "trust_documents"),
    "a key that the document itself brings": (_own_key, "commit_own_key"),
}


@pytest.mark.parametrize("what", NOT_SO)
def test_a_line_begins_anew_nowhere_else_and_for_nobody_else(signed: SignedDesk, what: str) -> None:
    deed, code = NOT_SO[what]
    deed(signed)
    signed.look()
    assert code in signed.alarm()
    assert signed.force not in (signed.writer.tip, None)
    assert signed.chain.root.from_commit is None


def test_commits_that_nobody_signed_may_be_vouched_for_where_they_stand(signed: SignedDesk) -> None:
    desk = signed
    merged = desk.writer.push({"README.md": "merged by the forge's button\n"}, None)
    desk.look()
    assert "commit_unsigned" in desk.alarm()
    anew(desk, merged)
    desk.look()
    assert desk.force == desk.writer.tip


def test_a_controller_without_memory_begins_a_rewritten_branch_where_it_begins(signed: SignedDesk) -> None:
    desk = signed
    anew(desk, rewritten(desk))
    good = desk.writer.push({"README.md": "later\n"}, desk.mira)
    desk.look()
    desk.controller.close()
    for file in desk.fleet.state.glob("*"):
        if file.is_file():
            file.unlink()
    desk.start()
    assert (desk.force, desk.alarm()) == (good, "")
    bad = desk.writer.push({"README.md": "theirs\n"}, None)
    desk.look()
    assert desk.force == good != bad


def test_a_line_begins_anew_only_where_commits_are_signed() -> None:
    from tests.protocol.build import CHAIN

    with pytest.raises(Refusal, match="need no signature"):
        amend.beginning_anew(CHAIN, CommitId("a" * 40), NOW)
