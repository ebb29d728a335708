"""How the durable room says no, beyond the families of `base.errors`. Caught by name in the controller's shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gridops.base.errors import Busy, Failed


class Damaged(Failed):
    """The journal does not verify. It stands under `kept`; the next opening begins an empty one.

    The controller that catches this falls back to recommending, says so with `kept`, and learns from the hosts again.
    """

    def __init__(self, message: str, kept: Path, *, hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints)
        self.kept = kept


class TooLarge(Failed):
    """A row is more than the journal takes. Nothing of what was to be appended with it was written."""

    def __init__(self, at: int, kind: str, size: int, most: int) -> None:
        super().__init__(f"a `{kind}` of {size} bytes is more than the {most} that the journal takes")
        self.at = at
        """Which of the rows, from 0."""


class StaleWriter(Busy):
    """Somebody took the journal over: a newer term stands in its guard row. Nothing was written; stop issuing."""
