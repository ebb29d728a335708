"""One durable step of a run that fails: the n-th, whoever's it is, before it, after it, or with an error (C5, level 1).

Chance (`disk`) meets some of them in many runs; this meets each of them once, over one short story. `every` is that
walk: a run that only counts, then a run a step and a way. Steps are rows of the journal, terms taken, the note of
what is in force, and memories of hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum

from gridops.base.errors import Failed
from gridops.lab.dice import Dice
from gridops.lab.options import Options

FULL = "no space is left on this disk"


class Crashed(Exception):
    """The process that was writing is gone. `written`: what it wrote is on the disk all the same."""

    def __init__(self, written: bool) -> None:
        super().__init__("written" if written else "not written")
        self.written = written


class How(IntEnum):
    """In which way a step fails."""

    BEFORE = 0
    """The process is gone, and nothing was written."""
    AFTER = 1
    """The process is gone, and everything was."""
    ERROR = 2
    """The disk says no, and the process goes on."""


class Strikes:
    """Counts the durable steps of one run, and strikes one or two of them."""

    def __init__(self, options: Options | None = None) -> None:
        self.seen = 0
        self.over = False
        """From then on nothing is struck, nor counted."""
        self._at: dict[int, How] = {}
        self._error_ppm = options.disk_error_ppm if options is not None else 0
        self._dice = Dice(options.seed if options is not None else 0, "disk errors")
        if options is not None and options.strike:
            self._at[options.strike] = How(options.strike_how)
            if options.strike_again:
                self._at[options.strike + options.strike_again] = How(options.strike_how)

    def step(self, write: Callable[[], None]) -> None:
        """One durable step. Raises Crashed, or Failed when the disk says no."""
        if self.over:
            write()
            return
        self.seen += 1
        match self._at.get(self.seen):
            case How.BEFORE:
                raise Crashed(written=False)
            case How.ERROR:
                raise Failed(FULL)
            case How.AFTER:
                write()
                raise Crashed(written=True)
            case _ if self._error_ppm and self._dice.happens(self._error_ppm):
                raise Failed(FULL)
            case _:
                write()

    def heal(self) -> None:
        """Disks have room from now on."""
        self._error_ppm = 0


def every(story: Options, steps: int) -> Iterator[Options]:
    """The story with each of its steps struck, in each way; then pairs, one near the other."""
    for n in range(1, steps + 1):
        for how in How:
            yield replace(story, strike=n, strike_how=int(how))
    for n in range(1, steps + 1):
        yield replace(story, strike=n, strike_how=n % 3, strike_again=1 + n * 7 % 11)


def short_story(seed: int) -> Options:
    """A few commits, starts, changes and ends on two hosts, and nothing that fails by itself."""
    quick = Options(seed=seed, hosts=2, profiles=2, beat_ms=2_000, commit_every_ms=12_000, latency_ms=5)
    return replace(quick, chaos_ms=40_000, heal_ms=180_000, signed_commits=seed % 2 == 0)
