"""Opens the front for the shell: at the address of agent.toml, and over restarts at the port that clients know.

Raises BadSetup where it cannot listen, and when the private key is readable by others.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.errors import BadSetup
from gridops.disk.keyring import read_secret
from gridops.trust.tls import fingerprint
from gridops_agent.config import Config
from gridops_agent.front import Front, tls_context
from gridops_agent.ledger import Ledger

_PORT = "front_port"


@dataclass(frozen=True, slots=True)
class Opened:
    """Where this host's front is to be reached, and what proves it."""

    endpoint: str
    certificate: str
    """Its fingerprint, as heartbeats say it."""
    pem: str
    """The certificate itself, as a binding states it for clients to pin."""


async def open_front(config: Config, ledger: Ledger, front: Front) -> Opened:
    """Open it. A port that the system chose is kept while nobody else has taken it."""
    address, port = config.front_address
    read_secret(config.front_key)
    tls = tls_context(config.front_cert, config.front_key)
    kept = ledger.note(_PORT) if port == 0 else None
    try:
        opened = await front.open(address, int(kept or port), tls)
    except BadSetup:
        if kept is None:
            raise
        opened = await front.open(address, 0, tls)
    if port == 0 and kept != str(opened):
        ledger.keep_note(_PORT, str(opened))
    shown = f"[{address}]" if ":" in address else address
    pem = config.front_cert.read_text("ascii")
    return Opened(f"https://{shown}:{opened}", fingerprint(pem), pem)
