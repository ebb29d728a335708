"""How much longer a request takes on one host than on the fastest: as measured, else as its devices suggest.

Measurements count for one profile, config and revision, fade with age and weigh little while they are few; throughput
and latency each by samples and age of their own. What they leave open is filled by a guess from the hardware, bounded
so far that it settles ties and never a choice between files that are there and files that are not, unless demand is
high. A host of which nothing is known is as good as the middle of those that are known. Called by `rank_harm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gridops.base.ids import HostId
from gridops.base.units import PPM
from gridops.model.fleet import DeviceKind
from gridops.model.learned import MeasuredSpeed
from gridops.model.profile import Modality, Profile
from gridops.planner.constants import (
    HARDWARE_PPM,
    MAIN_PART_PPM,
    SLOWER_MAX_PPM,
    SPEED_TRUSTED,
    SPEED_VALID_MS,
)
from gridops.planner.learned import Experience, Key
from gridops.planner.recall import Shelf
from gridops.planner.speed_devices import Device, known_device
from gridops.planner.terrain import Ints, Terrain
from gridops.planner.world import clock

_BANDWIDTH, _TFLOPS = 1_000, 100
"""A device of these counts as one unit of each; any other pair gives the same order."""
_COMPUTES = frozenset({Modality.IMAGE, Modality.VIDEO})
"""Bound by compute; everything else reads its weights for each token and is bound by memory."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One measurement: a time per unit of work, and how far it is believed."""

    time: int
    sure_ppm: int


@dataclass(frozen=True, slots=True)
class _Guess:
    """What hardware alone suggests, for each host; `known`: it suggests anything of any."""

    slower_ppm: Ints
    known: bool


class Speeds:
    """Guesses for the hosts of one world, made once; measurements on top for each profile."""

    def __init__(self, terrain: Terrain, experience: Experience) -> None:
        self._experience = experience
        self._row = terrain.row
        self._now_ms = clock(experience.world.inputs)
        self._skew_ms = experience.world.planning.heartbeat.future_skew_ms
        shelf: Shelf[_Guess] = experience.world.recall.shelf("hardware")
        self._guesses = {by: shelf.of(by, (terrain,), partial(_guessed, terrain, by)) for by in (False, True)}

    def slower_ppm(self, profile: Profile, about: Key | None, *, gpu: bool) -> Ints | None:
        """Parts of a request's time on top of the fastest host's, by row. None: nothing is known of any."""
        guess = self._guesses[profile.modality in _COMPUTES]
        measured = self._measured(self._experience.speeds(about))
        if not (gpu and guess.known) and not measured:
            return None
        found = guess.slower_ppm if gpu else np.zeros(len(self._row), np.int64)
        if measured:
            found = found.copy()
            for host, (ratio, sure) in measured.items():
                row = self._row[host]
                found[row] = (ratio * sure + int(found[row]) * (PPM - sure)) // PPM
        return found

    def _measured(self, records: Mapping[HostId, MeasuredSpeed]) -> dict[HostId, tuple[int, int]]:
        """Time on top of the fastest measured host's, and how sure that is."""
        if not records:
            return {}
        rates: dict[HostId, _Seen] = {}
        delays: dict[HostId, _Seen] = {}
        for host, r in records.items():
            if host not in self._row:
                continue
            if r.tokens_mps is not None and r.tokens_mps > 0:
                rates[host] = _Seen(10**15 // r.tokens_mps, self._sure(r.tokens_count, r.tokens_at_ms))
            if r.latency_ms is not None and r.latency_ms > 0:
                delays[host] = _Seen(r.latency_ms, self._sure(r.latency_count, r.latency_at_ms))
        slow = [_over(rates), _over(delays)]
        found = {}
        for host in self._row:
            parts = [s[host] for s in slow if host in s]
            total = sum(p.sure_ppm for p in parts)
            if total:
                found[host] = sum(p.time * p.sure_ppm for p in parts) // total, max(p.sure_ppm for p in parts)
        return found

    def _sure(self, count: int, at_ms: int) -> int:
        """Full with enough samples of now; fades to nothing."""
        age = self._now_ms - at_ms
        if count <= 0 or not -self._skew_ms <= age < SPEED_VALID_MS:
            return 0
        return PPM * min(count, SPEED_TRUSTED) // SPEED_TRUSTED * (SPEED_VALID_MS - max(0, age)) // SPEED_VALID_MS


def _guessed(terrain: Terrain, computes: bool) -> _Guess:
    """From hardware alone, already bounded: nothing at the fastest, near `HARDWARE_PPM` at the slowest."""
    times: list[int | None] = []
    by_models: dict[tuple[str | None, ...], int | None] = {}
    for view in terrain.views:
        models = tuple([r.model for r in view.rooms if r.kind is not DeviceKind.CPU])
        if models not in by_models:
            known = [d for d in map(known_device, models) if d is not None]
            whole = models and len(known) == len(models)
            by_models[models] = max(_time(d, computes) for d in known) if whole else None
        times.append(by_models[models])
    best = min((t for t in times if t is not None), default=0)
    slower = [None if t is None else HARDWARE_PPM * (t - best) // t for t in times]
    middle = _middle(sorted(s for s in slower if s is not None))
    return _Guess(np.array([middle if s is None else s for s in slower], np.int64), any(t is not None for t in times))


def _over(seen: Mapping[HostId, _Seen]) -> dict[HostId, _Seen]:
    """Each as parts on top of the best of those that are believed at all."""
    best = min((s.time for s in seen.values() if s.sure_ppm), default=0)
    if not best:
        return {}
    return {
        h: _Seen(min(SLOWER_MAX_PPM, (s.time - best) * PPM // best), s.sure_ppm) for h, s in seen.items() if s.sure_ppm
    }


def _time(device: Device, computes: bool) -> int:
    """Time per unit of work, in parts per million of a device with unit figures."""
    reading = PPM * _BANDWIDTH // device.bandwidth
    if device.tflops is None:
        return reading
    counting = PPM * _TFLOPS // device.tflops
    main, other = (counting, reading) if computes else (reading, counting)
    share = min(PPM, MAIN_PART_PPM)
    return (main * share + other * (PPM - share)) // PPM


def _middle(values: Sequence[int]) -> int:
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2 if values else 0
