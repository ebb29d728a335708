"""A host that looks at itself in tests: samples over time in, verdicts out, nothing else. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gridops.model.policy import ClassProtection, protection_default
from gridops.model.snapshot import HostState
from gridops_agent.core.protection import Guard, Override, Sample, Verdict
from gridops_agent.core.verdict import Look, judge

WELL = Sample(
    mono_ms=0,
    idle_ms=3_600_000,
    on_battery=False,
    charging=False,
    battery_ppm=1_000_000,
    temperature_c=50,
    gpu_temperature_c=50,
    thermal_throttling=False,
    ram_ppm=300_000,
    gpu_memory_ppm=100_000,
    cpu_ppm=50_000,
    load_ppm=100_000,
    disk_free_bytes=100 << 30,
    network_up=True,
    gpu_faults=(),
    gpus=1,
)
"""A machine with one card, everything known and well."""

LAPTOP = protection_default("opportunistic")
SERVER = protection_default("dedicated")


@dataclass
class Lookout:
    """One run of an agent. `at` is the time of the next look, in seconds."""

    rules: ClassProtection = LAPTOP
    at: float = 0
    busy: bool = False
    override: Override | None = None
    faults: tuple[str, ...] = ()
    guard: Guard = field(default_factory=Guard)
    verdict: Verdict = field(default_factory=Verdict)

    def look(self, **readings: Any) -> HostState:
        """One look with these readings, and everything else well."""
        sample = replace(WELL, mono_ms=int(self.at * 1_000), **readings)
        look = Look(sample, busy=self.busy, override=self.override, faults=self.faults)
        self.guard, self.verdict = judge(self.guard, look, self.rules)
        self.at += 1
        return self.verdict.state

    def over(self, seconds: int, **readings: Any) -> list[HostState]:
        """A look each second."""
        return [self.look(**readings) for _ in range(seconds)]

    def until(self, state: HostState, most: int = 1_000, **readings: Any) -> int:
        """Looks with the same readings until the host is in this state; how many seconds that took."""
        began = self.at
        for _ in range(most):
            if self.look(**readings) is state:
                return int(self.at - 1 - began)
        raise AssertionError(f"not {state} within {most} s but {self.verdict}")
