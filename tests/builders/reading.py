"""The right to write as somebody has it who only replays a journal: the term stays, and nothing is appended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gridops.protocol.messages import Term


@dataclass
class Reading:
    journal: Any
    term: Term = field(default_factory=lambda: Term(epoch=1, counter=1))

    def raise_above(self, counter: int) -> Term:
        raise AssertionError

    def renew(self, epoch: int) -> Term:
        raise AssertionError

    def close(self) -> None:
        return None
