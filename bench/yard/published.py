"""BestFit and FGD (Weng et al., USENIX ATC 2023) as published, in numpy: what gridops is compared with on openb.

Scores are whole numbers as in the authors' simulator, and the first host of the order wins a tie; the order decides
much. `with_cpu=False` leaves CPU cores out of fit and score, because gridops does not place by them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.yard.cluster import WHOLE, Cluster, Floats, Pod

CPU_MAX, GPU_MAX = 128_000, 8_000
"""The largest host: what scores are normalised by."""
TYPICAL = 0.95
"""FGD looks at the most frequent shapes that cover so much of the list."""


class _Published(ABC):
    """Common to both: one cluster, and who got what."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seats: dict[int, tuple[int, list[int]]] = {}

    def seat(self, number: int, pod: Pod) -> object | None:
        rows = self.cluster.open_to(pod)
        if not len(rows):
            return None
        row, slot = self._choose(rows, pod)
        self.seats[number] = row, self.cluster.take(row, pod, slot)
        self._changed(row)
        return self.cluster.order[row]

    def leave(self, number: int, pod: Pod) -> None:
        row, chosen = self.seats.pop(number)
        self.cluster.give_back(row, pod, chosen)
        self._changed(row)

    @abstractmethod
    def _choose(self, rows: Any, pod: Pod) -> tuple[int, int | None]:
        """One of the rows that have room, and the slot on it (None: whichever fits)."""

    @abstractmethod
    def _changed(self, row: int) -> None:
        """The host has taken or given back a pod."""


class BestFit(_Published):
    """The host with the least left; on it the GPU with the least left."""

    def _changed(self, row: int) -> None:
        """It remembers nothing of hosts."""

    def _choose(self, rows: Any, pod: Pod) -> tuple[int, int | None]:
        c = self.cluster
        left = (np.where(c.gpu > 0, c.gpu, 0).sum(1)[rows] - pod.demand) / GPU_MAX
        if c.with_cpu:
            left = left * 0.5 + (c.cpu[rows] - pod.cpu) / CPU_MAX * 0.5
        row = int(rows[np.argmax(((1 - left) * 100).astype(int))])
        if not pod.partial:
            return row, None
        here = np.where(c.gpu[row] >= pod.share, c.gpu[row], np.inf)
        return row, int(np.argmin(here))


class FGD(_Published):
    """Fragmentation gradient descent: the seat after which least GPU is useless to the shapes that usually come."""

    def __init__(self, cluster: Cluster, given: Sequence[Pod]) -> None:
        super().__init__(cluster)
        counts = Counter((p.cpu if cluster.with_cpu else 0, p.gpus, p.share) for p in given)
        shapes: list[tuple[tuple[int, int, int], int]] = []
        for shape, count in counts.most_common():
            shapes.append((shape, count))
            if sum(n for _, n in shapes) >= TYPICAL * len(given):
                break
        weights = np.array([n for _, n in shapes], float)
        self._weight = weights / weights.sum()
        self._cpu = np.array([s[0] for s, _ in shapes], float)
        self._count = np.array([s[1] for s, _ in shapes])
        self._share = np.array([s[2] for s, _ in shapes], float)
        self._known: dict[tuple[float, tuple[float, ...]], float] = {}
        rows = len(cluster.order)
        self._base = [self._useless(cluster.cpu[r], cluster.gpu[r]) for r in range(rows)]
        self._version = np.zeros(rows, int)
        self._scores: dict[tuple[int, int, int], tuple[Any, Any, Any]] = {}

    def _useless(self, cpu: float, gpu: Floats) -> float:
        """Expected GPU that the usual shapes could not use on such a host."""
        key = (float(cpu) if self.cluster.with_cpu else 0.0, tuple(sorted(gpu.tolist())))
        if key not in self._known:
            there = np.array([g for g in key[1] if g >= 0])
            partial = (self._count == 1) & (self._share < WHOLE)
            some = (there[None, :] >= self._share[:, None]).any(1)
            enough = (there[None, :] >= WHOLE).sum(1) >= self._count
            fits = np.where(partial, some, enough) & (key[0] >= self._cpu) & (self._count > 0)
            small = (there[None, :] * (there[None, :] < self._share[:, None])).sum(1)
            self._known[key] = float((self._weight * np.where(fits, small, there.sum())).sum())
        return self._known[key]

    def _choose(self, rows: Any, pod: Pod) -> tuple[int, int | None]:
        key = (pod.cpu if self.cluster.with_cpu else 0, pod.gpus, pod.share)
        size = len(self._version)
        fresh = (np.zeros(size, int), np.zeros(size, int), np.full(size, -1))
        score, slot, seen = self._scores.setdefault(key, fresh)
        for row in rows[seen[rows] != self._version[rows]]:
            score[row], slot[row] = self._score(int(row), pod)
            seen[row] = self._version[row]
        row = int(rows[np.argmax(score[rows])])
        return row, int(slot[row])

    def _score(self, row: int, pod: Pod) -> tuple[int, int]:
        """How much the best GPU of the host gains, and which it is."""
        gpu, cpu = self.cluster.gpu[row], self.cluster.cpu[row] - pod.cpu
        if not pod.partial:
            after = gpu.copy()
            after[np.nonzero(gpu >= WHOLE)[0][: pod.gpus]] = 0
            return self._gain(row, cpu, after), 0
        best, chosen, tried = -1, 0, set()
        for n, free in enumerate(gpu.tolist()):
            if free >= pod.share and free not in tried:
                tried.add(free)
                after = gpu.copy()
                after[n] -= pod.share
                gain = self._gain(row, cpu, after)
                if gain > best:
                    best, chosen = gain, n
        return best, chosen

    def _gain(self, row: int, cpu: float, gpu: Floats) -> int:
        """The authors' scale: a logistic curve in whole percent."""
        return int(100 / (1 + math.exp(-(self._base[row] - self._useless(cpu, gpu)) / WHOLE)))

    def _changed(self, row: int) -> None:
        self._version[row] += 1
        self._base[row] = self._useless(self.cluster.cpu[row], self.cluster.gpu[row])
