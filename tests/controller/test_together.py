"""Polls that arrive together: one transaction for all, each with its own answer, and none before it is durable."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import pytest

from gridops.base.errors import Failed, Refusal
from gridops.controller import http
from gridops.controller.together import AT_ONCE, Together
from gridops.controller.writer import Lost
from gridops.protocol.messages import Beat
from gridops_agent.client import _KEPT_S
from gridops_agent.core.pace import POLL_MS
from tests.controller.fleet import Desk


class Counted:
    """The desk's journal, with its transactions counted and perhaps failing."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        journal = desk.controller.writer._authority.journal
        self._append = journal.append
        self.transactions = 0
        self.fails = False
        monkeypatch.setattr(journal, "append", self.append)

    def append(self, *given: Any) -> int:
        self.transactions += 1
        if self.fails:
            raise Failed("the disk is gone")
        return self._append(*given)


def first_words(desk: Desk) -> list[Beat]:
    for agent in desk.fleet.agents.values():
        agent.now_ms = desk.now
    return [agent.beat() for agent in desk.fleet.agents.values()]


def all_at_once(together: Together, beats: list[Beat]) -> list[Any]:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(together.answer(beat) for beat in beats), return_exceptions=True)

    return asyncio.run(ask())


def test_first_words_of_two_hosts_are_one_transaction(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, woken = Counted(desk, monkeypatch), list[bool]()
    together = Together(desk.controller.beats, lambda: woken.append(True), pytest.fail)
    answers = all_at_once(together, first_words(desk))
    for agent, answer in zip(desk.fleet.agents.values(), answers, strict=True):
        assert agent.hear(answer).host == agent.host
    assert journal.transactions == 1
    assert woken == [True]
    assert sorted(desk.state.hosts) == ["alpha", "beta"]


def test_one_that_is_refused_and_one_that_meets_a_fault_spoil_nobody_elses(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, beta = first_words(desk)
    strange = Beat(heartbeat="{}")
    faulty = Beat(heartbeat=beta.heartbeat, receipts=("x",))
    monkeypatch.setattr("gridops.controller.polls.open_receipt", lambda text, key: 1 // 0)
    together = Together(desk.controller.beats, lambda: None, pytest.fail)
    refused, fault, answer = all_at_once(together, [strange, faulty, alpha])
    assert isinstance(refused, Refusal)
    assert isinstance(fault, ZeroDivisionError)
    assert desk.fleet.agents["alpha"].hear(answer)


def test_nobody_is_answered_when_what_they_said_is_not_durable(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, ended = Counted(desk, monkeypatch), list[BaseException]()
    journal.fails = True
    together = Together(desk.controller.beats, lambda: None, ended.append)
    answers = all_at_once(together, first_words(desk))
    assert [type(answer) for answer in answers] == [Lost, Lost]
    assert [type(error) for error in ended] == [Lost]


def test_no_step_takes_more_than_its_bound_and_nobody_is_left_behind() -> None:
    taken: list[int] = []

    def take(beats: Any) -> list[Any]:
        taken.append(len(beats))
        return [Refusal("no", "no") for _ in beats]

    together = Together(take, lambda: None, pytest.fail)
    answers = all_at_once(together, [Beat(heartbeat=str(n)) for n in range(AT_ONCE * 2 + 1)])
    assert taken == [AT_ONCE, AT_ONCE, 1]
    assert len(answers) == AT_ONCE * 2 + 1


def test_a_connection_outlives_the_pause_between_two_heartbeats_on_both_sides() -> None:
    assert POLL_MS[1] / 1_000 < _KEPT_S < http.KEPT_S


def test_a_process_that_may_open_few_files_asks_for_more_or_takes_fewer_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: asked.append(both))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1_024, 100_000))
    assert http._connections() == http.CONNECTIONS
    assert asked == [(http.CONNECTIONS + http.OTHER_FILES, 100_000)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1_024, 1_024))
    assert http._connections() == 1_024 - http.OTHER_FILES
