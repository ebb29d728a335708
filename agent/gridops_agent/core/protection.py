"""Nouns of the host's protection of itself: what was sensed, what a person at the host said, what follows from it.

The shell fills a `Sample` each second (`sensors/`), `verdict` turns it into a `Verdict`, and that enters the heart as
`StateChanged`. Readings are what was really read: a sensor that failed is None and never zero, and one that this
machine does not have is named in `absent`, because what is not there cannot be missing. Nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType

from gridops.base.units import PPM
from gridops.model.policy import Sensor
from gridops.model.snapshot import HostState


class GpuTrouble(StrEnum):
    """What can be wrong with a card; each makes it useless until somebody acts."""

    LOST = "lost"
    """It fell off the bus, or needs a reset (NVML 15)."""
    MISMATCH = "mismatch"
    """Driver and library are of different versions (NVML 18): no new process can use any card."""
    ECC = "ecc"
    """It counted errors in its memory that could not be corrected."""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """One card that is in trouble. `device` is its id where it still has one."""

    trouble: GpuTrouble
    device: str = ""


@dataclass(frozen=True, slots=True)
class CardSaid:
    """What one card told: only shown, since the hottest and the fullest of them are what counts."""

    id: str
    temperature_c: int | None = None
    memory_ppm: int | None = None
    own_memory: bool = True
    """It has memory of its own; one that shares the host's has no reading of it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the machine. Every reading may be None: it could not be read."""

    mono_ms: int
    """CLOCK_BOOTTIME where there is one: it goes on while the machine sleeps, so that a gap is seen as one."""
    idle_ms: int | None = None
    """Since somebody last touched keyboard, mouse or a terminal of this machine."""
    on_battery: bool | None = None
    """It runs from its battery now. False on a machine without one."""
    charging: bool | None = None
    battery_ppm: int | None = None
    temperature_c: int | None = None
    """The hottest sensor of CPU and board."""
    gpu_temperature_c: int | None = None
    """The hottest card of those that tell."""
    gpu_heat_untold: tuple[str, ...] = ()
    """Cards that are here and do not tell how hot they are: the hottest one may be hotter than is known."""
    gpu_heat_ceased: bool = False
    """One of them told before, so it may be the one that was too hot; who never told was not."""
    thermal_throttling: bool | None = None
    """Firmware or driver slows CPU or a card down because of heat."""
    ram_ppm: int | None = None
    """Used share of host RAM, everybody's use (what can be given back at once, such as caches, is not used)."""
    gpu_memory_ppm: int | None = None
    """Used share of the memory of the fullest card of those that tell, everybody's use."""
    gpu_memory_untold: tuple[str, ...] = ()
    """Cards that are here and do not tell how full they are: the fullest one may be fuller than is known."""
    gpu_memory_ceased: bool = False
    """One of them told before, so it may be the one that was too full; who never told was not."""
    cpu_ppm: int | None = None
    """Share of all CPUs that is busy with what is not our engines, over the last seconds."""
    load_ppm: int | None = None
    """Load average of one minute for each CPU: 1_000_000 is one runnable thread for each."""
    disk_free_bytes: int | None = None
    """Where artifacts are put."""
    network_up: bool | None = None
    """A network interface other than loopback is up and has an address."""
    gpu_faults: tuple[GpuFault, ...] | None = None
    """Cards in trouble; empty: none is. None: nobody could be asked."""
    gpus: int = 0
    """Cards of this machine, those in trouble included."""
    cards: tuple[CardSaid, ...] = ()
    """Each card by itself."""
    absent: frozenset[Sensor] = frozenset()
    """Sensors that this machine certainly does not have (no battery, no card). They are neither well nor unknown."""


class OverrideKind(StrEnum):
    """What a person at the host can say."""

    DRAIN = "drain"
    PAUSE = "pause"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Override:
    """What a person at the host said and what still holds. Expiry is the shell's: an expired one is not passed on."""

    kind: OverrideKind
    reason: str
    left_ms: int | None = None
    """What is left of `--for`; None: until it is taken back. Only shown."""


class Level(IntEnum):
    """What one signal asks for; the strictest wins."""

    THROTTLE = 1
    PAUSE = 2
    UNHEALTHY = 3


@dataclass(frozen=True, slots=True)
class Latch:
    """One signal over time: on after it was bad for its debounce, off after it was well for its recovery."""

    on: bool = False
    bad_since_ms: int | None = None
    well_since_ms: int | None = None


def _none() -> Mapping[str, Latch]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Guard:
    """What protection remembers between two looks. Of one run of the agent: it begins without history."""

    at_ms: int | None = None
    latches: Mapping[str, Latch] = field(default_factory=_none)
    yielding_since_ms: int | None = None
    """Since when the host wants to pause; the drain grace counts from here."""
    paused: bool = False
    """The grace is over, or nothing was in flight."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The host's own word about itself."""

    state: HostState = HostState.ACCEPTING
    reasons: tuple[str, ...] = ()
    """Each begins with its code: `owner_active: ...`."""
    lanes_ppm: int = PPM
    """Share of each residency's lanes that new requests may use."""
    retry_after_ms: int = 0
    """When somebody who was refused may ask again."""
    yields: bool = False
    """Memory is given back: engines are stopped once they are idle, and come back when the host is itself again."""

    @property
    def admits(self) -> bool:
        """Whether new work may begin here at all: requests, loads, starts."""
        return self.state in (HostState.ACCEPTING, HostState.THROTTLED)
