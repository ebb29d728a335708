"""A host says which term it has obeyed. A controller without memory has to go by that, and one host may lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.controller.core.terms import most_believed
from gridops.protocol.open import open_heartbeat
from gridops.trust.envelope import seal
from tests.controller.fleet import HOSTS, Desk, Fleet

FAR = 1 << 40
LAST = (1 << 53) - 1
"""The highest number that can be signed: nothing is above it."""
ALPHA, BETA = HostId("alpha"), HostId("beta")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A rebuilt controller, and hosts that have not spoken to it."""
    fleet = Fleet(tmp_path)
    fleet.begin()
    made = Desk(fleet)
    made.settle(3)
    made.apply()
    made.settle(8)
    made.rebuild()
    yield made
    made.controller.close()


def claims(desk: Desk, host: HostId, counter: int) -> None:
    """One host says, by its own key, that it has obeyed this term."""
    agent = desk.fleet.agents[host]
    agent.now_ms = desk.now
    beat = agent.beat()
    true = open_heartbeat(beat.heartbeat, agent.signer.public)
    said = replace(true, term=replace(true.term, epoch=1, counter=counter))
    agent.hear(desk.post(replace(beat, heartbeat=seal("heartbeat", to_bytes(said), agent.signer))))


def ours(desk: Desk) -> int:
    assert desk.state.term is not None
    return desk.state.term.counter


@pytest.mark.parametrize("counter", [limits.TERM_BY_ONE + 1, limits.TERM_JUMP + 2, FAR, LAST])
def test_one_host_that_lies_lifts_a_rebuilt_controller_out_of_nobodys_reach(desk: Desk, counter: int) -> None:
    for _ in range(4):
        desk.settle(1)
        claims(desk, ALPHA, counter)
    assert ours(desk) <= limits.TERM_JUMP, "a host that has only ever obeyed the first term would obey nobody any more"
    text = desk.state.alarms[f"term_jump:{ALPHA}"].text
    assert f"{ALPHA}: it says that it has obeyed a controller with term {counter}" in text
    assert desk.state.distrust is None
    desk.settle(3)
    assert desk.ready() == ["coder/1"], "whoever says what is true is heard and told what to do"


def test_one_host_that_climbs_word_by_word_comes_no_further(desk: Desk) -> None:
    for _ in range(30):
        claims(desk, ALPHA, ours(desk) + limits.TERM_ABOVE_MOST // 2)
        desk.settle(1)
    assert ours(desk) <= limits.TERM_BY_ONE + 1


def test_what_one_host_has_heard_alone_is_risen_above(desk: Desk) -> None:
    claims(desk, ALPHA, 7)
    desk.settle(2)
    assert ours(desk) == 8
    assert f"term_jump:{ALPHA}" not in desk.state.alarms


def test_what_more_than_half_have_obeyed_is_risen_above_however_high_it_is(desk: Desk) -> None:
    """A fleet whose controller was started so often, and which lost its memory then."""
    claims(desk, ALPHA, 5_000)
    assert f"term_jump:{ALPHA}" in desk.state.alarms
    assert ours(desk) == 2
    claims(desk, BETA, 5_000 - limits.TERM_ABOVE_MOST)
    assert ours(desk) == 5_001
    desk.settle(3)
    assert f"term_jump:{ALPHA}" not in desk.state.alarms, "it is believed now, and nobody is told otherwise"


def test_nobody_waits_for_laptops_and_none_of_them_outvotes_a_server(desk: Desk) -> None:
    """Laptops are away for days; a word of one counts like any single word."""
    laptops = HOSTS.replace("beta: {domains: {rack: right}", "beta: {class: opportunistic, owner: ana")
    desk.commit({"fleet.d/hosts.yaml": laptops})
    claims(desk, ALPHA, 5_000)
    assert ours(desk) == 5_001, "every dedicated host says so"
    claims(desk, BETA, FAR)
    assert ours(desk) == 5_001
    assert [key for key in desk.state.alarms if key.startswith("term_jump")] == [f"term_jump:{BETA}"]


def test_more_than_half_are_more_than_half_of_those_that_may_speak() -> None:
    one, more = limits.TERM_BY_ONE, limits.TERM_ABOVE_MOST
    assert most_believed([9_000], 1) == 9_000 + more
    assert most_believed([9_000], 2) == one
    assert most_believed([9_000, 9_000], 4) == one
    assert most_believed([9_000, 8_000, 1], 3) == 8_000 + more
    assert most_believed([9_000, 8_000, 7_000, 1], 4) == 7_000 + more
    assert most_believed([LAST], 1) == limits.TERM_MOST


def test_a_controller_with_its_memory_says_who_has_obeyed_another(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(3)
    claims(desk, ALPHA, 7)
    assert desk.state.distrust is not None
    assert desk.state.distrust.startswith(f"{ALPHA} has obeyed a controller with term 7, this journal is at 1")
    desk.controller.close()
