"""The batch of 300 seeds that a test run goes through: the one that holds, or one that nobody has run yet.

By itself it is always the same one, so that a change that breaks a rule is told from a new finding: of new whole fleets
hunts find one in some hundreds that breaks a rule. With
GRIDOPS_LAB_BATCH=commit the seeds are new with each commit, named by the tree that is checked out, and the run says
their number: GRIDOPS_LAB_BATCH=NUMBER plays that batch again anywhere.
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
    asked = os.environ.get("GRIDOPS_LAB_BATCH", "")
    if asked != "commit":
        return int(asked) % SPAN if asked.isdigit() else None
    tree = subprocess.run(["git", "rev-parse", "HEAD^{tree}"], cwd=HERE, capture_output=True, text=True, check=True)
    return int(tree.stdout[:12], 16) % SPAN


BATCH = _batch()


def header() -> str:
    """One line for the top of a test run."""
    if BATCH is None:
        return "lab: the 300 seeds that hold (new ones with each commit: GRIDOPS_LAB_BATCH=commit)"
    return f"lab: batch {BATCH} of 300 new seeds (the same ones again: GRIDOPS_LAB_BATCH={BATCH})"


def seeds(held: int, count: int, part: int) -> range:
    """`count` seeds of the batch; each part gives others. `held` is the first of those that hold. No new batch shares
    a seed with another one, nor with small numbers."""
    first = held if BATCH is None else (SPAN + BATCH) * 1_000
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
