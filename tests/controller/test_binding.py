"""Who answers at a host's front: asked of the host, handed on as the host signed it, and of nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.record import to_bytes
from gridops.controller import views
from gridops.protocol.binding import KIND, bind, open_binding
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from gridops.trust.tls import fingerprint, self_signed
from tests.controller.fleet import Desk
from tests.controller.scripted_agent import ScriptedAgent

DAY = limits.BINDING_MS
TLS = self_signed(("alpha.example",), 1, 30)
ANOTHER = self_signed(("alpha.example",), 1, 30)
WHERE = "https://alpha.example:8443"


def alpha(desk: Desk) -> ScriptedAgent:
    agent = desk.fleet.agents["alpha"]
    agent.certificate = fingerprint(TLS.cert_pem)
    return agent


def word(desk: Desk, signer: MachineSigner | None = None, **changes: object) -> str:
    agent = alpha(desk)
    says = bind(agent.chain.fleet, agent.host, WHERE, TLS.cert_pem, desk.now)
    return seal(KIND, to_bytes(replace(says, **changes)), signer or agent.signer)  # type: ignore[arg-type]


def fronts(desk: Desk) -> dict[str, str]:
    return {f.host: f.binding for f in views.fronts(desk.controller.view()).fronts}


def test_the_word_of_a_host_is_asked_for_and_handed_on_unaltered(desk: Desk) -> None:
    agent = alpha(desk)
    agent.binding = word(desk)
    desk.beat("alpha")
    assert fronts(desk) == {}, "nothing is said of a front before its host has said it"
    assert agent.last is not None
    assert agent.last.wants_binding
    desk.beat("alpha")
    assert fronts(desk) == {"alpha": agent.binding}
    assert not agent.last.wants_binding, "said once, it is not asked for again"
    (front,) = views.fronts(desk.controller.view()).fronts
    opened = open_binding(front.binding, agent.signer.public, fleet=agent.chain.fleet, host=agent.host, now_ms=desk.now)
    assert (front.endpoint, opened.says.certificate) == (WHERE, TLS.cert_pem)


def test_it_is_asked_for_again_in_time_and_one_that_has_ended_is_not_shown(desk: Desk) -> None:
    agent = alpha(desk)
    agent.binding = first = word(desk)
    for _ in range(2):
        desk.beat("alpha")
    desk.clock.pass_by(DAY - DAY // 3)
    desk.beat("alpha")
    assert agent.last is not None
    assert not agent.last.wants_binding
    desk.clock.pass_by(1_000)
    desk.beat("alpha")
    assert agent.last.wants_binding, "two thirds of its life are over"
    agent.binding = None  # it does not answer
    desk.clock.pass_by(DAY // 3 - 1_000)
    desk.beat("alpha")
    assert fronts(desk) == {"alpha": first}
    desk.clock.pass_by(1)
    assert fronts(desk) == {}, "also while its host says nothing"
    desk.beat("alpha")
    agent.binding = second = word(desk)
    desk.beat("alpha")
    assert fronts(desk) == {"alpha": second}


@pytest.mark.parametrize(
    "what", ["another's signature", "another host", "another certificate", "another address", "ended", "no envelope"]
)
def test_a_word_that_does_not_hold_is_none_and_the_host_is_asked_again(desk: Desk, what: str) -> None:
    agent = alpha(desk)
    agent.binding = {
        "another's signature": lambda: word(desk, desk.fleet.agents["beta"].signer),
        "another host": lambda: word(desk, host="beta"),
        "another certificate": lambda: word(desk, certificate=ANOTHER.cert_pem),
        "another address": lambda: word(desk, endpoint="https://elsewhere.example:8443"),
        "ended": lambda: word(desk, issued_ms=desk.now - DAY - 1, not_after_ms=desk.now - 1),
        "no envelope": lambda: "x" * 40_000,
    }[what]()
    for _ in range(3):
        desk.beat("alpha")
    assert fronts(desk) == {}
    assert agent.last is not None
    assert agent.last.wants_binding
    agent.binding = word(desk)
    desk.beat("alpha")
    assert fronts(desk) == {"alpha": agent.binding}


def test_a_front_that_has_moved_is_not_shown_by_what_was_said_of_the_old_one(desk: Desk) -> None:
    agent = alpha(desk)
    agent.binding = word(desk)
    for _ in range(2):
        desk.beat("alpha")
    agent.certificate = fingerprint(ANOTHER.cert_pem)
    desk.beat("alpha")
    assert fronts(desk) == {}
    assert agent.last is not None
    assert agent.last.wants_binding


def test_a_host_that_is_admitted_no_more_has_no_front(desk: Desk) -> None:
    agent = alpha(desk)
    agent.binding = word(desk)
    for _ in range(2):
        desk.beat("alpha")
    desk.commit({"fleet.d/keys/alpha.yaml": desk.fleet.key_file("alpha") + "expunged: true\n"})
    assert fronts(desk) == {}


def test_what_the_former_key_of_a_host_signed_counts_no_more(desk: Desk) -> None:
    agent = alpha(desk)
    agent.binding = word(desk)
    for _ in range(2):
        desk.beat("alpha")
    new = MachineSigner.from_seed(b"n" * 32)
    text = desk.fleet.key_file("alpha").replace(agent.signer.public.text, new.public.text)
    desk.commit({"fleet.d/keys/alpha.yaml": text})
    again = ScriptedAgent(agent.host, new, agent.chain, certificate=agent.certificate, boot="boot-2")
    desk.fleet.agents["alpha"] = again
    desk.beat("alpha")
    assert fronts(desk) == {}
    assert again.last is not None
    assert again.last.wants_binding


def test_an_agent_of_before_is_never_asked(desk: Desk) -> None:
    agent = alpha(desk)
    agent.room.abilities = ("catalog", "evict", "proof")
    for _ in range(3):
        desk.beat("alpha")  # it would not read such a directive
    assert agent.last is not None
    assert agent.last.wants_binding is None
