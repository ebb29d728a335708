"""What hosts refuse, and that nothing of it is done: rule S13, and what the brake of a host allows (S8).

Whoever makes a command that has to be refused says so here before it goes out; `watchers` look at every host after
each thing that it remembered. A refusal for now leaves the number of the command free, one for good uses it up, and
neither begins anything. Refusals for good are counted by their code here; those for now where the host says them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridops.base import limits
from gridops.base.ids import Digest, HostId
from gridops.lab.broken import Broken
from gridops.lab.options import Options
from gridops.lab.trace import Trace
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.state import Held, Host

if TYPE_CHECKING:
    from gridops.lab.host import LabHost


class Refusals:
    """The account of one run."""

    def __init__(self, options: Options, trace: Trace) -> None:
        self._trace = trace
        self._braked = options.stops_ppm > 0
        self._wrong: dict[HostId, set[Digest]] = {}
        self._for_now: dict[HostId, set[Digest]] = {}
        self._said: dict[HostId, int] = {}
        self._before: dict[HostId, Host] = {}
        self._stops: dict[HostId, list[int]] = {}

    def must_be(self, host: HostId, body: Digest, *, for_good: bool) -> None:
        """A command that this host has to refuse is on its way."""
        self._wrong.setdefault(host, set()).add(body)
        if not for_good:
            self._for_now.setdefault(host, set()).add(body)

    def look(self, at: LabHost) -> None:
        """After everything that a host remembered. Raises Broken."""
        if at.host.receipts.head != self._said.get(at.name, 0):
            self._count(at)
        if at.name in self._wrong:
            self._nothing_begins(at, self._wrong[at.name])
        if self._braked:
            self._within_the_brake(at)

    def _count(self, at: LabHost) -> None:
        said, self._said[at.name] = self._said.get(at.name, 0), at.host.receipts.head
        if at.host.receipts.head < said:  # under another key it counts anew
            said = 0
        for receipt in at.host.receipts.kept:
            if receipt.rseq > said and receipt.outcome is Outcome.REFUSED:
                self._trace.saw(receipt.code or "")

    def _nothing_begins(self, at: LabHost, wrong: set[Digest]) -> None:
        host = at.host
        begun = [body for body, command in host.commands.items() if command.began_ms is not None and body in wrong]
        if begun or not wrong.isdisjoint(host.held) or any(p.body in wrong for p in at.processes.living.values()):
            raise Broken("S13", f"{at.name} begins what it had to refuse")
        free = self._for_now.get(at.name, ())
        if free and any(known.body in free for known in host.fence.decided[-limits.GRANTS_PER_DIRECTIVE :]):
            raise Broken("S13", f"{at.name} refused a command for now and used up its number")

    def _within_the_brake(self, at: LabHost) -> None:
        """In the talk no person ever approves an end: all of them count."""
        before, self._before[at.name] = self._before.get(at.name), at.host
        if before is None or before.held is at.host.held:
            return
        now_ms, stops = at.now(), self._stops.setdefault(at.name, [])
        gone = [body for body, held in at.host.held.items() if body in before.held and _stops(before.held[body], held)]
        stops += [now_ms] * len(gone)
        lately = [ms for ms in stops if ms > now_ms - limits.STANDING_STOPS_WINDOW_MS]
        if len(lately) > limits.STANDING_STOPS:
            raise Broken("S8", f"{at.name} lets {len(lately)} models be taken out of service, and nobody approved that")


def _stops(before: Held, after: Held) -> bool:
    """It served, and now it does not by a command, or not by the name by which people knew it."""
    drained = before.state is ResidencyState.READY and after.state is ResidencyState.DRAINING
    return drained or before.replica != after.replica
