"""What the controller remembers: replay gives the same state, restarts repeat nothing, damage is said aloud."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base import canon
from gridops.base.errors import BadSetup, Busy, EdgeError, Refusal
from gridops.base.record import Malformed
from gridops.controller import intake
from gridops.controller.clock import Steady
from gridops.controller.core import rows as r
from gridops.controller.core.fold import _STEPS as FOLDS
from gridops.controller.core.fold import fold
from gridops.controller.core.pack import pack, unpack
from gridops.controller.core.row_kinds import KINDS, decode, encode, kind_of
from gridops.controller.core.state import State
from gridops.controller.rebuild import rebuild
from gridops.controller.service import Opening, state_dir
from gridops.controller.start import ground
from gridops.controller.writer import Writer, open_authority
from gridops.model.plan import DecisionKind
from gridops.store.journal import Journal
from tests.controller.fleet import AUTOMATIC, NOW, RECOMMEND, Desk, FakeClock, Fleet, mode, profile


def replayed(desk: Desk) -> Writer:
    """The same journal read by a second program, from a copy."""
    copy = desk.fleet.state.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in desk.fleet.state.glob("journal.sqlite*"):
        shutil.copy(file, copy / file.name)
    authority, damage = open_authority(copy, 1)
    assert damage is None
    writer = Writer(authority)
    writer.replay()
    writer.state.term = desk.state.term
    return writer


def same(desk: Desk) -> None:
    writer = replayed(desk)
    assert writer.state == desk.state
    writer.close()


def test_every_kind_of_row_has_a_fold_and_comes_back_as_it_was() -> None:
    assert set(FOLDS) == set(KINDS.values())
    row = r.Frozen(by="mira", reason="smoke", scope=None, until_ms=5)  # type: ignore[arg-type]
    assert decode(kind_of(row), encode(row)) == row
    assert decode("from_the_future", b"{}") is None


def test_replay_gives_the_same_state_after_a_full_story(desk: Desk) -> None:
    desk.settle(2)
    same(desk)
    desk.apply()
    desk.settle()
    desk.project()
    same(desk)
    desk.ask("freeze", reason="smoke", until_ms=NOW + 10_000_000)
    desk.ask("thaw")
    desk.ask("invite", host="gamma")
    desk.commit({"profiles.d/broken.yaml": "kind: ["})
    desk.commit(
        {"profiles.d/broken.yaml": None, "policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)}
    )
    desk.settle()
    desk.commit({"profiles.d/coder.yaml": None})
    desk.pass_()
    desk.apply(names=("coder",))
    desk.settle()
    desk.project()
    assert desk.ready() == []
    same(desk)


MOVES = (
    "beat",
    "pass",
    "apply",
    "more",
    "fewer",
    "drop",
    "automatic",
    "recommend",
    "freeze",
    "thaw",
    "fail",
    "restart",
)


@settings(max_examples=8, derandomize=True)
@given(moves=st.lists(st.sampled_from(MOVES), min_size=8, max_size=24))
def test_replay_gives_the_same_state_after_any_story(
    moves: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    fleet = Fleet(tmp_path_factory.mktemp("any"))
    fleet.begin()
    desk = Desk(fleet)
    for move in moves:
        desk.clock.pass_by(700)
        _move(desk, move)
    same(desk)
    started = [body for a in fleet.agents.values() for _, body in a.room.spawned]
    assert len(started) == len(set(started))
    desk.controller.close()


def _move(desk: Desk, move: str) -> None:
    match move:
        case "beat":
            desk.beat()
        case "pass":
            desk.pass_()
        case "more":
            desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
        case "fewer":
            desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
        case "drop":
            desk.commit({"profiles.d/spare.yaml": profile("spare", 1, context=1024)})
        case "automatic":
            desk.commit({"policies/mode.yaml": AUTOMATIC})
        case "recommend":
            desk.commit({"policies/mode.yaml": RECOMMEND})
        case "fail":
            for agent in desk.fleet.agents.values():
                agent.room.fails = {} if agent.room.fails else {"load": "no_artifact"}
        case "restart":
            desk.restart()
        case _:
            try:
                if move == "apply" and desk.book().proposal is not None:
                    desk.apply(names=("coder", "spare"))
                elif move in ("freeze", "thaw"):
                    desk.ask(move, reason="a story")
            except (Refusal, Busy):
                return


@pytest.mark.parametrize("at", range(8))
def test_a_restart_between_any_two_steps_repeats_no_effect(fleet: Fleet, at: int) -> None:
    """Every turn is a place to die: the story ends the same, and each process was started once."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    for turn in range(12):
        desk.clock.pass_by(1_000)
        desk.beat()
        if turn == at:
            desk.restart()
        desk.pass_()
        if turn == at + 2:
            desk.restart()
    desk.settle(4)
    assert desk.ready() == ["coder/1"]
    assert [k for _, k, _ in desk.executed()] == ["load", "warm"]
    desk.controller.close()


def test_an_apply_in_progress_goes_on_after_a_restart_with_its_lock_and_its_approval(desk: Desk) -> None:
    desk.settle(2)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("load")
    desk.apply()
    desk.settle(1)
    desk.restart()
    assert desk.book().under_way is not None
    desk.settle(3)
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("load")
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert desk.book().applies[-1].outcome == "done"


def test_a_lost_answer_is_granted_again_and_executed_once(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    for agent in desk.fleet.agents.values():
        agent.now_ms = desk.now
        desk.controller.beat(agent.beat())
    desk.settle()
    assert [k for _, k, _ in desk.executed()] == ["load", "warm"]


@pytest.mark.parametrize("lose", ["sqlite only", "sqlite and its log", "nothing"])
def test_a_rebuild_from_git_restarts_no_engine(fleet: Fleet, lose: str) -> None:
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.project()
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
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.project()
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
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.project()
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
    desk.controller.close()
    backup = tmp_path / "backup"
    backup.mkdir()
    for file in fleet.state.glob("journal.sqlite*"):
        shutil.copy(file, backup / file.name)
    desk.start()
    desk.restart()
    desk.settle()
    desk.project()
    done = desk.executed()
    desk.controller.close()
    for file in fleet.state.glob("journal.sqlite*"):
        file.unlink()
    for file in backup.iterdir():
        shutil.copy(file, fleet.state / file.name)
    desk.start()
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


def test_controller_time_never_goes_back_and_a_leap_ages_nobody(desk: Desk) -> None:
    desk.settle(2)
    hosts = desk.controller.soft.hosts
    ages = {h: desk.now - x.report.observed_ms for h, x in hosts.items()}
    desk.clock.wall += 3_600_000
    desk.controller.now()
    assert {h: desk.now - x.report.observed_ms for h, x in hosts.items()} == ages
    desk.beat()
    before = desk.now
    desk.clock.wall -= 7_200_000
    assert desk.now == before
    desk.clock.mono += 500
    assert desk.now == before + 500
    desk.restart()
    assert desk.now >= before


def test_a_clock_that_drifts_is_followed_without_a_leap() -> None:
    clock = FakeClock()
    steady = Steady(clock)
    clock.mono += 1_000
    clock.wall += 1_200
    assert steady.read().now_ms == NOW + 1_200
    assert steady.read().jumped_ms == 0
    clock.mono += 1_000
    clock.wall += 10
    assert steady.read().now_ms >= NOW + 1_200


def test_a_checkout_without_a_root_says_what_to_do(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.commit({"profiles.d/coder.yaml": profile()})
    from gridops.controller.start import opening

    with pytest.raises(BadSetup, match="root document"):
        opening(ground(fleet.path), fleet.state)


def test_a_state_folder_of_another_fleet_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    fleet.begin()
    (fleet.state / "keys" / "controller.seed").unlink()
    from gridops.disk.keyring import create_secret

    create_secret(fleet.state / "keys" / "controller.seed", b"z" * 32)
    with pytest.raises(BadSetup, match="not in root"):
        Desk(fleet)


def test_keys_that_others_can_read_are_refused_with_the_command_that_repairs_them(fleet: Fleet) -> None:
    fleet.begin()
    (fleet.state / "keys" / "controller.seed").chmod(0o644)
    with pytest.raises(EdgeError) as no:
        Desk(fleet)
    assert "chmod" in " ".join((no.value.message, *no.value.hints))


def test_a_remote_is_fetched_and_its_silence_forgets_nothing(fleet: Fleet, tmp_path: Path) -> None:
    from gridops.files.git import Checkout

    fleet.begin()
    remote = tmp_path / "remote.git"
    fleet.git("init", "-q", "--bare", str(remote))
    fleet.git("push", "-q", str(remote), "main")
    source = intake.Source("main", str(remote))
    checkout = Checkout(fleet.path)
    tip = intake.tip(checkout, source, True)
    assert tip == checkout.head("main")
    shutil.rmtree(remote)
    with pytest.raises(EdgeError):
        intake.tip(checkout, source, True)
    assert intake.tip(checkout, source, False) == tip


def test_a_start_from_a_snapshot_is_the_same_as_a_replay_of_every_row(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridops.controller.writer.SNAPSHOT_ROWS", 5)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.ask("freeze", reason="smoke", until_ms=NOW + 10_000_000)
    desk.ask("invite", host="gamma")
    desk.project()
    whole = State()
    journal = Journal.open(desk.fleet.state / "journal.sqlite")
    for row in journal.replay():
        known = decode(row.kind, row.raw)
        assert known is not None
        fold(whole, known, row.at_ms, row.term)
    assert journal.latest_snapshot() is not None
    journal.close()
    assert whole == desk.state
    same(desk)
    before = desk.now
    desk.clock.wall -= 3_600_000
    desk.restart()
    assert desk.now >= before
    assert desk.ready() == ["coder/1"]


def test_a_packed_state_comes_back_equal_and_is_canonical(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle(3)
    desk.ask("freeze", reason="smoke")
    raw = canon.dumps(pack(desk.state))
    assert unpack(canon.loads(raw)) == desk.state
    with pytest.raises(Malformed):
        unpack({"form": 99, "state": {}})


def test_a_field_that_an_older_program_did_not_pack_takes_its_default(desk: Desk) -> None:
    data = pack(desk.state)
    del data["state"]["nonces"]
    assert unpack(data).nonces == {}
