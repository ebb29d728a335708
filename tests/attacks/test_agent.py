"""Somebody holds one host and its key: it may lie about itself, and about nobody else.

Each attack is one poll of alpha, sealed with alpha's true key, to a real controller that stands on a journal file. The
table says the code by which it is refused, or of the alarm that it raises. No refusal is final: alpha is heard again as
soon as it says what is true. What other hosts are told and what was ordered of them stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId, Digest, HostId, ProfileName
from gridops.base.record import to_bytes
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops.protocol.messages import Beat, Heartbeat, Inventory, Outcome, Receipt
from gridops.protocol.open import open_grant, open_heartbeat
from gridops.trust.envelope import seal
from tests.attacks.durable import durable
from tests.attacks.place import signed_by_hand
from tests.controller.fleet import Desk, Fleet, profile
from tests.controller.scripted_agent import ScriptedAgent
from tests.protocol import build as b

GIB = 1 << 30


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A fleet in which alpha runs a model, and both hosts are heard."""
    fleet = Fleet(tmp_path)
    fleet.begin()
    made = Desk(fleet)
    made.settle(3)
    made.apply()
    made.settle(8)
    assert made.ready() == ["coder/1"]
    yield made
    made.controller.close()


def thief(desk: Desk) -> ScriptedAgent:
    return next(a for a in desk.fleet.agents.values() if a.replicas())


def other(desk: Desk) -> ScriptedAgent:
    return next(a for a in desk.fleet.agents.values() if not a.replicas())


def said(agent: ScriptedAgent, now_ms: int) -> tuple[Beat, Heartbeat]:
    agent.now_ms = now_ms
    beat = agent.beat()
    return beat, open_heartbeat(beat.heartbeat, agent.signer.public)


def sealed(agent: ScriptedAgent, record: Heartbeat | Receipt) -> str:
    return seal(type(record).__name__.lower(), to_bytes(record), agent.signer)


Attack = Callable[[Desk], Beat]


def heartbeat(**changes: object) -> Attack:
    """A heartbeat in which something is not true."""

    def attack(desk: Desk) -> Beat:
        agent = thief(desk)
        beat, true = said(agent, desk.now)
        return replace(beat, heartbeat=sealed(agent, replace(true, **changes)))  # type: ignore[arg-type]

    return attack


def receipt(**changes: object) -> Attack:
    """A receipt, the next in the chain, in which something is not true."""

    def attack(desk: Desk) -> Beat:
        agent = thief(desk)
        beat, _ = said(agent, desk.now)
        last = agent.receipts.kept[-1]
        made = replace(last, rseq=last.rseq + 1, prev=agent.receipts.prev)
        return replace(beat, receipts=(sealed(agent, replace(made, **changes)),))  # type: ignore[arg-type]

    return attack


def _in_anothers_name(desk: Desk) -> Beat:
    """The other host's own heartbeat, signed by this key."""
    beat, true = said(other(desk), desk.now)
    return replace(beat, heartbeat=sealed(thief(desk), true))


def _anothers_receipt(desk: Desk) -> Beat:
    """What the other host signed, in this one's poll."""
    mate = other(desk)
    beat, _ = said(thief(desk), desk.now)
    made = replace(thief(desk).receipts.kept[-1], host=mate.host, fleet=desk.fleet.chain.fleet)
    return replace(beat, receipts=(sealed(mate, made),))


def _rewritten(desk: Desk) -> Beat:
    """A receipt that was acknowledged, with another outcome."""
    agent = thief(desk)
    beat, _ = said(agent, desk.now)
    last = agent.receipts.kept[-1]
    return replace(beat, receipts=(sealed(agent, replace(last, outcome=Outcome.FAILED, code="gone")),))


def _old_boot(desk: Desk) -> Beat:
    """A heartbeat of a run that has ended, once more."""
    agent = thief(desk)
    agent.claims = True
    desk.beat()
    old, _ = said(agent, desk.now)
    desk.post(old)
    agent.restart("boot-2")
    agent.claims = True
    for _ in range(2):
        desk.clock.pass_by(1_000)
        desk.beat()
    return old


def _two_words(desk: Desk) -> Beat:
    """Two heartbeats under one number."""
    agent = thief(desk)
    beat, true = said(agent, desk.now)
    agent.hear(desk.post(beat))
    return replace(beat, heartbeat=sealed(agent, replace(true, clock_ms=1)))


def _other_body(desk: Desk) -> Beat:
    """It claims to have decided something else under a number that was given."""
    beat, true = said(thief(desk), desk.now)
    head = replace(true.head, body=digest_bytes(b"x"))
    return replace(beat, heartbeat=sealed(thief(desk), replace(true, head=head)))


def _endless(desk: Desk) -> Beat:
    beat, true = said(thief(desk), desk.now)
    return replace(beat, heartbeat=sealed(thief(desk), replace(true, alarms=("x" * limits.HEARTBEAT_BYTES,))))


def _many(desk: Desk) -> Beat:
    device = DeviceReport(id=DeviceId("gpu0"), kind=DeviceKind.GPU, total_bytes=80 * GIB)
    beat, true = said(thief(desk), desk.now)
    more = replace(true.inventory, devices=(device,) * (limits.DEVICES_PER_HOST + 1))
    return replace(beat, heartbeat=sealed(thief(desk), replace(true, inventory=more)))


def _of_inventory(change: Callable[[Inventory], Inventory]) -> Attack:
    """A heartbeat whose inventory is another."""

    def attack(desk: Desk) -> Beat:
        beat, true = said(thief(desk), desk.now)
        return replace(beat, heartbeat=sealed(thief(desk), replace(true, inventory=change(true.inventory))))

    return attack


def _device(**changes: object) -> Attack:
    def change(true: Inventory) -> Inventory:
        first, *rest = true.devices
        return replace(true, devices=(replace(first, **changes), *rest))  # type: ignore[arg-type]

    return _of_inventory(change)


def _residency(**changes: object) -> Attack:
    return _of_inventory(
        lambda true: replace(true, residencies=tuple(replace(r, **changes) for r in true.residencies))  # type: ignore[arg-type]
    )


OTHER = Digest("sha256:" + "0" * 64)
REFUSED: tuple[tuple[str, Attack, str, bool], ...] = (
    ("a heartbeat in another's name", _in_anothers_name, "bad_signature", False),
    ("a heartbeat that names another host", heartbeat(host=HostId("beta")), "bad_signature", False),
    ("a heartbeat of another fleet", heartbeat(fleet=OTHER), "wrong_fleet", False),
    ("a receipt that another host signed", _anothers_receipt, "bad_signature", False),
    ("a heartbeat without end", _endless, "bad_envelope", False),
    ("more devices than a host may have", _many, "bad_schema", False),
    ("a heartbeat of a run that has ended", _old_boot, "replayed", False),
    ("a version that nobody speaks", heartbeat(v=2), "bad_schema", False),
    ("others who use less than nothing, so that more is free", _device(external_bytes=-80 * GIB), "bad_schema", False),
    ("a model that holds less than nothing", _residency(device_bytes=-GIB), "bad_schema", False),
    ("a host whose RAM a model gives back", _residency(host_bytes=-GIB), "bad_schema", False),
    ("one device twice", _of_inventory(lambda i: replace(i, devices=i.devices * 2)), "bad_schema", False),
    ("a device by no name", _device(id=DeviceId("gpu0\n  all is well")), "bad_schema", False),
    ("a profile by no name", _residency(profile=ProfileName("../../etc")), "bad_schema", False),
    ("a replica of another profile", _residency(profile=ProfileName("other")), "bad_schema", False),
)
ALARMED: tuple[tuple[str, Attack, str, bool], ...] = (
    ("a receipt in another's name", receipt(host=HostId("gamma")), "wrong_host", False),
    ("a receipt of another fleet", receipt(fleet=OTHER), "wrong_host", False),
    ("a receipt that left some out", receipt(rseq=99), "receipt_gap", False),
    ("a chain that was rewritten", receipt(prev=OTHER), "receipt_gap", False),
    ("an outcome that was rewritten", _rewritten, "receipt_conflict", False),
    ("a receipt for a command that nobody gave", receipt(seq=99), "fork", False),
    ("two heartbeats under one number", _two_words, "cloned_host", False),
    ("another command under a given number", _other_body, "fork", False),
)


@pytest.mark.parametrize(("attack", "code", "final"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_a_host_says_and_is_refused_for(desk: Desk, attack: Attack, code: str, final: bool) -> None:
    beat = attack(desk)
    journal = desk.fleet.state / "journal.sqlite"
    before, known = durable(journal), dict(desk.controller.soft.hosts)
    with pytest.raises(Refusal) as refusal:
        desk.post(beat)
    assert refusal.value.code == code
    assert durable(journal) == before, "a refused heartbeat became a row"
    assert desk.controller.soft.hosts == known
    assert not final
    desk.settle(2)
    assert desk.ready() == ["coder/1"]


@pytest.mark.parametrize(("attack", "code", "final"), [row[1:] for row in ALARMED], ids=[row[0] for row in ALARMED])
def test_what_a_host_says_and_people_are_told_of(desk: Desk, attack: Attack, code: str, final: bool) -> None:
    agent, mate = thief(desk), other(desk)
    beat = attack(desk)
    book, spared = desk.state.hosts[agent.host].outbox, desk.state.hosts[mate.host].outbox
    desk.post(beat)
    assert f"{code}:{agent.host}" in desk.state.alarms, sorted(desk.state.alarms)
    after = desk.state.hosts[agent.host].outbox
    assert [e.body for e in after.entries] == [e.body for e in book.entries], "what was ordered changed"
    assert after.acked_rseq == book.acked_rseq, "a false receipt was read"
    assert desk.state.hosts[mate.host].outbox == spared
    assert not final
    desk.settle(2)
    assert desk.ready() == ["coder/1"], "what runs goes on"


def test_a_host_that_claims_more_than_it_has_attracts_no_more_than_people_declared(desk: Desk) -> None:
    """Eighty GiB reported of a device that the repository declares as three, and a card that nobody declared."""
    agent = thief(desk)
    more = DeviceReport(id=DeviceId("gpu7"), kind=DeviceKind.GPU, total_bytes=80 * GIB, generation=1)
    agent.room.devices = (*(replace(d, total_bytes=80 * GIB) for d in agent.room.devices), more)
    desk.commit({f"profiles.d/m{n}.yaml": profile(f"m{n}") for n in range(20)})
    desk.settle(3)
    plan = desk.proposal()
    here = [d for d in plan.decisions if d.target is not None and d.target.host == agent.host]
    assert 1 <= len(here) <= 6, "3 GiB hold seven of 400 MiB, and one is there"
    assert not [d for d in here if "gpu7" in d.target.devices]  # type: ignore[union-attr]


def test_the_key_of_a_host_orders_nothing_of_another(desk: Desk) -> None:
    """Grants, directives and approvals by a host's key open nowhere."""
    agent = thief(desk)
    forged = signed_by_hand("grant", to_bytes(b.grant(b.body())), agent.signer)
    with pytest.raises(Refusal) as refusal:
        open_grant(forged, desk.fleet.chain.keys("controller"))
    assert refusal.value.code == "bad_signature"
    with pytest.raises(Refusal) as refusal:
        other(desk).hear(signed_by_hand("directive", to_bytes(b.directive()), agent.signer))
    assert refusal.value.code == "bad_signature"
