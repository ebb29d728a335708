"""A host that takes another key: both keys sign, a commit admits it, and nothing that runs is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.controller import views
from gridops.protocol.messages import Facts, JoinRequest, Rekey, Term
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from tests.controller.fleet import AUTOMATIC, Desk, Fleet, profile
from tests.controller.scripted_agent import ScriptedAgent

NEXT = MachineSigner.from_seed(b"n" * 32)
OTHER = MachineSigner.from_seed(b"x" * 32)
FACTS = Facts(devices=(), runtimes=(), agent_version="0.1.0", platform="linux")


def asked(
    desk: Desk,
    *,
    present: MachineSigner | None = None,
    coming: MachineSigner = NEXT,
    said: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    agent = desk.fleet.agents["alpha"]
    signer = present or agent.signer
    over = Rekey(
        fleet=agent.chain.fleet,
        host=agent.host,
        host_key=agent.signer.public.text,
        next_key=coming.public.text,
        nonce="n",
    )
    request = JoinRequest(
        fleet=agent.chain.fleet,
        host=agent.host,
        host_key=coming.public.text,
        nonce="n",
        facts=FACTS,
        mac="",
        over=seal("rekey", to_bytes(replace(over, **(said or {}))), signer),
    )
    return seal("join", to_bytes(replace(request, **changes)), coming)


def committed(desk: Desk, former: MachineSigner) -> None:
    text = desk.fleet.key_file("alpha").replace(former.public.text, NEXT.public.text)
    desk.commit({"fleet.d/keys/alpha.yaml": f"{text}previous: ['{former.public.text}']\n"})


def test_a_commit_admits_the_next_key_and_what_runs_is_not_touched(fleet: Fleet) -> None:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=1)})
    desk = Desk(fleet)
    desk.settle()
    agent = next(a for a in fleet.agents.values() if a.replicas())  # whichever host the model is on
    before, signer, host = agent.replicas(), agent.signer, agent.host

    def over(coming: MachineSigner = NEXT) -> str:
        said = Rekey(
            fleet=agent.chain.fleet, host=host, host_key=signer.public.text, next_key=coming.public.text, nonce="n"
        )
        sealed = seal("rekey", to_bytes(said), signer)
        request = JoinRequest(
            fleet=agent.chain.fleet, host=host, host_key=coming.public.text, nonce="n", facts=FACTS, mac="", over=sealed
        )
        return seal("join", to_bytes(request), coming)

    for _ in range(2):  # an answer can get lost
        desk.controller.join(over())
    (waiting,) = views.pending(desk.controller.view()).pending
    assert (waiting.host, waiting.host_key, waiting.former) == (host, NEXT.public.text, signer.public.text)
    desk.beat(host)
    text = f"apiVersion: gridops/v1\nkind: HostKey\nhost: {host}\nkey: {NEXT.public.text}\n"
    desk.commit({f"fleet.d/keys/{host}.yaml": f"{text}previous: ['{signer.public.text}']\n"})
    assert desk.state.pending == {}
    with pytest.raises(Refusal) as no:
        desk.beat(host)
    assert no.value.code == "bad_signature", "by which its agent knows that it is time"
    again = ScriptedAgent(host, NEXT, agent.chain, room=agent.room, boot="boot-2")
    again.fence = replace(again.fence, term=agent.fence.term)
    fleet.agents[str(host)] = again
    spawned, stopped = len(again.room.spawned), len(again.room.stopped)
    for _ in range(6):
        desk.settle(1)
    assert (again.replicas(), len(again.room.spawned), len(again.room.stopped)) == (before, spawned, stopped)
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(6)
    assert sum(len(a.replicas()) for a in fleet.agents.values()) == 2, "and it is commanded as ever"
    desk.commit({f"fleet.d/keys/{host}.yaml": text.replace(NEXT.public.text, signer.public.text)})
    assert "key_expunged" in desk.state.refused.problems[0], "it never signs back"
    desk.controller.close()


NO: dict[str, tuple[Callable[[Desk], str], str]] = {
    "another host's key": (lambda d: asked(d, present=d.fleet.agents["beta"].signer), "bad_signature"),
    "the next key alone": (lambda d: asked(d, present=NEXT), "bad_signature"),
    "another host": (lambda d: asked(d, said={"host": "beta"}), "bad_schema"),
    "another next key": (lambda d: asked(d, said={"next_key": OTHER.public.text}), "bad_schema"),
    "another present key": (lambda d: asked(d, said={"host_key": OTHER.public.text}), "bad_schema"),
    "another request": (lambda d: asked(d, nonce="m"), "bad_schema"),
    "another fleet": (lambda d: asked(d, said={"fleet": digest_bytes(b"staging")}), "wrong_fleet"),
    "a request of another fleet": (lambda d: asked(d, fleet=digest_bytes(b"staging")), "wrong_fleet"),
    "the key of another host": (lambda d: asked(d, coming=d.fleet.agents["beta"].signer), "key_expunged"),
    "its own present key": (lambda d: asked(d, coming=d.fleet.agents["alpha"].signer), "key_expunged"),
    "a host that nobody admitted": (lambda d: asked(d, host=HostId("gamma")), "not_admitted"),
    "no envelope": (lambda d: asked(d, over="{}"), "bad_envelope"),
}


@pytest.mark.parametrize("what", NO)
def test_a_key_is_signed_over_only_by_both_and_for_this_host(desk: Desk, what: str) -> None:
    made, code = NO[what]
    desk.beat()
    with pytest.raises(Refusal) as no:
        desk.controller.join(made(desk))
    assert no.value.code == code
    assert desk.state.pending == {}


def test_nobody_signs_over_to_a_key_that_was_expunged(desk: Desk) -> None:
    agent = desk.fleet.agents["alpha"]
    committed(desk, agent.signer)
    desk.commit(
        {"fleet.d/keys/alpha.yaml": desk.fleet.key_file("alpha").replace(agent.signer.public.text, OTHER.public.text)}
    )
    with pytest.raises(Refusal, match="key_expunged"):
        desk.controller.join(asked(desk, present=OTHER, coming=agent.signer, said={"host_key": OTHER.public.text}))
    assert desk.state.pending == {}


def test_a_host_that_was_written_off_is_back_by_a_word_of_now_and_not_by_its_next_key_alone(desk: Desk) -> None:
    """The first word under that key may be one that somebody recorded: until the next one it is lost as before."""
    former = desk.fleet.agents["alpha"]
    desk.beat()
    del desk.fleet.agents["alpha"]
    for _ in range(4):
        desk.clock.pass_by(5_000)
        desk.beat()
        desk.pass_()
    desk.ask("write_off", host=former.host, reason="burnt down")
    desk.fleet.agents["alpha"] = former
    committed(desk, former.signer)
    again = ScriptedAgent(former.host, NEXT, former.chain, room=former.room, boot="boot-2")
    again.fence = replace(again.fence, term=Term(epoch=1, counter=0))
    desk.fleet.agents["alpha"] = again
    assert desk.state.term is not None
    assert again.fence.term.rank < desk.state.term.rank
    assert again.fence.term.rank != (0, 0)
    desk.beat("alpha")
    assert desk.state.hosts[former.host].outbox.host_key == NEXT.public.text
    assert desk.state.hosts[former.host].written_off_ms is not None
    desk.beat("alpha")
    assert desk.state.hosts[former.host].written_off_ms is None
    desk.controller.close()
