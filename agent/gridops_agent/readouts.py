"""What the sensors of this host last said, each with its age: for people who ask why a host yields, or does not.

The protection loop notes every sample as it was read, before it is weighed against the plan; `status` shows the rows. A
reading that fails is unknown, and what was last known of it is shown with its own, growing age: never as the present.
Decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gridops.base.units import PPM, render_bytes, render_ms, render_ppm
from gridops.model.policy import Sensor
from gridops_agent.core.protection import Sample

_OF: tuple[tuple[str, str, str, Sensor], ...] = (
    ("idle", "idle_ms", "ms", Sensor.ACTIVITY),
    ("on_battery", "on_battery", "bool", Sensor.BATTERY),
    ("charging", "charging", "bool", Sensor.BATTERY),
    ("battery", "battery_ppm", "ppm", Sensor.BATTERY),
    ("temperature", "temperature_c", "celsius", Sensor.TEMPERATURE),
    ("thermal_throttling", "thermal_throttling", "bool", Sensor.THERMAL_THROTTLING),
    ("memory", "ram_ppm", "ppm", Sensor.MEMORY),
    ("cpu", "cpu_ppm", "ppm", Sensor.CPU),
    ("load", "load_ppm", "ppm_per_cpu", Sensor.LOAD),
    ("disk_free", "disk_free_bytes", "bytes", Sensor.DISK),
    ("network", "network_up", "bool", Sensor.NETWORK),
)
Row = Mapping[str, Any]


class Readouts:
    """The newest word of each sensor since the agent came up."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}
        """By sensor: value and when it was read, in wall time."""
        self._now: tuple[tuple[str, str, int | None], ...] = ()

    def note(self, sample: Sample, at_ms: int) -> None:
        """One look. What is absent on this machine has no row."""
        self._now = tuple(_read(sample))
        for name, _, value in self._now:
            if value is not None:
                self._last[name] = (value, at_ms)

    def rows(self) -> tuple[Row, ...]:
        """One for each sensor that this machine has."""
        found = []
        for name, unit, value in self._now:
            last, at_ms = self._last.get(name, (None, None))
            found.append({"sensor": name, "unit": unit, "value": value, "last": last, "at_ms": at_ms})
        return tuple(found)


def minded(rows: Iterable[Row], ignored: Collection[Sensor]) -> tuple[Row, ...]:
    """Those of sensors that a class does not ignore."""
    kinds = {name: sensor for name, _, _, sensor in _OF}
    return tuple(row for row in rows if kinds.get(row["sensor"], _of_card(row["sensor"])) not in ignored)


def _of_card(name: str) -> Sensor:
    return Sensor.GPU_TEMPERATURE if name.endswith("temperature") else Sensor.GPU_MEMORY


def _read(sample: Sample) -> Iterator[tuple[str, str, int | None]]:
    for name, field, unit, sensor in _OF:
        value = getattr(sample, field)
        lacks = value is None and field == "charging" and sample.on_battery is not None
        if sensor not in sample.absent and not lacks:
            yield name, unit, value
    for card in sample.cards:
        yield f"{card.id} temperature", "celsius", card.temperature_c
        if card.memory_ppm is not None or card.own_memory:
            yield f"{card.id} memory", "ppm", card.memory_ppm


def lines(rows: tuple[Row, ...] | list[Row], now_ms: int) -> Iterator[str]:
    """For people: what is known now, by the age of the oldest; then each that is not, with what was last known."""
    known = [row for row in rows if row["value"] is not None]
    if known:
        age = max(0, now_ms - min(row["at_ms"] for row in known))
        said = ", ".join(f"{row['sensor'].replace('_', ' ')} {_shown(row['unit'], row['value'])}" for row in known)
        yield f"sensors {render_ms(age)} ago: {said}"
    for row in rows:
        if row["value"] is None:
            name, last = row["sensor"].replace("_", " "), row["last"]
            was = (
                "" if last is None else f"; {_shown(row['unit'], last)} {render_ms(max(0, now_ms - row['at_ms']))} ago"
            )
            yield f"  {name} unknown{was}"


def _shown(unit: str, value: int) -> str:
    if unit == "ms":
        return render_ms(value)
    if unit == "ppm":
        return render_ppm(value)
    if unit == "ppm_per_cpu":
        return f"{value // PPM}.{value % PPM // 10_000:02d} per CPU"
    if unit == "bytes":
        return render_bytes(value)
    return f"{value} C" if unit == "celsius" else ("yes" if value else "no")
