"""The batch of 300 seeds that a test run goes through: which of them nobody has run yet.

The 240 of the talk are new with each commit, named by the tree that is checked out: hunts of thousands found nothing in
them. The 60 of whole fleets are by themselves always the same, so that a change that breaks a rule is told from a new
finding: of new whole fleets hunts find one in some hundreds that breaks a rule. GRIDOPS_LAB_BATCH=commit makes both
new, GRIDOPS_LAB_BATCH=held neither. The run says the number of its batch: GRIDOPS_LAB_BATCH=NUMBER plays it again
anywhere, in both worlds.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from gridops.lab.options import Options, written

if TYPE_CHECKING:  # every test run asks for the header, and few for the whole lab
    from gridops.lab.run import Ran

FLEETS, TALKS = 4_000_130, 3_000_160
"""The first of the seeds that hold."""
SPAN = 1_000_000
HERE = Path(__file__).parent


def _batch(by_itself: str) -> int | None:
    """The number of a new batch; None for the seeds that hold."""
    asked = os.environ.get("GRIDOPS_LAB_BATCH", "") or by_itself
    return int(asked) % SPAN if asked.isdigit() else _of_the_tree() if asked == "commit" else None


def _of_the_tree() -> int | None:
    """Named by what is checked out; None where that is no git checkout."""
    asks = ["git", "rev-parse", "HEAD^{tree}"]
    try:
        tree = subprocess.run(asks, cwd=HERE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(tree.stdout[:12], 16) % SPAN


NEW = {TALKS: _batch("commit"), FLEETS: _batch("held")}
"""By the first of the seeds that hold: the batch that is run instead of them."""


def header() -> str:
    """One line for the top of a test run."""
    talks, fleets = NEW[TALKS], NEW[FLEETS]
    if talks is None:
        return "lab: the 300 seeds that hold (new ones with each commit: GRIDOPS_LAB_BATCH=commit)"
    what = "240 new seeds of the talk, 60 whole fleets that hold" if fleets is None else "300 new seeds"
    return f"lab: batch {talks}, {what} (the same ones again: GRIDOPS_LAB_BATCH={talks})"


def seeds(held: int, count: int, part: int) -> range:
    """`count` seeds of the batch; each part gives others. `held` is the first of those that hold. No new batch shares
    a seed with another one, nor with small numbers."""
    batch = NEW[held]
    first = held if batch is None else (SPAN + batch) * 1_000
    return range(first + part * count, first + (part + 1) * count)


def told(ran: Ran) -> str:
    """What broke, how to see it again, and that it need not be new."""
    return (
        f"{ran.broken}\n"
        f"see it again: {again(ran.options)}\n"
        f"shrink it: python -m gridops.lab {'--talk ' if ran.options.talk else ''}{ran.options.seed}\n"
        "What a new seed finds may be older than this commit. Mend it, and keep the line that the second command says "
        "in tests/lab/seeds.txt, with ` | ` and what was wrong behind it."
    )


def again(options: Options) -> str:
    """The command that runs these very options, whatever a later draw makes of the seed."""
    return f'python -m gridops.lab --line "{written(options)}"'
