"""Hosts that take another key while they run: made there, signed over by the present one, committed by people.

What `gridops-agent rekey` asks the controller is the product's own request, and its own answer; people commit the key
that they see pending, some time later. The host speaks with its present key until it is refused for that, ends what is
open, and begins anew with numbers and receipts: what runs on it runs on. A former key never counts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.lab.dice import Dice
from gridops.lab.host import LabHost
from gridops.lab.people import People
from gridops.protocol.messages import Facts, JoinRequest, Rekey
from gridops.trust.envelope import seal

if TYPE_CHECKING:
    from gridops.lab.stage import Stage

COMMITTED_MS = (500, 40_000)
"""So long people take to commit what they see pending."""
FACTS = Facts(devices=(), runtimes=(), agent_version="lab", platform="lab")


class Rekeys:
    """Whoever sees to it that keys do not grow old."""

    def __init__(self, people: People, stage: Stage) -> None:
        self._people = people
        self._repository = people.repository
        self._hosts: Mapping[HostId, LabHost] = stage.hosts
        self._stage = stage
        self._dice = Dice(people.repository.options.seed, "keys of hosts")

    def ask(self) -> None:
        """Somebody calls `gridops-agent rekey` on one host; again, if nothing came of it before."""
        host = self._dice.one_of(tuple(self._hosts))
        wait_ms, nonce = self._dice.between(*COMMITTED_MS), self._dice.token()
        head = self._stage.head
        controller = head.current
        if controller is None or host in self._repository.expunged:
            return
        envelope = self._request(self._hosts[host], nonce)
        try:
            answered = head.guarded(controller, lambda: controller.join(envelope))
        except Refusal as refusal:
            self._stage.trace.add(host, f"may not sign its key over: {refusal.code}")
            return
        if answered is not None:
            self._stage.trace.add(host, "signs its key over")
            self._stage.agenda.after(wait_ms, lambda: self._commit(host))

    def _request(self, at: LabHost, nonce: str) -> str:
        present, coming, fleet = at.keys.present, at.keys.prepare(), at.host.fence.fleet
        over = Rekey(
            fleet=fleet, host=at.name, host_key=present.public.text, next_key=coming.public.text, nonce=nonce
        )
        asked = JoinRequest(
            fleet=fleet,
            host=at.name,
            host_key=coming.public.text,
            nonce=nonce,
            facts=FACTS,
            mac="",
            over=seal("rekey", to_bytes(over), present),
        )
        return seal("join", to_bytes(asked), coming)

    def _commit(self, host: HostId) -> None:
        """`gridops host admit`: the key that is pending, where one is."""
        controller = self._stage.head.current
        pending = controller.state.pending.get(host) if controller is not None else None
        repository = self._repository
        if pending is None or self._people.calm or host in repository.expunged:
            return
        if pending.former == repository.keys[host][-1]:
            repository.keys[host].append(pending.host_key)
            repository.commit(f"another key of {host}")
            self._stage.trace.add("people", f"commit another key of {host}")
