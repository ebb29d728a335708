"""What may run at all: the catalog that people sign, as it is read. Nouns only; `trust.catalog` judges by it.

Entries are bounds, not commands: an entry says which engine, which files, which arguments with which values, how much
context and memory. Whatever a host is told to load or start has to stay inside one of them.
"""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import Digest, EngineName
from gridops.base.record import record


class Network(StrEnum):
    """What of the network an engine may see."""

    HOST = "host"
    """Whatever its host sees. The engine itself listens on loopback in any case."""
    OWN = "own"
    """A network of its own, in which no other engine or service of the host answers: it runs in a container."""


@record
class Slot:
    """One argument that a command may carry, and which values it may have: one of some words, or a whole number."""

    name: str
    values: tuple[str, ...] = ()
    """Exactly these, sorted."""
    low: int | None = None
    high: int | None = None
    """With `low`: a number from `low` to `high`, besides `values`."""
    needed: bool = False
    """True: a command without it is refused, since what the engine does by itself is not wanted."""


@record
class Files:
    """An artifact that may be on hosts. Where its bytes come from does not matter, since they are proved."""

    name: str
    """For people."""
    content: Digest
    """Of its format, and of the paths and digests of its files (`trust.catalog.content`)."""
    source: str | None = None
    credential: str | None = None
    """A secret is sent nowhere but to `source`: a host that is told to show it elsewhere refuses."""


@record
class Entry:
    """One thing that may run."""

    name: str
    engine: EngineName
    backends: tuple[str, ...]
    """Sorted."""
    artifacts: tuple[Files, ...]
    """Sorted by content."""
    context: int
    """The most; so are the numbers below."""
    lanes: int
    devices: int = 1
    device_bytes: int
    """On each device."""
    host_bytes: int
    args: tuple[Slot, ...] = ()
    """Sorted by name. What has no slot is refused."""
    builds: tuple[str, ...] = ()
    """Builds of the engine that may start it, as their hosts name them: a version, a digest, an image by digest.
    Empty: whichever the people of a host have installed there."""
    environment: tuple[str, ...] = ()
    """Names of variables that may be set for it beyond what every process of the host gets. Sorted."""
    network: Network = Network.HOST


@record
class Catalog:
    """The payload of `policies/trust/catalog.json`."""

    v: int = 1
    fleet: Digest
    version: int
    """From 1, and only ever rises."""
    issued_ms: int
    entries: tuple[Entry, ...]
    """Sorted by name, each once."""
