"""What the controller remembers: replay gives the same state, and restarts repeat nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base import canon
from gridops.base.errors import Busy, Refusal
from gridops.base.record import Malformed
from gridops.controller.clock import Steady
from gridops.controller.core import rows as r
from gridops.controller.core.fold import _STEPS as FOLDS
from gridops.controller.core.fold import fold
from gridops.controller.core.pack import pack, unpack
from gridops.controller.core.row_kinds import KINDS, decode, encode, kind_of
from gridops.controller.core.state import State
from gridops.store.journal import Journal
from tests.controller.fleet import AUTOMATIC, NOW, RECOMMEND, Desk, FakeClock, Fleet, profile
from tests.controller.replayed import same


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
