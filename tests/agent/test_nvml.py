"""NVIDIA cards through the real pynvml over a driver library that the suite builds: what fails is unknown, not zero."""

from __future__ import annotations

import ast
import ctypes
import re
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gridops_agent.sensors import nvml as under_test
from tests.agent.driver import SOURCE, Driver, build, gpu

MIB = 1 << 20
LOOK = """
from gridops_agent.sensors.nvml import Nvml
def plain(seen):
    return {
        "known": seen.known, "absent": seen.absent, "why": list(seen.why),
        "cards": {c.id: {
            "condition": c.condition.value, "parent": c.parent, "uuid": c.uuid, "model": c.model, "why": list(c.why),
            "total": None if c.total_bytes is None else c.total_bytes >> 20,
            "used": None if c.used_bytes is None else c.used_bytes >> 20,
            "pids": None if c.by_pid is None else {k: v if v is None else v >> 20 for k, v in c.by_pid.items()},
            "temp": c.temperature_c, "power": c.power_mw, "limit": c.power_limit_mw, "busy": c.busy_ppm,
            "throttle": None if c.throttle is None else list(c.throttle), "ecc": c.ecc_uncorrected,
        } for c in seen.cards},
    }
"""


def look(driver: Driver, *lines: str) -> Any:
    """One reading of these cards, in a fresh process."""
    driver.say(*lines)
    return driver.run(LOOK + "answer(plain(Nvml().read()))")


@pytest.mark.parametrize("what", ["name", "uuid"])
def test_a_card_whose_words_are_no_text_hides_neither_itself_nor_the_others(driver: Driver, what: str) -> None:
    odd = {"uuid": "GPU-a", "name": "NVIDIA_A10"} | {what: "odd\udcff\udc80"}
    seen = look(driver, gpu(odd["uuid"], name=odd["name"]), gpu("GPU-b"))
    assert seen["known"] is True
    first, second = seen["cards"]["gpu0"], seen["cards"]["gpu1"]
    assert [c["condition"] for c in (first, second)] == ["well", "well"]
    assert (first["total"], second["uuid"]) == (24_576, "GPU-b")
    assert first["model" if what == "name" else what] is None
    assert first["why"] == [f"{what}: the answer is no text"]


def test_a_card_is_read_whole(driver: Driver) -> None:
    seen = look(
        driver,
        gpu("GPU-a", name="NVIDIA_H200", total=143_771, used=2_048, util=37, temp=54, power=310_500, limit=700_000)
        + " throttle=0x44 ecc=3 procs=11:1000,12:na graphics=11:400,13:7",
    )
    assert seen["known"] is True
    assert seen["why"] == []
    assert seen["cards"] == {
        "gpu0": {
            "condition": "well",
            "parent": None,
            "uuid": "GPU-a",
            "model": "NVIDIA H200",
            "why": [],
            "total": 143_771,
            "used": 2_048,
            "pids": {"11": 1000, "12": None, "13": 7},
            "temp": 54,
            "power": 310_500,
            "limit": 700_000,
            "busy": 370_000,
            "throttle": ["power cap", "thermal slowdown by hardware"],
            "ecc": 3,
        }
    }


def test_one_card_that_fails_hides_no_other_and_keeps_its_name(driver: Driver) -> None:
    seen = look(driver, gpu("GPU-a", err=15), gpu("GPU-b", err_memory=999), gpu("GPU-c", err_handle=15), gpu("GPU-d"))
    states = {name: card["condition"] for name, card in seen["cards"].items()}
    assert states == {"gpu0": "lost", "gpu1": "silent", "gpu2": "lost", "gpu3": "well"}
    assert seen["cards"]["gpu0"]["used"] is None
    assert "fell off the bus" in seen["cards"]["gpu0"]["why"][0]
    assert seen["cards"]["gpu1"]["why"] == ["NVML error 999"]


def test_a_card_that_needs_a_reset_and_one_lost_between_two_questions_are_lost(driver: Driver) -> None:
    seen = look(driver, gpu("GPU-a", err_memory=16), gpu("GPU-b", err_temp=15))
    assert {c["condition"] for c in seen["cards"].values()} == {"lost"}


def test_each_question_fails_by_itself_and_says_why(driver: Driver) -> None:
    seen = look(driver, gpu("GPU-a", power=9, err_power=3, err_ecc=3, err_throttle=4, err_procs=4, graphics="5:6"))
    card = seen["cards"]["gpu0"]
    assert (card["power"], card["ecc"], card["throttle"], card["temp"]) == (None, None, None, 41)
    assert card["pids"] == {"5": 6}
    assert card["why"] == [
        "compute processes: not permitted",
        "power: this card does not tell",
        "throttle: not permitted",
        "ecc: this card does not tell",
    ]


def test_processes_that_nobody_lists_are_unknown_and_not_none(driver: Driver) -> None:
    seen = look(driver, gpu("GPU-a", err_procs=3, err_graphics=3), gpu("GPU-b"))
    assert seen["cards"]["gpu0"]["pids"] is None
    assert seen["cards"]["gpu1"]["pids"] == {}


def test_an_old_driver_is_asked_the_old_way(tmp_path: Path, driver: Driver) -> None:
    old = Driver(build(tmp_path / "old", "-DOLD"), driver.state)
    seen = look(old, gpu("GPU-a", procs="1:2", graphics="3:4", throttle=8))
    card = seen["cards"]["gpu0"]
    assert (card["pids"], card["throttle"], card["why"]) == ({"1": 2, "3": 4}, ["hardware slowdown"], [])


def test_an_instance_is_as_hot_as_its_card_which_alone_is_asked(driver: Driver) -> None:
    seen = look(
        driver, gpu("GPU-a", mig=1, slots=7, temp=77), "mig gpu=0 at=0 uuid=M name=A total=4096 used=1 err.temp=3"
    )
    assert [(c["temp"], c["why"]) for c in seen["cards"].values()] == [(77, [])]


def test_a_card_that_is_cut_is_reported_as_its_instances_and_not_itself(driver: Driver) -> None:
    seen = look(
        driver,
        gpu("GPU-a", mig=1, slots=7),
        gpu("GPU-b", mig=2),
        gpu("GPU-c", mig=1, slots=7),
        "mig gpu=0 at=0 uuid=MIG-0 name=A total=4096 used=100 procs=7:90",
        "mig gpu=0 at=2 uuid=MIG-2 name=A total=8192 used=1",
    )
    cards = seen["cards"]
    assert list(cards) == ["gpu0.0", "gpu0.2", "gpu1"]
    assert [(c["parent"], c["uuid"], c["total"], c["pids"]) for c in cards.values()] == [
        ("gpu0", "MIG-0", 4096, {"7": 90}),
        ("gpu0", "MIG-2", 8192, {}),
        (None, "GPU-b", 24_576, {}),
    ]


@pytest.mark.parametrize(
    ("code", "known", "absent", "why"),
    [
        (9, True, False, "no driver is loaded"),
        (18, True, True, "another version"),
        (999, False, False, "NVML error 999"),
        (4, False, False, "not permitted"),
    ],
)
def test_a_driver_that_cannot_be_opened_says_why(
    driver: Driver, code: int, known: bool, absent: bool, why: str
) -> None:
    seen = look(driver, f"init_error={code}", gpu("GPU-a"))
    assert (seen["cards"], seen["known"], seen["absent"] is not None) == ({}, known, absent)
    assert why in seen["why"][0]


def test_without_a_library_there_are_quietly_no_cards(tmp_path: Path, driver: Driver) -> None:
    bare = Driver(tmp_path / "nothing" / "libnvidia-ml.so.1", driver.state)
    seen = look(bare)
    assert (seen["cards"], seen["known"], seen["absent"], seen["why"]) == ({}, True, None, [])
    junk = tmp_path / "junk" / "libnvidia-ml.so.1"
    junk.parent.mkdir()
    junk.write_text("no library")
    assert look(Driver(junk, driver.state)) == seen


def test_memory_and_cards_move_while_the_agent_reads(driver: Driver) -> None:
    driver.say(gpu("GPU-a", used=10), gpu("GPU-b"))
    seen = driver.run(
        LOOK
        + """
sensor = Nvml(reopen_s=0)
def used(): return {c.id: [c.condition.value, (c.used_bytes or 0) >> 20] for c in sensor.read().cards}
story = [used()]
say(gpu("GPU-a", used=999), gpu("GPU-b", err=15)); story.append(used())
say(gpu("GPU-a", used=5), gpu("GPU-b")); story.append(used())
say("init_error=18"); gone = plain(sensor.read())
say(gpu("GPU-a", used=6), gpu("GPU-b")); sensor.read(); story.append(used())
answer([story, gone])
"""
    )
    story, gone = seen
    assert [look["gpu0"][1] for look in story] == [10, 999, 5, 6]
    assert [look["gpu1"][0] for look in story] == ["well", "lost", "well", "well"]
    assert {name: card["condition"] for name, card in gone["cards"].items()} == {"gpu0": "lost", "gpu1": "lost"}
    assert (gone["known"], gone["absent"] is not None) == (True, True)


def test_a_library_that_is_replaced_after_a_driver_update_is_loaded(tmp_path: Path, driver: Driver) -> None:
    """The loader hands out what it has under a name: without letting go of the old one 18 would stay for ever."""
    old = Driver(build(tmp_path / "lib", "-DMISMATCHED"), driver.state)
    old.say(gpu("GPU-a"))
    seen = old.run(
        LOOK
        + """
sensor = Nvml(reopen_s=0)
before = sensor.read()
build(DRIVER.library.parent)
answer([before.absent, [c.id for c in sensor.read().cards]])
"""
    )
    assert "another version" in seen[0]
    assert seen[1] == ["gpu0"]


def test_a_failed_opening_is_not_tried_again_at_once(driver: Driver) -> None:
    driver.say("init_error=9", gpu("GPU-a"))
    seen = driver.run(
        LOOK
        + """
sensor = Nvml(reopen_s=60)
first = sensor.read()
say(gpu("GPU-a"))
second = sensor.read()
sensor._tried_s -= 61
answer([len(first.cards), len(second.cards), list(second.why), len(sensor.read().cards)])
"""
    )
    assert seen == [0, 0, ["nvml: the library is there and no driver is loaded"], 1]


def test_a_driver_that_hangs_stops_nobody(driver: Driver) -> None:
    driver.say(gpu("GPU-a"))
    seen = driver.run(
        LOOK
        + """
from gridops_agent.sensors.bounded import Bounded
sensor = Nvml()
asked = Bounded("nvml", sensor.read, patience_s=0.5)
well, _ = asked.ask()
say("latency_ms=4000", gpu("GPU-a"))
began = time.monotonic(); silent, why = asked.ask(); took = time.monotonic() - began
began = time.monotonic(); again, still = asked.ask(); at_once = time.monotonic() - began
say(gpu("GPU-a", used=77))
while asked._out.is_alive(): time.sleep(0.1)
back, _ = asked.ask()
answer([len(well.cards), silent, why, took, again, still, at_once, back.cards[0].used_bytes >> 20])
"""
    )
    well, silent, why, took, again, still, at_once, back = seen
    assert (well, silent, again, back) == (1, None, None, 77)
    assert why == "nvml did not answer within 0.5 s"
    assert still.startswith("nvml has not answered for ")
    assert 0.4 < took < 3
    assert at_once < 0.3


# --- the double is held against what pynvml calls -------------------------------------------------------------------


def test_the_double_has_the_signatures_that_pynvml_calls(driver: Driver) -> None:
    """Every driver function behind every pynvml function that we use: there, and with as many arguments."""
    made = {
        name: 0 if words.strip() == "void" else words.count(",") + 1
        for name, words in re.findall(r"^API [^(\n]*?(nvml\w+)\(([^)]*)\) *\{", SOURCE.read_text(), re.MULTILINE)
    }
    wanted = _called_by_pynvml(_functions_used())
    assert len(wanted) > 14, wanted
    library = ctypes.CDLL(str(driver.library))
    for name, arguments in sorted(wanted.items()):
        assert made.get(name) == arguments, f"{name}: pynvml passes {arguments}, the double takes {made.get(name)}"
        assert hasattr(library, name)


def test_the_double_lays_its_structures_out_as_pynvml_does(driver: Driver) -> None:
    said = (ctypes.c_uint * 9).in_dll(ctypes.CDLL(str(driver.library)), "gridops_layout")
    memory, process, heat = pynvml.c_nvmlMemory_t, pynvml.c_nvmlProcessInfo_v3_t, pynvml.c_nvmlTemperature_v1_t
    assert list(said) == [
        ctypes.sizeof(memory),
        memory.used.offset,
        ctypes.sizeof(pynvml.c_nvmlUtilization_t),
        ctypes.sizeof(heat),
        heat.temperature.offset,
        ctypes.sizeof(process),
        process.usedGpuMemory.offset,
        process.computeInstanceId.offset,
        ctypes.sizeof(pynvml.c_nvmlMemory_v2_t),
    ]


def _functions_used() -> set[str]:
    """Functions of pynvml that the sensor names."""
    text = Path(under_test.__file__).read_text()
    named = {f.attr for f in ast.walk(ast.parse(text)) if isinstance(f, ast.Attribute) and f.attr.startswith("nvml")}
    lists = {f"nvmlDeviceGet{k}RunningProcesses_v{n}" for k in ("Compute", "Graphics") for n in (2, 3)}
    assert "RunningProcesses_v3" in text
    return {name for name in named | lists if callable(getattr(pynvml, name, None))}


def _called_by_pynvml(functions: set[str]) -> dict[str, int]:
    """Driver functions and the number of arguments, read from the source of the installed pynvml."""
    tree = ast.parse(Path(pynvml.__file__).read_text())
    bodies = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found: dict[str, int] = {}
    waiting = sorted(functions)
    while waiting:
        body = bodies.get(waiting.pop())
        if body is None:
            continue
        names: list[str] = []
        for node in ast.walk(body):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "_nvmlGetFunctionPointer" and isinstance(node.args[0], ast.Constant):
                names.append(node.args[0].value)
            elif node.func.id in bodies and node.func.id.startswith("nvmlInit"):
                waiting.append(node.func.id)
        for node in ast.walk(body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fn":
                found |= dict.fromkeys(names, len(node.args))
    return found
