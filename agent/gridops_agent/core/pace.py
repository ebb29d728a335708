"""When this host speaks to its controller again: as soon as it was asked to, and slower while nobody answers.

A controller that lives may refuse a heartbeat for a reason that passes by itself: an old word of this host was taken
for its newest run, nothing is committed yet, or the host is not admitted yet. That is an answer and no outage, and the
next heartbeat is another one: it goes out at the pace that the controller last asked for. So whoever stands between
the two and sends words twice makes neither a storm nor a silence of them. Pure; `talk` waits.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base import limits
from gridops.base.codes.control import NOT_READY, REPLAYED
from gridops.base.record import record

RETRY_MS = (1_000, 30_000)
"""Between tries that nobody answers: the first pause, which doubles, and the longest."""
POLL_MS = (100, limits.POLL_MOST_MS)
"""What of a controller's wish for the next heartbeat is followed."""
REFUSED_MS = 1_000
"""After a refusal never sooner than this, however soon the controller wanted to hear more before it. Double: a machine
that was just admitted waits a second longer; half: nothing is gained, since only other words change the answer."""
NOT_ADMITTED = "not_admitted"
PASSING = frozenset({NOT_ADMITTED, NOT_READY.code, REPLAYED.code})
"""What a controller refuses a heartbeat for that another one, or a commit, puts right without anybody at this host."""


@record
class Pace:
    """How the talk of one run of the agent has gone. Soft: another run begins anew."""

    wish_ms: int = REFUSED_MS
    """What the newest directive asked for."""
    failures: int = 0
    """Tries in a row that were not answered as they should be."""
    refused: bool = False
    """The newest try was refused for what passes."""

    @property
    def wakes(self) -> bool:
        """Whether news goes out at once. Where nobody answers it would only be told to the wall."""
        return self.failures == 0

    @property
    def wait_ms(self) -> int:
        """From the end of the newest try to the next one."""
        if self.failures:
            return min(RETRY_MS[1], RETRY_MS[0] << min(self.failures - 1, 5))
        wish_ms = max(POLL_MS[0], min(POLL_MS[1], self.wish_ms))
        return max(REFUSED_MS, wish_ms) if self.refused else wish_ms


def answered(pace: Pace, wish_ms: int) -> Pace:
    """A fresh directive came, with a wish for the next heartbeat."""
    return replace(pace, wish_ms=wish_ms, failures=0, refused=False)


def refused(pace: Pace, code: str) -> Pace:
    """The controller refused the heartbeat. What does not pass is as good as no answer."""
    return replace(pace, failures=0, refused=True) if code in PASSING else unanswered(pace)


def unanswered(pace: Pace) -> Pace:
    """Nobody answered, or not as a controller should."""
    return replace(pace, failures=pace.failures + 1, refused=False)
