"""What must hold at every moment of a run: looked at after everything that a host remembers or starts.

Each rule is derived from what the models really did, never from what the product says of itself.
"""

from __future__ import annotations

from gridops.base.ids import Digest, HostId
from gridops.lab.acceptance import Acceptance
from gridops.lab.broken import Broken
from gridops.lab.host import MIB, SIGNED_CONTEXT, LabHost
from gridops.lab.refusals import Refusals
from gridops.protocol.messages import Term


class Watchers:
    """Rules S1 to S5, S9 and S11 to S13 over what hosts do."""

    def __init__(self, acceptance: Acceptance, refusals: Refusals) -> None:
        self._acceptance = acceptance
        self._refusals = refusals
        self._heads: dict[str, tuple[int, Digest]] = {}
        self._bodies: dict[tuple[str, int], Digest] = {}
        """Both by host key: another one has numbers of its own."""
        self._keys: dict[HostId, str] = {}
        self._terms: dict[HostId, Term] = {}

    def look(self, at: LabHost) -> None:
        """Everything that can be said of one host now. Raises Broken."""
        self._room(at)
        self._reserved(at)
        self._one_process(at)
        self._signed(at)
        self._term(at)
        self._one_body(at)
        self._acceptance.on_host(at)
        self._refusals.look(at)

    def _room(self, at: LabHost) -> None:
        living = at.processes.living.values()
        used = sum(p.device_bytes for p in living)
        if used > at.around.options.host_mib * MIB:
            raise Broken("S1", f"{at.name} runs {len(living)} processes of {used // MIB} MiB together")

    def _reserved(self, at: LabHost) -> None:
        for process in at.processes.living.values():
            if process.body not in at.host.held:
                raise Broken("S2", f"{at.name} runs process {process.pid} of {process.body}, which it does not hold")

    def _signed(self, at: LabHost) -> None:
        """Where people signed what may run, nothing runs with more context than that: nothing was there before it."""
        for held in at.host.held.values() if at.around.options.catalog else ():
            asked = held.warm.launch.context
            if asked > SIGNED_CONTEXT and at.processes.of(held.body) is not None:
                raise Broken("S9", f"{at.name} runs {held.replica} with context {asked}, and nobody signed that")

    def _one_process(self, at: LabHost) -> None:
        bodies = [p.body for p in at.processes.living.values()]
        if len(bodies) != len(set(bodies)):
            raise Broken("S3", f"{at.name} runs two processes of one command")

    def _term(self, at: LabHost) -> None:
        term, before = at.host.fence.term, self._terms.get(at.name)
        if before is not None and term.rank < before.rank:
            raise Broken("S4", f"{at.name} went back from term {before.rank} to {term.rank}")
        self._terms[at.name] = term

    def _one_body(self, at: LabHost) -> None:
        head, key = at.host.fence.head, at.host.fence.host_key
        known = self._bodies.setdefault((key, head.seq), head.body)
        if known != head.body:
            raise Broken("S5", f"{at.name} accepted two commands with number {head.seq}")
        before, former = self._heads.get(key), self._keys.get(at.name, key)
        if before is not None and (head.seq < before[0] or key != former):
            raise Broken("S11", f"the ledger of {at.name} went back from command {before[0]} to {head.seq}")
        self._heads[key], self._keys[at.name] = (head.seq, head.body), key
