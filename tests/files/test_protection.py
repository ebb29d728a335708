"""`policies/protection.yaml`: every threshold arrives, a class has defaults of its own, and levels make sense."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from gridops.base.codes import sense
from gridops.base.record import from_bytes, to_bytes
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.model.policy import ClassProtection, Levels, Sensor, Thermal, protection_default
from tests.files.repo import GOOD, PROTECTION, checked

EVERYTHING = Path(__file__).parent / "everything"
HEAD = "apiVersion: gridops/v1\nkind: Protection\nclasses:\n"
LAPTOP, SERVER = protection_default("opportunistic"), protection_default("dedicated")


def said(text: str) -> tuple[ClassProtection, ...]:
    found = checked({**GOOD, PROTECTION: HEAD + text})
    assert found.intent is not None, "\n".join(str(p) for p in found.problems)
    return found.intent.desired.protection.classes


def test_every_field_arrives() -> None:
    made = {c.host_class: c for c in load(WorkingTree(EVERYTHING)).desired.protection.classes}["opportunistic"]
    assert made == ClassProtection(
        host_class="opportunistic",
        idle_ms=90_000,
        activity="throttle",
        activity_debounce_ms=7_000,
        activity_recovery_ms=120_000,
        thermal=Thermal(throttle=80, pause=95, recover=72),
        gpu_thermal=Thermal(throttle=84, pause=91, recover=70),
        thermal_debounce_ms=6_000,
        thermal_recovery_ms=180_000,
        memory=Levels(throttle_ppm=850_000, pause_ppm=950_000, recover_ppm=600_000),
        gpu_memory=Levels(throttle_ppm=900_000, pause_ppm=970_000),
        battery=Levels(throttle_ppm=300_000, pause_ppm=120_000, recover_ppm=500_000),
        cpu_ppm=800_000,
        load_ppm=2_500_000,
        disk_bytes=5 << 30,
        debounce_ms=4_000,
        drain_grace_ms=45_000,
        recovery_ms=61_000,
        throttled_ppm=250_000,
        unknown_ppm=800_000,
        retry_after_ms=20_000,
        ignore=(Sensor.NETWORK,),
    )
    kept = {"host_class", "unknown_sensor"}
    same = {f.name for f in fields(made) if getattr(made, f.name) == getattr(LAPTOP, f.name)}
    assert same - kept == {"thermal"}, "every other field of the example differs from its default"


def test_what_is_left_out_is_the_default_of_the_class_and_not_of_the_record() -> None:
    server, laptop = said("  opportunistic: {idle: 30s}\n  dedicated: {debounce: 2s}\n")
    assert laptop == replace(LAPTOP, idle_ms=30_000)
    assert server == replace(SERVER, debounce_ms=2_000)
    assert (server.thermal.throttle, server.unknown_sensor) == (85, "ignore")
    assert server.ignore == (Sensor.ACTIVITY, Sensor.BATTERY, Sensor.CPU, Sensor.LOAD)


@pytest.mark.parametrize(
    ("text", "sensor"),
    [
        ("cpu: 95%", Sensor.CPU),
        ("load: 4", Sensor.LOAD),
        ("battery: {throttle: 30%, pause: 10%}", Sensor.BATTERY),
        ("activity: throttle", Sensor.ACTIVITY),
        ("idle: 5m", Sensor.ACTIVITY),
    ],
)
def test_a_sensor_for_which_a_server_says_something_counts(text: str, sensor: Sensor) -> None:
    (server,) = said(f"  dedicated: {{{text}}}\n")
    assert set(SERVER.ignore) - set(server.ignore) == {sensor}


def test_what_is_ignored_by_name_is_ignored_whatever_else_is_said() -> None:
    (server,) = said("  dedicated: {cpu: 95%, ignore: [cpu, memory]}\n")
    assert server.ignore == (Sensor.CPU, Sensor.MEMORY)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("memory: {throttle: 80%, pause: 90%, recover: 80%}", "recover"),
        ("gpu_memory: {throttle: 95%, pause: 90%}", "pause"),
        ("battery: {throttle: 30%, pause: 12%, recover: 30%}", "recover"),
        ("battery: {throttle: 10%, pause: 12%}", "pause"),
        ("gpu_thermal: {throttle: 80, pause: 90, recover: 80}", "recover"),
    ],
)
def test_levels_that_contradict_each_other_are_named(text: str, at: str) -> None:
    found = checked({**GOOD, PROTECTION: f"{HEAD}  opportunistic: {{{text}}}\n"})
    assert [p.code for p in found.problems] == [sense.MIN_ABOVE_MAX.code]
    assert at in str(found.problems[0])


def test_a_directive_of_an_earlier_version_still_reads() -> None:
    old = b'{"activity_debounce_ms":10000,"host_class":"dedicated","idle_ms":60000,"unknown_sensor":"ignore"}'
    assert from_bytes(ClassProtection, old) == ClassProtection(host_class="dedicated", unknown_sensor="ignore")
    for made in (LAPTOP, SERVER):
        assert from_bytes(ClassProtection, to_bytes(made)) == made
