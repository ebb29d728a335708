"""What happened in a run, one line a thing, and a fingerprint of it all: the same seed gives the same one."""

from __future__ import annotations

import hashlib
from collections import Counter

from gridops.lab.agenda import Agenda


class Trace:
    """Lines of a run. `tally` counts what was seen happen at all, by name."""

    def __init__(self, agenda: Agenda) -> None:
        self.lines: list[str] = []
        self.tally: Counter[str] = Counter()
        self._agenda = agenda
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, who: str, what: str) -> None:
        line = f"{self._agenda.now_ms:>8} {who:<10} {what}"
        self.lines.append(line)
        self._hash.update(line.encode() + b"\n")

    def saw(self, name: str) -> None:
        """Something that a batch of runs must have seen at least once."""
        self.tally[name] += 1

    @property
    def fingerprint(self) -> str:
        return self._hash.hexdigest()
