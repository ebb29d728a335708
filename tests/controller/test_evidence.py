"""What an end rests on is looked at again when its host hears of it, and has to hold for a while longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.controller.core.evidence import ending, margin_ms
from gridops.controller.core.state import Uncertain
from gridops.controller.polls import Answered
from gridops.model.action import Drain
from gridops.model.snapshot import ResidencyState
from gridops.protocol import outbox as ob
from gridops.protocol.binding import KIND, bind, open_binding
from gridops.protocol.messages import Outcome
from gridops.trust.envelope import seal
from gridops.trust.tls import fingerprint, self_signed
from tests.controller.fleet import DEFAULT, Desk, Fleet, profile
from tests.controller.test_reconcile import WIDE, held, open_kinds, slow, started, three


def drain_of_one_of_two(fleet: Fleet) -> tuple[Desk, HostId, HostId]:
    """A drain was queued while two served, and its host has not heard of it. The victim, and who shall serve on."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.pass_()
    assert open_kinds(desk) == ["drain"]
    victim = next(h for h, b in desk.state.hosts.items() if ob.open_entries(b.outbox))
    return desk, victim, next(n for n in desk.fleet.agents if n != victim)


def drains(desk: Desk) -> int:
    return len([k for _, k, _ in desk.executed() if k == "drain"])


def test_an_end_is_looked_at_again_in_the_moment_in_which_it_goes(fleet: Fleet) -> None:
    """The survivor's newest word came between the last pass and the victim's poll: it serves no more."""
    desk, victim, survivor = drain_of_one_of_two(fleet)
    room = desk.fleet.agents[survivor].room
    room.residencies = {k: replace(v, state=ResidencyState.FAILED) for k, v in room.residencies.items()}
    room.bump()
    desk.beat(survivor)
    desk.beat(victim)
    assert drains(desk) == 0
    assert desk.fleet.agents[victim].replicas()
    desk.controller.close()


@pytest.mark.parametrize("order", [1, -1])
def test_polls_that_come_together_are_proved_by_the_words_of_all_of_them(fleet: Fleet, order: int) -> None:
    """Whoever speaks first is not told to end because of what the other one said before."""
    desk, victim, survivor = drain_of_one_of_two(fleet)
    desk.clock.pass_by(1_000)
    agents = [fleet.agents[name] for name in (victim, survivor)][::order]
    room = fleet.agents[survivor].room
    room.residencies = {k: replace(v, state=ResidencyState.FAILED) for k, v in room.residencies.items()}
    room.bump()
    for agent in agents:
        agent.now_ms = desk.now
    answers = desk.controller.beats([agent.beat() for agent in agents])
    for agent, answer in zip(agents, answers, strict=True):
        assert isinstance(answer, Answered)
        agent.hear(answer.directive)
    assert drains(desk) == 0
    assert fleet.agents[victim].replicas()
    desk.controller.close()


@pytest.mark.parametrize(("stale_ms", "more_ms"), [(300_000, 30_000), (90_000, 30_000), (15_000, 5_000)])
def test_how_much_longer_that_is(stale_ms: int, more_ms: int) -> None:
    """Half a minute (A-388); a third of the patience with hosts that are heard often."""
    assert margin_ms(stale_ms) == more_ms


@pytest.mark.parametrize(("late_ms", "goes"), [(-500, True), (500, False)])
def test_who_serves_instead_must_be_good_for_longer_than_an_answer_takes(
    fleet: Fleet, late_ms: int, goes: bool
) -> None:
    desk, victim, survivor = drain_of_one_of_two(fleet)
    stale_ms = desk.controller.roster.desired.planning.heartbeat.stale_after_ms
    desk.clock.pass_by(1_000)
    desk.beat(survivor)
    desk.clock.pass_by(stale_ms - margin_ms(stale_ms) + late_ms)
    heard = desk.controller.soft.hosts
    # The victim itself was heard all the while.
    heard[victim] = replace(heard[victim], report=replace(heard[victim].report, observed_ms=desk.now))
    desk.beat(victim)
    assert drains(desk) == (1 if goes else 0)
    desk.settle()
    assert len(desk.ready()) == 1, "once it is heard again, it goes on"
    desk.controller.close()


def test_a_host_that_comes_back_is_told_no_end_that_was_decided_before_it_fell_silent(fleet: Fleet) -> None:
    """The next pass decides it anew, by what the host says now."""
    desk, victim, survivor = drain_of_one_of_two(fleet)
    desk.clock.pass_by(16_000)
    desk.beat(survivor)
    desk.beat(victim)
    assert drains(desk) == 0
    desk.settle()
    assert (drains(desk), len(desk.ready())) == (1, 1)
    desk.controller.close()


def test_an_end_that_would_not_go_is_not_queued_only_to_be_withdrawn(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    stale_ms = desk.controller.roster.desired.planning.heartbeat.stale_after_ms
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.pass_()
    victim = next(h for h, b in desk.state.hosts.items() if ob.open_entries(b.outbox))
    desk.clock.pass_by(stale_ms - margin_ms(stale_ms) + 500)
    desk.beat(victim)
    desk.beat(victim)
    desk.pass_()
    numbers = desk.state.hosts[victim].outbox.head.seq
    for _ in range(5):
        desk.beat(victim)
        desk.pass_()
    assert desk.state.hosts[victim].outbox.head.seq == numbers
    assert "who serves instead has to be heard again first" in held(desk)
    desk.controller.close()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("how", ["granted", "accepted", "ended"])
@pytest.mark.parametrize("passes", [False, True])
def test_two_that_were_told_to_go_do_not_vouch_for_each_other(fleet: Fleet, first: int, how: str, passes: bool) -> None:
    """One of them has its drain, and is still shown as ready, when the one that stays breaks: the other one stays."""
    desk = three(fleet)
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.pass_()
    assert open_kinds(desk) == ["drain", "drain"]
    victims = sorted(h for h, b in desk.state.hosts.items() if ob.open_entries(b.outbox))
    survivor = next(HostId(n) for n in fleet.agents if n not in victims)
    gone, other = victims[first], victims[1 - first]
    shown = desk.controller.soft.hosts[gone]
    slow(desk, "drain")
    desk.beat(gone)
    if how != "granted":
        if how == "ended":
            fleet.agents[gone].finish("drain")
        desk.beat(gone)
        desk.controller.soft.hosts[gone] = shown
    room = fleet.agents[survivor].room
    room.residencies = {k: replace(v, state=ResidencyState.FAILED) for k, v in room.residencies.items()}
    room.bump()
    desk.beat(survivor)
    if passes:
        desk.controller.reconcile(DEFAULT)
    desk.beat(other)
    assert drains(desk) == 1
    assert len(fleet.agents[other].replicas()) == 1
    desk.controller.close()


def test_who_may_have_ended_because_nobody_knows_vouches_for_nobody(fleet: Fleet) -> None:
    """Until a later word of its host shows how it ended."""
    desk, victim, _ = drain_of_one_of_two(fleet)
    slow(desk, "drain")
    desk.beat(victim)
    book = desk.state.hosts[victim]
    (entry,) = ob.open_entries(book.outbox)
    assert isinstance(entry.body.action, Drain)
    assert ending(desk.state) == {entry.body.action.incarnation}
    fleet.agents[victim].finish("drain", Outcome.FAILED, "drain_timeout")
    desk.beat(victim)
    assert ending(desk.state) == frozenset(), "it was left alive"
    of, action = entry.body, entry.body.action
    group = entry.authority.action_class
    book.uncertain[entry.digest] = Uncertain(entry.digest, of.seq, 1, DEFAULT, action, group, desk.now)
    assert ending(desk.state) == {action.incarnation}
    desk.controller.close()


def says(desk: Desk, host: HostId, left_ms: int | None) -> None:
    """What the host has said of its front: who answers there, for so long from now on; or nothing."""
    agent, tls = desk.fleet.agents[host], self_signed((f"{host}.example",), 1, 30)
    agent.certificate, bound = fingerprint(tls.cert_pem), None
    if left_ms is not None:
        word = bind(agent.chain.fleet, host, f"https://{host}.example:8443", tls.cert_pem, desk.now)
        text = seal(KIND, to_bytes(replace(word, not_after_ms=desk.now + left_ms)), agent.signer)
        bound = open_binding(text, agent.signer.public, fleet=agent.chain.fleet, host=host, now_ms=desk.now)
    heard = desk.controller.soft.hosts
    heard[host] = replace(heard[host], binding=bound)


LONG = limits.BINDING_MS
MARGIN = margin_ms(15_000)


@pytest.mark.parametrize(
    ("going_ms", "staying_ms", "goes"),
    [(LONG, LONG, True), (LONG, None, False), (LONG, MARGIN - 1, False), (LONG, MARGIN, True), (None, None, True)],
    ids=["both", "only the one that goes", "the other one not for long", "for long enough", "nobody says a word"],
)
def test_what_callers_are_led_to_goes_only_for_something_that_they_are_led_to(
    fleet: Fleet, going_ms: int | None, staying_ms: int | None, goes: bool
) -> None:
    """Ready is not reached: a front whose own host does not vouch for it gets no prompt."""
    desk, victim, survivor = drain_of_one_of_two(fleet)
    says(desk, victim, going_ms)
    says(desk, survivor, staying_ms)
    desk.beat(victim)
    assert drains(desk) == (1 if goes else 0)
    says(desk, survivor, LONG)
    desk.settle()
    assert len(desk.ready()) == 1
    desk.controller.close()


def test_an_agent_of_before_that_knows_no_such_word_is_no_reason_to_wait(fleet: Fleet) -> None:
    desk, victim, survivor = drain_of_one_of_two(fleet)
    fleet.agents[survivor].room.abilities = ("catalog", "evict", "proof")
    desk.beat(survivor)
    says(desk, victim, LONG)
    desk.beat(victim)
    assert drains(desk) == 1
    desk.controller.close()
