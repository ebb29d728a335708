"""What a host may say of itself at all: each amount and each name once below what can be meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import ConfigName, DeviceId, Digest, EngineName, HostId, ProfileName, ReplicaId
from gridops.model.advice import Prefetched
from gridops.model.fleet import DeviceKind
from gridops.model.measured import Measured
from gridops.model.snapshot import DeviceReport, HostState, Ownership, Residency, ResidencyState
from gridops.protocol.messages import Inventory, Transfer
from gridops.protocol.plausible import flaw, flaw_of_devices

DIGEST = Digest("sha256:" + "a" * 64)
GPU = DeviceReport(id=DeviceId("gpu0"), kind=DeviceKind.GPU, total_bytes=48, external_bytes=1, graphics_bytes=0)
OURS = Residency(
    profile=ProfileName("coder"),
    state=ResidencyState.READY,
    replica=ReplicaId("coder/1"),
    config=ConfigName("q4"),
    devices=(DeviceId("gpu0"), DeviceId("gpu1")),
    port=18_400,
)
THEIRS = Residency(profile=ProfileName("Org/Model:Q4 K"), state=ResidencyState.READY, ownership=Ownership.EXTERNAL)
FILES = Prefetched(host=HostId("h"), profile=ProfileName("coder"), files=(DIGEST,), size_bytes=0, since_ms=0)
MEASURED = Measured(
    engine=EngineName("llama.cpp"),
    backend="cpu",
    revision=DIGEST,
    settings=DIGEST,
    context=0,
    lanes=0,
    kind=DeviceKind.GPU,
    total_bytes=0,
    device_bytes=0,
    host_bytes=0,
    at_ms=0,
    evidence=DIGEST,
)
WHOLE = Inventory(
    state=HostState.ACCEPTING,
    generation=0,
    devices=(GPU, replace(GPU, id=DeviceId("gpu0-mig1"), parent=DeviceId("gpu0"))),
    residencies=(OURS, THEIRS),
    disk_free_bytes=0,
    transfers=(Transfer(artifact=DIGEST, source="https", done_bytes=0, size_bytes=0),),
    prefetched=(FILES,),
    measured=(MEASURED,),
)
LISTS = {"devices": 0, "residencies": 0, "transfers": 0, "prefetched": 0, "measured": 0}
BELOW = [
    *(("devices", name) for name in ("total_bytes", "external_bytes", "graphics_bytes", "generation")),
    *(("residencies", name) for name in ("device_bytes", "host_bytes", "in_flight", "restarts", "port")),
    *(("transfers", name) for name in ("done_bytes", "size_bytes")),
    ("prefetched", "size_bytes"),
    *(("measured", name) for name in ("total_bytes", "device_bytes", "host_bytes", "context", "lanes")),
]


def changed(of: str, **changes: Any) -> Inventory:
    first, *rest = getattr(WHOLE, of)
    return replace(WHOLE, **{of: (replace(first, **changes), *rest)})  # type: ignore[arg-type]


def test_what_a_host_says_today_holds() -> None:
    assert flaw(WHOLE) is None
    assert flaw_of_devices(WHOLE.devices) is None


@pytest.mark.parametrize(("of", "name"), BELOW)
def test_nothing_is_less_than_nothing(of: str, name: str) -> None:
    assert "expected nothing below 0" in (flaw(changed(of, **{name: -1})) or "")
    if of == "devices":
        assert flaw_of_devices(changed(of, **{name: -1}).devices) is not None


def test_every_number_of_the_inventory_is_thought_of() -> None:
    """A new field that counts something has its row above, or its reason here: moments may lie before 1970."""
    moments = {"external_ms", "since_ms", "at_ms"}
    counted = {(of, n) for of in LISTS for n, v in vars_of(getattr(WHOLE, of)[0]).items() if "int" in v}
    assert {(of, n) for of, n in counted if n not in moments} == set(BELOW)


def vars_of(value: Any) -> dict[str, str]:
    return {name: str(field.type) for name, field in value.__dataclass_fields__.items()}


@pytest.mark.parametrize("number", [-1, -(1 << 52)])
def test_the_host_itself_counts_from_nothing(number: int) -> None:
    assert flaw(replace(WHOLE, generation=number)) is not None
    assert flaw(replace(WHOLE, disk_free_bytes=number)) is not None


NAMES: dict[str, Inventory] = {
    "a device": changed("devices", id=DeviceId("gpu0\n")),
    "a parent": changed("devices", parent=DeviceId("GPU 0")),
    "a device twice": replace(WHOLE, devices=(GPU, GPU)),
    "a profile": changed("residencies", profile=ProfileName("Coder")),
    "a config": changed("residencies", config=ConfigName("")),
    "a replica": changed("residencies", replica=ReplicaId("coder/0")),
    "a replica of nobody": changed("residencies", replica=ReplicaId("coder")),
    "another's replica": changed("residencies", replica=ReplicaId("coder2/1")),
    "a device of a residency": changed("residencies", devices=(DeviceId("../gpu0"),)),
    "a device that a residency has twice": changed("residencies", devices=(DeviceId("gpu0"), DeviceId("gpu0"))),
}


@pytest.mark.parametrize("inventory", NAMES.values(), ids=NAMES.keys())
def test_names_are_names(inventory: Inventory) -> None:
    assert flaw(inventory) is not None
