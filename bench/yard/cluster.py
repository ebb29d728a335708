"""The openb trace (bench/trace) and a cluster that it arrives at: hosts, GPUs in thousandths, what is taken by whom.

Who decides where a pod goes is an argument (`Policy`), so that gridops and the published policies meet the same
arrivals in the same order. Called by bench/openb.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

TRACE = Path(__file__).resolve().parent.parent / "trace"
LISTS = ("default", "gpushare40", "multigpu20")
WHOLE = 1000
"""A GPU in the trace's unit."""
GPUS_MAX = 8
ARRIVALS = 1.3
"""Demand that arrives, of all GPUs."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Pod:
    """One arrival. `share` is of each of its GPUs."""

    cpu: int
    mem: int
    gpus: int
    share: int
    born: int = 0
    gone: int = 0

    @property
    def demand(self) -> int:
        return self.gpus * self.share

    @property
    def partial(self) -> bool:
        return self.gpus == 1 and self.share < WHOLE


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: int
    mem: int
    gpus: int
    model: str


@cache
def machines() -> tuple[Machine, ...]:
    return tuple(Machine(int(r["cpu_milli"]), int(r["memory_mib"]), int(r["gpu"]), r["model"]) for r in _rows("hosts"))


@cache
def pods(name: str) -> tuple[Pod, ...]:
    """One list, in its order."""
    found = []
    for r in _rows(name):
        gpus = int(r["num_gpu"])
        times = (int(r["creation_time"]), int(r["deletion_time"])) if "creation_time" in r else (0, 0)
        found.append(Pod(int(r["cpu_milli"]), int(r["memory_mib"]), gpus, int(r["gpu_milli"]) if gpus else 0, *times))
    return tuple(found)


def _rows(name: str) -> list[dict[str, str]]:
    text = gzip.decompress((TRACE / f"{name}.csv.gz").read_bytes()).decode("utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def total_gpu(order: Iterable[int]) -> int:
    """All GPUs of these hosts, in thousandths."""
    return WHOLE * sum(machines()[n].gpus for n in order)


def arrivals(listed: Sequence[Pod], total: int, shuffled: int | None = None) -> list[Pod]:
    """The list in its order, and from its beginning again, until ARRIVALS of the total has been asked for.

    `shuffled` is a seed: the authors' own experiments mix the list and draw what is missing.
    """
    given, found, asked = list(listed), list[Pod](), 0
    chance = random.Random(shuffled)
    if shuffled is not None:
        chance.shuffle(given)
    while asked < ARRIVALS * total:
        known = given if len(found) < len(given) or shuffled is None else None
        pod = known[len(found) % len(given)] if known is not None else chance.choice(listed)
        found.append(pod)
        asked += pod.demand
    return found


@dataclass
class Cluster:
    """What is free. Rows are hosts in the order given, which is also the order in which ties are broken."""

    order: Sequence[int]
    with_cpu: bool = True
    cpu: Floats = field(init=False)
    mem: Floats = field(init=False)
    gpu: Floats = field(init=False)

    def __post_init__(self) -> None:
        rows = [machines()[n] for n in self.order]
        self.cpu = np.array([m.cpu for m in rows], float)
        self.mem = np.array([m.mem for m in rows], float)
        self.gpu = np.array([[WHOLE if n < m.gpus else -1 for n in range(GPUS_MAX)] for m in rows], float)

    def open_to(self, pod: Pod) -> Any:
        """Rows with room."""
        fits = self.mem >= pod.mem
        if self.with_cpu:
            fits &= self.cpu >= pod.cpu
        if pod.partial:
            fits &= (self.gpu >= pod.share).any(1)
        elif pod.gpus:
            fits &= (self.gpu >= WHOLE).sum(1) >= pod.gpus
        return np.nonzero(fits)[0]

    def take(self, row: int, pod: Pod, slot: int | None) -> list[int]:
        """Seat the pod; the GPUs it got."""
        if pod.partial:
            assert slot is not None
            chosen = [slot]
        else:
            chosen = [int(n) for n in np.nonzero(self.gpu[row] >= WHOLE)[0][: pod.gpus]]
        self.gpu[row, chosen] -= pod.share
        self.cpu[row] -= pod.cpu
        self.mem[row] -= pod.mem
        return chosen

    def give_back(self, row: int, pod: Pod, chosen: list[int]) -> None:
        self.gpu[row, chosen] += pod.share
        self.cpu[row] += pod.cpu
        self.mem[row] += pod.mem


class Policy(Protocol):
    """Decides about one pod at a time; `None` turns it away for good."""

    def seat(self, number: int, pod: Pod) -> object | None: ...

    def leave(self, number: int, pod: Pod) -> None: ...


def fill(policy: Policy, given: Sequence[Pod], total: int) -> float:
    """Percent of all GPUs that are taken when everybody has come."""
    taken = sum(pod.demand for n, pod in enumerate(given) if policy.seat(n, pod) is not None)
    return 100 * taken / total


@dataclass(frozen=True)
class Turnover:
    """A run with departures. Demand is in GPU-time."""

    served_percent: float
    """GPU-time that got a seat, of what was asked for."""
    refused: int
    peak_percent: float
    """The most that was taken at once, of all GPUs."""


def turn_over(policy: Policy, given: Sequence[Pod], total: int, stretch: float = 1.0) -> Turnover:
    """Arrivals and departures at their recorded times; `stretch` makes every stay longer by that factor."""
    seated: set[int] = set()
    asked = served = 0.0
    taken = peak = refused = 0
    for kind, n in _moments(given, stretch):
        pod = given[n]
        if kind == "gone":
            if n in seated:
                policy.leave(n, pod)
                taken -= pod.demand
            continue
        weight = pod.demand * (pod.gone - pod.born)
        asked += weight
        if policy.seat(n, pod) is None:
            refused += 1
            continue
        seated.add(n)
        served += weight
        taken += pod.demand
        peak = max(peak, taken)
    return Turnover(100 * served / asked, refused, 100 * peak / total)


def _moments(given: Sequence[Pod], stretch: float) -> Iterator[tuple[str, int]]:
    """Departures before arrivals of the same second; equal ones in order of the list."""
    moments = [(pod.born, 1, n) for n, pod in enumerate(given)]
    moments += [(pod.born + round(stretch * (pod.gone - pod.born)), 0, n) for n, pod in enumerate(given)]
    # A stay of no time at all still comes before it goes.
    moments = [(when, 2 if kind == 0 and when == given[n].born else kind, n) for when, kind, n in moments]
    for _, kind, n in sorted(moments):
        yield ("born" if kind == 1 else "gone"), n


def twice(listed: Sequence[Pod]) -> list[Pod]:
    """Everybody comes with a double: the list alone never asks for as much as there is, however long stays are."""
    return [pod for pod in listed for _ in range(2)]


def stretch_to(given: Sequence[Pod], total: int) -> float:
    """How much longer stays must be for the demand at its peak to be ARRIVALS of all GPUs."""
    low, high = 1.0, 100_000.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if peak_of(given, middle) < ARRIVALS * total else (low, middle)
    return high


def peak_of(given: Sequence[Pod], stretch: float = 1.0) -> int:
    """The most that is asked for at once."""
    now = most = 0
    for kind, n in _moments(given, stretch):
        now += given[n].demand if kind == "born" else -given[n].demand
        most = max(most, now)
    return most
