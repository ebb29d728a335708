"""What one run of the lab is made of. Drawn first from the seed; most runs have most faults switched off entirely.

A fleet in which everything fails at once never gets far enough to be interesting, so each kind of fault is present in
some runs and absent in others (swarm testing). `--set` and the shrinker replace single fields.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from gridops.lab.dice import Dice


@dataclass(frozen=True, slots=True)
class Options:
    """Rates are in parts per million of the thing that may go wrong; times in milliseconds."""

    seed: int
    hosts: int = 3
    profiles: int = 2
    host_mib: int = 3072
    replica_mib: int = 400
    beat_ms: int = 5_000
    chaos_ms: int = 240_000
    heal_ms: int = 240_000
    """So long the healed fleet has until everything wanted stands and nothing is owed."""
    automatic: bool = True
    """Automatic for everything; else people apply what is proposed."""
    cooldown_ms: int = 0
    commit_every_ms: int = 40_000
    apply_after_ms: int = 4_000
    latency_ms: int = 40
    tail_ppm: int = 0
    """Messages that take up to twenty seconds."""
    drop_ppm: int = 0
    twice_ppm: int = 0
    replay_ppm: int = 0
    """Messages after which some older one is delivered once more."""
    cut_every_ms: int = 0
    """One host is cut off, one way or both, for seconds or minutes; 0: never."""
    agent_crash_ppm: int = 0
    """Of each write to a host's ledger: the agent is gone before or after it."""
    reboot_every_ms: int = 0
    controller_crash_ppm: int = 0
    """Of each write to the journal."""
    zombie_ppm: int = 0
    """Of the controllers that are gone: it was only asleep, and wakes beside its successor."""
    engine_death_every_ms: int = 0
    start_fails_ppm: int = 0
    never_ready_ppm: int = 0
    stubborn_ppm: int = 0
    """Of engines: they do not end when they are told to."""
    fetch_fails_ppm: int = 0
    lost_files_ppm: int = 0
    """Of the fetched files, at a reboot: the power was cut before they were on the disk."""
    late_approval_ppm: int = 0
    """Of the looks of people: what they sign is over before it arrives."""
    clock_step_every_ms: int = 0
    """The wall clock of one machine leaps by up to an hour."""


def draw(seed: int) -> Options:
    """The options of a seed."""
    dice = Dice(seed, "options")

    def sometimes(*values: int) -> int:
        return dice.one_of(values) if dice.happens(450_000) else 0

    return Options(
        seed=seed,
        hosts=dice.between(1, 5),
        profiles=dice.between(1, 4),
        beat_ms=dice.one_of((2_000, 5_000, 10_000)),
        automatic=dice.happens(600_000),
        cooldown_ms=dice.one_of((0, 0, 10_000)),
        commit_every_ms=dice.one_of((20_000, 40_000, 90_000)),
        apply_after_ms=dice.one_of((1_000, 4_000, 20_000)),
        latency_ms=dice.one_of((5, 40, 400)),
        tail_ppm=sometimes(10_000, 100_000),
        drop_ppm=sometimes(20_000, 200_000),
        twice_ppm=sometimes(20_000, 200_000),
        replay_ppm=sometimes(20_000, 200_000),
        cut_every_ms=sometimes(30_000, 90_000),
        agent_crash_ppm=sometimes(10_000, 50_000),
        reboot_every_ms=sometimes(60_000, 150_000),
        controller_crash_ppm=sometimes(5_000, 30_000),
        zombie_ppm=dice.one_of((0, 500_000)),
        engine_death_every_ms=sometimes(15_000, 60_000),
        start_fails_ppm=sometimes(50_000, 400_000),
        never_ready_ppm=sometimes(50_000, 200_000),
        stubborn_ppm=sometimes(50_000, 300_000),
        fetch_fails_ppm=sometimes(50_000, 300_000),
        clock_step_every_ms=sometimes(60_000, 120_000),
        lost_files_ppm=sometimes(200_000, 1_000_000),
        late_approval_ppm=sometimes(100_000, 500_000),
    )


FAULTS = tuple(name for name in (f.name for f in fields(Options)) if name.endswith(("_ppm", "_every_ms")))
"""The fields that make things go wrong, and how often people change their minds."""


def calm(options: Options) -> Options:
    """The same fleet with nothing going wrong."""
    for name in FAULTS:
        if name != "commit_every_ms":
            options = with_(options, name, 0)
    return options


def with_(options: Options, name: str, value: int) -> Options:
    """The options with one field replaced."""
    changed: dict[str, Any] = {name: value}
    return replace(options, **changed)
