"""A kill storm: controller, agents and engines are killed at random while profiles and drains come and go.

`storm` does it for a time, from one seed; whatever was killed is started again at once. `calmed` lets a profile that
saw nothing of it come and go, lets everything else go too, and ends all; `pair.audit` reads what is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter

from gridops.base import limits
from gridops.disk.failpoint import NAME
from gridops_agent.platform import here
from tests.crash.pair import AGENTS, CONTROLLER, STORY_S, Bare, Pair, wanted

PROFILES = ("tiny", "one", "two")
LAST = "calm"
DEEDS = (CONTROLLER, "agent", "all", "engine", "pause", "want", "want")
WITH_TWO = (*DEEDS, "drain")
DRAIN = "apiVersion: gridops/v1\nkind: Drain\nhost: {}\nreason: a storm\n"
PAUSE_S = 1.5
ENGINE_KILLS = 3
"""For each minute at most: what is killed more often is given up by its restart policy, and nothing moves any more."""

BRAKED_S = STORY_S + limits.STANDING_STOPS_WINDOW_MS / 1000
"""A host's brake counts what a long storm took out of service."""


def storm(pair: Pair, seconds: float, seed: int) -> Counter[str]:
    """Kill at random; how often what was done."""
    dice, done = random.Random(seed), Counter[str]()
    pair.patience = 1 << 30
    pair.start(CONTROLLER)
    for name in pair.agents:
        pair.start(name)
    deeds = WITH_TWO if len(pair.agents) > 1 else DEEDS
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        pair.look()
        deed = dice.choice(deeds)
        if deed == "engine" and done[deed] >= 1 + ENGINE_KILLS * passed / 60:
            deed = "want"
        _do(pair, deed, dice)
        done[deed] += 1
        until = time.monotonic() + dice.uniform(0.1, 2.5)
        while time.monotonic() < until:
            pair.look()
            time.sleep(0.03)
    return done


def _do(pair: Pair, deed: str, dice: random.Random) -> None:
    match deed:
        case "want":
            want(pair, {name: dice.randrange(1 + len(pair.agents)) for name in PROFILES})
        case "drain":
            _drain(pair, dice.choice((*pair.agents, None)))
        case "engine":
            living = pair.engines()
            if living:
                here().send(dice.choice(living), signal.SIGKILL)
        case "pause":
            pid = pair.running[dice.choice((CONTROLLER, *pair.agents))]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PAUSE_S)
                os.kill(pid, signal.SIGCONT)
        case _:
            every = {"all": (CONTROLLER, *pair.agents), "agent": (dice.choice(pair.agents),)}
            for name in every.get(deed, (CONTROLLER,)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pair.running[name], signal.SIGKILL)


def _drain(pair: Pair, whose: str | None) -> None:
    """One host is to be empty, or none is."""
    files: dict[str, str | None] = {}
    for name in pair.agents:
        path = f"fleet.d/drains/{AGENTS[name]}.yaml"
        if name == whose:
            files[path] = DRAIN.format(AGENTS[name])
        elif (pair.fleet / path).exists():
            files[path] = None
    Bare(pair.fleet).commit(files, f"Drain {whose}")


def want(pair: Pair, replicas: dict[str, int]) -> None:
    files: dict[str, str | None] = {
        f"profiles.d/{name}.yaml": wanted(pair.model, count, name) for name, count in replicas.items()
    }
    Bare(pair.fleet).commit(files, f"Want {replicas}")


def calmed(pair: Pair) -> None:
    """Nothing is killed any more: what is new comes up, and all of it goes."""
    if len(pair.agents) > 1:
        _drain(pair, None)
    want(pair, {**dict.fromkeys(PROFILES, 0), LAST: 1})
    pair.until("a profile that saw nothing of it is ready", lambda: LAST in pair.ready_names())
    want(pair, {LAST: 0})
    pair.until("nothing is left", pair.idle, BRAKED_S)
    assert NAME not in os.environ
    pair.end()
