"""When a host speaks again: as it was asked to, slower unanswered, and no slower for a refusal that passes."""

from __future__ import annotations

import pytest

from gridops.base.codes.control import REPLAYED, TOO_LARGE
from gridops.base.codes.trust import BAD_SIGNATURE, WRONG_FLEET
from gridops_agent.core.pace import NOT_ADMITTED, POLL_MS, REFUSED_MS, RETRY_MS, Pace, answered, refused, unanswered


def test_a_wish_is_followed_within_bounds() -> None:
    assert [answered(Pace(), wish).wait_ms for wish in (1, 500, 5_000, 10**9)] == [POLL_MS[0], 500, 5_000, POLL_MS[1]]


def test_who_is_not_answered_tries_more_and_more_slowly_and_tells_no_news_to_the_wall() -> None:
    pace, waits = answered(Pace(), 500), []
    for _ in range(8):
        pace = unanswered(pace)
        assert not pace.wakes
        waits.append(pace.wait_ms)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, RETRY_MS[1], RETRY_MS[1], RETRY_MS[1]]
    assert answered(pace, 500) == answered(Pace(), 500)


@pytest.mark.parametrize("code", [NOT_ADMITTED, "not_ready", "replayed"])
def test_what_passes_by_itself_costs_no_more_than_the_usual_pace_however_often_it_is_said(code: str) -> None:
    pace = answered(Pace(), 5_000)
    for _ in range(20):
        pace = refused(pace, code)
        assert (pace.wait_ms, pace.wakes) == (5_000, True)
    assert refused(unanswered(unanswered(pace)), code).wait_ms == 5_000, "somebody answers again"


def test_a_refusal_is_no_reason_to_hurry() -> None:
    """Whoever sends each word twice does not make a host speak as fast as it does while it is waited for."""
    busy = answered(Pace(), POLL_MS[0])
    assert refused(busy, REPLAYED.code).wait_ms == REFUSED_MS
    assert answered(refused(busy, REPLAYED.code), POLL_MS[0]).wait_ms == POLL_MS[0]
    assert refused(Pace(), REPLAYED.code).wait_ms == REFUSED_MS, "nothing was wished for yet"


@pytest.mark.parametrize("code", [BAD_SIGNATURE.code, WRONG_FLEET.code, TOO_LARGE.code, "of another release"])
def test_what_does_not_pass_is_as_good_as_no_answer(code: str) -> None:
    assert refused(answered(Pace(), 5_000), code) == unanswered(answered(Pace(), 5_000))
