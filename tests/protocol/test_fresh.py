"""Freshness, controller time, and one agent per key."""

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
from gridops.protocol.alarm import Alarm
from gridops.protocol.fresh import Pulse, Session
from gridops.protocol.messages import Directive, Heartbeat, Term
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


# --- one agent per key ----------------------------------------------------------------------------------------------


def said(boot: str, hseq: int, nonce: str = "", heard_ms: int = 0) -> Heartbeat:
    changes = {"boot": boot, "hseq": hseq, "nonce": nonce or f"{boot}{hseq}", "heard_ms": heard_ms}
    return replace(build.heartbeat(build.fence()), **changes)  # type: ignore[arg-type]


def listen(*beats: Heartbeat) -> list[bool | str]:
    """For each heartbeat: whether it is news, or the code of the alarm."""
    pulse, found = Pulse(host=HOST), list[bool | str]()
    for heartbeat in beats:
        judged = fresh.beat(pulse, heartbeat)
        if isinstance(judged, Alarm):
            found.append(judged.code)
        else:
            pulse, news = judged
            found.append(news)
    return found


HISTORIES: dict[str, tuple[list[Heartbeat], list[bool | str]]] = {
    "in order": ([said("a", 1), said("a", 2), said("a", 5)], [True, True, True]),
    "sent twice": ([said("a", 1), said("a", 1)], [True, False]),
    "one is late": ([said("a", 1), said("a", 3), said("a", 2)], [True, True, False]),
    "a restart": ([said("a", 7), said("b", 1), said("b", 2)], [True, True, True]),
    "a restart, and the last one of before is late": (
        [said("a", 7), said("b", 1), said("a", 8), said("b", 2)],
        [True, True, False, True],
    ),
    "a late one of a run never heard": (
        [said("a", 1, heard_ms=5), said("c", 1, heard_ms=9), said("b", 4, heard_ms=7), said("c", 2, heard_ms=9)],
        [True, True, False, True],
    ),
    "a new ledger claims nothing": ([said("a", 1, heard_ms=5), said("b", 1)], [True, True]),
    "a clone with its own run": (
        [said("a", 7), said("b", 1), *(said(run, n + 7 * (run == "a")) for n in range(2, 8) for run in "ab")],
        [True, True, *(False, True) * 5, "cloned_host", True],
    ),
    "some of before a restart are late": (
        [said("a", 7), said("b", 1), said("a", 8), said("b", 2), said("a", 9), said("a", 10)],
        [True, True, False, True, False, False],
    ),
    "some of the same run are late, in any order, and one comes twice": (
        [*(said("a", n) for n in (16, 21, 18, 19, 17, 18, 22))],
        [True, True, False, False, False, False, True],
    ),
    "now and then one is late, for ever": (
        [*(said("a", n + late) for n in range(1, 60, 3) for late in (1, 0, 2))],
        [True, False, True] * 20,
    ),
    "old ones that were lost come again as a thief likes": (
        [said("a", 90), *(said("a", n) for n in (20, 30, 31, 40, 41, 42, 50, 51, 60))],
        [True, *(False,) * 9],
    ),
    "an old run's word comes again and is taken for a restart": (
        [said("a", 20), said("z", 1), *(said("a", n) for n in range(21, 29))],
        [True, True, *(False,) * 5, True, True, True],
    ),
    "an old run's word comes again, and again while the agent goes on": (
        [said("a", 20), said("z", 1), *(b for n in range(21, 27) for b in (said("a", n), said("z", n - 19)))],
        [True, True, *(False, True) * 5, "cloned_host", True],
    ),
    "a clone of a running machine": ([said("a", 7), said("a", 7, "other")], [True, "cloned_host"]),
    "a clone from an image of a moment ago": (
        [*(said("a", n) for n in (7, 8, 9, 10)), said("a", 8, "other")],
        [True, True, True, True, "cloned_host"],
    ),
    "a clone from an old image": (
        [*(said("a", n) for n in (7, 50)), *(said("a", n) for n in range(20, 26))],
        [True, True, *(False,) * 5, "cloned_host"],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_two_agents_with_one_key_are_told_from_a_bad_network(name: str) -> None:
    beats, expected = HISTORIES[name]
    assert listen(*beats) == expected


def test_runs_that_are_remembered_are_bounded() -> None:
    pulse = Pulse(host=HOST)
    for number in range(3 * limits.BOOTS_KEPT):
        judged = fresh.beat(pulse, said(f"run{number}", 1))
        assert not isinstance(judged, Alarm)
        pulse = judged[0]
    assert len(pulse.runs) == limits.BOOTS_KEPT


TERMS: dict[str, tuple[Term, Term, bool, bool]] = {
    "our own term": (Term(epoch=1, counter=4), Term(epoch=1, counter=4), False, True),
    "the term before": (Term(epoch=1, counter=3), Term(epoch=1, counter=4), False, False),
    "the term before, of a new host": (Term(epoch=1, counter=3), Term(epoch=1, counter=4), True, False),
    "an older epoch with a higher counter": (Term(epoch=1, counter=9), Term(epoch=2, counter=4), False, False),
    "a higher term": (Term(epoch=1, counter=5), Term(epoch=1, counter=4), False, True),
    "no term yet, of a new host": (Term(epoch=0, counter=0), Term(epoch=1, counter=4), True, True),
    "no term yet, of a known host": (Term(epoch=0, counter=0), Term(epoch=1, counter=4), False, False),
}


@pytest.mark.parametrize("name", sorted(TERMS))
def test_only_what_repeats_our_term_is_surely_of_now(name: str) -> None:
    theirs, ours, first, expected = TERMS[name]
    heartbeat = replace(said("a", 1), term=theirs)
    assert fresh.is_of_now(heartbeat, ours, first=first) is expected
