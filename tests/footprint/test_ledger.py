"""The sum on a device: three answers, and every bound on its own."""

from __future__ import annotations

import pytest

from gridops.footprint.ledger import Answer, DeviceRoom, Fit, Use, fits, ram_of, rooms
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport, Ownership, Residency, ResidencyState
from tests.planner.fleet import GIB, device, host, report, with_external

ROOM = DeviceRoom(
    id="gpu0",  # type: ignore[arg-type]
    kind=DeviceKind.GPU,
    model=None,
    peers=(),
    total_bytes=100,
    reserve_bytes=10,
    external_bytes=20,
    headroom_bytes=5,
)
SHARED = DeviceRoom(
    id="unified0",  # type: ignore[arg-type]
    kind=DeviceKind.UNIFIED,
    model=None,
    peers=(),
    total_bytes=100,
    reserve_bytes=0,
    external_bytes=0,
    headroom_bytes=0,
    gpu_bytes=60,
)
ANSWERS = {
    "new: fits to the byte before the headroom": (ROOM, Use(), 65, {"gpu": True, "new": True}, Fit(Answer.FITS, 65)),
    "new: one byte into the headroom is short": (ROOM, Use(), 66, {"gpu": True, "new": True}, Fit(Answer.SHORT, 65, 1)),
    "kept: may sit in the headroom": (ROOM, Use(), 70, {"gpu": True, "new": False}, Fit(Answer.FITS, 70)),
    "kept: not beyond it": (ROOM, Use(), 71, {"gpu": True, "new": False}, Fit(Answer.SHORT, 70, 1)),
    "beside what is planned": (ROOM, Use(60, 60), 6, {"gpu": True, "new": True}, Fit(Answer.SHORT, 5, 1)),
    "gpu work stops at its share": (SHARED, Use(50, 50), 11, {"gpu": True, "new": True}, Fit(Answer.SHORT, 10, 1)),
    "other work does not": (SHARED, Use(50, 50), 50, {"gpu": False, "new": True}, Fit(Answer.FITS, 50)),
    "gpu work stops at the pool too": (SHARED, Use(95, 0), 6, {"gpu": True, "new": True}, Fit(Answer.SHORT, 5, 1)),
    "no room is unknown": (None, Use(), 1, {"gpu": True, "new": True}, Fit(Answer.UNKNOWN)),
    "no need is unknown": (ROOM, Use(), None, {"gpu": True, "new": True}, Fit(Answer.UNKNOWN)),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_fit_has_three_answers(name: str) -> None:
    room, use, amount, how, expected = ANSWERS[name]
    assert fits(room, use, amount, **how) == expected


def test_a_fit_is_not_a_truth_value() -> None:
    with pytest.raises(TypeError, match="three answers"):
        bool(Fit(Answer.FITS))


def test_a_declared_ceiling_holds_against_a_larger_report_and_a_smaller_report_is_believed() -> None:
    declared = host("forge", (48, 48))
    seen = report(declared)
    devices = (
        DeviceReport(id=declared.devices[0].id, kind=DeviceKind.GPU, total_bytes=80 * GIB),
        DeviceReport(id=declared.devices[1].id, kind=DeviceKind.GPU, total_bytes=40 * GIB),
    )
    found = rooms(declared, report(declared, devices=devices), 50_000)
    assert [(r.id, r.total_bytes) for r in found] == [("gpu0", 48 * GIB), ("gpu1", 40 * GIB)]
    assert seen.device(declared.devices[2].id) is not None
    assert ram_of(found) is None, "a device that is not reported is not there today"


def test_a_device_that_nobody_declared_is_not_ours_to_fill() -> None:
    declared = host("forge", (48,), ram=0)
    more = DeviceReport(id="gpu7", kind=DeviceKind.GPU, total_bytes=GIB)  # type: ignore[arg-type]
    found = rooms(declared, report(declared, devices=(*report(declared).devices, more)), 0)
    assert [r.id for r in found] == ["gpu0"]


def test_reserve_external_use_and_headroom_are_taken_off() -> None:
    declared = host("forge", devices=(device("gpu0", 40, reserve_bytes=4 * GIB),))
    (room,) = rooms(declared, with_external(report(declared), "gpu0", 6), 50_000)
    assert (room.raw_bytes, room.open_bytes) == (30 * GIB, 28 * GIB)


def test_external_use_is_the_larger_of_the_reading_and_what_foreign_engines_say() -> None:
    declared = host("forge", (40,), ram=0)
    foreign = Residency(
        profile="video",  # type: ignore[arg-type]
        state=ResidencyState.READY,
        ownership=Ownership.EXTERNAL,
        devices=("gpu0",),  # type: ignore[arg-type]
        device_bytes=10 * GIB,
    )
    (said,) = rooms(declared, report(declared, residencies=(foreign,)), 0)
    (measured,) = rooms(declared, with_external(report(declared, residencies=(foreign,)), "gpu0", 12), 0)
    assert (said.external_bytes, measured.external_bytes) == (10 * GIB, 12 * GIB)


def test_ram_is_the_first_cpu_device_and_unified_memory_where_there_is_none() -> None:
    def ram(*names: str) -> str | None:
        found = ram_of(rooms(host("forge", devices=tuple(device(n, 8) for n in names)), None, 0))
        return found.id if found is not None else None

    assert ram("gpu0", "cpu1", "cpu0") == "cpu0"
    assert ram("unified0", "cpu0") == "cpu0"
    assert ram("unified0") == "unified0"
    assert ram("gpu0") is None


def test_gpu_share_of_unified_memory_is_a_limit_of_its_own() -> None:
    (room,) = rooms(host("mac", devices=(device("unified0", 48, gpu_share_ppm=750_000),)), None, 0)
    assert room.gpu_bytes == 36 * GIB
