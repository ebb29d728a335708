"""When a host shall speak again: soon while something is under way, else at the fleet's interval, never all at once.

`issue` asks for every directive. The interval has been stretched with the fleet when its commit was read
(`files.pace`); here each wish is spread a little, so that hosts which fell into step fall out of it again, and in a
large fleet wide while a controller that has just begun is spoken to by everybody at once. Hosts that have something to
do are asked for more, and share one rate as well: 500 of them at twice a second would be more than it answers.
The spread is drawn from the heartbeat's own nonce, so the same heartbeat always gets the same answer.
"""

from __future__ import annotations

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.model.policy import Heartbeat

BUSY_POLL_MS = 500
"""How soon a host asks again while something is under way: a transfer's end should not wait for the next heartbeat.
Double: a command is heard of half a second later; half: a rollout on 50 hosts alone would use up the rate."""
SPREAD = 8
"""An eighth of the interval. Double: hosts in step take twice as long to fall out of it; half: silence is told later
for nothing."""


def busy_ms(beat: Heartbeat, crowd: int) -> int:
    """The pace of a host with something under way, which `crowd` hosts have now."""
    return min(max(BUSY_POLL_MS, _all_ms(crowd)), beat.every_ms)


def calm_ms(beat: Heartbeat, nonce: str, up_ms: int, hosts: int) -> int:
    """The pace of a host with nothing to do. `up_ms`: for how long this controller has been there, for so many hosts.

    Never more than half way from the interval to the silence after which a host counts as lost.
    """
    span_ms = beat.every_ms // SPREAD
    if up_ms < beat.recovery_grace_ms:
        span_ms = max(span_ms, min(_all_ms(hosts), beat.every_ms))
    return _followed(beat, beat.every_ms + _drawn(nonce) % max(min(span_ms, _room_ms(beat)), 1))


def longest_ms(beat: Heartbeat) -> int:
    """No host with nothing to do is told to wait longer."""
    return _followed(beat, beat.every_ms + min(beat.every_ms, _room_ms(beat)))


def _all_ms(hosts: int) -> int:
    """How long so many hosts take to speak once each, within the rate."""
    return hosts * 1_000 // limits.HEARTBEATS_PER_S


def _room_ms(beat: Heartbeat) -> int:
    return (beat.stale_after_ms - beat.every_ms) // 2


def _followed(beat: Heartbeat, told_ms: int) -> int:
    return max(min(told_ms, limits.POLL_MOST_MS), beat.every_ms)


def _drawn(nonce: str) -> int:
    return int(digest_bytes(nonce.encode())[7:19], 16)
