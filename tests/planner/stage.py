"""A stage for stories: a fleet on which scenes are played, and the text of what happened.

The text begins with the cast and holds every plan's decisions with class, risk and change set, what waits, who stands
nowhere, and every step that hosts carried out. Stories of large fleets are told `briefly`: alike things in one line.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gridops.base.ids import split_replica
from gridops.base.units import counted, render_bytes
from gridops.model.fleet import DeviceKind, Host
from gridops.model.forecast import ProfileForecast, Watermark
from gridops.model.plan import Decision, Plan
from gridops.model.profile import Profile
from tests.planner.fleet import Fleet
from tests.planner.test_targets_forecast import entry, expect
from tests.planner.walk import Walk

GOLDEN = Path(__file__).parent / "golden"
BLESS = bool(os.environ.get("GRIDOPS_BLESS")) and not os.environ.get("CI")
MINUTE = 60_000
LINES = 120


@dataclass
class Stage:
    """A fleet on which scenes are played, and what was told so far."""

    fleet: Fleet
    briefly: bool = False
    lines: list[str] = field(default_factory=list)
    busy: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.cast(self.fleet.hosts, self.fleet.profiles)

    def cast(self, hosts: Iterable[Host], profiles: Iterable[Profile]) -> None:
        """Who plays: hosts by what they are, and what is wanted."""
        alike: dict[str, list[str]] = {}
        for host in hosts:
            alike.setdefault(_host(host), []).append(host.id)
        self.lines += [f"{_names(names)}: {what}" for what, names in alike.items()]
        self.lines += [f"{p.name}: {_wanted(p)}" for p in profiles]

    def say(self, text: str) -> None:
        self.lines += ["", f"== {text}"]

    def plan(self) -> Plan:
        """Plan and tell the decisions."""
        made = self.fleet.plan()
        told = [_told(d, self.briefly) for d in made.decisions]
        self.lines += [f"  {line}" for line in _summed(told)] or ["  nothing to do"]
        self.lines += [f"  waits: {w.detail} ({w.code})" for w in made.report.waiting]
        self.lines += [f"  short: {s.detail} ({s.code})" for s in made.report.shortfalls]
        missing = [(_called(u.replica, self.briefly), f"{u.detail} ({u.code})") for u in made.report.unplaced]
        self.lines += [f"  unplaced: {name} {why}" for name, why in self._missing(missing)]
        self.lines += [f"  note: {n}" for n in made.report.notes]
        known = self.fleet.parent.retirements if self.fleet.parent is not None else ()
        self.lines += [f"  retired: {r.profile}" for r in made.retirements if r not in known]
        return made

    def _missing(self, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return found if not self.briefly else [(f"{n} x {a}", why) for (a, why), n in Counter(found).items()]

    def apply(self) -> None:
        """Plan, carry it out step by step, and let a minute pass."""
        made = self.plan()
        walk = Walk(self.fleet, made, busy=self.busy).run()
        taken = [_step(line) for line in walk.taken] if self.briefly else [(line, "") for line in walk.taken]
        self.lines += [f"    {line}" for line in _summed(taken)]
        self.lines += [f"    still waits: {s.action.kind} {s.replica} for {s.waits_for}" for s in walk.steps()]
        self.fleet = walk.fleet.but(parent=made)
        self.later(MINUTE)

    def later(self, ms: int) -> None:
        """Time passes; hosts that are alive go on beating."""
        now = self.fleet.now + ms
        for seen in self.fleet.snapshot().hosts:
            if self.fleet.now - seen.observed_ms < 90_000 and not seen.goodbye:
                self.fleet = self.fleet.reporting(seen.host, observed_ms=now)
        self.fleet = self.fleet.but(now=now)

    def silence(self, *names: str) -> None:
        """The hosts stop beating now; two minutes pass."""
        for name in names:
            self.fleet = self.fleet.reporting(name, observed_ms=self.fleet.now - 90_000)
        self.later(2 * MINUTE)

    def commit(self, *profiles: Profile) -> None:
        """Profiles are added, or stand in the place of those with their names."""
        names = {p.name for p in profiles}
        kept = tuple(p for p in self.fleet.profiles if p.name not in names)
        self.fleet = self.fleet.but(profiles=tuple(sorted((*kept, *profiles), key=lambda p: p.name)))
        self.cast((), profiles)

    def join(self, *hosts: Host) -> None:
        self.fleet = self.fleet.but(hosts=(*self.fleet.hosts, *hosts))
        self.cast(hosts, ())

    def expect(self, **lanes: float) -> None:
        """A forecast is made now: so many lanes are busy with each of these profiles."""
        found = [self._entry(name, busy) for name, busy in lanes.items()]
        self.fleet = self.fleet.but(forecast=expect(*found, made=self.fleet.now))

    def _entry(self, name: str, lanes: float) -> ProfileForecast:
        old = self.fleet.forecast.of(name) if self.fleet.forecast is not None else None  # type: ignore[arg-type]
        last = self.fleet.now if lanes else old.last_used_ms if old is not None else None
        level = Watermark(at_ms=self.fleet.now, offered_mlanes=int(lanes * 1000))
        marks = (*(old.watermarks if old is not None else ()), level)
        return entry(lanes, name=name, last_used_ms=last, watermarks=marks)


def verify(story: Callable[[], Stage]) -> None:
    """The story's text is the one that was approved. `GRIDOPS_BLESS=1` approves what it is now."""
    text = "\n".join([f"# {' '.join((story.__doc__ or '').split())}", "", *story().lines, ""])
    assert text.count("\n") <= LINES
    path = GOLDEN / f"{story.__name__}.txt"
    if BLESS:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def _host(host: Host) -> str:
    sizes = [f"{d.id} {render_bytes(d.memory_bytes)}" for d in host.devices if d.kind is not DeviceKind.CPU]
    price = f", {host.price_per_hour_micro / 1_000_000:.2f} an hour" if host.price_per_hour_micro else ""
    return ", ".join(sizes) + price


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"


def _wanted(p: Profile) -> str:
    wanted = counted(p.replicas_min, "replica")
    if p.replicas_max > p.replicas_min:
        wanted = f"{p.replicas_min} to {p.replicas_max} replicas"
    config = p.configs[0]
    size = render_bytes(config.footprint.device_bytes or 0)
    many = f" on each of {config.devices.count} devices" if config.devices.count > 1 else ""
    pins = f", pinned to {', '.join(p.placement.pins)}" if p.placement.pins else ""
    spread = f", over {p.spread.min} {p.spread.by}s at least" if p.spread is not None else ""
    return f"{wanted} of {size}{many}, priority {p.priority}{pins}{spread}"


def _told(d: Decision, briefly: bool) -> tuple[str, str]:
    changes = "".join(f", {c.field} {c.old} => {c.new}" for c in d.changes)
    cost = f", {d.cost.start_ms // 1000} s" if d.cost.start_ms else ""
    cost += ", down meanwhile" if d.cost.dip else ""
    last = ", LAST" if d.last_replica else ""
    grave = f"{d.action_class.value}, {d.risk.value}"
    if briefly:
        return f"{d.kind.value} {split_replica(d.replica)[0]}", f"({_general(d.cause.detail)}{changes}) [{grave}{last}]"
    seats = " => ".join(f"{s.host} {','.join(s.devices)}" for s in (d.source, d.target) if s is not None)
    tail = f"[{grave}, set {d.change_set}{cost}{last}]"
    return " ".join(filter(None, (f"{d.kind.value} {d.replica}", seats, f"({d.cause.detail}{changes})", tail))), ""


def _general(cause: str) -> str:
    """A cause without the replicas that it names: `gives way to image/4, image/7` as `gives way to image`."""
    words = [w.strip(",") for w in cause.split(" ")]
    names = [split_replica(w)[0] if _is_replica(w) else w for w in words]  # type: ignore[arg-type]
    return " ".join(n for i, n in enumerate(names) if not i or n != names[i - 1])


def _is_replica(word: str) -> bool:
    return word.count("/") == 1 and word.rpartition("/")[2].isdigit()


def _called(replica: str, briefly: bool) -> str:
    return replica.rpartition("/")[0] if briefly else replica


def _step(line: str) -> tuple[str, str]:
    kind, replica, _ = line.split(" ")
    return f"{kind} {replica.rpartition('/')[0]}", ""


def _summed(told: list[tuple[str, str]]) -> list[str]:
    """Lines that are alike, once, with how many they are; a line of its own stays as it is."""
    found = []
    for (what, why), n in Counter(told).items():
        found.append(" ".join(filter(None, (what, f"x {n}" if n > 1 else "", why))))
    return found


__all__ = ["MINUTE", "Stage", "verify"]
