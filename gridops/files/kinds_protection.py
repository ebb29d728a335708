"""Kind of `policies/protection.yaml`: when hosts of a class yield; each field declared once.

What is left out is the default of the class, not of the record: nobody sits at a server, and a laptop has an owner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gridops.base.codes import sense as sense_codes
from gridops.base.units import PPM
from gridops.files.diagnose import Related
from gridops.files.kinds_fleet import header
from gridops.files.reader import Reader
from gridops.files.scalars import Choice, Int, Share, Size, Span
from gridops.files.shape import Block, Field, ListOf, MapOf, Read
from gridops.model.fleet import HostClass
from gridops.model.policy import ClassProtection, Levels, ProtectionPolicy, Sensor, Thermal, protection_default


def _levels_rule(read: Read, reader: Reader) -> None:
    throttle, pause = read.get("throttle"), read.get("pause")
    if throttle is None or pause is None:
        return
    low, high = ("pause", "throttle") if read.block.title == "battery" else ("throttle", "pause")
    if read.get(low) >= read.get(high):
        message = f"`{low}` must be below `{high}`"
        related = (Related(reader.source.place(read.node(high)), high),)
        reader.error(sense_codes.MIN_ABOVE_MAX, read.node(low), message, related=related)
    recover = read.get("recover")
    beyond = recover is not None and (recover <= throttle if low == "pause" else recover >= throttle)
    if beyond and read.block.record is Levels:
        word = "above" if low == "pause" else "below"
        reader.error(sense_codes.MIN_ABOVE_MAX, read.node("recover"), f"`recover` must be {word} `throttle`")


def _thermal_rule(read: Read, reader: Reader) -> None:
    _levels_rule(read, reader)
    recover, throttle = read.get("recover"), read.get("throttle")
    if recover is not None and throttle is not None and recover >= throttle:
        reader.error(sense_codes.MIN_ABOVE_MAX, read.node("recover"), "`recover` must be below `throttle`")


def _levels(title: str) -> Block:
    return Block(
        title,
        Levels,
        Field("throttle", Share(high=PPM), "Take less work from here.", "throttle_ppm", True),
        Field("pause", Share(high=PPM), "Take no work from here.", "pause_ppm", True),
        Field("recover", Share(high=PPM), "Well again from here; else a tenth better than `throttle`.", "recover_ppm"),
        rules=(_levels_rule,),
    )


def _thermal(title: str) -> Block:
    return Block(
        title,
        Thermal,
        Field("throttle", Int(0, 150), "Degrees Celsius.", "", True),
        Field("pause", Int(0, 150), "Degrees Celsius.", "", True),
        Field("recover", Int(0, 150), "Degrees Celsius.", "", True),
        rules=(_thermal_rule,),
    )


def _protection(_read: Read, made: dict[str, Any], _reader: Reader) -> ClassProtection:
    """What is left out is the default of the class. A sensor for which something is said is not ignored by default."""
    base = protection_default(made["host_class"])
    said = {_SENSOR_OF.get(name, name) for name in made}
    ignored = tuple(s for s in base.ignore if s.value not in said)
    return replace(base, **{"ignore": ignored, **made})


_SENSOR_OF = {
    "idle_ms": "activity",
    "activity_debounce_ms": "activity",
    "activity_recovery_ms": "activity",
    "cpu_ppm": "cpu",
    "load_ppm": "load",
}
_PROTECTION = Block(
    "the protection",
    ClassProtection,
    Field("idle", Span(), "Quiet time after which the owner counts as away.", "idle_ms"),
    Field("activity", Choice(("pause", "throttle")), "What the owner's activity does."),
    Field("activity_debounce", Span(), "Activity must last so long to count.", "activity_debounce_ms"),
    Field("activity_recovery", Span(), "`recovery` after activity, where it is another.", "activity_recovery_ms"),
    Field("thermal", _thermal("thermal"), "Temperatures of CPU and board at which the host yields."),
    Field("gpu_thermal", _thermal("gpu_thermal"), "Temperatures of its hottest GPU at which it yields."),
    Field("thermal_debounce", Span(), "Heat must last so long to count.", "thermal_debounce_ms"),
    Field("thermal_recovery", Span(), "`recovery` after heat, where it is another.", "thermal_recovery_ms"),
    Field("memory", _levels("memory"), "Share of what the models leave of its RAM that others use."),
    Field("gpu_memory", _levels("gpu_memory"), "The same of its fullest GPU."),
    Field("battery", _levels("battery"), "Charge below which the host yields."),
    Field("cpu", Share(low=1, high=PPM), "Share of its CPUs busy with other work; less work from here.", "cpu_ppm"),
    Field("load", Share(low=1, high=100 * PPM), "Load for each CPU; less work from here.", "load_ppm"),
    Field("disk", Size(), "Free space for artifacts; less work below.", "disk_bytes"),
    Field("debounce", Span(), "How long all else must last to count.", "debounce_ms"),
    Field("drain_grace", Span(), "What is in flight may end within it before a pause.", "drain_grace_ms"),
    Field("unknown_sensor", Choice(("throttle", "ignore")), "When a sensor cannot be read."),
    Field("recovery", Span(), "How long all must be well before work resumes.", "recovery_ms"),
    Field(
        "throttled_share",
        Share(high=PPM),
        "Share of lanes and of room for new work.",
        "throttled_ppm",
    ),
    Field("unknown_share", Share(high=PPM), "The same when only a sensor is unknown.", "unknown_ppm"),
    Field("retry_after", Span(low=1_000), "When a refused client may ask again.", "retry_after_ms"),
    Field("ignore", ListOf(Choice(Sensor)), "Sensors that say nothing about this class."),
    make=_protection,
)

PROTECTION = Block(
    "the protection file",
    ProtectionPolicy,
    *header("Protection"),
    Field(
        "classes",
        MapOf(
            "class of host",
            Choice((HostClass.DEDICATED.value, HostClass.OPPORTUNISTIC.value)),
            _PROTECTION,
            key_to="host_class",
        ),
        "Limits of each class of host.",
    ),
)
