"""The batch of 300 seeds that a test run goes through: which of them nobody has run yet.

They are new with each commit, named by the tree that is checked out, so the same tree always runs the same ones.
GRIDOPS_LAB_BATCH=held runs those that are always the same instead, by which a change that breaks a rule is told from a
finding that is older. The run says the number of its batch: GRIDOPS_LAB_BATCH=NUMBER plays it again anywhere, in both
worlds.
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


def _batch() -> int | None:
    """The number of a new batch; None for the seeds that hold."""
    asked = os.environ.get("GRIDOPS_LAB_BATCH", "") or "commit"
    return int(asked) % SPAN if asked.isdigit() else _of_the_tree() if asked == "commit" else None


def _of_the_tree() -> int | None:
    """Named by what is checked out; None where that is no git checkout."""
    asks = ["git", "rev-parse", "HEAD^{tree}"]
    try:
        tree = subprocess.run(asks, cwd=HERE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(tree.stdout[:12], 16) % SPAN


NEW = _batch()
"""The batch that is run instead of the seeds that hold."""


def header() -> str:
    """One line for the top of a test run."""
    if NEW is None:
        return "lab: the 300 seeds that hold (new ones with each commit: GRIDOPS_LAB_BATCH=commit)"
    return f"lab: batch {NEW}, 300 new seeds (the same ones again: GRIDOPS_LAB_BATCH={NEW})"


def seeds(held: int, count: int, part: int) -> range:
    """`count` seeds of the batch; each part gives others. `held` is the first of those that hold. No new batch shares
    a seed with another one, nor with small numbers."""
    first = held if NEW is None else (SPAN + NEW) * 1_000
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
