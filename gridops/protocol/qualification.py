"""A qualification: the whole life of one engine with one model, run for real on a host, as that host signs it.

Evidence, never a command: it says what was found, step by step, and what was measured. Of a payload type of its own
(`qualification`), so that it can stand for nothing else, and nothing else for it.
"""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import DeviceId, Digest, HostId
from gridops.base.record import record, to_bytes
from gridops.model.fleet import DeviceKind
from gridops.model.measured import Measured, revision, settings
from gridops.model.plan import Launch
from gridops.protocol.messages import WIRE_VERSION
from gridops.trust.envelope import open_record, seal
from gridops.trust.keys import MachineSigner, PublicKey

KIND = "qualification"


class Step(StrEnum):
    """What is tried, in this order; the first that fails ends it, and the rest is undone."""

    INVENTORY = "inventory"
    IDENTITY = "identity"
    WARM = "warm"
    OWNERSHIP = "ownership"
    READINESS = "readiness"
    INFERENCE = "inference"
    ACTIVITY = "activity"
    MEMORY = "memory"
    DRAIN = "drain"
    STOP = "stop"


@record
class Found:
    """One step."""

    step: Step
    passed: bool
    took_ms: int
    detail: str


@record
class DeviceReading:
    """Memory of one device with the engine in it."""

    device: DeviceId
    kind: DeviceKind
    total_bytes: int
    used_bytes: int
    own_bytes: int
    """What the processes of the engine use of it."""
    model: str | None = None


@record
class Qualification:
    """The evidence."""

    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    at_ms: int
    agent_version: str
    engine_version: str
    launch: Launch
    identity: str
    """The immutable identity of what ran."""
    steps: tuple[Found, ...]
    readings: tuple[DeviceReading, ...] = ()
    host_bytes: int = 0
    """Memory of the host that its processes use beside the devices."""
    passed: bool = False
    refused: str | None = None
    """Why nothing was measured, though the engine lived: the reading would not be true."""


def seal_qualification(made: Qualification, signer: MachineSigner) -> str:
    """The signed evidence, by the host's own key."""
    return seal(KIND, to_bytes(made), signer)


def open_qualification(text: str | bytes, host_key: PublicKey) -> tuple[Qualification, Digest]:
    """A verified qualification of a host, and the digest by which it is named. Raises Refusal."""
    made, opened = open_record(Qualification, text, kind=KIND, keys=(host_key,))
    return made, opened.digest


def measured_of(made: Qualification, evidence: Digest) -> Measured | None:
    """What a passed qualification measured, for whoever plans; None when it measured nothing."""
    if not made.passed or made.refused is not None or not made.readings:
        return None
    launch, first = made.launch, made.readings[0]
    return Measured(
        engine=launch.engine,
        backend=launch.backend,
        revision=revision(launch.artifact),
        settings=settings(launch.args, launch.devices),
        context=launch.context,
        lanes=launch.lanes,
        kind=first.kind,
        device=first.model,
        total_bytes=min(r.total_bytes for r in made.readings),
        device_bytes=max(r.own_bytes for r in made.readings),
        host_bytes=made.host_bytes,
        at_ms=made.at_ms,
        evidence=evidence,
    )
