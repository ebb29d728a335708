"""Processes of one machine: they come up slowly or never, die when they like, and some do not end when told to.

They outlive the agent that started them and carry the digest of their command, as real engines do; a reboot ends all.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.ids import Digest
from gridops.lab.agenda import Agenda
from gridops.lab.dice import Dice
from gridops.lab.options import Options

WARM_MS = (500, 6_000)
NEVER_MS = 10_000_000


@dataclass(slots=True)
class Process:
    """One engine."""

    pid: int
    body: Digest
    device_bytes: int
    born_ms: int
    listed_ms: int
    """From then on it lists its model."""
    dies_ms: int
    stubborn: bool
    busy_ms: int = 0
    """Until then it works on something."""


class Processes:
    """The process table of one machine."""

    def __init__(self, agenda: Agenda, options: Options, dice: Dice) -> None:
        self.living: dict[int, Process] = {}
        self.turns = 0
        """Counts how often one came or went."""
        self.spawned: list[Digest] = []
        """Bodies of every process that was ever started here, in order."""
        self.kind = False
        """From then on engines come up, live and end as they should."""
        self._agenda = agenda
        self._options = options
        self._dice = dice

    def spawn(self, body: Digest, device_bytes: int) -> Process:
        """Start one."""
        dice, options, now_ms = self._dice, self._options, self._agenda.now_ms
        listed_ms = now_ms + dice.between(*WARM_MS)
        dies_ms = NEVER_MS
        if not self.kind:
            if dice.happens(options.never_ready_ppm):
                listed_ms = NEVER_MS
            elif dice.happens(options.start_fails_ppm):
                dies_ms = now_ms + dice.between(1, 4_000)
        made = Process(
            pid=len(self.spawned) + 1,
            body=body,
            device_bytes=device_bytes,
            born_ms=now_ms,
            listed_ms=listed_ms,
            dies_ms=dies_ms,
            stubborn=not self.kind and dice.happens(options.stubborn_ppm),
        )
        self.living[made.pid] = made
        self.turns += 1
        self.spawned.append(body)
        if dies_ms < NEVER_MS:
            self._agenda.after(dies_ms - now_ms, lambda: self.end(made.pid))
        return made

    def of(self, body: Digest) -> Process | None:
        """The living process of a body; there may be one at most, which `watchers` see to."""
        return next((p for p in self.living.values() if p.body == body), None)

    def end(self, pid: int) -> None:
        """It is gone, if it was there."""
        self.living.pop(pid, None)
        self.turns += 1

    def stop(self, pid: int) -> bool:
        """Tell it to end; whether nothing of it is left."""
        process = self.living.get(pid)
        if process is not None and process.stubborn and not self.kind:
            return False
        self.living.pop(pid, None)
        self.turns += 1
        return True

    def reboot(self) -> None:
        self.living.clear()
        self.turns += 1

    def settle(self) -> None:
        """What hangs ends now, and nothing is stubborn any more."""
        self.kind = True
        for process in tuple(self.living.values()):
            if process.listed_ms == NEVER_MS:
                self.end(process.pid)
