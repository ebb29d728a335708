"""The same host under another identity: what runs goes on, and of what was promised to the former one nothing is left.

A person at the host pins another fleet (`anew`, called by `life.repin`), or people commit its next key (`rekeyed`,
called by the heart). Numbers and receipts were the former identity's, and mean nothing under the new one; residencies,
their memory and the brake are the machine's. Must never be done while a command is open: its receipt would be nobody's.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.errors import Bug
from gridops.protocol.fence import new_fence
from gridops.protocol.receipts import new_receipts
from gridops.trust.release import NONE_KNOWN
from gridops.trust.root import RootChain
from gridops_agent.core.state import Host


def anew(host: Host, chain: RootChain, roots: tuple[str, ...]) -> Host:
    """The host as one of the fleet of this chain, to which it has promised nothing yet.

    Whom the front lets in, and when the host yields, stays as it was last told until the new controller says otherwise.
    """
    _nothing_open(host)
    name, key = host.fence.host, host.fence.host_key
    return replace(
        host,
        chain=chain,
        roots=roots,
        fence=new_fence(chain.fleet, name, key),
        receipts=new_receipts(chain.fleet, name, key),
        # The former controller's time is no floor for another one's.
        last_word=replace(host.last_word, floor_ms=0, epoch=0),
        known=NONE_KNOWN,
    )


def rekeyed(host: Host, key: str) -> Host:
    """The host with its next key, in the same fleet: obeyed terms, time and the catalog stay what they were."""
    _nothing_open(host)
    fleet, name = host.fence.fleet, host.fence.host
    fence = replace(new_fence(fleet, name, key), term=host.fence.term)
    return replace(host, fence=fence, receipts=new_receipts(fleet, name, key))


def _nothing_open(host: Host) -> None:
    if host.commands:
        raise Bug(f"{len(host.commands)} commands are open, and their receipts would be nobody's")
