"""Codes of devices and sensors: what a host finds wrong with its cards, and what it could not read."""

from __future__ import annotations

from gridops.base.codes import Code

DEVICE_LOST = Code(
    "device_lost",
    "a card cannot be used any more",
    "The driver says that the card is lost, must be reset, or that its library is of another version than the loaded "
    "driver. The device is withdrawn, its generation rises, and what stood on it has failed. Nothing is started on it.",
    "Reset the card or restart the machine. The host takes the device back by itself when the driver answers for it.",
)
DEVICE_AILING = Code(
    "device_ailing",
    "a card counts errors that it cannot mend",
    "Its memory gave wrong answers that were noticed and could not be corrected. Engines go on; what they say may be "
    "wrong from now on, and the card may fail.",
    "Drain the host and have the card looked at; a restart clears the count and moves bad pages aside.",
)
SENSOR_SILENT = Code(
    "sensor_silent",
    "a driver does not answer",
    "A card or its driver did not answer in time. What was known of it stays in the books; nothing is made up.",
    "See `gridops-agent status` for what could not be read; a driver that hangs for long needs a restart.",
)
FOOTPRINT_UNMEASURED = Code(
    "footprint_unmeasured",
    "a footprint that cannot be called measured",
    "What was read cannot be this engine's memory: no process, no memory, too little, somebody else's, or more than "
    "the device has. Nothing was written; an unknown footprint stays unknown.",
    "Look at the evidence, stop what else uses the device, and measure again with the engine idle and settled.",
)
