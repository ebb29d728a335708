"""The long run: kill -9 at random for ten minutes over a running fleet, and then a count of engines and receipts.

Once over a controller and one host, once over two hosts that are drained meanwhile, so that models move.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.pair import AGENT, SECOND, audit, founded, paired
from tests.crash.storm import calmed, storm
from tests.crash.zygote import Nursery

SECONDS = float(os.environ.get("STORM_S", "600"))
SEED = int(os.environ.get("STORM_SEED", "1"))


@pytest.mark.parametrize("agents", [(AGENT,), (AGENT, SECOND)], ids=["one host", "two hosts"])
def test_a_storm_of_kills_leaves_nothing_twice_and_nothing_lost(tmp_path: Path, agents: tuple[str, ...]) -> None:
    (tmp_path / "models").mkdir()
    model = write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    founded(tmp_path / "template", model, agents)
    with Nursery() as nursery:
        pair = paired(tmp_path / "storm", tmp_path / "template", model, nursery, agents)
        try:
            done = storm(pair, SECONDS, SEED)
            calmed(pair)
            counted = audit(pair)
            print(f"\n{dict(sorted(done.items()))}; {counted}; {len(pair.spawned)} commands had an engine")
        finally:
            pair.clear()
