"""Controller and hosts talking, and nothing else: no plans, no people. About five times as fast as a whole fleet.

Commands come and are taken back by chance, journals are restored from old copies, and afterwards every command must
have its outcome, no receipt may be owed, and no alarm be left that nobody caused.
"""

from __future__ import annotations

from gridops.lab.head import Head, Surroundings
from gridops.lab.sender import SenderHead
from gridops.lab.stage import Stage


class Talk(Stage):
    """A fleet in which nobody plans."""

    quiet_ms = 5_000

    def make_head(self, around: Surroundings) -> Head:
        self.sender = SenderHead(around)
        return self.sender

    def begin(self) -> None:
        self.sender.replaced = self.forget
        self.nemesis.every(self.options.restore_every_ms, self.sender.restore)

    def calm_down(self) -> None:
        """Nothing more is sent: the head is kind."""

    def not_as_wanted(self) -> list[str]:
        return []

    def excused(self) -> bool:
        """A journal that was replaced is an alarm in itself, until somebody has looked."""
        return False
