"""Sense across files: each judge looks at everything gathered and reports what cannot be meant.

Called by `load.check` after all files are read. A judge never repeats what the schema of one file said already: it
works on names even where a thing is wrong inside, and on values only where they are whole.
"""

from __future__ import annotations

from gridops.files import sense_engines, sense_names, sense_placement, sense_policy
from gridops.files.gather import Gathered
from gridops.files.tree import Tree


def judge(found: Gathered, tree: Tree) -> None:
    """Run every judge; problems land in `found.problems`."""
    sense_names.judge(found)
    sense_engines.judge(found)
    sense_policy.judge(found, tree)
    sense_placement.judge(found)
