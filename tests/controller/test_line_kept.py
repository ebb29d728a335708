"""What was in force outlives the journal: after a restart, a loss or an older copy no branch is wound back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.errors import BadSetup, ConfigError
from gridops.controller.lineage import known_roots
from gridops.controller.rebuild import rebuild
from gridops.controller.service import Controller, state_dir
from gridops.controller.start import ground, opening
from gridops.controller.statedir import ACCEPTED, Kept
from tests.attacks.desk import JON, SignedDesk
from tests.controller.fleet import FakeClock, profile


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
