"""A kill storm: controller, agent and engines are killed at random while profiles come and go, and then it is counted.

`storm` does it for a time, from one seed; whatever was killed is started again at once. `calmed` lets a profile that
saw nothing of it come and go, lets everything else go too, and ends both; `pair.audit` reads what is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter

from gridops.disk.failpoint import NAME
from gridops_agent.platform import here
from tests.crash.pair import AGENT, CONTROLLER, Bare, Pair, wanted

PROFILES = ("tiny", "one", "two")
LAST = "calm"
DEEDS = (CONTROLLER, AGENT, "both", "engine", "pause", "want", "want")
PAUSE_S = 1.5
ENGINE_KILLS = 3
"""For each minute at most: what is killed more often is given up by its restart policy, and nothing moves any more."""


def storm(pair: Pair, seconds: float, seed: int) -> Counter[str]:
    """Kill at random; how often what was done."""
    dice, done = random.Random(seed), Counter[str]()
    pair.patience = 1 << 30
    pair.start(CONTROLLER)
    pair.start(AGENT)
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        pair.look()
        deed = dice.choice(DEEDS)
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
    if deed == "want":
        want(pair, {name: dice.randrange(2) for name in PROFILES})
    elif deed == "engine":
        for engine in pair.engines()[:1]:
            here().send(engine, signal.SIGKILL)
    elif deed == "pause":
        pid = pair.running[dice.choice((CONTROLLER, AGENT))]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            os.kill(pid, signal.SIGCONT)
    else:
        for name in (CONTROLLER, AGENT) if deed == "both" else (deed,):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pair.running[name], signal.SIGKILL)


def want(pair: Pair, replicas: dict[str, int]) -> None:
    files: dict[str, str | None] = {
        f"profiles.d/{name}.yaml": wanted(pair.model, count, name) for name, count in replicas.items()
    }
    Bare(pair.fleet).commit(files, f"Want {replicas}")


def calmed(pair: Pair) -> None:
    """Nothing is killed any more: what is new comes up, and all of it goes."""
    want(pair, {**dict.fromkeys(PROFILES, 0), LAST: 1})
    pair.until("a profile that saw nothing of it is ready", lambda: LAST in pair.ready_names())
    want(pair, {LAST: 0})
    pair.until("nothing is left", pair.idle)
    assert NAME not in os.environ
    pair.end()
