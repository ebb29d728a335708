"""A host's heart with the controller's pen beside it: tests tell it events and look at what came out."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gridops.base.ids import DeviceId, Digest, ReplicaId
from gridops.base.record import digest_of
from gridops.model.action import Action, Drain, Unload
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport, ResidencyState
from gridops.protocol.fence import new_fence
from gridops.protocol.messages import Outcome, Receipt
from gridops.protocol.receipts import new_receipts, stored
from gridops_agent.core.events import (
    Act,
    Began,
    Effect,
    Ended,
    Enqueue,
    Event,
    Found,
    Heard,
    Listed,
    Measured,
    Placed,
    Resumed,
    Spawned,
)
from gridops_agent.core.heart import step
from gridops_agent.core.protection import Verdict
from gridops_agent.core.state import Handle, Host
from tests.protocol import build as b

GPU = DeviceId("gpu0")
CPU = DeviceId("cpu0")
OTHER = DeviceId("gpu1")
"""One more card, that not every host has."""
DEVICES = (
    DeviceReport(id=CPU, kind=DeviceKind.CPU, total_bytes=100_000, external_bytes=1_000, external_ms=1),
    DeviceReport(id=GPU, kind=DeviceKind.GPU, total_bytes=10_000, external_bytes=2_000, external_ms=1),
)
HANDLE = Handle(pid=7, birth="boot:1", port=18_300, key_file="k", executable="/bin/llama")


class Story:
    """A host, the controller's pen, and everything that came out."""

    def __init__(self) -> None:
        fence = new_fence(b.FLEET, b.HOST, b.HOST_KEY)
        receipts = new_receipts(b.FLEET, b.HOST, b.HOST_KEY)
        self.host = Host(boot="b1", chain=b.CHAIN, roots=(b.CHAIN.text,), fence=fence, receipts=receipts)
        self.now = b.NOW
        self.bodies: list[Any] = []
        self.tell(Measured(DEVICES))

    def tell(self, event: Event, after_ms: int = 0) -> tuple[Effect, ...]:
        self.now += after_ms
        done = step(self.host, event, self.now)
        self.host = done.host
        return done.effects

    def hear(self, *grants: str, **changes: object) -> tuple[Effect, ...]:
        directive = b.directive(grants=grants, **({"acked_rseq": self.host.receipts.acked} | changes))
        return self.tell(Heard(directive, floor_ms=self.now, epoch=1))

    def issue(self, action: Action, **changes: object) -> Digest:
        prev = digest_of(self.bodies[-1]) if self.bodies else b.START
        body = replace(b.body(len(self.bodies) + 1, prev, action), **changes)  # type: ignore[arg-type]
        self.bodies.append(body)
        effects = self.hear(b.sealed(b.grant(body)))
        assert effects == (Enqueue(digest_of(body)),)
        return digest_of(body)

    def begun(self, action: Action, **changes: object) -> Digest:
        body = self.issue(action, **changes)
        effects = self.tell(Began(body))
        assert Act(body) in effects, self.receipt(body)
        return body

    def ready(self, **changes: object) -> Digest:
        """A warm command carried to its success."""
        return self._up(self.begun(replace(b.warm(), **changes)))  # type: ignore[arg-type]

    def ready_under(self, catalog: int) -> Digest:
        """The same, made under a catalog."""
        return self._up(self.begun(b.warm(), catalog=catalog))

    def _up(self, body: Digest) -> Digest:
        self.tell(Placed(body, 18_300))
        self.tell(Spawned(body, HANDLE))
        self.tell(Listed(body, replace(HANDLE, settled=True)))
        return body

    def receipt(self, body: Digest) -> Receipt | None:
        return stored(self.host.receipts, body)

    def said(self, body: Digest) -> tuple[Outcome, str | None]:
        made = self.receipt(body)
        assert made is not None
        return made.outcome, made.code

    def state(self, body: Digest) -> ResidencyState:
        return self.host.held[body].state

    def restart(self, **found: Found) -> tuple[Effect, ...]:
        """The agent comes back with what its ledger says."""
        self.host = replace(self.host, boot="b2", measured=(), verdict=Verdict())
        self.tell(Measured(DEVICES))
        everything = {body: found.get("all", Found(gone=True)) for body in self.host.held}
        return self.tell(Resumed(MappingProxyType(everything)))

    def drain_of(self, body: Digest) -> Drain:
        return replace(b.drain(), incarnation=body, replica=self._called(body))

    def unload_of(self, body: Digest, *, force: bool = False) -> Unload:
        return replace(b.unload(force=force), incarnation=body, replica=self._called(body))

    def _called(self, body: Digest) -> ReplicaId:
        """As this host calls it; what it never had is called as the first."""
        held = self.host.held.get(body)
        return held.replica if held is not None else b.drain().replica


def drained(story: Story) -> Digest:
    body = story.ready()
    story.tell(Ended(story.begun(story.drain_of(body)), Outcome.SUCCEEDED))
    return body
