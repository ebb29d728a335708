"""What a replica needs: every part counts, context once per server, and unknown is never zero."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.footprint.need import DERIVED_HOST_BYTES, Need, UnknownNeed, identity, need
from gridops.model.policy import PlanningPolicy
from gridops.model.profile import DeviceNeed, Footprint, FootprintSource, Heads
from gridops.planner.eligible import launch_of
from tests.planner.fleet import GIB, config, profile

POLICY = PlanningPolicy()
MIB = 1 << 20


def declared(**parts: int) -> Footprint:
    return Footprint(source=FootprintSource.DECLARED, **parts)


PARTS = {
    "device alone holds everything": (declared(device_bytes=20 * GIB), 20 * GIB, 0),
    "host comes on top": (declared(device_bytes=20 * GIB, host_bytes=2 * GIB), 20 * GIB, 2 * GIB),
    "kv counts the context once, not per lane": (
        declared(device_bytes=GIB, kv_per_1k_bytes=12 * MIB),
        GIB + -(-12 * MIB * 16384 // 1000),
        0,
    ),
    "fixed part per sequence": (declared(device_bytes=GIB, fixed_per_sequence_bytes=3 * MIB), GIB + 4 * 3 * MIB, 0),
    "spike per lane": (declared(device_bytes=GIB, spike_per_lane_bytes=256 * MIB), 2 * GIB, 0),
    "measured counts like declared": (Footprint(source=FootprintSource.MEASURED, device_bytes=GIB), GIB, 0),
    "published counts like declared": (Footprint(source=FootprintSource.PUBLISHED, device_bytes=GIB), GIB, 0),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_add_up(name: str) -> None:
    footprint, device, host = PARTS[name]
    found = need(config(footprint=footprint, context=16384, lanes=4), POLICY)
    assert found == Need(device, host, footprint.source)


UNKNOWN = {
    "said to be unknown": Footprint(source=FootprintSource.UNKNOWN, device_bytes=GIB),
    "declared without a number": declared(host_bytes=GIB),
    "measured without a number": Footprint(source=FootprintSource.MEASURED),
    "derived from a model whose heads nobody knows": Footprint(source=FootprintSource.DERIVED),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_footprint_is_a_reason_and_never_a_number(name: str) -> None:
    found = need(config(footprint=UNKNOWN[name]), POLICY)
    assert isinstance(found, UnknownNeed)
    assert found.reason


def test_a_derived_footprint_is_weights_with_margin_and_a_bound_of_the_context() -> None:
    one = config(
        size=10, footprint=Footprint(source=FootprintSource.DERIVED), heads=Heads(attention=32, kv=8), context=8192
    )
    found = need(one, POLICY)
    weights = 10 * GIB
    bound = -(-weights * 8 * 8192 // (96 * 32 * 32))
    assert found == Need(11 * GIB + bound, DERIVED_HOST_BYTES, FootprintSource.DERIVED)


def test_a_derived_footprint_takes_a_stated_kv_part_instead_of_the_bound() -> None:
    stated = Footprint(source=FootprintSource.DERIVED, kv_per_1k_bytes=10 * MIB)
    assert need(config(size=10, footprint=stated, context=2000), POLICY) == Need(
        11 * GIB + 20 * MIB, DERIVED_HOST_BYTES, FootprintSource.DERIVED
    )


def test_a_derived_footprint_is_split_over_the_devices_of_a_sharded_config() -> None:
    stated = Footprint(source=FootprintSource.DERIVED, kv_per_1k_bytes=0)
    one = config(size=10, footprint=stated, devices=DeviceNeed(count=2, shard="tensor"))
    found = need(one, POLICY)
    assert isinstance(found, Need)
    assert found.device_bytes == -(-11 * GIB // 2)


def test_the_kv_bound_covers_a_real_dense_model() -> None:
    """Llama-2 7B at Q4: 32 layers, 32 heads of 128, 3.6 GiB of weights, 512 KiB a cell at 16 bits."""
    one = config(
        size=3.6, footprint=Footprint(source=FootprintSource.DERIVED), heads=Heads(attention=32, kv=32), context=4096
    )
    found = need(one, POLICY)
    assert isinstance(found, Need)
    assert found.device_bytes >= int(3.6 * GIB) + 4096 * 512 * 1024


def test_identity_follows_what_restarts_and_nothing_else() -> None:
    one = config()
    before = identity(launch_of(profile("coder"), one, "cuda"))
    same = replace(one, footprint=declared(device_bytes=1))
    assert identity(launch_of(profile("coder"), same, "cuda")) == before
    for changed in (replace(one, context=1), replace(one, lanes=9), replace(one, devices=DeviceNeed(count=2))):
        assert identity(launch_of(profile("coder"), changed, "cuda")) != before
    assert identity(launch_of(profile("coder"), one, "cpu")) != before
