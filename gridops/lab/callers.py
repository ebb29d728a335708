"""People who ask models: they go by the controller's status, and each host's front lets them in or not (rule S14).

The front's decision is the product's own (`front.Front.choose` over `front_table`); its sockets are not there. Whoever
is let in is in flight until an answer is whole, and drains wait for that. A gateway will stand where these stand.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gridops.base.ids import Digest, HostId, ProfileName
from gridops.base.record import from_bytes
from gridops.controller.models import models
from gridops.lab.broken import Broken
from gridops.lab.dice import Dice
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Beat, GatewayKey, Heartbeat
from gridops_agent.core.state import Held
from gridops_agent.engines.base import Door
from gridops_agent.front import OPENAI, Front, Table
from gridops_agent.front_asked import Refused
from gridops_agent.front_outcomes import UNREACHABLE, Outcomes
from gridops_agent.front_table import table, ways

if TYPE_CHECKING:
    from gridops.lab.gone import Gone
    from gridops.lab.head import Head
    from gridops.lab.host import LabHost
    from gridops.lab.options import Options

KEY = GatewayKey(name="callers", sha256=Digest("sha256:" + "0" * 64))
STATUS_MS = 5_000
"""So old may be what callers know of who serves."""
AWAY_MS = (1, 200)
TAKES_MS = (50, 6_000)
LONG_MS = 40_000


class LabFront:
    """The front of one run of an agent."""

    def __init__(self, at: LabHost) -> None:
        self._at = at
        self._front = Front()
        self._front.outcomes = Outcomes(at.clock.monotonic_ms)

    def in_flight(self, body: Digest) -> int:
        return self._front.in_flight[body]

    def asked(self, model: str, takes_ms: int) -> None:
        """One request, whole, with a good key. Raises Broken when it is let in where it must not be."""
        at, front = self._at, self._front
        front.table, front.verdict = self._table(), at.host.verdict
        front.outcomes.keep(frozenset(at.host.held))
        try:
            body = front.choose(KEY, model, OPENAI).body
        except Refused as refused:
            at.around.trace.saw(f"the front says {refused.kind}")
            return
        self._judge(body)
        at.around.trace.saw("a caller was let in")
        front.flights.began(body)
        trial = front.outcomes.began(body)

        def over() -> None:
            front.outcomes.ended(body, 200 if at.processes.of(body) is not None else UNREACHABLE)
            front.outcomes.left(body, trial)
            front.flights.left(body)

        at.around.agenda.after(takes_ms, over)

    def _judge(self, body: Digest) -> None:
        at, process = self._at, self._at.processes.of(body)
        if body in at.ending:
            raise Broken("S14", f"{at.name} lets a caller in to {body}, which was told to end")
        if process is not None and process.listed_ms > at.around.agenda.now_ms:
            raise Broken("S14", f"{at.name} lets a caller in to process {process.pid}, which is not ready")

    def _table(self) -> Table:
        host = self._at.host
        return table(host, ways(host, _door))


def _door(held: Held) -> Door | None:
    if held.handle is None:
        return None
    return Door(port=held.handle.port, key="key", alias=held.warm.launch.profile, launch=held.warm.launch)


class Callers:
    """Whoever asks."""

    def __init__(self, options: Options, hosts: Mapping[HostId, LabHost], head: Head, gone: Gone) -> None:
        self._hosts = hosts
        self._gone = gone
        self._head = head
        self._options = options
        self._dice = Dice(options.seed, "callers")
        self._models = tuple(ProfileName(f"model-{n}") for n in range(1, options.profiles + 1))
        self._known: dict[ProfileName, tuple[HostId, ...]] = {}
        self._known_ms = -STATUS_MS

    def ask(self) -> None:
        """One request to somebody who served when the status was read. Raises Broken."""
        agenda, dice = self._head.around.agenda, self._dice
        if agenda.now_ms - self._known_ms >= STATUS_MS:
            self._read()
        model, away_ms = dice.one_of(self._models), dice.between(*AWAY_MS)
        takes_ms = LONG_MS if dice.happens(20_000) else dice.between(*TAKES_MS)
        where = self._known.get(model, ())
        if where:
            host = self._hosts[dice.one_of(where)]
            agenda.after(away_ms, lambda: host.asked(model, takes_ms))

    def _read(self) -> None:
        """The status of the controller, which may say of nobody that it serves who did not say so itself."""
        controller = self._head.current
        if controller is None:
            return  # callers go on by what they know
        self._known_ms, now_ms = self._head.around.agenda.now_ms, controller.now()
        for scope in self._options.scope_names:
            for line in models(controller.state, controller.soft, controller.roster, scope, now_ms):
                self._known[line.profile] = line.hosts
                for host in line.hosts:
                    if line.profile not in self._head.said.get(host, ()):
                        raise Broken("S14", f"the status says that {host} serves {line.profile}, and {host} did not")
                    if host in self._gone:
                        raise Broken("S14", f"the status leads callers of {line.profile} to {host}, which is gone")


def ready_in(word: Heartbeat) -> frozenset[ProfileName]:
    """Of which models a host said in its heartbeat that it serves them."""
    return frozenset(r.profile for r in word.inventory.residencies if r.state is ResidencyState.READY)


def word_in(beat: str) -> Heartbeat:
    """The heartbeat as it came over the wire, unproved."""
    sealed = json.loads(from_bytes(Beat, beat.encode()).heartbeat)
    return from_bytes(Heartbeat, b64decode(sealed["payload"]))
