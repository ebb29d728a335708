"""What carrying out a command works with: the parts of one agent, and the ways to tell the heart what happened.

Made once by the shell and shared by `effects`, `loads`, `starts`, `stops`, `giveback` and `watch`. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from gridops.base.ids import EngineName
from gridops.model.fleet import Runtime
from gridops_agent.artifacts import Artifacts
from gridops_agent.core.events import Event
from gridops_agent.doors import Doors
from gridops_agent.engines.base import Adapter, Engine, Service
from gridops_agent.front import Front
from gridops_agent.hands import Hands
from gridops_agent.keep.keepers import Keepers
from gridops_agent.releases import Releases

Tell = Callable[[Event], Awaitable[bool]]


class Alerts(Protocol):
    """Shows people a coded text. `about` tells one cause from another of the same code."""

    def __call__(self, code: str, text: str, about: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Says:
    """How news is told. What must not happen if it cannot be remembered is told once."""

    tell: Tell
    """Waits for as long as the ledger cannot be written. True when the effect may go on."""
    tell_once: Tell
    """Raises Unwritable instead."""
    warn: Alerts


@dataclass(frozen=True, slots=True)
class Tools:
    """The parts of one agent that effects use."""

    keepers: Keepers
    engines: Mapping[EngineName, Engine]
    services: Mapping[EngineName, Service]
    artifacts: Artifacts
    doors: Doors
    front: Front
    http: aiohttp.ClientSession
    ports: tuple[int, int]
    releases: Releases
    hands: Hands
    measure: Callable[[], Awaitable[None]]
    """Take a look at every device now, and remember it. Raises Unwritable."""

    def adapter(self, name: EngineName) -> Adapter | None:
        """What knows an engine, whether we start it or not."""
        return self.engines.get(name) or self.services.get(name)

    def runtimes(self) -> tuple[Runtime, ...]:
        """What this host can run."""
        return self.keepers.runtimes(self.engines)
