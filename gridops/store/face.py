"""What keeps a controller's rows, as its writer sees it: SQLite on a machine, a model of a disk in the lab.

`tests/lab/test_twins.py` holds both against each other: same answers, same refusals, same rows after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from gridops.protocol.messages import Term
from gridops.store.journal import Entry, Row, Saved


class Rows(Protocol):
    """An open journal. What each call promises and raises stands at `journal.Journal`."""

    path: Path

    def append(self, rows: Sequence[Entry], term: Term) -> int: ...

    def replay(self, after: int = 0) -> Iterator[Row]: ...

    def take_term(self, epoch: int, above: int = 0) -> Term: ...

    def save_snapshot(self, n: int, value: Any) -> None: ...

    def latest_snapshot(self) -> Saved | None: ...


class Right(Protocol):
    """The right to write, held. What each call promises stands at `authority.Authority`."""

    term: Term

    @property
    def journal(self) -> Rows: ...

    def raise_above(self, counter: int) -> Term: ...

    def renew(self, epoch: int) -> Term: ...

    def close(self) -> None: ...
