"""Pins another first root document on this host, by a person at its console: the way out when a root is lost for good.

Where too few people with root keys are left, no next root document can ever be signed, so no host can be told of
anything new. People found the fleet again, read the digest of its first root to each host, and somebody types it there:
that is deliberate and physical, and nothing that comes over the network can do it. Engines are not touched. What is
done is written in the ledger and in the log. Interrupted, the same command goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gridops.base.errors import Busy, Failed, Refusal
from gridops.base.ids import Digest, short
from gridops.base.units import counted, render_instant
from gridops.trust.root import RootChain, genesis, walk
from gridops_agent.client import Controller
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config, write_config
from gridops_agent.core.anew import anew
from gridops_agent.ledger import Ledger
from gridops_agent.statefolder import keep_roots, only_one

LOG = logging.getLogger("gridops_agent")
NOTE = "repinned"


@dataclass(frozen=True, slots=True)
class Pin:
    """What a person at the host said."""

    fleet: Digest
    """Digest of the first root document to believe from now on."""
    controller: str | None = None
    """The new fleet's controller; None: at the same address."""
    roots: Path | None = None
    """A folder with its root documents (1.json, ...); None: whoever answers at the controller's address is asked."""


async def repin(config: Config, pin: Pin, tell: Callable[[str], None]) -> Config:
    """Pin it. Raises Busy while the agent runs or a command is open, Refusal for documents of another fleet."""
    url = pin.controller or config.controller
    with only_one(config):
        ledger = Ledger.open_anyones(config.ledger)
        try:
            host = ledger.load("repin")
            before = host.fence.fleet
            if before == pin.fleet:
                tell("The ledger is pinned to that fleet already.")
            else:
                if host.commands:
                    hint = "start the agent, wait until `gridops-agent status` shows none open, and stop it again"
                    count = counted(len(host.commands), "command")
                    raise Busy(f"{count} of the former fleet not finished here; nothing was changed", hints=(hint,))
                texts = await _documents(url, pin)
                host = anew(host, _chain(texts, pin.fleet), texts)
                ledger.become(host, NOTE, _words(before, pin.fleet))
                LOG.warning("pinned anew at this host's console: fleet %s, formerly %s", pin.fleet, before)
                tell(f"Pinned fleet {short(pin.fleet, 16)}; it was {short(before, 16)}.")
        finally:
            ledger.close()
        keep_roots(config, host.roots)
        for spare in config.roots.glob("*.json"):
            if not (spare.stem.isdigit() and 1 <= int(spare.stem) <= len(host.roots)):
                spare.unlink(missing_ok=True)  # of the former fleet, which had more of them
        pinned = replace(config, fleet=pin.fleet, controller=url)
        write_config(pinned)
    running = counted(len(host.held), "model")
    tell(f"{running} held here, and not touched. Commands of the former fleet count no more.")
    return pinned


async def _documents(url: str, pin: Pin) -> tuple[str, ...]:
    """The root documents, from wherever: the digest proves the first of them, and each proves the next."""
    if pin.roots is None:
        anybody = Controller.unproved(url)
        try:
            return await anybody.roots()
        finally:
            await anybody.close()
    try:
        files = sorted((f for f in pin.roots.glob("*.json") if f.stem.isdigit()), key=lambda f: int(f.stem))
        return tuple(file.read_text("utf-8").strip() for file in files)
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{pin.roots}: cannot be read: {error}; nothing was changed") from error


def _chain(texts: tuple[str, ...], fleet: Digest) -> RootChain:
    if not texts:
        raise Failed("there is no root document; nothing was changed", hints=("name a folder: --roots DIR",))
    try:
        chain = walk(genesis(texts[0], fleet), texts[1:])
    except Refusal as refusal:
        what = f"{refusal.message}; nothing was changed"
        hint = "compare the digest with what `gridops trust verify` says where the fleet was founded"
        raise Refusal(refusal.code, what, hints=(hint,)) from refusal
    if not chain.root.controller_tls:
        raise Failed(f"root {chain.root.version} names no certificate of a controller; nothing was changed")
    return chain


def _words(before: Digest, now: Digest) -> str:
    return f"at {render_instant(SystemClock().wall_ms())}, by hand: fleet {now}, formerly {before}"
