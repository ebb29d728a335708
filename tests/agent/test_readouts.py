"""What sensors said, with its age: the present as the present, the past as the past, and nothing that is not there."""

from __future__ import annotations

from dataclasses import replace

from gridops.model.policy import Sensor
from gridops_agent.core.protection import CardSaid
from gridops_agent.readouts import Readouts, lines
from gridops_agent.shell import Agent
from gridops_agent.status import status
from gridops_agent.status_lines import render
from tests.agent.lookout import WELL
from tests.agent.site import Site


def test_what_is_known_is_shown_raw_with_its_age() -> None:
    told = Readouts()
    told.note(replace(WELL, ram_ppm=410_000, load_ppm=1_250_000, cards=(CardSaid("gpu0", 61, 750_000),)), 1_000)
    (line,) = lines(told.rows(), 3_000)
    assert line.startswith("sensors 2 s ago: idle ")
    for said in ("memory 41%", "load 1.25 per CPU", "gpu0 temperature 61 C", "gpu0 memory 75%", "network yes"):
        assert said in line, line


def test_a_reading_that_fails_is_unknown_and_what_it_was_grows_older() -> None:
    told = Readouts()
    told.note(replace(WELL, temperature_c=55, cards=(CardSaid("gpu0", 61, 750_000),)), 1_000)
    told.note(replace(WELL, temperature_c=None, cpu_ppm=None, cards=(CardSaid("gpu0", None, None),)), 9_000)
    told.note(replace(WELL, temperature_c=None, cards=(CardSaid("gpu0", None, None), CardSaid("gpu1"))), 61_000)
    rows = {row["sensor"]: row for row in told.rows()}
    assert rows["temperature"] == {
        "sensor": "temperature",
        "unit": "celsius",
        "value": None,
        "last": 55,
        "at_ms": 1_000,
    }
    head, *unknown = lines(told.rows(), 61_500)
    assert "55 C" not in head
    assert unknown == [
        "  temperature unknown; 55 C 60 s ago",
        "  gpu0 temperature unknown; 61 C 60 s ago",
        "  gpu0 memory unknown; 75% 60 s ago",
        "  gpu1 temperature unknown",
        "  gpu1 memory unknown",
    ]


def test_what_the_machine_does_not_have_has_no_row() -> None:
    told = Readouts()
    unified = CardSaid("unified0", None, None, own_memory=False)
    told.note(replace(WELL, battery_ppm=None, absent=frozenset({Sensor.BATTERY}), cards=(unified,)), 1)
    named = [row["sensor"] for row in told.rows()]
    assert "battery" not in named
    assert "unified0 memory" not in named


async def test_status_of_a_running_agent_shows_them(site: Site) -> None:
    async with Agent(site.config, "0.1.0") as agent:  # with this machine's own sensors
        await agent.protection.tick()
        agent._write_status()
        seen = status(site.config, running=True)
        rows = {row["sensor"]: row for row in seen["sensors"]}
        assert rows["memory"]["value"] > 0
        assert rows["disk_free"]["unit"] == "bytes"
        text = render(seen, rows["memory"]["at_ms"] + 2_000)
        assert "sensors 2 s ago: " in text
        assert "disk free " in text
    assert status(site.config, running=False)["sensors"] == []
