"""Who a host of the lab is: its keys as they lie on its disk, and what it remembers before its first word.

`gridops_agent.rekeying` does the same with files: the next key waits beside the present one until people have committed
it. The ledger says first whose it is, so that a crash between the two is finished at the next start.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.ids import HostId
from gridops.protocol import receipts
from gridops.protocol.fence import Decided, new_fence
from gridops.protocol.messages import Head, Term
from gridops.trust.keys import MachineSigner
from gridops.trust.root import RootChain
from gridops_agent.core.state import Host


def signer_of(name: HostId, n: int = 1) -> MachineSigner:
    """The n-th key of a host; the same in every run."""
    return MachineSigner.from_seed((name if n == 1 else f"{name}/{n}").encode().ljust(32, b"."))


class Keyring:
    """The keys of one host."""

    def __init__(self, name: HostId) -> None:
        self.present = signer_of(name)
        self.coming: MachineSigner | None = None
        self._name = name
        self._made = 1

    def prepare(self) -> MachineSigner:
        """Make the next key, unless one waits."""
        if self.coming is None:
            self._made += 1
            self.coming = signer_of(self._name, self._made)
        return self.coming

    def settle(self, whose: str) -> None:
        """The ledger is that of the next key, if it is: that one is the present one from now on."""
        if self.coming is not None and self.coming.public.text == whose:
            self.present, self.coming = self.coming, None


def newborn(name: HostId, signer: MachineSigner, chain: RootChain, root: str, past: int = 0) -> Host:
    """A host that has joined and knows the root. Of its past it knows what is kept of so many commands."""
    key = signer.public.text
    fence, said = new_fence(chain.fleet, name, key), receipts.new_receipts(chain.fleet, name, key)
    if past:
        old = tuple(Decided(seq=n, body=digest_bytes(f"{name}/{n}".encode()), rseq=n) for n in range(1, past + 1))
        head, term = Head(seq=past, body=old[-1].body), Term(epoch=chain.root.controller_epoch, counter=1)
        fence = replace(fence, term=term, head=head, decided=old[-limits.DECIDED_KEPT :])
        said = replace(said, head=past, acked=past, prev=digest_bytes(f"{name}/receipt {past}".encode()))
    return Host(boot="", chain=chain, roots=(root,), fence=fence, receipts=said)
