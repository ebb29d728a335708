"""The host's heart: one pure step from what it remembers and what happened to what it remembers next and what to do.

Called by the shell for every event, one after the other. The shell writes the new memory to the ledger before it
carries out a single effect: an intent is durable before its effect, an outcome before its receipt is sent. The heart
never waits, never retries by itself, and never treats an unknown as success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from gridops_agent.core import anew, commands, health, lives, waking, yielding
from gridops_agent.core.events import (
    Began,
    Departed,
    Died,
    Effect,
    Ended,
    Event,
    GiveBack,
    GivenBack,
    Heard,
    Holding,
    Listed,
    Measured,
    Placed,
    Proved,
    Recall,
    Rekeyed,
    Released,
    Resumed,
    RetryDue,
    RootsCame,
    Spawned,
    StartFailed,
    StateChanged,
    Stopping,
    Stuck,
    Woke,
)
from gridops_agent.core.state import Host


@dataclass(frozen=True, slots=True)
class Step:
    """The next memory and the effects, in order."""

    host: Host
    effects: tuple[Effect, ...] = ()


def step(host: Host, event: Event, now_ms: int) -> Step:
    """One event. `now_ms` is controller time as far as this host knows."""
    return Step(*_answer(host, event, now_ms))


def _answer(host: Host, event: Event, now_ms: int) -> tuple[Host, tuple[Effect, ...]]:  # noqa: C901 - one line each
    match event:
        case RootsCame():
            return commands.roots_came(host, event)
        case Rekeyed():
            return anew.rekeyed(host, event.host_key), ()
        case Heard():
            return commands.heard(host, event, now_ms)
        case Began():
            return commands.began(host, event, now_ms)
        case Ended():
            return commands.ended(host, event, now_ms)
        case Placed():
            return lives.placed(host, event), ()
        case Spawned():
            return lives.spawned(host, event), ()
        case Listed():
            return lives.listed(host, event, now_ms)
        case Died():
            return lives.died(host, event, now_ms)
        case StartFailed():
            return lives.start_failed(host, event, now_ms)
        case Stuck():
            return lives.stuck(host, event, now_ms)
        case Proved():
            return lives.proved(host, event, now_ms)
        case RetryDue():
            return lives.retry_due(host, event, now_ms)
        case GivenBack():
            return lives.given_back(host, event, now_ms)
        case Measured():
            return health.measured(host, event, now_ms)
        case StateChanged():
            return yielding.state_changed(host, event)
        case GiveBack():
            return yielding.give_back(host, event)
        case Recall():
            return yielding.recall(host, event, now_ms)
        case Resumed():
            return lives.resumed(host, event, now_ms)
        case Woke():
            return waking.woke(host, event, now_ms)
        case Departed():
            return waking.departed(host, event, now_ms)
        case Holding():
            return lives.holding(host, event), ()
        case Stopping():
            return lives.stopping(host, event), ()
        case Released():
            return lives.released(host, event, now_ms)
        case _:
            assert_never(event)
