"""A branch that people rewrote on purpose: where its line begins anew, who may say so, and how often that counts."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import GridopsError, Refusal
from gridops.base.ids import CommitId
from gridops.controller.lineage import Base
from gridops.controller.rebuild import rebuild
from gridops.controller.start import ground, newest_valid, opening
from gridops.controller.statedir import Kept
from gridops.trust import amend
from gridops.trust.release import seal_catalog
from tests.attacks.desk import JON, SignedDesk, Writer
from tests.builders.commits import unsigned
from tests.controller.fleet import NOW, Desk, FakeClock
from tests.trust import catalogs

CATALOG = "policies/trust/catalog.json"


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


@pytest.mark.parametrize("level", ["signed", "desk"])
def test_a_lost_journal_takes_no_older_catalog_than_the_one_that_was_in_force(
    request: pytest.FixtureRequest, level: str
) -> None:
    """Whoever may commit, and signs nothing else, could reinstate by it what people ended: a rebuild knows by git."""
    at: Desk = request.getfixturevalue(level)
    good = at_an_older_catalog(at)
    found = ground(at.fleet.path)
    assert rebuild(found, opening(found, at.fleet.state, FakeClock())).commit == good
    at.start()
    assert at.state.accepted.commit == good
    at.look()
    assert at.state.accepted.commit == good
    assert "catalog 1 came, and version 2 is the least that counts here" in "; ".join(at.state.refused.problems)


def commit(at: Desk, files: dict[str, str | None], *, look: bool = True) -> str:
    made = at.writer.push(files, at.mira) if isinstance(at, SignedDesk) else at.fleet.commit(files)
    if look:
        at.look()
    return made


def test_a_lost_journal_and_an_older_one_take_a_rewritten_branch_too(signed: SignedDesk, tmp_path: Path) -> None:
    """The note of what was in force may stand on the old line or on the new one: the root's people have said."""
    desk = signed
    desk.controller.close()
    kept = shutil.copytree(desk.fleet.state, tmp_path / "kept")
    anew(desk, rewritten(desk))
    good = desk.writer.push({"README.md": "later\n"}, desk.mira)
    for journal in desk.fleet.state.glob("journal*"):
        journal.unlink()
    found = ground(desk.fleet.path)
    assert rebuild(found, opening(found, desk.fleet.state, FakeClock())).commit == good
    for journal in kept.glob("journal*"):
        shutil.copy(journal, desk.fleet.state)
    desk.start()
    desk.look()
    assert (desk.force, desk.alarm()) == (good, "")


@pytest.mark.parametrize("level", ["signed", "desk"])
@pytest.mark.parametrize("lost", ["what the file held", "the folder", "the commit"])
def test_a_lost_journal_and_a_catalog_that_nobody_can_read_let_no_older_one_in(
    request: pytest.FixtureRequest, level: str, lost: str
) -> None:
    """Said with its name and the way out: an older catalog would come back where nobody can say which was in force."""
    at: Desk = request.getfixturevalue(level)
    good = at_an_older_catalog(at)
    git = Writer(at.fleet.path).git
    if lost == "the commit":
        git("update-ref", "refs/heads/main", git("commit-tree", "-p", f"{good}~1", "-m", "x", "main^{tree}"))
    gone = {"what the file held": f"{good}:{CATALOG}", "the folder": f"{good}:policies/trust", "the commit": good}[lost]
    object_at(at, git("rev-parse", gone)).unlink()
    found = ground(at.fleet.path)
    with pytest.raises(GridopsError) as no:
        rebuild(found, opening(found, at.fleet.state, FakeClock()))
    said = str(no.value)
    assert good[:12] in said
    assert CATALOG in said or (level, lost) == ("signed", "the commit"), "there the line of commits ends before"
    with suppress(Refusal):  # it may be said so as well: then the look is tried again
        at.start()
    assert at.state.accepted is None
    if (level, lost) == ("desk", "the commit"):
        at.controller.close()
        assert "accepted.json" in said
        (at.fleet.state / "accepted.json").unlink()
        assert rebuild(found, opening(found, at.fleet.state, FakeClock())).commit, "people have said so"


def test_what_else_lies_beside_a_catalog_is_no_reason_to_forget_it(signed: SignedDesk) -> None:
    """A program that asked less of that folder accepted the commit."""
    at = signed
    commit(at, {CATALOG: catalog_of(at, 2)})
    odd = commit(at, {"policies/trust/notes/why.txt": "long ago\n"}, look=False)
    at.controller.dir.keep_accepted(Kept(commit=odd, roots=tuple(at.roots)))
    at.controller.close()
    for journal in at.fleet.state.glob("journal*"):
        journal.unlink()
    commit(at, {CATALOG: catalog_of(at, 1), "policies/trust/notes/why.txt": None}, look=False)
    found = ground(at.fleet.path)
    base = Base(odd, at.chain, tuple(at.roots), alone=True)
    assert newest_valid(found, base).commit == odd, "the tip would bring the older one back"


def catalog_of(at: Desk, version: int) -> str:
    return seal_catalog(catalogs.catalog(at.fleet.chain.fleet, version=version), at.fleet.person)


def at_an_older_catalog(at: Desk) -> CommitId:
    """The second catalog was in force, the journal is gone, the branch shows the first. The commit of the second."""
    commit(at, {CATALOG: catalog_of(at, 1)})
    good = commit(at, {CATALOG: catalog_of(at, 2)})
    assert at.state.accepted.commit == good
    at.controller.close()
    commit(at, {CATALOG: catalog_of(at, 1)}, look=False)
    for journal in at.fleet.state.glob("journal*"):
        journal.unlink()
    return CommitId(good)


def object_at(at: Desk, oid: str) -> Path:
    return at.fleet.path / ".git" / "objects" / oid[:2] / oid[2:]
