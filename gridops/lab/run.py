"""Runs of the lab: one seed, a batch of them, and what a failing one shrinks to."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gridops.lab.broken import Broken
from gridops.lab.options import FAULTS, Options, draw, with_
from gridops.lab.stage import Stage
from gridops.lab.talk import Talk
from gridops.lab.world import World
from gridops.trust.keys import each_signature_once


@dataclass(frozen=True, slots=True)
class Ran:
    """How one run went."""

    options: Options
    fingerprint: str
    tally: Counter[str]
    steps: int
    lines: tuple[str, ...]
    broken: str | None = None
    """The rule that did not hold, or the fault that came out, with its first words."""
    writes: int = 0
    """How many durable steps it took, of controller and hosts together."""


def run(options: Options, until_step: int | None = None) -> Ran:
    """One run from its options alone."""
    world: Stage | None = None
    broken = None
    try:
        with each_signature_once():
            world = Talk(options) if options.talk else World(options)
            world.run(until_step)
    except Broken as rule:
        broken = str(rule)
    except Exception:  # noqa: BLE001 - whatever comes out of the product is a finding
        broken = f"fault: {traceback.format_exc()}"
    if world is None:
        return Ran(options, "", Counter(), 0, (), broken)
    trace = world.trace
    return Ran(
        options, trace.fingerprint, trace.tally, world.agenda.steps, tuple(trace.lines), broken, world.strikes.seen
    )


def batch(seeds: Iterable[int]) -> tuple[Ran, ...]:
    """One run a seed."""
    return tuple(run(draw(seed)) for seed in seeds)


def shrunk(options: Options) -> Options:
    """The same failure with as little as possible going wrong: each fault is taken away while the rule still breaks."""
    first = run(options).broken
    if first is None:
        return options
    rule = first.split(":", 1)[0]

    def fails(candidate: Options) -> bool:
        found = run(candidate).broken
        return found is not None and found.split(":", 1)[0] == rule

    for name in FAULTS:
        if getattr(options, name):
            quieter = with_(options, name, 0)
            options = quieter if fails(quieter) else options
    for name, least in (("hosts", 1), ("profiles", 1)):
        while getattr(options, name) > least:
            smaller = with_(options, name, getattr(options, name) - 1)
            if not fails(smaller):
                break
            options = smaller
    return options
