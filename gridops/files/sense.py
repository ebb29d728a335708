"""Sense across files: each judge looks at everything gathered and reports what cannot be meant."""

from __future__ import annotations

from gridops.files.gather import Gathered
from gridops.files.tree import Tree


def judge(found: Gathered, tree: Tree) -> None:
    """Run every judge; problems land in `found.problems`."""
