"""Somebody may push and holds one change key, of a person or of a bot: intent is theirs to write, and nothing else is.

Commits of theirs are believed. What follows from them goes the way of every change: a plan, its risk, the approvals of
other people. The second table is what even a believed key cannot say. No refusal is final.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.codes.placement import NOT_IN_CATALOG
from gridops.base.errors import Refusal
from gridops.base.ids import HostId, PersonName, PlanId, ScopeName
from gridops.model.policy import Risk
from gridops.planner.eligible import launch_of
from gridops.trust import amend
from gridops.trust.keys import PersonSigner
from gridops.trust.release import seal_catalog
from gridops.trust.root import RoleKey, RoleName, seal_root
from tests.attacks.desk import BOT, JON, SignedDesk
from tests.builders.commits import signed, unsigned
from tests.controller.fleet import AUTOMATIC, NOW, RECOMMEND, profile
from tests.trust import catalogs

Files = dict[str, str | None]
BOTS = ("profiles.d/",)
READY: Files = {"profiles.d/coder.yaml": profile(), "profiles.d/spare.yaml": profile("spare", 0),
                "policies/mode.yaml": RECOMMEND, "README.md": "ours\n"}  # fmt: skip


@pytest.fixture(scope="module")
def staffed(desk: SignedDesk) -> SignedDesk:
    """jon may change everything, a bot may change models, and neither approves. One model runs."""
    both = amend.added(desk.chain, PersonName("jon"), JON.public, (RoleName.CHANGE,), NOW)
    entry = RoleKey(holder=PersonName("bot"), key=BOT.public.text, paths=BOTS)
    roles = [replace(r, keys=(*r.keys, entry)) if r.name is RoleName.CHANGE else r for r in both.roles]
    desk.writer.push(desk.next_root(replace(both, roles=tuple(roles))), desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip, desk.alarm()
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    return desk


BY_RISK: list[tuple[str, Files, Risk]] = [
    ("one more replica", {"profiles.d/spare.yaml": profile("spare", 1)}, Risk.ROUTINE),
    ("another context", {"profiles.d/coder.yaml": profile(context=1024)}, Risk.DISRUPTIVE),
    ("the last replica goes", {"profiles.d/coder.yaml": profile(replicas=0)}, Risk.DESTRUCTIVE),
]


@pytest.mark.parametrize(("files", "risk"), [row[1:] for row in BY_RISK], ids=[row[0] for row in BY_RISK])
def test_what_a_change_key_asks_for_is_done_by_nobody_but_approvers(
    staffed: SignedDesk, files: Files, risk: Risk
) -> None:
    desk = staffed
    desk.writer.push(files, JON)
    desk.look()
    assert desk.force == desk.writer.tip, desk.alarm()
    desk.settle(3)
    plan = desk.proposal()
    assert risk in {d.risk for d in plan.to_do}
    for signer in (JON, BOT):
        approval = desk.fleet.approval(plan, desk.now, signer=signer)
        with pytest.raises(Refusal) as refusal:
            desk.apply(plan, approvals=(approval,))
        assert refusal.value.code == "GO414", "a change key approves nothing"
    assert desk.ready() == ["coder/1"]
    _back(desk)


def test_in_automatic_mode_a_change_key_reaches_as_far_as_the_classes_that_people_allowed(staffed: SignedDesk) -> None:
    desk = staffed
    desk.writer.push({"policies/mode.yaml": AUTOMATIC}, desk.mira)
    desk.look()
    desk.writer.push({"profiles.d/spare.yaml": profile("spare", 1), "profiles.d/coder.yaml": profile(replicas=0)}, JON)
    desk.look()
    desk.settle()
    assert desk.ready() == ["coder/1", "spare/1"], "one was allowed to come, and none to go"
    _back(desk)
    desk.settle(3)
    desk.apply(names=("spare",))
    desk.settle()
    assert desk.ready() == ["coder/1"]


Attack = Callable[[SignedDesk], object]


def _root_of_ones_own(desk: SignedDesk) -> None:
    root = amend.added(desk.chain, PersonName("jon"), JON.public, (RoleName.ROOT,), NOW)
    desk.writer.push({f"policies/trust/root/{root.version}.json": seal_root(root, JON)}, JON)


def _level_off(desk: SignedDesk) -> None:
    root = amend.signing_commits(desk.chain, False, NOW)
    desk.writer.push({f"policies/trust/root/{root.version}.json": seal_root(root, JON)}, JON)


def _approver(desk: SignedDesk) -> None:
    root = amend.added(desk.chain, PersonName("jon"), JON.public, (RoleName.APPROVER,), NOW)
    desk.writer.push({f"policies/trust/root/{root.version}.json": seal_root(root, JON)}, JON)


def _root_taken_away(desk: SignedDesk) -> None:
    desk.writer.push({f"policies/trust/root/{desk.chain.root.version}.json": None}, JON)


def _root_again(desk: SignedDesk) -> None:
    """Where the next document belongs lies a copy of the newest: people could never add another one."""
    desk.writer.push({f"policies/trust/root/{desk.chain.root.version + 1}.json": desk.roots[-1]}, JON)


def _covering(desk: SignedDesk) -> None:
    """Somebody else's unsigned commit beneath one's own."""
    desk.writer.push({"profiles.d/coder.yaml": profile(replicas=0)}, None)
    desk.writer.push({"README.md": "jon\n"}, JON)


def _bots(files: Files) -> Attack:
    return lambda desk: desk.writer.push(files, BOT)


def _moved_away(desk: SignedDesk) -> None:
    """A whole folder exchanged: what lies in it is compared file by file."""
    tree = desk.writer.replaced("fleet.d", desk.writer.git("rev-parse", "main:profiles.d"))
    desk.writer.commit(signed(unsigned([desk.force], tree=tree), BOT))


ATTACKS: list[tuple[str, Attack, str, bool]] = [
    ("a root of one's own", _root_of_ones_own, "trust_documents", False),
    ("the level switched off", _level_off, "trust_documents", False),
    ("an approver by one's own word", _approver, "trust_documents", False),
    ("a root taken away", _root_taken_away, "trust_documents", False),
    ("a root in the place of the next one", _root_again, "trust_documents", False),
    ("an unsigned commit covered by a signed one", _covering, "commit_unsigned", False),
    ("a bot changes the mode", _bots({"policies/mode.yaml": AUTOMATIC}), "commit_paths", False),
    ("a bot admits a host", _bots({"fleet.d/keys/evil.yaml": "kind: HostKey\n"}), "commit_paths", False),
    ("a bot removes a file elsewhere", _bots({"README.md": None}), "commit_paths", False),
    ("a bot writes beside its folder", _bots({"profiles.d.yaml": "x\n"}), "commit_paths", False),
    ("a bot exchanges a folder", _moved_away, "commit_paths", False),
]


@pytest.mark.parametrize(("attack", "code", "final"), [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS])
def test_what_a_believed_key_still_cannot_say(staffed: SignedDesk, attack: Attack, code: str, final: bool) -> None:
    desk = staffed
    attack(desk)
    before, force = desk.said(), desk.force
    desk.look()
    assert code in desk.alarm(), desk.alarm()
    assert desk.said() == before
    assert not final
    desk.writer.git("update-ref", "refs/heads/main", force)
    _back(desk)


ASKED: list[tuple[str, dict[str, object], str, bool]] = [
    ("thaws what on-call froze", {"verb": "thaw"}, "GO414", False),
    ("writes a host off", {"verb": "write_off", "host": HostId("alpha"), "reason": "x"}, "GO414", False),
    ("ends a doubt", {"verb": "reconcile_outcome", "outcome": "failed", "reason": "x"}, "GO414", False),
    ("takes the lock from an apply", {"verb": "unlock", "scope": ScopeName("default"), "reason": "x"}, "GO414", False),
    ("invites a host", {"verb": "invite", "host": HostId("evil")}, "GO414", False),
    ("rejects a plan", {"verb": "reject", "plan": PlanId("20270115T0800Z-7f3a2c19")}, "GO414", False),
]


@pytest.mark.parametrize(("asked", "code", "final"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED])
@pytest.mark.parametrize(("who", "signer"), [("jon", JON), ("bot", BOT)], ids=["jon", "bot"])
def test_what_a_change_key_may_not_ask_of_the_controller(
    staffed: SignedDesk, asked: dict[str, object], code: str, final: bool, who: str, signer: PersonSigner
) -> None:
    """On-call froze the scope. Signed requests go past the paths that a bot's commits are limited to."""
    desk = staffed
    desk.ask("freeze", reason="smoke")
    before = desk.said()
    with pytest.raises(Refusal, match="needs an approver key") as refusal:
        desk.ask(**asked, by=who, signer=signer)  # type: ignore[arg-type]
    assert refusal.value.code == code
    assert desk.said() == before
    assert not final
    desk.ask("thaw")


def test_a_change_key_may_freeze_as_anybody_who_pushes_may(staffed: SignedDesk) -> None:
    desk = staffed
    desk.ask("freeze", reason="smoke", by="bot", signer=BOT)
    assert desk.state.freezes
    desk.ask("thaw")
    assert not desk.state.freezes


def test_a_bot_changes_models_and_that_counts(staffed: SignedDesk) -> None:
    desk = staffed
    desk.writer.push({"profiles.d/spare.yaml": profile("spare", 1)}, BOT)
    desk.look()
    assert desk.force == desk.writer.tip, desk.alarm()
    _back(desk)


def test_a_revoked_key_counts_from_the_next_commit_on_no_more(staffed: SignedDesk) -> None:
    """Also on a branch from before: what was merged is vouched for by whoever signs the merge, not by the old key."""
    desk = staffed
    stale = desk.force
    desk.writer.push(desk.next_root(amend.revoked(desk.chain, PersonName("bot"), (RoleName.CHANGE,), NOW)), JON)
    desk.look()
    assert desk.force == desk.writer.tip, desk.alarm()
    force = desk.force
    desk.writer.push({"profiles.d/spare.yaml": profile("spare", 1)}, BOT)
    desk.look()
    assert "commit_key" in desk.alarm()
    side = desk.writer.push({"profiles.d/spare.yaml": profile("spare", 1)}, BOT, on=stale)
    desk.look()
    assert "commit_off_line" in desk.alarm(), "its branch from before does not become the line"
    desk.writer.git("update-ref", "refs/heads/main", force)
    desk.writer.push({"profiles.d/spare.yaml": profile("spare", 1)}, JON, side)
    desk.look()
    assert desk.force == desk.writer.tip, "jon merged it, and answers for it"
    _back(desk)


CATALOG = "policies/trust/catalog.json"
OTHER = "sha256:" + "cd" * 32


def _catalog(desk: SignedDesk, by: PersonSigner, version: int, **wider: int) -> str:
    """A catalog of exactly what coder is, or of more."""
    assert desk.state.accepted is not None
    coder = next(p for p in desk.state.accepted.desired.profiles if p.name == "coder")
    launch = launch_of(coder, coder.configs[0], "cpu")
    entry = replace(catalogs.entry(launch, "coder/q4", device_bytes=400 << 20, host_bytes=0), **wider)  # type: ignore[arg-type]
    return seal_catalog(catalogs.catalog(desk.fleet.chain.fleet, entry, version=version), by)


UNRUN: list[tuple[str, Callable[[SignedDesk], Files], bool, str, bool]] = [
    ("files that nobody signed", lambda _: {"profiles.d/spare.yaml": profile("spare", 1, sha=OTHER)}, True, "", False),
    ("a catalog of one's own", lambda d: {CATALOG: _catalog(d, JON, 2, lanes=9)}, False, "0 of the 1 person", False),
    ("no catalog any more", lambda _: {CATALOG: None}, False, "it is gone", False),
]


@pytest.fixture(scope="module")
def released(staffed: SignedDesk) -> SignedDesk:
    """What may run is signed, and automatic mode may start more of it."""
    desk = staffed
    desk.writer.push({CATALOG: _catalog(desk, desk.mira, 1), "policies/mode.yaml": AUTOMATIC}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip, desk.alarm()
    return desk


@pytest.mark.parametrize(("files", "believed", "why", "final"), [r[1:] for r in UNRUN], ids=[r[0] for r in UNRUN])
def test_a_change_key_adds_nothing_to_what_may_run(
    released: SignedDesk, files: Callable[[SignedDesk], Files], believed: bool, why: str, final: bool
) -> None:
    desk = released
    desk.writer.push(files(desk), JON)
    desk.look()
    assert (desk.force == desk.writer.tip) == believed
    if not believed:
        assert desk.state.refused is not None
        assert any(problem.startswith(CATALOG) and why in problem for problem in desk.state.refused.problems)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    if believed:
        candidate = desk.controller.soft.scope(ScopeName("default")).candidate
        assert candidate is not None
        (missing,) = candidate.report.unplaced
        assert {line.code for line in missing.hosts} == {NOT_IN_CATALOG.code}
    assert not final
    desk.writer.git("update-ref", "refs/heads/main", desk.force)
    desk.writer.push({"profiles.d/spare.yaml": profile("spare", 0)}, desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip, desk.alarm()


def _back(desk: SignedDesk, by: PersonSigner | None = None) -> None:
    desk.writer.push(READY, by or desk.mira)
    desk.look()
    assert desk.force == desk.writer.tip, desk.alarm()
    assert not desk.alarm()
    desk.settle(2)
