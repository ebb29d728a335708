"""Of which hosts people have said that they are gone, by the rows of the journal: rule S6 from the other side.

What a host holds is released by its own receipt, or by people: they expunge its key, or write it off until it speaks
again. From then on nothing is asked of it, none of its receipts counts, and who runs there serves nobody.
"""

from __future__ import annotations

from gridops.base.ids import HostId
from gridops.controller.core import rows as r
from gridops.lab.broken import Broken
from gridops.lab.trace import Trace
from gridops.protocol.messages import Body, Receipt

Said = r.IntentAccepted | r.WrittenOff | r.HostBack
"""Rows that say who is ours."""


class Gone:
    """Expunged for ever, or written off for now."""

    def __init__(self, trace: Trace) -> None:
        self.expunged: set[HostId] = set()
        self.written_off: set[HostId] = set()
        self._trace = trace

    def __contains__(self, host: HostId) -> bool:
        return host in self.expunged or host in self.written_off

    def take(self, row: Said, in_doubt: frozenset[HostId]) -> tuple[HostId, ...]:
        """Who is gone by this row and was not; `in_doubt` are hosts with commands that nobody knows the end of."""
        new = self.fold(row)
        if isinstance(row, r.HostBack):
            self._trace.saw("a host came back that was written off")
        word = "written off" if isinstance(row, r.WrittenOff) else "expunged"
        for host in new:
            doubt = " while a command was unknown" if host in in_doubt else ""
            self._trace.saw(f"a host was {word}{doubt}")
        return new

    def fold(self, row: Said) -> tuple[HostId, ...]:
        """Let a row have been written: who is gone by it and was not."""
        match row:
            case r.IntentAccepted(desired=desired):
                keys = desired.keys if desired is not None else ()
                new = tuple(key.host for key in keys if key.expunged and key.host not in self.expunged)
                self.expunged.update(new)
                return new
            case r.WrittenOff(host=host):
                self.written_off.add(host)
                return (host,)
            case r.HostBack(host=host):
                self.written_off.discard(host)
                return ()

    def forget(self) -> None:
        """The journal is another one: what it says is folded anew."""
        self.expunged.clear()
        self.written_off.clear()

    def asked(self, body: Body) -> None:
        """A command was queued. Raises Broken."""
        if body.host in self:
            what = "whose key was expunged" if body.host in self.expunged else "which was written off"
            raise Broken("S6", f"{body.action.kind} {body.action.replica} is asked of {body.host}, {what}")

    def said(self, receipt: Receipt) -> None:
        """A receipt was believed; one that was written off speaks with the word that brings it back. Raises Broken."""
        if receipt.host in self.expunged:
            raise Broken("S6", f"receipt {receipt.rseq} of {receipt.host} is believed, whose key was expunged")
