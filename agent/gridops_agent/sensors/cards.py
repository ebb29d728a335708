"""What a driver says of its cards: the one form in which NVIDIA, AMD and Apple devices reach the rest of the agent.

Made by `nvml`, `amd` and `apple`; read by `gauge` (memory truth), `release` (did it come back) and `senses`
(protection). Each field that could not be read is None, and `why` says so; nobody turns an unknown into a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gridops.base.ids import DeviceId
from gridops.model.fleet import DeviceKind


class Condition(Enum):
    """Whether a card can be used at all."""

    WELL = "well"
    SILENT = "silent"
    """It did not answer this time: what was known of it stays."""
    LOST = "lost"
    """It is gone until somebody resets it: withdrawn, and what stood on it has failed."""


@dataclass(frozen=True, slots=True)
class Card:
    """One card, or one instance of a card that is cut into some (MIG), and then not the card.

    `by_pid` holds what each process uses, by compute and graphics together; a value of None is a process that is on
    the card with an amount that the driver does not tell.
    """

    id: DeviceId
    """By the driver's number, which stays when another card is lost: `gpu1`; `gpu1.0` for its first instance."""
    kind: DeviceKind = DeviceKind.GPU
    parent: DeviceId | None = None
    uuid: str | None = None
    model: str | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    by_pid: Mapping[int, int | None] | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    busy_ppm: int | None = None
    throttle: tuple[str, ...] | None = None
    """Why its clocks are held down, in words; empty when they are not."""
    ecc_uncorrected: int | None = None
    """Errors that memory could not mend since the driver was loaded."""
    condition: Condition = Condition.WELL
    why: tuple[str, ...] = ()
    """What could not be read of it, and why."""


@dataclass(frozen=True, slots=True)
class Cards:
    """One look at a driver."""

    cards: tuple[Card, ...] = ()
    known: bool = True
    """True: a card that is not listed is not there. False: nobody knows."""
    absent: str | None = None
    """Why there is no card, where the driver itself is what fails for good (another version than its library)."""
    why: tuple[str, ...] = ()
    """What could not be read of the driver as a whole, and why."""
