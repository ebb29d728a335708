"""A journal that is lost or old: a rebuild restarts no engine, and until then nothing is sent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gridops.base.errors import Busy, NoRoom
from gridops.controller.rebuild import rebuild
from gridops.controller.service import Opening, state_dir
from gridops.controller.start import ground
from gridops.controller.writer import Lost
from gridops.model.plan import DecisionKind
from gridops.protocol.messages import Term
from gridops.store.journal import Journal
from tests.controller.fleet import AUTOMATIC, Desk, FakeClock, Fleet, mode, profile
from tests.controller.replayed import same


def written(fleet: Fleet) -> Desk:
    """A controller whose plan was applied and stands in git."""
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.project()
    return desk


@pytest.mark.parametrize("lose", ["sqlite only", "sqlite and its log", "nothing"])
def test_a_rebuild_from_git_restarts_no_engine(fleet: Fleet, lose: str) -> None:
    desk = written(fleet)
    desk.commit({"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    desk.project()
    assert desk.ready() == ["coder/1", "coder/2"]
    done = desk.executed()
    desk.controller.close()
    if lose != "nothing":
        (fleet.state / "journal.sqlite").unlink()
    if lose == "sqlite and its log":
        for extra in fleet.state.glob("journal.sqlite-*"):
            extra.unlink()
    desk.controller.close = lambda: None  # type: ignore[method-assign]
    memory = desk.rebuild()
    assert memory.targets[0][2] == 2  # type: ignore[attr-defined]
    assert desk.state.distrust is None
    desk.settle(8)
    assert desk.executed() == done
    assert desk.ready() == ["coder/1", "coder/2"]
    assert desk.book().proposal is None
    desk.commit({"profiles.d/other.yaml": profile("other", sha="sha256:" + "cd" * 32)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2", "other/1"], "the rebuilt controller commands again"
    same(desk)
    desk.controller.close()


def test_a_rebuild_adopts_what_automatic_mode_did_after_the_last_document(fleet: Fleet) -> None:
    """Git is one batch behind: the replica that no document knows is kept, not removed and not doubled."""
    desk = written(fleet)
    desk.commit({"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    done = desk.executed()
    desk.rebuild()
    desk.settle(8)
    assert desk.executed() == done
    assert desk.ready() == ["coder/1", "coder/2"]
    desk.controller.close()


def test_what_was_applied_after_the_last_document_is_offered_again_and_costs_nothing(fleet: Fleet) -> None:
    """Nobody is left who knows that people said yes; the engine that runs is taken over by the yes they say again."""
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    done = desk.executed()
    memory = desk.rebuild()
    assert memory.targets == ()
    desk.settle(40)
    assert [(d.kind, d.replica) for d in desk.proposal().to_do] == [(DecisionKind.PLACE, "coder/1")]
    desk.apply()
    desk.settle()
    assert (desk.ready(), desk.executed()) == (["coder/1"], done)


def test_a_rebuilt_controller_plans_nothing_until_the_hosts_it_has_forgotten_had_time_to_speak(fleet: Fleet) -> None:
    """The host that runs what no document knows speaks last: its replica is neither moved nor doubled."""
    desk = written(fleet)
    everything = mode("{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, rebalance, remove]}}")
    desk.commit({"policies/mode.yaml": everything, "profiles.d/second.yaml": profile("second")})
    desk.settle()
    assert desk.ready() == ["coder/1", "second/1"]
    late = next(host for host, agent in sorted(fleet.agents.items()) if "second/1" in agent.replicas())
    done = desk.executed()
    desk.rebuild()
    for _ in range(20):
        desk.clock.pass_by(1_000)
        for host in sorted(fleet.agents):
            if host != late:
                desk.beat(host)
        desk.pass_()
    assert late in desk.controller.why_not_ready()[0]
    assert desk.executed() == done
    desk.settle(8)
    assert desk.executed() == done
    assert desk.ready() == ["coder/1", "second/1"]
    desk.controller.close()


def test_a_lost_journal_is_noticed_by_what_hosts_have_done_even_with_nothing_in_git(fleet: Fleet) -> None:
    """It never comes up empty and confident, not even where no document says that the fleet has a past."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    done = desk.executed()
    desk.controller.close()
    for file in fleet.state.glob("journal.sqlite*"):
        file.unlink()
    desk.start()
    desk.commit({"profiles.d/second.yaml": profile("second")})
    desk.settle(8)
    assert desk.executed() == done
    assert desk.state.distrust is not None
    assert "gridops controller rebuild" in desk.state.distrust
    desk.rebuild()
    desk.settle(8)
    assert desk.ready() == ["coder/1", "second/1"]
    assert desk.executed()[: len(done)] == done
    desk.controller.close()


def test_new_terms_reach_a_process_that_a_rebuilt_controller_found_running(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.project()
    desk.rebuild()
    desk.settle(8)
    done = desk.executed()
    desk.commit({"profiles.d/coder.yaml": profile().replace("drain: 2s", "drain: 9s")})
    desk.settle(2)
    desk.apply()
    desk.settle(4)
    assert [k for _, k, _ in desk.executed()[len(done) :]] == ["operate"]
    desk.settle(4)
    assert len(desk.executed()) == len(done) + 1, "told once"
    same(desk)


def test_a_rebuild_is_refused_while_a_controller_runs(desk: Desk) -> None:
    found = ground(desk.fleet.path)
    with pytest.raises(Busy):
        rebuild(found, Opening(state_dir(desk.fleet.state), found.roots, FakeClock()))
    assert desk.ask("freeze", reason="still here")


def test_an_old_journal_under_a_fleet_that_moved_on_sends_nothing_until_a_rebuild(fleet: Fleet, tmp_path: Path) -> None:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    desk.settle(1)
    copied(desk, tmp_path / "backup")
    desk.restart()
    desk.settle()
    desk.project()
    done = desk.executed()
    put_back(desk, tmp_path / "backup")
    desk.settle(6)
    assert desk.executed() == done
    assert desk.state.distrust is not None
    assert "older than the fleet" in desk.state.distrust
    desk.rebuild()
    desk.settle(6)
    assert desk.executed() == done
    assert desk.ready() == ["coder/1"]
    assert desk.state.distrust is None
    desk.controller.close()


def test_after_a_rebuild_a_journal_that_is_older_again_is_noticed_again(fleet: Fleet, tmp_path: Path) -> None:
    """A rebuilt controller expects each host to be ahead until that has spoken once, and not for ever."""
    desk = written(fleet)
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    desk.rebuild()
    desk.settle(8)
    assert desk.state.distrust is None
    copied(desk, tmp_path / "backup")
    desk.commit({"profiles.d/second.yaml": profile("second")})
    desk.settle()
    assert desk.ready() == ["coder/1", "second/1"]
    done = desk.executed()
    put_back(desk, tmp_path / "backup")
    desk.settle(6)
    assert desk.state.distrust is not None
    assert "older than the fleet" in desk.state.distrust
    assert desk.executed() == done
    desk.controller.close()


def test_a_term_that_the_disk_does_not_take_ends_the_process_and_the_next_one_rises(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hosts obeyed a higher one before: below that it could command nobody, and it would say so to no one."""
    desk = written(fleet)
    for _ in range(4):  # terms that the journal which is made anew begins below
        desk.restart()
        desk.settle()
    desk.controller.close()
    (fleet.state / "journal.sqlite").unlink()
    desk.controller.close = lambda: None  # type: ignore[method-assign]
    take = Journal.take_term

    def full(self: Journal, epoch: int, above: int = 0) -> Term:
        if above:
            raise NoRoom("cannot write journal.sqlite: no space is left on its file system")
        return take(self, epoch)

    monkeypatch.setattr(Journal, "take_term", full)
    desk.rebuild()
    with pytest.raises(Lost, match="no space is left"):
        desk.settle()
    monkeypatch.undo()
    desk.restart()
    desk.settle(8)
    desk.commit({"profiles.d/second.yaml": profile("second"), "policies/mode.yaml": AUTOMATIC})
    desk.settle()
    assert desk.ready() == ["coder/1", "second/1"]
    desk.controller.close()


def copied(desk: Desk, to: Path) -> None:
    """A copy of the journal as it is now; the controller goes on."""
    desk.controller.close()
    to.mkdir()
    for file in desk.fleet.state.glob("journal.sqlite*"):
        shutil.copy(file, to / file.name)
    desk.start()


def put_back(desk: Desk, copy: Path) -> None:
    """The journal is that copy again, and a controller begins on it."""
    desk.controller.close()
    for file in desk.fleet.state.glob("journal.sqlite*"):
        file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, desk.fleet.state / file.name)
    desk.start()
