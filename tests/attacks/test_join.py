"""Somebody has seen a join token: what it yields is an entry that waits for a person, and nothing more.

Every attack is a request to join, posted to a real controller that stands on a journal file. What is refused leaves
every byte of the journal as it was. None of it admits a host, and no refusal uses the invitation up for the true
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId, Digest, HostId
from gridops.base.record import to_bytes
from gridops.controller import views
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops.protocol.messages import Facts, JoinRequest
from gridops.trust.envelope import seal
from gridops.trust.join import join_key, parse_token, request_mac
from gridops.trust.keys import MachineSigner
from tests.attacks.durable import durable
from tests.controller.fleet import Desk, Fleet
from tests.controller.scripted_agent import ScriptedAgent

THIEF = MachineSigner.from_seed(b"x" * 32)
TRUE = MachineSigner.from_seed(b"alpha".ljust(32, b"."))
HOUR = 3_600_000


@dataclass
class Gate:
    """A controller with one open invitation, for alpha, and whoever asks to come in."""

    desk: Desk
    token: str

    def request(self, signer: MachineSigner = TRUE, host: str = "alpha", **changes: object) -> JoinRequest:
        parsed, key = parse_token(self.token), signer.public.text
        made = JoinRequest(
            fleet=parsed.fleet,
            host=HostId(host),
            host_key=key,
            nonce="n" * 24,
            facts=Facts(devices=(), runtimes=(), agent_version="0.1.0", platform="linux"),
            mac=request_mac(join_key(parsed.secret), parsed.fleet, key, "n" * 24),
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def post(self, request: JoinRequest, signer: MachineSigner = TRUE, kind: str = "join") -> None:
        self.desk.controller.join(seal(kind, to_bytes(request), signer))

    def durable(self) -> str:
        """Every byte of the journal's files."""
        return durable(self.desk.fleet.state / "journal.sqlite")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    fleet = Fleet(tmp_path)
    fleet.begin(admit=False)
    desk = Desk(fleet)
    yield Gate(desk, desk.ask("invite", host="alpha", ttl_ms=HOUR)["token"])
    desk.controller.close()


Attack = Callable[[Gate], Callable[[], None]]


def _used(gate: Gate) -> Callable[[], None]:
    gate.post(gate.request())
    return lambda: gate.post(gate.request(THIEF), THIEF)


def _expired(gate: Gate) -> Callable[[], None]:
    gate.desk.clock.pass_by(HOUR)
    return lambda: gate.post(gate.request())


def _rejected(gate: Gate) -> Callable[[], None]:
    gate.post(gate.request(THIEF), THIEF)
    gate.desk.ask("reject", host="alpha")
    return lambda: gate.post(gate.request(THIEF), THIEF)


def _admitted(gate: Gate) -> Callable[[], None]:
    """Replayed after a commit admitted the true machine: the invitation is over."""
    gate.post(gate.request())
    gate.desk.commit({"fleet.d/keys/alpha.yaml": gate.desk.fleet.key_file("alpha")})
    return lambda: gate.post(gate.request(THIEF), THIEF)


def _mac_of(fleet: str) -> Attack:
    """A MAC that the true secret made over another fleet's root."""

    def attack(gate: Gate) -> Callable[[], None]:
        key = join_key(parse_token(gate.token).secret)
        mac = request_mac(key, Digest(fleet), TRUE.public.text, "n" * 24)
        return lambda: gate.post(gate.request(mac=mac))

    return attack


def _less_than_nothing(gate: Gate) -> Callable[[], None]:
    device = DeviceReport(id=DeviceId("gpu0"), kind=DeviceKind.GPU, total_bytes=-1)
    facts = Facts(devices=(device,), runtimes=(), agent_version="0.1.0", platform="linux")
    return lambda: gate.post(gate.request(facts=facts))


def _under_key(gate: Gate) -> Callable[[], None]:
    """The MAC of the true machine's request, under the thief's key."""
    mac = gate.request().mac
    return lambda: gate.post(gate.request(THIEF, mac=mac), THIEF)


OTHER = "sha256:" + "0" * 64
ATTACKS: tuple[tuple[str, Attack, str, bool], ...] = (
    ("a token that was used, by another key", _used, "GO427", False),
    ("a token that has expired", _expired, "GO427", False),
    ("a token whose request a person rejected", _rejected, "GO427", False),
    ("a token of a host that a commit has admitted", _admitted, "GO427", False),
    ("a token for another name", lambda g: lambda: g.post(g.request(host="beta")), "GO427", False),
    ("a name that is a path", lambda g: lambda: g.post(g.request(host="../../root")), "bad_schema", False),
    ("a machine with less than nothing", _less_than_nothing, "bad_schema", False),
    ("another fleet", lambda g: lambda: g.post(g.request(fleet=Digest(OTHER))), "wrong_fleet", False),
    ("a MAC over another root", _mac_of(OTHER), "bad_mac", False),
    ("a MAC of another nonce", lambda g: lambda: g.post(g.request(nonce="m" * 24)), "bad_mac", False),
    ("a MAC of another key", _under_key, "bad_mac", False),
    ("no MAC", lambda g: lambda: g.post(g.request(mac="")), "bad_mac", False),
    ("signed by another key than it names", lambda g: lambda: g.post(g.request(), THIEF), "bad_signature", False),
    ("signed as another kind", lambda g: lambda: g.post(g.request(), kind="heartbeat"), "wrong_kind", False),
)


@pytest.mark.parametrize(("attack", "code", "final"), [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS])
def test_what_a_token_does_not_do(gate: Gate, attack: Attack, code: str, final: bool) -> None:
    strike = attack(gate)
    before, pending = gate.durable(), dict(gate.desk.state.pending)
    with pytest.raises(Refusal) as refusal:
        strike()
    assert refusal.value.code == code
    assert not final
    assert gate.durable() == before, "a refused request became a row"
    assert gate.desk.state.pending == pending


def test_a_stolen_token_yields_an_entry_with_a_fingerprint_that_does_not_match(gate: Gate) -> None:
    """The thief is first. The true machine is refused by name, which is how people notice; nobody was admitted."""
    gate.post(gate.request(THIEF), THIEF)
    (pending,) = views.pending(gate.desk.controller.view()).pending
    assert pending.fingerprint == THIEF.public.key_id != TRUE.public.key_id
    with pytest.raises(Refusal, match="another key"):
        gate.post(gate.request())
    agent = ScriptedAgent(HostId("alpha"), THIEF, gate.desk.fleet.chain)
    with pytest.raises(Refusal) as refusal:
        gate.desk.post(agent.beat())
    assert refusal.value.code == "not_admitted"


def test_a_replayed_request_of_the_true_machine_says_nothing_new(gate: Gate) -> None:
    """An answer may get lost, so the same key may ask again: the reply proves itself only to who knows the secret."""
    gate.post(gate.request())
    before, pending = gate.durable(), dict(gate.desk.state.pending)
    gate.post(gate.request())
    assert (gate.durable(), dict(gate.desk.state.pending)) == (before, pending)
