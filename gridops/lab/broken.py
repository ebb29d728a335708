"""A rule that did not hold in a run."""

from __future__ import annotations


class Broken(Exception):
    """`rule` is its number in `docs/reference/invariants.md`."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
