"""Freshness and controller time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.protocol import fresh
from gridops.protocol.fresh import Session
from gridops.protocol.messages import Directive
from tests.protocol import build
from tests.protocol.build import FLEET, HOST, MINUTE, NOW

HOUR = 60 * MINUTE
DAY = 24 * HOUR
ASKED = fresh.ask(fresh.begin(FLEET, HOST, "b1"), "n1", 1_000)


def hear(
    session: Session, directive: Directive, *, wall_ms: int = NOW, mono_ms: int = 1_050, epoch: int = 1
) -> Session:
    return fresh.hear(session, directive, epoch=epoch, wall_ms=wall_ms, mono_ms=mono_ms)


HEARD = hear(ASKED, build.directive())


def test_a_directive_that_answers_the_newest_heartbeat_is_fresh_for_five_minutes() -> None:
    assert not fresh.is_fresh(ASKED, 1_000)
    assert fresh.is_fresh(HEARD, 1_000 + limits.STALE_SESSION_MS)
    assert not fresh.is_fresh(HEARD, 1_001 + limits.STALE_SESSION_MS)


def test_each_heartbeat_has_the_next_number() -> None:
    assert (ASKED.hseq, fresh.ask(ASKED, "n2", 2_000).hseq) == (1, 2)


REFUSED: dict[str, tuple[Session, Directive, int, str]] = {
    "replayed": (HEARD, build.directive(), 1_060, "stale_session"),
    "for an older heartbeat": (fresh.ask(ASKED, "n2", 2_000), build.directive("n1"), 2_010, "stale_session"),
    "frozen for longer than it is fresh": (ASKED, build.directive(), 301_001, "stale_session"),
    "expired on the way": (ASKED, build.directive(expires_ms=NOW + 2_000), 3_001, "stale_session"),
    "of another fleet": (ASKED, build.directive(fleet=digest_bytes(b"x")), 1_050, "wrong_fleet"),
    "for another host": (ASKED, build.directive(host=HostId("gpu-08")), 1_050, "wrong_host"),
    "two days ahead": (
        ASKED,
        build.directive(now_ms=NOW + 2 * DAY, expires_ms=NOW + 3 * DAY),
        1_050,
        "clock_disagrees",
    ),
    "two days behind": (ASKED, build.directive(now_ms=NOW - 2 * DAY), 1_050, "clock_disagrees"),
    "behind what was said before": (
        replace(ASKED, floor_ms=NOW + MINUTE, epoch=1),
        build.directive(),
        1_050,
        "clock_disagrees",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_directive_that_proves_no_presence_is_refused(name: str) -> None:
    session, directive, mono_ms, code = REFUSED[name]
    with pytest.raises(Refusal) as caught:
        hear(session, directive, mono_ms=mono_ms)
    assert caught.value.code == code


def test_deadlines_are_judged_in_controller_time_and_the_wall_clock_does_not_matter() -> None:
    told = hear(ASKED, build.directive(now_ms=NOW + HOUR, expires_ms=NOW + 2 * HOUR))
    for wall_ms in (0, NOW, NOW + DAY):
        assert fresh.controller_ms(told, wall_ms=wall_ms, mono_ms=61_000) == NOW + HOUR + MINUTE


def test_before_the_first_directive_the_wall_clock_counts_above_what_was_heard_once() -> None:
    begun = fresh.begin(FLEET, HOST, "b1", floor_ms=NOW)
    assert fresh.controller_ms(begun, wall_ms=NOW - HOUR, mono_ms=0) == NOW
    assert fresh.controller_ms(begun, wall_ms=NOW + HOUR, mono_ms=0) == NOW + HOUR


def test_time_counts_from_the_question_so_that_a_slow_answer_extends_nothing() -> None:
    slow = hear(ASKED, build.directive(), mono_ms=31_000)
    assert fresh.controller_ms(slow, wall_ms=NOW, mono_ms=31_000) == NOW + 30_000


def test_small_steps_back_of_the_controllers_clock_are_borne_and_never_extend_a_deadline() -> None:
    asked = fresh.ask(HEARD, "n2", 61_000)
    back = hear(asked, build.directive("n2", now_ms=NOW - 20_000), mono_ms=61_000)
    assert back.floor_ms == NOW
    assert fresh.controller_ms(back, wall_ms=0, mono_ms=61_000) == NOW


def test_a_new_epoch_takes_a_poisoned_clock_away() -> None:
    poisoned = replace(ASKED, floor_ms=NOW + 20 * HOUR, epoch=1)
    with pytest.raises(Refusal, match="clock_disagrees"):
        hear(poisoned, build.directive())
    healed = hear(poisoned, build.directive(), epoch=2)
    assert (healed.floor_ms, healed.epoch) == (NOW, 2)


@given(st.lists(st.tuples(st.integers(0, 400_000), st.integers(-HOUR, HOUR)), max_size=8))
def test_controller_time_heard_by_a_host_never_goes_back_by_more_than_an_answer_took(
    steps: list[tuple[int, int]],
) -> None:
    session, mono_ms, floor = fresh.begin(FLEET, HOST, "b1"), 0, 0
    for number, (waited, jump) in enumerate(steps):
        session = fresh.ask(session, f"n{number}", mono_ms)
        mono_ms += waited
        directive = build.directive(f"n{number}", now_ms=NOW + jump, expires_ms=NOW + jump + DAY)
        try:
            session = hear(session, directive, wall_ms=NOW, mono_ms=mono_ms)
        except Refusal as refusal:
            assert refusal.code in {"stale_session", "clock_disagrees"}  # noqa: PT017
        assert session.floor_ms >= floor
        floor = session.floor_ms
        assert fresh.controller_ms(session, wall_ms=NOW, mono_ms=mono_ms) >= floor


def test_the_controllers_own_time_never_goes_back() -> None:
    assert fresh.steady_ms(NOW, NOW - HOUR) == NOW
    assert fresh.steady_ms(NOW, NOW + 1) == NOW + 1
