"""Prometheus text for `/metrics`: names and labels of the design, values from the state as it is now.

Written by hand because the format is ten lines and the client library would be a second store of the same numbers.
Labels are names of hosts, models, scopes and closed lists; never an id that grows without bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Sample = tuple[str, dict[str, str], float]
"""Name suffix, labels, value."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


@dataclass(slots=True)
class Histogram:
    """Durations in fixed buckets."""

    counts: list[int] = field(default_factory=lambda: [0] * len(_BUCKETS))
    total: int = 0
    seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        self.total += 1
        self.seconds += seconds
        for at, bound in enumerate(_BUCKETS):
            if seconds <= bound:
                self.counts[at] += 1

    def samples(self, labels: dict[str, str]) -> list[Sample]:
        rows: list[Sample] = [
            ("_bucket", {**labels, "le": f"{bound:g}"}, float(n))
            for bound, n in zip(_BUCKETS, self.counts, strict=True)
        ]
        rows.append(("_bucket", {**labels, "le": "+Inf"}, float(self.total)))
        rows.append(("_sum", labels, self.seconds))
        rows.append(("_count", labels, float(self.total)))
        return rows


@dataclass(slots=True)
class Counters:
    """Counts that a scrape cannot derive from the state; since the start of this process."""

    values: dict[tuple[str, tuple[tuple[str, str], ...]], int] = field(default_factory=dict)

    def add(self, name: str, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        self.values[key] = self.values.get(key, 0) + 1

    def of(self, name: str) -> list[Sample]:
        return [("", dict(labels), float(n)) for (found, labels), n in sorted(self.values.items()) if found == name]


def render(families: Iterable[Family]) -> str:
    """Families in the text format, ordered by name."""
    lines: list[str] = []
    for family in sorted(families, key=lambda f: f.name):
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.extend(
            f"{family.name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in family.samples
        )
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
