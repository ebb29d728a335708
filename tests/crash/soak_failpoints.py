"""The long run: every pass of every point of both processes, in every way. `make soak` runs it; about ten minutes."""

from __future__ import annotations

from pathlib import Path

from gridops.disk.failpoint import HOWS
from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.lived import Case, Lives
from tests.crash.zygote import Nursery

PASSES = 30
"""Of one point at most: the note for `status` is written with every turn, and every turn is alike."""
SPARE = 3
"""The last passes of a story depend on its turns: so many may not come."""


def test_every_pass_of_every_point_in_every_way(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    model = write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    with Nursery() as nursery:
        lives = Lives(tmp_path, model, nursery)
        counts = lives.listed()
        cases = [
            Case(process, point, nth, how)
            for process, points in sorted(counts.items())
            for point, count in sorted(points.items())
            for nth in range(1, min(count, 2 if "status" in point else PASSES) + 1)
            for how in HOWS
        ]
        wrong, silent = [], []
        for number, (case, fired, words) in enumerate(lives.live_all(cases), 1):
            print(f"{number}/{len(cases)} {case} {'WRONG' if words else '' if fired else 'not reached'}", flush=True)
            if words:
                wrong.append(words)
            elif not fired and case.nth <= counts[case.process][case.point] - SPARE:
                silent.append(str(case))
    assert not wrong, "\n\n".join(wrong)
    assert not silent, f"never reached: {silent}"
