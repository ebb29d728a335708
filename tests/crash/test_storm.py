"""A quarter of a minute of the kill storm; `soak_storm.py` has ten minutes."""

from __future__ import annotations

from pathlib import Path

from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.pair import audit, founded, paired
from tests.crash.storm import calmed, storm
from tests.crash.zygote import Nursery


def test_a_short_storm_leaves_nothing_twice_and_nothing_lost(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    model = write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    founded(tmp_path / "template", model)
    with Nursery() as nursery:
        pair = paired(tmp_path / "storm", tmp_path / "template", model, nursery)
        try:
            done = storm(pair, 15.0, 7)
            calmed(pair)
            audit(pair)
            assert sum(done.values()) > 5
            assert any(code == -9 for _, code in pair.ends)
        finally:
            pair.clear()
