"""One agent per key: what is late, what comes again, who forgot, and when two agents speak."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import limits
from gridops.protocol.alarm import Alarm
from gridops.protocol.messages import Heartbeat, Term
from gridops.protocol.pulse import Pulse, beat, in_doubt, is_of_now, told
from tests.protocol import build
from tests.protocol.build import HOST


def said(boot: str, hseq: int, nonce: str = "", heard_ms: int = 0) -> Heartbeat:
    changes = {"boot": boot, "hseq": hseq, "nonce": nonce or f"{boot}{hseq}", "heard_ms": heard_ms}
    return replace(build.heartbeat(build.fence()), **changes)  # type: ignore[arg-type]


def listen(*beats: Heartbeat) -> list[bool | str]:
    """For each heartbeat: whether it is news, or the code of the alarm."""
    heard, found = Pulse(host=HOST), list[bool | str]()
    for heartbeat in beats:
        judged = beat(heard, heartbeat)
        if isinstance(judged, Alarm):
            found.append(judged.code)
        else:
            heard, news = judged
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


def test_old_words_of_a_run_that_began_with_nothing_are_no_sign_that_it_lives() -> None:
    """The very first word of a host comes again when a controller began, then another of the same old run."""
    before = [said("b", 7, heard_ms=100), said("b", 8, heard_ms=200), said("a", 1)]
    goes_on = [said("b", n, heard_ms=300) for n in range(9, 9 + limits.STRAYS_PROVE)]
    heard = listen(*before, *goes_on[:3], said("a", 9, heard_ms=50), *goes_on[3:])
    assert heard[-1] is True
    assert all(not isinstance(word, str) for word in heard)


def test_runs_that_are_remembered_are_bounded() -> None:
    heard = Pulse(host=HOST)
    for number in range(3 * limits.BOOTS_KEPT):
        judged = beat(heard, said(f"run{number}", 1, heard_ms=9 if number == 0 else 9 - number % 2))
        assert not isinstance(judged, Alarm)
        heard = judged[0]
    assert len(heard.runs) == len(heard.doubts) == limits.BOOTS_KEPT


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
    assert is_of_now(heartbeat, ours, first=first) is expected


# --- runs in doubt: what the controller tells them, and whether they repeat it ---------------------------------------


@dataclass
class Agent:
    """One agent with its ledger. It repeats the latest word that it was told."""

    boot: str
    heard_ms: int = 0
    hseq: int = 0
    asked: int = 0
    """The number that an answer must be to."""

    def speaks(self) -> Heartbeat:
        self.hseq += 1
        self.asked = self.hseq
        return said(self.boot, self.hseq, heard_ms=self.heard_ms)

    def hears(self, hseq: int, now_ms: int) -> None:
        if hseq == self.asked:
            self.heard_ms = max(self.heard_ms, now_ms)


@dataclass
class Desk:
    """A controller, as far as it tells agents apart."""

    now_ms: int = 1_000
    heard: Pulse = field(default_factory=lambda: Pulse(host=HOST))
    alarm: str = ""

    def judges(self, heartbeat: Heartbeat) -> str:
        """`news`, `doubt`, `old`, or the alarm."""
        self.now_ms += 1
        judged = beat(self.heard, heartbeat)
        if isinstance(judged, Alarm):
            self.alarm = self.alarm or judged.detail
            return judged.code
        self.heard, news = judged
        if news:
            return "news"
        if in_doubt(self.heard, heartbeat.boot) is None:
            return "old"
        self.heard = told(self.heard, heartbeat.boot, self.now_ms)
        return "doubt"

    def talks(self, agent: Agent, is_answered: bool = True) -> str:
        found = self.judges(agent.speaks())
        if is_answered and found in ("news", "doubt"):
            agent.hears(agent.hseq, self.now_ms)
        return found


def talked(desk: Desk, agent: Agent, times: int) -> list[str]:
    return [desk.talks(agent) for _ in range(times)]


def test_a_copy_whose_heartbeats_always_come_late_is_found_once_both_answer() -> None:
    desk, one = Desk(), Agent("a")
    talked(desk, one, 3)
    copy = Agent("b", heard_ms=one.heard_ms)
    talked(desk, one, 2)
    assert desk.talks(copy) == "doubt", "what it repeats is older than what the other has repeated"
    assert desk.talks(one) == "news"
    assert desk.talks(one) == "news", "it repeats what it was told after that"
    assert desk.talks(copy) == "cloned_host"
    assert "both answer what was told to each of them" in desk.alarm


@pytest.mark.parametrize("pace", [1, 2, 5])
def test_it_is_found_at_any_pace_whoever_speaks_first(pace: int) -> None:
    for first in (True, False):
        desk, one = Desk(), Agent("a")
        talked(desk, one, 3)
        copy = Agent("b", heard_ms=one.heard_ms - 1)
        talked(desk, one, 1)
        for _ in range(8):
            talked(desk, copy, 1 if first else pace)
            talked(desk, one, pace if first else 1)
        assert desk.alarm


def test_an_agent_that_forgot_is_told_nothing_to_act_on_and_heard_again_after_a_while() -> None:
    """Its ledger is an old copy. It was refused for ever, and nobody was told why."""
    desk, one = Desk(), Agent("a")
    talked(desk, one, 3)
    old = one.heard_ms
    talked(desk, one, 3)
    again = Agent("b", heard_ms=old)
    assert talked(desk, again, 1 + limits.STRAYS_PROVE) == ["doubt"] * limits.STRAYS_PROVE + ["news"]
    assert talked(desk, again, 3) == ["news"] * 3
    assert (desk.alarm, desk.heard.doubts) == ("", ())


def test_words_that_were_held_back_come_again_and_again_and_prove_nothing() -> None:
    desk, lost, one = Desk(), Agent("x", heard_ms=5), Agent("a", heard_ms=9)
    kept = [lost.speaks() for _ in range(20)]
    talked(desk, one, 2)
    for word in (*kept, *kept):
        assert desk.judges(word) == "doubt"
        assert desk.talks(one) == "news"
    assert desk.alarm == ""


def test_what_one_run_repeats_of_before_it_was_doubted_is_no_answer() -> None:
    """An agent that was told of a time to come (a clock that was wrong) says it for long, and hears nothing new."""
    desk, one, other = Desk(), Agent("a", heard_ms=9_000), Agent("b", heard_ms=8_000)
    talked(desk, one, 1)
    for _ in range(10):
        assert desk.talks(other) == "doubt"
        assert desk.talks(one) == "news"
    assert desk.alarm == "", "neither repeats what it was told, for its floor is above it"


@pytest.mark.parametrize("floor_ms", [0, 9_000], ids=["as it should be", "a clock that was once ahead"])
def test_the_last_words_of_an_agent_that_ended_come_late_and_do_not_show_that_it_lives(floor_ms: int) -> None:
    desk, one = Desk(), Agent("a", heard_ms=floor_ms)
    talked(desk, one, 3)
    kept = [one.speaks() for _ in range(3)]
    again = Agent("b", heard_ms=10)
    for last in kept:
        assert desk.talks(again) == "doubt"
        assert desk.judges(last) in ("news", "old")
    talked(desk, again, 6)
    assert desk.alarm == ""


def test_a_restart_of_the_true_agent_begins_the_comparison_anew() -> None:
    desk, one = Desk(), Agent("a")
    talked(desk, one, 3)
    copy = Agent("b", heard_ms=one.heard_ms)
    talked(desk, one, 2)
    assert talked(desk, copy, 2) == ["doubt"] * 2
    again = Agent("c", heard_ms=one.heard_ms)
    assert desk.talks(again) == "news"
    doubt = in_doubt(desk.heard, "b")
    assert doubt is not None
    assert (doubt.answers, doubt.told_ms, doubt.went_on) == (0, None, False)
    for agent in (copy, again, copy, again):
        desk.talks(agent)
    assert desk.alarm


STEPS = st.lists(
    st.tuples(st.sampled_from(["speak", "lose", "restart", "restore", "again"]), st.integers(0, 1_000)), max_size=60
)


@given(STEPS)
def test_one_agent_is_never_taken_for_two_by_what_it_repeats(steps: list[tuple[str, int]]) -> None:
    """It restarts, is restored from any earlier ledger, and every word of it may come again, late, at any time."""
    desk, one, boots = Desk(), Agent("run0"), 0
    words, ledgers = list[Heartbeat](), [0]
    for what, at in steps:
        desk.now_ms += at % 7
        if what in ("restart", "restore"):
            boots += 1
            floor = one.heard_ms if what == "restart" else ledgers[at % len(ledgers)]
            one = Agent(f"run{boots}", heard_ms=floor)
        elif what == "again" and words:
            desk.judges(words[at % len(words)])
        else:
            word = one.speaks()
            words.append(word)
            if what == "speak" and desk.judges(word) in ("news", "doubt") and at % 3:
                one.hears(word.hseq, desk.now_ms)
            ledgers.append(one.heard_ms)
        assert "both answer" not in desk.alarm
