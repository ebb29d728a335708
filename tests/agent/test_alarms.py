"""An alarm is one cause, not one sentence: it is there once, with its newest words, and ends with what caused it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3

import pytest

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.model.snapshot import HostState
from gridops_agent.alarms import KEPT_S, LOOKED_FOR_S, Alarms
from gridops_agent.core.events import StateChanged
from gridops_agent.core.protection import Verdict
from gridops_agent.ledger import Ledger, Unwritable
from tests.agent.site import Site


class Board:
    """Alarms with a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.alarms = Alarms(lambda: self.now_s)


def test_the_same_trouble_in_other_numbers_is_one_alarm_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    board = Board()
    with caplog.at_level(logging.WARNING, "gridops_agent"):
        for seconds in (48, 49, 50):
            board.alarms.warn("clock_disagrees", f"the controller's clock is {seconds} s away")
        assert board.alarms.now() == ("clock_disagrees: the controller's clock is 50 s away",)
        assert len(caplog.records) == 1
        board.alarms.warn("clock_disagrees", "the controller's clock is 1 s behind what it said before")
        assert len(caplog.records) == 2


def test_two_things_with_the_same_trouble_are_two_alarms() -> None:
    board = Board()
    board.alarms.warn("stray_process", "pid 7", about="7")
    board.alarms.warn("stray_process", "pid 8", about="8")
    assert board.alarms.now() == ("stray_process: pid 7", "stray_process: pid 8")
    board.alarms.over("stray_process")
    assert board.alarms.now() == ()


def test_what_nobody_ends_goes_after_a_while_but_damage_stays() -> None:
    board = Board()
    board.alarms.warn("agent_fault", "once")
    board.alarms.warn("ledger_damaged", "set aside")
    board.now_s = KEPT_S - 1
    assert len(board.alarms.now()) == 2
    board.now_s = KEPT_S
    assert board.alarms.now() == ("ledger_damaged: set aside",)


def test_what_a_look_finds_twice_a_second_is_over_soon_after_it_finds_it_no_more() -> None:
    board = Board()
    for board.now_s in (0.0, 5.0):
        for replica in ("coder/1", "chat/1"):
            board.alarms.warn("drain_timeout", f"{replica}: 1 requests are in flight", replica)
    assert len(board.alarms.now()) == 2
    board.now_s = 5.0 + LOOKED_FOR_S
    assert board.alarms.now() == ()


def test_the_one_longest_not_met_makes_room() -> None:
    board = Board()
    for n in range(limits.ALARMS):
        board.alarms.warn("stray_process", f"pid {n}", about=str(n))
    board.alarms.warn("stray_process", "pid 0", about="0")
    board.alarms.warn("agent_fault", "one more")
    shown = board.alarms.now()
    assert len(shown) == limits.ALARMS
    assert "stray_process: pid 1" not in shown
    assert "stray_process: pid 0" in shown


async def test_a_ledger_that_can_be_written_again_is_no_alarm_even_if_nothing_new_is_to_be_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.agent() as agent:

        def on_full_disk(self: Ledger, *rows: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as full:
            full.setattr(Ledger, "_transact", on_full_disk)
            full.setattr("gridops_agent.effects.LEDGER_RETRY_S", 60)
            telling = asyncio.ensure_future(agent.effects.tell(StateChanged(Verdict(HostState.PAUSED, ("smoke",)))))
            async with asyncio.timeout(10):
                while not agent.alarms.now():
                    await asyncio.sleep(0.01)
            telling.cancel()
            before = agent.memory.host
            await agent._measure()
            assert agent.memory.host is not before, "what needs no writing goes on, and proves nothing"
            with pytest.raises(Unwritable):
                await agent._try_ledger()
            (alarm,) = agent._readings().alarms
            assert alarm.startswith("ledger_unwritable: ")
        await agent._measure()
        assert agent._readings().alarms == (alarm,)
        await agent._try_ledger()
        assert agent._readings().alarms == ()


async def test_trouble_with_a_process_is_not_called_trouble_with_the_ledger(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.agent() as agent:

        async def refused() -> None:
            raise Refusal("not_ours", "a process cannot be proved")

        monkeypatch.setattr(agent.watch, "look", refused)
        watch = asyncio.ensure_future(agent.watch.run())
        async with asyncio.timeout(10):
            while not agent.alarms.now():
                await asyncio.sleep(0.01)
        watch.cancel()
        assert agent.alarms.now() == ("agent_fault: a process cannot be proved",)
