"""Memory truth over time: stable capacity, others' use at its highest, lost cards withdrawn, silent ones kept."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.base.ids import DeviceId
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops_agent import facts
from gridops_agent.core.events import GONE
from gridops_agent.core.external import Sample, Window, seen
from gridops_agent.core.release import Owed
from gridops_agent.facts import Ours
from gridops_agent.gauge import Gauge, Look
from gridops_agent.platform.base import Memory, Process
from gridops_agent.sensors.cards import Card, Cards, Condition

GIB = 1 << 30
MIB = 1 << 20
CPU, GPU0, GPU1 = DeviceId("cpu0"), DeviceId("gpu0"), DeviceId("gpu1")


class Machine:
    """A machine of 16 GiB with 6 in use, two processes of 1 GiB each, and cards that a test sets."""

    def __init__(self, *cards: Card, share: Fraction = Fraction(1)) -> None:
        self.ram = Memory(16 * GIB, 6 * GIB)
        self.alive = {1, 2}
        self.owed: tuple[tuple[Owed, int], ...] = ()
        self.cards = Cards(cards=cards)
        self.now_ms = 1_000_000
        self.gauge = Gauge(self, share, lambda: self.cards, lambda: (self.now_ms + 500, self.now_ms))  # type: ignore[arg-type]

    def memory(self) -> Memory:
        return self.ram

    def process(self, pid: int) -> Process | None:
        return Process(pid, "b", pid, pid, False) if pid in self.alive else None

    def own_memory_bytes(self, pid: int) -> int:
        return GIB if pid in self.alive else 0

    def look(self, *ours: int, after_ms: int = 5_000, planned: dict[DeviceId, int] | None = None) -> Look:
        self.now_ms += after_ms
        return self.gauge.measure(ours, Ours(frozenset(ours), planned or {}, self.owed))

    def report(self, name: DeviceId, *ours: int, **more: int) -> DeviceReport:
        return next(d for d in self.look(*ours, **more).measured.devices if d.id == name)  # type: ignore[arg-type]


def card(number: int = 0, used: int = 3 * GIB, **more: object) -> Card:
    fields = {"total_bytes": 8 * GIB, "used_bytes": used, "uuid": f"GPU-{number}", "model": "Card", "by_pid": {}}
    return Card(id=DeviceId(f"gpu{number}"), **(fields | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "ours", "total", "external"),
    [
        (Fraction(1), (), 16 * GIB, 6 * GIB),
        (Fraction(1), (1, 2), 16 * GIB, 4 * GIB),
        (Fraction(1, 4), (), 4 * GIB, 6 * GIB // 4),
        (Fraction(1, 4), (1,), 4 * GIB, 5 * GIB // 4),
    ],
)
def test_external_use_leaves_our_own_out_once_and_is_scaled_by_the_share(
    share: Fraction, ours: tuple[int, ...], total: int, external: int
) -> None:
    cpu = Machine(share=share).report(CPU, *ours)
    assert (cpu.id, cpu.kind, cpu.total_bytes, cpu.external_bytes) == (CPU, DeviceKind.CPU, total, external)


def test_what_we_are_measured_to_use_never_makes_external_use_negative() -> None:
    machine = Machine(card(used=GIB, by_pid={1: 2 * GIB}))
    machine.ram = Memory(16 * GIB, GIB)
    assert [d.external_bytes for d in machine.look(1, 2).measured.devices] == [0, 0]


def test_external_use_is_the_highest_of_the_window_with_its_time_and_is_forgotten_after_it() -> None:
    machine = Machine()
    story = []
    for used in (6, 9, 5, 5):
        machine.ram = Memory(16 * GIB, used * GIB)
        cpu = machine.report(CPU)
        story.append((cpu.external_bytes // GIB, cpu.external_ms))
    assert [used for used, _ in story] == [6, 9, 9, 9]
    assert story[1][1] == story[3][1] == 1_010_500, "the time of the high point, in controller time"
    cpu = machine.report(CPU, after_ms=limits.EXTERNAL_WINDOW_MS - 10_000)
    assert (cpu.external_bytes, cpu.external_ms) == (5 * GIB, machine.now_ms + 500)


def test_the_window_is_bounded_in_count_and_a_look_that_fails_takes_nothing_away() -> None:
    window = Window()
    for n in range(limits.EXTERNAL_SAMPLES * 3):
        window = seen(window, Sample(n, n, 1), n)
    assert len(window.samples) == limits.EXTERNAL_SAMPLES
    alone = seen(Window(), Sample(0, 0, 7), 0)
    assert seen(alone, None, 10 * limits.EXTERNAL_WINDOW_MS).most() == Sample(0, 0, 7)
    assert Window().most() is None


def test_a_process_of_ours_that_ends_during_the_look_is_not_charged_to_others() -> None:
    machine = Machine()
    machine.look(1, 2)
    machine.alive.discard(2)
    look = machine.look(1, 2)
    assert look.measured.devices[0].external_bytes == 4 * GIB
    assert look.why == ("cpu0: a process of ours ended while its memory was added up",)


def test_cards_are_reported_by_uuid_with_what_others_hold() -> None:
    machine = Machine(card(by_pid={1: 2 * GIB, 9: GIB}), share=Fraction(1, 2))
    gpu = machine.report(GPU0, 1)
    assert (gpu.kind, gpu.uuid, gpu.model) == (DeviceKind.GPU, "GPU-0", "Card")
    assert (gpu.total_bytes, gpu.external_bytes) == (4 * GIB, GIB // 2)


@pytest.mark.parametrize("by_pid", [None, {1: None}])
def test_where_the_driver_does_not_tell_ours_counts_once_by_its_plan_and_it_is_said(by_pid: object) -> None:
    machine = Machine(card(by_pid=by_pid))
    look = machine.look(1, planned={GPU0: 2 * GIB})
    assert look.measured.devices[1].external_bytes == GIB
    assert look.why == (f"gpu0: {facts.NOT_TOLD}",)
    assert machine.look(planned={GPU0: 2 * GIB}, after_ms=100_000).measured.devices[1].external_bytes == 3 * GIB


@pytest.mark.parametrize(
    ("used", "by_pid", "planned", "external"),
    [
        (6, {9: 1}, 4, 2),
        (6, {9: 5}, 4, 6),
        (2, {9: 1}, 4, 2),
        (4, {9: 1}, 4, 2),
        (6, {7: 3, 9: 1}, 4, 5),
        (6, {9: 1}, 2, 4),
        (7, {9: 1}, 9, 3),
        (6, None, 4, 6),
    ],
    ids=[
        "all of it is still there, under no process",
        "another has it now",
        "all of it came back",
        "half of it came back",
        "most of it is listed, and counted by its process",
        "no more than is planned for it",
        "no more than it held, others took room meanwhile",
        "nobody knows",
    ],
)
def test_what_a_card_keeps_of_an_ended_engine_is_counted_once_and_hides_nothing(
    used: int, by_pid: dict[int, int] | None, planned: int, external: int
) -> None:
    """It held four when five were used beside process 9, which had one."""
    listed = None if by_pid is None else {pid: held * GIB for pid, held in by_pid.items()}
    machine = Machine(card(used=used * GIB, by_pid=listed))
    owed = Owed(device=GPU0, pids=(7,), held_bytes=4 * GIB, rest_bytes=5 * GIB)
    machine.owed = ((owed, planned * GIB),)
    assert machine.report(GPU0).external_bytes == external * GIB


def test_a_lost_card_is_withdrawn_with_its_reason_and_the_next_keeps_its_name() -> None:
    machine = Machine(card(0), card(1))
    machine.look()
    machine.cards = Cards(cards=(Card(id=GPU0, condition=Condition.LOST, why=("fell off",)), card(1)))
    look = machine.look()
    assert [d.id for d in look.measured.devices] == [CPU, GPU1]
    assert look.measured.lost == ((GPU0, "fell off"),)
    assert [(a.code, a.text, a.device) for a in look.alarms] == [("device_lost", "gpu0 is withdrawn: fell off", "gpu0")]


def test_a_lost_card_takes_its_instances_along_and_a_silent_one_keeps_them() -> None:
    part = Card(id=DeviceId("gpu0.1"), parent=GPU0, total_bytes=GIB, used_bytes=0, uuid="MIG-1", by_pid={})
    machine = Machine(part)
    machine.look()
    machine.cards = Cards(cards=(Card(id=GPU0, condition=Condition.SILENT, why=("hm",)),))
    assert [d.id for d in machine.look().measured.devices] == [CPU, "gpu0.1"]
    machine.cards = Cards(cards=(Card(id=GPU0, condition=Condition.LOST, why=("gone",)),))
    look = machine.look()
    assert [d.id for d in look.measured.devices] == [CPU]
    assert look.measured.lost == ((GPU0, "gone"), (DeviceId("gpu0.1"), "gone"))


def test_a_silent_card_or_driver_changes_nothing_that_is_known_and_is_said() -> None:
    machine = Machine(card(0))
    known = machine.look().measured.devices
    machine.cards = Cards(cards=(Card(id=GPU0, condition=Condition.SILENT, why=("NVML error 999",)),))
    look = machine.look()
    assert (look.measured.devices[1], look.measured.absent, look.why) == (known[1], GONE, ("gpu0: NVML error 999",))
    assert [(a.code, a.device) for a in look.alarms] == [("sensor_silent", "gpu0")]
    machine.cards = Cards(known=False, why=("nvml did not answer within 3 s",))
    look = machine.look()
    assert (look.measured.devices[1], look.measured.absent) == (known[1], None)
    assert [(a.code, a.text) for a in look.alarms] == [("sensor_silent", "nvml did not answer within 3 s")]


def test_what_others_use_on_a_card_that_never_told_is_all_of_it() -> None:
    machine = Machine(card(0, used_bytes=None))
    assert machine.report(GPU0).external_bytes == 8 * GIB


def test_a_card_that_the_driver_no_longer_lists_is_gone() -> None:
    machine = Machine(card(0), card(1))
    machine.look()
    machine.cards = Cards(cards=(card(1),))
    look = machine.look()
    assert [d.id for d in look.measured.devices] == [CPU, GPU1]
    assert (look.measured.lost, look.measured.absent) == ((), GONE)


def test_a_driver_of_another_version_is_an_alarm_also_where_no_card_was_ever_seen() -> None:
    machine = Machine()
    machine.cards = Cards(absent="another version", why=("nvml: another version",))
    look = machine.look()
    assert look.measured.absent == "another version"
    assert [(a.code, a.text) for a in look.alarms] == [("device_lost", "no card can be used: another version")]


def test_errors_that_memory_could_not_mend_are_an_alarm() -> None:
    look = Machine(card(0, ecc_uncorrected=2), card(1, ecc_uncorrected=0)).look()
    assert [(a.code, a.device) for a in look.alarms] == [("device_ailing", "gpu0")]


def test_unified_memory_is_one_device_with_what_graphics_may_take_of_it() -> None:
    machine = Machine(share=Fraction(1, 2))
    machine.ram = Memory(16 * GIB, 6 * GIB, unified=True, graphics_bytes=10 * GIB)
    (device,) = machine.look().measured.devices
    assert (device.id, device.kind, device.total_bytes) == ("unified0", DeviceKind.UNIFIED, 8 * GIB)
    assert (device.external_bytes, device.graphics_bytes) == (3 * GIB, 5 * GIB)


def test_free_disk_is_read_where_the_folder_will_be(tmp_path: Path) -> None:
    free = facts.disk_free_bytes(tmp_path / "not" / "yet")
    assert free is not None
    assert free > 0
