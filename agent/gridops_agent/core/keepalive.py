"""Keep-alive: what has been applied is kept alive by its own host, in every mode and with the controller away.

The policy stands in the signed body (or in a later `operate`): at most `max` starts per `per_ms`, waiting `backoff_ms`,
doubled each time. When they are used up the residency is given up visibly, and only a new command changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gridops.base.units import render_ms
from gridops.model.snapshot import ResidencyState
from gridops_agent.core.state import Held


@dataclass(frozen=True, slots=True)
class GivenUp:
    """No further start; `why` is for people."""

    why: str


def after_death(held: Held, now_ms: int) -> int | GivenUp:
    """When to start again, or that it is over."""
    policy = held.restart
    recent = in_window(held, now_ms)
    if policy.max == 0:
        return GivenUp("its restart policy allows no restart")
    if excused(held, now_ms):
        return now_ms + policy.backoff_ms
    if len(recent) >= policy.max:
        return GivenUp(f"restarted {len(recent)} times within {render_ms(policy.per_ms)}, the most its policy allows")
    return now_ms + (policy.backoff_ms << len(recent))


def in_window(held: Held, now_ms: int) -> tuple[int, ...]:
    """The restarts that still count. One that seems to lie in the future (a clock was set) counts as of now."""
    return tuple(min(at, now_ms) for at in held.recent_ms if at > now_ms - held.restart.per_ms)


def excused(held: Held, now_ms: int) -> bool:
    """What ends just after the machine slept ended of the sleep."""
    return held.excused_until_ms is not None and now_ms <= held.excused_until_ms


def due(held: Held, now_ms: int) -> bool:
    """Its pause is over; or the clock went back, which shows in a pause longer than any that was ordered."""
    if held.retry_at_ms is None:
        return False
    longest_ms = held.restart.backoff_ms << len(held.recent_ms)
    return not now_ms < held.retry_at_ms <= now_ms + longest_ms


def restarted(held: Held, now_ms: int) -> Held:
    """The residency with one more start on its account, unless that one is put down to a sleep."""
    recent = in_window(held, now_ms)
    return replace(
        held,
        state=ResidencyState.WARMING,
        since_ms=now_ms,
        restarts=held.restarts + 1,
        recent_ms=recent if excused(held, now_ms) else (*recent, now_ms),
        excused_until_ms=None,
        retry_at_ms=None,
        handle=None,
        code=None,
        detail=f"restart {held.restarts + 1} by this host",
    )
