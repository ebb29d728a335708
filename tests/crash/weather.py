"""Some time of bad weather between a controller and two hosts while profiles come and go.

Both hosts speak through the same line, so what is played again to one of them may have been said to the other. `blown`
lives it from one seed and counts afterwards: every command had at most one process in all that time, on the host that
it was for, and what stands in the controller's journal of a host is what stands in that host's ledger.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from gridops_agent.config import read_config, write_config
from tests.agent.site import free_ports
from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.between import HONEST, Line, Middle, Weather
from tests.crash.pair import AGENT, CONTROLLER, SECOND, Pair, audit, founded, paired
from tests.crash.storm import PROFILES, calmed, want
from tests.crash.zygote import Nursery

BOTH = (AGENT, SECOND)
FEWEST = 6
"""So much has to have happened before it counts: a host that was cut off waits a little before it speaks again."""


def faults(weather: Weather) -> int:
    return weather.done.total() - weather.done[HONEST]


def blown(folder: Path, seconds: float, seed: int) -> tuple[Counter[str], str]:
    """How often what was done, and what was counted on the disks."""
    (folder / "models").mkdir()
    model = write_tiny_gguf(folder / "models" / "tiny.gguf")
    founded(folder / "template", model, BOTH)
    weather = Weather(seed)
    with Nursery() as nursery:
        pair = paired(folder / "storm", folder / "template", model, nursery, BOTH)
        outer, inner = free_ports(2)
        for name in BOTH:
            config = read_config(pair.state(name))
            write_config(replace(config, controller=f"https://127.0.0.1:{outer}"))
        keys = pair.state(CONTROLLER) / "keys"
        certificate = (keys / "controller.tls.pem", keys / "controller.tls.key")
        try:
            with Middle(inner, pair.port, certificate, weather), Line(outer, inner, weather):
                _lived(pair, weather, seconds, seed)
                counted = audit(pair)
            assert pair.ends == [], "nothing was killed, and nobody ended"
            assert all(len(pids) == 1 for pids in pair.spawned.values()), "one process for one command"
            for name in (CONTROLLER, *BOTH):
                assert "Traceback" not in pair.words(name, 1 << 30), pair.words(name)
        finally:
            pair.clear()
    return weather.done, f"{counted}; {len(pair.spawned)} commands had an engine"


def _lived(pair: Pair, weather: Weather, seconds: float, seed: int) -> None:
    dice = random.Random(seed + 1)
    pair.start(CONTROLLER)
    for name in BOTH:
        pair.start(name)
    pair.until("both hosts are heard through it", lambda: pair.ready() >= 0)
    want(pair, dict.fromkeys(PROFILES, len(BOTH)))
    pair.until("both hosts have work", lambda: pair.at_work() == len(BOTH))
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds or (faults(weather) < FEWEST and passed < 4 * seconds):
        want(pair, {name: dice.randrange(1 + len(BOTH)) for name in PROFILES})
        pause = time.monotonic() + dice.uniform(1.0, 4.0)
        while time.monotonic() < pause:
            pair.look()
            time.sleep(0.05)
    weather.calm = True
    calmed(pair)
