"""The long run: kill -9 at random for ten minutes over a running fleet, and then a count of engines and receipts."""

from __future__ import annotations

import os
from pathlib import Path

from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.pair import audit, founded, paired
from tests.crash.storm import calmed, storm
from tests.crash.zygote import Nursery

SECONDS = float(os.environ.get("STORM_S", "600"))
SEED = int(os.environ.get("STORM_SEED", "1"))


def test_a_storm_of_kills_leaves_nothing_twice_and_nothing_lost(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    model = write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    founded(tmp_path / "template", model)
    with Nursery() as nursery:
        pair = paired(tmp_path / "storm", tmp_path / "template", model, nursery)
        try:
            done = storm(pair, SECONDS, SEED)
            calmed(pair)
            counted = audit(pair)
            print(f"\n{dict(sorted(done.items()))}; {counted}; {len(pair.spawned)} commands had an engine")
        finally:
            pair.clear()
