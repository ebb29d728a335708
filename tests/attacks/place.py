"""One host under attack: the agent's own talk, heart and ledger file, with time, wire and engines in a test's hand.

What comes over the wire goes the way of every answer (`Beats`), is judged by the heart, and is written by `Memory` into
a real SQLite file. Nothing of a machine is here: a command whose effect may start is noted in `started` and ends as
its kind does when all is well. `durable` is every byte that a crash would leave.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId, Digest, HostId
from gridops.base.record import digest_of
from gridops.model.action import Action, Drain, Load, Unload, Warm
from gridops.model.fleet import DeviceKind, Runtime
from gridops.model.snapshot import DeviceReport
from gridops.protocol import fresh
from gridops.protocol.messages import Beat, Body, Directive, Heartbeat, Outcome
from gridops.protocol.open import open_heartbeat
from gridops.trust.envelope import pae, payload_type
from gridops.trust.keys import MachineSigner
from gridops.trust.root import RootChain
from gridops.trust.tls import fingerprint, self_signed
from gridops_agent.beats import Beats, SessionClock
from gridops_agent.core.events import (
    Act,
    Began,
    Effect,
    Ended,
    Enqueue,
    Event,
    Found,
    Listed,
    Measured,
    Placed,
    Resumed,
    Spawned,
    Warn,
)
from gridops_agent.core.report import Readings
from gridops_agent.core.state import Handle, Host
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity, Rows, rows_of
from gridops_agent.memory import Memory
from tests.attacks.durable import durable
from tests.controller.fleet import FakeClock
from tests.protocol import build as b

Answer = Callable[[Beat], str]
CPU = DeviceReport(id=DeviceId("cpu0"), kind=DeviceKind.CPU, total_bytes=3 << 30)
DEVICES = (
    CPU,
    DeviceReport(id=DeviceId("gpu0"), kind=DeviceKind.GPU, total_bytes=10_000),
)
FRONT = self_signed(("host.example",), 1, 30).cert_pem
WHERE = "https://host.example:8443"
SAYS = Readings(
    runtimes=(Runtime(engine="llama.cpp", backend="cpu"),),  # type: ignore[arg-type]
    endpoint=WHERE,
    front_cert=fingerprint(FRONT),
    disk_free_bytes=100 << 30,
)


class Wire:
    """Whoever sits between the host and its controller."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _: "{}"
        self.roots_shown: tuple[str, ...] = ()
        """What `GET /v1/roots` answers."""

    async def beat(self, said: Beat) -> str:
        return self.answer(said)

    async def roots(self) -> tuple[str, ...]:
        return self.roots_shown

    async def close(self) -> None:
        """There is no connection."""


class _Talk(Beats):
    """The agent's talk, over a wire of ours."""

    wire: Wire

    async def _pinned(self) -> Any:
        return self.wire


class _Ears:
    """What the talk tells the agent's effects: it goes to memory, and what comes of it is kept for the test."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def tell_once(self, event: Event) -> None:
        self._place.effects += await self._place.memory.take(event)


class Place:
    """One host."""

    def __init__(
        self,
        folder: Path,
        chain: RootChain = b.CHAIN,
        host: HostId = b.HOST,
        signer: MachineSigner = b.HOST_SIGNER,
        *,
        clock: FakeClock | None = None,
        devices: tuple[DeviceReport, ...] = DEVICES,
    ) -> None:
        self.folder = folder
        self.identity = Identity(fleet=chain.fleet, host=host, host_key=signer.public.text)
        self.signer = signer
        self.clock = clock or FakeClock(wall=b.NOW, mono=1_000_000)
        self.devices = devices
        self.wire = Wire()
        self.effects: tuple[Effect, ...] = ()
        self.started: list[Digest] = []
        """Commands whose effect was allowed to start, in order."""
        self.did: list[Action] = []
        """What they asked for."""
        self.cached: set[Digest] = set()
        self.catalog: int | None = None
        """Which version commands say that they were made under."""
        self.heartbeats: list[Heartbeat] = []
        self._runner = asyncio.Runner()
        folder.mkdir(parents=True, exist_ok=True)
        Ledger.create(self._path, self.identity, (chain.text,)).close()
        self.boots = 0
        self.boot()

    @property
    def _path(self) -> Path:
        return self.folder / "ledger.sqlite"

    @property
    def host(self) -> Host:
        return self.memory.host

    def boot(self) -> None:
        """A run of the agent begins on what the ledger says; engines are as they were."""
        self.boots += 1
        self.ledger = Ledger.open(self._path, self.identity, (), self.clock.wall)
        host = self.ledger.load(f"boot-{self.identity.host}-{self.boots}")
        word = host.last_word
        session = fresh.begin(host.fence.fleet, host.fence.host, host.boot, floor_ms=word.floor_ms, epoch=word.epoch)
        self.hours = SessionClock(session, self.clock)  # type: ignore[arg-type]
        self.memory = Memory(self.ledger, host, self.hours.now_ms, lambda _: None)
        talk = _Talk(self.memory, self.hours, self.signer, _Ears(self), "https://controller.example")  # type: ignore[arg-type]
        talk.wire = self.wire
        talk.front = (WHERE, FRONT)
        self.beats = talk
        self.tell(Measured(self.devices))
        found = {body: Found(gone=False, handle=held.handle) for body, held in host.held.items()}
        self.tell(Resumed(found))

    def restart(self) -> None:
        self.ledger.close()
        self.boot()

    def close(self) -> None:
        self.ledger.close()
        self._runner.close()

    # -- what it hears and does ---------------------------------------------------------------------------------------

    def tell(self, event: Event) -> tuple[Effect, ...]:
        return self._runner.run(self.memory.take(event))

    def poll(self, answer: Answer | str) -> list[str]:
        """One heartbeat and its answer, believed or not; the codes of what the host refused or warned of."""
        self.effects = ()
        self.wire.answer = self._kept(answer if callable(answer) else lambda _: answer)
        try:
            self._runner.run(self.beats.beat(lambda: replace(SAYS, cached=tuple(sorted(self.cached))), "0.1.0"))
        except Refusal as refusal:
            return [refusal.code]
        codes = [e.code for e in self.effects if isinstance(e, Warn)]
        for effect in self.effects:
            if isinstance(effect, Enqueue):
                self._carry_out(effect.body)
        return codes

    def _kept(self, answer: Answer) -> Answer:
        def heard(said: Beat) -> str:
            self.heartbeats.append(open_heartbeat(said.heartbeat, self.signer.public))
            return answer(said)

        return heard

    def _carry_out(self, body: Digest) -> None:
        if Act(body) not in self.tell(Began(body)):
            return
        self.started.append(body)
        action = self.host.commands[body].body.action
        self.did.append(action)
        if isinstance(action, Warm):
            handle = Handle(pid=7, birth="boot:1", port=18_300, key_file="k", executable="/bin/llama")
            for event in (Placed(body, 18_300), Spawned(body, handle), Listed(body, replace(handle, settled=True))):
                self.tell(event)
        elif isinstance(action, Load | Drain | Unload):
            self.cached |= {f.sha256 for f in action.artifact.files} if isinstance(action, Load) else set()
            self.tell(Ended(body, Outcome.SUCCEEDED))

    # -- what somebody with the controller's key says -----------------------------------------------------------------

    def told(self, *grants: str, signer: MachineSigner = b.CONTROLLER, **changes: object) -> Answer:
        """A directive in time and in answer to the very heartbeat, whoever signs it."""

        def answer(said: Beat) -> str:
            nonce = open_heartbeat(said.heartbeat, self.signer.public).nonce
            now = self.clock.wall
            made: dict[str, object] = {
                "fleet": self.identity.fleet,
                "host": self.identity.host,
                "now_ms": now,
                "expires_ms": now + 5 * b.MINUTE,
                "acked_rseq": self.host.receipts.acked,
                "term": max(b.TERM, self.host.fence.term, key=lambda t: t.rank),
                "grants": grants,
            }
            return b.sealed(self.directive(nonce, **(made | changes)), signer)

        return answer

    def directive(self, nonce: str, **changes: object) -> Directive:
        return b.directive(nonce, **changes)

    def body(self, action: Action, **changes: object) -> Body:
        """The next command in line."""
        head = self.host.fence.head
        made = b.body(head.seq + 1, head.body, replace(action, host=self.identity.host))
        named = replace(made, host=self.identity.host, host_key=self.identity.host_key, fleet=self.identity.fleet)
        return replace(named, **({"catalog": self.catalog} | changes))  # type: ignore[arg-type]

    def grant(self, action: Action, *, of: dict[str, object] | None = None, **changes: object) -> str:
        """The next command in line, granted as ada approved it, unless something is changed."""
        return self.granted(self.body(action, **(of or {})), **changes)

    def granted(self, body: Body, signer: MachineSigner = b.CONTROLLER, **changes: object) -> str:
        now = self.clock.wall
        made: dict[str, object] = {
            "term": max(b.TERM, self.host.fence.term, key=lambda t: t.rank),
            "issued_ms": now - 1_000,
            "not_after_ms": now + b.MINUTE,
        }
        return b.sealed(b.grant(body, **(made | changes)), signer)

    def obeys(self, action: Action, **changes: object) -> Body:
        """An honest command, carried out."""
        body = self.body(action)
        before = len(self.started)
        assert self.poll(self.told(self.granted(body, **changes))) == []
        assert self.started[before:] == [digest_of(body)], self.host.receipts.kept[-1]
        return body

    # -- what is left of it -------------------------------------------------------------------------------------------

    def durable(self) -> str:
        """Every byte of the ledger's files."""
        return durable(self._path)

    def rows(self) -> Rows:
        return rows_of(self.host)

    def changed(self, before: Rows) -> set[str]:
        """Kinds of rows that are not as they were."""
        after = self.rows()
        return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def payload_of(envelope: str) -> dict[str, Any]:
    """What an envelope says, believed or not."""
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    return found


def signed_by_hand(kind: str, payload: bytes, signer: MachineSigner = b.CONTROLLER) -> str:
    """An envelope around bytes that our own code would not sign."""
    signature = base64.b64encode(signer.sign(kind, pae(kind, payload))).decode()
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type(kind),
        "signatures": [{"keyid": signer.public.key_id, "sig": signature}],
    }
    return json.dumps(envelope)


OTHER = digest_bytes(b"other")
