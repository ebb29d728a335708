"""What a sample means by the rules of a class: for each threshold whether it is bad now, well now, or neither.

Called by `verdict` with every sample. A reading that is not known is neither bad nor well: it changes nothing that
stands, and counts for itself as an unknown sensor. Time is not looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gridops.base.codes import Code
from gridops.base.codes import protection as codes
from gridops.base.units import PPM, render_bytes, render_ppm
from gridops.model.policy import ClassProtection, Levels, Sensor, Thermal
from gridops_agent.core.protection import GpuTrouble, Level, Sample


@dataclass(frozen=True, slots=True)
class Signal:
    """One threshold and one sample. Never bad and well at once."""

    name: str
    level: Level
    code: Code
    text: str
    bad: bool
    well: bool
    debounce_ms: int
    recovery_ms: int
    share_ppm: int
    """Share of the lanes while it is on and nothing stricter is."""
    unknown: bool = False
    """It speaks of a sensor that cannot be read, which is no danger by itself."""
    blind: bool = False
    """Its own reading is not known at this look: what was seen to be bad has not been seen to end."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One reading against one threshold. `value` None: not known."""

    value: int | None
    bad_at: int
    well_at: int
    falls: bool = False
    """Low is bad, as with a battery."""

    @property
    def bad(self) -> bool:
        return self.value is not None and (self.value <= self.bad_at if self.falls else self.value >= self.bad_at)

    @property
    def well(self) -> bool:
        if self.value is None or self.bad:
            return False
        return self.value >= self.well_at if self.falls else self.value <= self.well_at


def signals(sample: Sample, rules: ClassProtection) -> tuple[Signal, ...]:
    """Every signal that counts for this class, in a fixed order."""
    made = _Made(sample, rules)
    return tuple(s for s in (*made.all(), made.unknown()) if s is not None)


class _Made:
    """The signals of one sample; one method a sensor."""

    def __init__(self, sample: Sample, rules: ClassProtection) -> None:
        self.sample = sample
        self.rules = rules

    def all(self) -> Iterator[Signal]:
        yield from self._activity()
        yield from self._battery()
        yield from self._heat(Sensor.TEMPERATURE, codes.TOO_HOT, self.sample.temperature_c, self.rules.thermal)
        s, rules = self.sample, self.rules
        heat = self._heat(Sensor.GPU_TEMPERATURE, codes.GPU_TOO_HOT, s.gpu_temperature_c, rules.gpu_thermal)
        yield from _unhidden(heat, s.gpu_heat_untold, ceased=s.gpu_heat_ceased)
        yield from self._yes_or_no(
            Sensor.THERMAL_THROTTLING, codes.SLOWED_BY_HEAT, self.sample.thermal_throttling, Level.THROTTLE
        )
        yield from self._levels(Sensor.MEMORY, codes.MEMORY_PRESSURE, self.sample.ram_ppm, self.rules.memory)
        memory = self._levels(Sensor.GPU_MEMORY, codes.GPU_MEMORY_PRESSURE, s.gpu_memory_ppm, rules.gpu_memory)
        yield from _unhidden(memory, s.gpu_memory_untold, ceased=s.gpu_memory_ceased)
        yield from self._most(Sensor.CPU, codes.CPU_BUSY, self.sample.cpu_ppm, self.rules.cpu_ppm)
        yield from self._most(Sensor.LOAD, codes.LOAD_HIGH, self.sample.load_ppm, self.rules.load_ppm)
        yield from self._disk()
        down = None if self.sample.network_up is None else not self.sample.network_up
        yield from self._yes_or_no(Sensor.NETWORK, codes.NETWORK_DOWN, down, Level.UNHEALTHY)
        yield from self._gpu_health()

    def unknown(self) -> Signal | None:
        """One signal for all sensors that cannot be read; None where the class does not mind."""
        if self.rules.unknown_sensor != "throttle":
            return None
        names = [self._named(sensor) for sensor in Sensor if self._counts(sensor) and not self._known(sensor)]
        text = f"{', '.join(names)} cannot be read"
        base = self._signal("unknown", Level.THROTTLE, codes.SENSOR_UNKNOWN, text, (bool(names), not names))
        return replace(base, share_ppm=max(self.rules.unknown_ppm, self.rules.throttled_ppm), unknown=True)

    def _named(self, sensor: Sensor) -> str:
        s = self.sample
        untold = {Sensor.GPU_TEMPERATURE: s.gpu_heat_untold, Sensor.GPU_MEMORY: s.gpu_memory_untold}.get(sensor, ())
        return f"{sensor.value} of {' and '.join(untold)}" if untold else sensor.value

    def _counts(self, sensor: Sensor) -> bool:
        return sensor not in self.rules.ignore and sensor not in self.sample.absent

    def _known(self, sensor: Sensor) -> bool:
        s = self.sample
        known: dict[Sensor, bool] = {
            Sensor.ACTIVITY: s.idle_ms is not None,
            Sensor.BATTERY: _discharging(s) is False or (_discharging(s) is True and s.battery_ppm is not None),
            Sensor.CPU: s.cpu_ppm is not None,
            Sensor.DISK: s.disk_free_bytes is not None,
            Sensor.GPU_HEALTH: s.gpu_faults is not None,
            Sensor.GPU_MEMORY: s.gpu_memory_ppm is not None and not s.gpu_memory_untold,
            Sensor.GPU_TEMPERATURE: s.gpu_temperature_c is not None and not s.gpu_heat_untold,
            Sensor.LOAD: s.load_ppm is not None,
            Sensor.MEMORY: s.ram_ppm is not None,
            Sensor.NETWORK: s.network_up is not None,
            Sensor.TEMPERATURE: s.temperature_c is not None,
            # Few machines tell; where a temperature is known nothing is missing, and that one counts for itself.
            Sensor.THERMAL_THROTTLING: True,
        }
        return known[sensor]

    def _activity(self) -> Iterator[Signal]:
        if Sensor.ACTIVITY in self.rules.ignore:
            return
        idle, rules = self.sample.idle_ms, self.rules
        level = Level.PAUSE if rules.activity == "pause" else Level.THROTTLE
        gone = Sensor.ACTIVITY in self.sample.absent
        here = idle is not None and idle < rules.idle_ms and not gone
        away = gone or (idle is not None and not here)
        made = self._signal("activity", level, codes.OWNER_ACTIVE, "somebody uses this computer", (here, away))
        recovery = rules.recovery_ms if rules.activity_recovery_ms is None else rules.activity_recovery_ms
        yield replace(made, debounce_ms=rules.activity_debounce_ms, recovery_ms=recovery, blind=not (here or away))

    def _battery(self) -> Iterator[Signal]:
        if Sensor.BATTERY in self.rules.ignore:
            return
        gone, levels = Sensor.BATTERY in self.sample.absent, self.rules.battery
        discharging = False if gone else _discharging(self.sample)
        charge = self.sample.battery_ppm if discharging else None
        mains = discharging is False
        well_at = levels.recover_ppm if levels.recover_ppm is not None else levels.throttle_ppm * 11 // 10
        rows = (
            ("battery_low", Level.THROTTLE, _Seen(charge, levels.throttle_ppm, well_at, falls=True)),
            ("battery_empty", Level.PAUSE, _Seen(charge, levels.pause_ppm, levels.throttle_ppm, falls=True)),
        )
        for name, level, seen in rows:
            text = f"on battery at {_share(charge)}, from {render_ppm(seen.bad_at)} on it yields"
            made = self._signal(name, level, codes.ON_BATTERY, text, (seen.bad, seen.well or mains))
            yield replace(made, blind=charge is None and not mains)

    def _heat(self, sensor: Sensor, code: Code, value: int | None, at: Thermal) -> Iterator[Signal]:
        rules = self.rules
        recovery = rules.recovery_ms if rules.thermal_recovery_ms is None else rules.thermal_recovery_ms
        for suffix, level, seen in (
            ("warm", Level.THROTTLE, _Seen(value, at.throttle, at.recover)),
            ("hot", Level.PAUSE, _Seen(value, at.pause, at.throttle - 1)),
        ):
            text = f"{'unknown' if value is None else value} C, from {seen.bad_at} C on it yields"
            for made in self._reading(sensor, suffix, level, (code, text), seen):
                yield replace(made, debounce_ms=rules.thermal_debounce_ms, recovery_ms=recovery)

    def _levels(self, sensor: Sensor, code: Code, value: int | None, at: Levels) -> Iterator[Signal]:
        well_at = at.recover_ppm if at.recover_ppm is not None else at.throttle_ppm * 9 // 10
        for suffix, level, seen in (
            ("high", Level.THROTTLE, _Seen(value, at.throttle_ppm, well_at)),
            ("full", Level.PAUSE, _Seen(value, at.pause_ppm, at.throttle_ppm - 1)),
        ):
            text = f"others use {_share(value)} of what the models leave, from {render_ppm(seen.bad_at)} on it yields"
            yield from self._reading(sensor, suffix, level, (code, text), seen)

    def _most(self, sensor: Sensor, code: Code, value: int | None, most: int) -> Iterator[Signal]:
        shown, bound = (_share(value), render_ppm(most)) if sensor is Sensor.CPU else (_times(value), _times(most))
        text = f"{shown}, from {bound} on it takes less work"
        yield from self._reading(sensor, "high", Level.THROTTLE, (code, text), _Seen(value, most, most * 9 // 10))

    def _disk(self) -> Iterator[Signal]:
        free, least = self.sample.disk_free_bytes, self.rules.disk_bytes
        text = f"{'unknown' if free is None else render_bytes(free)} free, {render_bytes(least)} should be"
        seen = _Seen(free, least - 1, least * 11 // 10, falls=True)
        yield from self._reading(Sensor.DISK, "low", Level.THROTTLE, (codes.DISK_LOW, text), seen)

    def _yes_or_no(self, sensor: Sensor, code: Code, bad: bool | None, level: Level) -> Iterator[Signal]:
        if sensor in self.rules.ignore:
            return
        gone = sensor in self.sample.absent
        made = self._signal(sensor.value, level, code, code.title, (bad is True and not gone, gone or bad is False))
        yield replace(made, blind=bad is None and not gone)

    def _gpu_health(self) -> Iterator[Signal]:
        """One card of many in trouble leaves the others useful; a driver that answers nobody leaves none."""
        if Sensor.GPU_HEALTH in self.rules.ignore:
            return
        faults = () if Sensor.GPU_HEALTH in self.sample.absent else self.sample.gpu_faults
        known = faults if faults is not None else ()
        cards = {f.device for f in known}
        all_of_them = any(f.trouble is GpuTrouble.MISMATCH for f in known) or 0 < self.sample.gpus <= len(cards)
        words = ", ".join(sorted({f"{f.device} {f.trouble}".strip() for f in known}))
        for name, level, bad in (
            ("gpu_fault", Level.THROTTLE, bool(known)),
            ("gpu_faults", Level.UNHEALTHY, all_of_them),
        ):
            good = faults is not None and not bad
            made = self._signal(name, level, codes.GPU_FAULT, words or "cannot be asked any more", (bad, good))
            yield replace(made, blind=faults is None)

    def _reading(
        self, sensor: Sensor, suffix: str, level: Level, words: tuple[Code, str], seen: _Seen
    ) -> Iterator[Signal]:
        if sensor in self.rules.ignore:
            return
        gone = sensor in self.sample.absent
        made = self._signal(
            f"{sensor.value}_{suffix}", level, words[0], words[1], (seen.bad and not gone, seen.well or gone)
        )
        yield replace(made, blind=seen.value is None and not gone)

    def _signal(self, name: str, level: Level, code: Code, text: str, is_: tuple[bool, bool]) -> Signal:
        bad, well = is_
        return Signal(
            name=name,
            level=level,
            code=code,
            text=text,
            bad=bad,
            well=well,
            debounce_ms=self.rules.debounce_ms,
            recovery_ms=self.rules.recovery_ms,
            share_ppm=self.rules.throttled_ppm,
        )


def _unhidden(made: Iterator[Signal], untold: tuple[str, ...], *, ceased: bool) -> Iterator[Signal]:
    """A card that is over a threshold is, whoever else is silent; that the others are well makes no silent one so."""
    for one in made:
        named = replace(one, text=f"{one.text}; not known of {' and '.join(untold)}") if untold else one
        yield replace(named, well=False, blind=True) if ceased and not one.bad else named


def _discharging(sample: Sample) -> bool | None:
    """Whether the battery is being used up. None: nobody knows."""
    if sample.charging:
        return False
    return sample.on_battery


def _times(value: int | None) -> str:
    """Load for each CPU, as people read it."""
    return "unknown" if value is None else f"{value // PPM}.{value % PPM // 10_000:02d}"


def _share(value: int | None) -> str:
    return "an unknown share" if value is None else render_ppm(value)
