"""What Ollama and ComfyUI have in common: a service of the host, at a loopback address, that is there for any backend.

Such a service chooses among the devices it finds by itself, so it is offered for every backend, and nothing of it is
installed or missing by our doing. Starts nothing and asks nobody; the adapters know how their service is asked.
"""

from __future__ import annotations

from gridops.base.ids import EngineName
from gridops.model.fleet import Runtime

BACKENDS = ("cpu", "cuda", "metal", "rocm")
"""Which devices it was given is the operator's own configuration."""


class Loopback:
    """The face of one service at one address."""

    _NAME: str

    def __init__(self, address: str) -> None:
        self._address = address

    @property
    def name(self) -> EngineName:
        """The name that configs use."""
        return EngineName(self._NAME)

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._address

    def runtimes(self) -> tuple[Runtime, ...]:
        """It may run on whatever the host has."""
        return tuple(Runtime(engine=self.name, backend=backend) for backend in BACKENDS)

    def problem(self) -> str | None:
        """None: it is not started by us."""
        return None
