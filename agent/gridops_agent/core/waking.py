"""A machine that slept is awake again, or leaves its fleet: what its residencies are then.

After a sleep nothing is taken to be as it was: what was ready is asked whether it still is, pauses that ran out in the
sleep do not all end in one moment, and what ends of the sleep costs nobody a restart. A host that leaves gives each
residency up once its process is proved gone, and answers what was open.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.codes import host as codes
from gridops.base.units import render_ms
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.commands import Answer, ended
from gridops_agent.core.events import AwaitListed, BeatSoon, Departed, Effect, Ended, Woke
from gridops_agent.core.generations import touch
from gridops_agent.core.state import Held, Host, drop, put

EXCUSE_MS = 120_000
"""Half: an engine that loses its card when the machine wakes is given up after a few sleeps; twice: a fault of its own
soon after a sleep is forgiven."""
APART_MS = 2_000
"""Between two starts whose pauses ran out while the machine slept."""


def woke(host: Host, event: Woke, now_ms: int) -> Answer:
    """Every residency after a sleep, in order of its command."""
    effects: list[Effect] = [BeatSoon()]
    late = 0
    for body in sorted(host.held):
        held = replace(host.held[body], excused_until_ms=now_ms + EXCUSE_MS)
        if held.retry_at_ms is not None and held.retry_at_ms <= now_ms:
            held = replace(held, retry_at_ms=now_ms + _apart(held, late))
            late += 1
        asked = held.state is ResidencyState.READY and held.handle is not None and not held.offload
        if asked and body not in host.commands:
            detail = f"asked again after the machine slept {render_ms(event.slept_ms)}"
            held = replace(held, state=ResidencyState.WARMING, since_ms=now_ms, detail=detail)
            effects.append(AwaitListed(body))
        host = replace(host, held=put(host.held, body, held))
    return host, tuple(effects)


def _apart(held: Held, late: int) -> int:
    """Within the longest pause that its policy could have ordered: a longer one would look like a clock set back."""
    longest = held.restart.backoff_ms << len(held.recent_ms)
    return min(longest, (late + 1) * APART_MS)


def departed(host: Host, event: Departed, now_ms: int) -> Answer:
    """It is gone for good."""
    held = host.held.get(event.body)
    if held is None:
        return host, ()
    host = touch(replace(host, held=drop(host.held, event.body)), held.warm.devices)
    if event.body in host.commands:
        detail = "this host leaves its fleet"
        return ended(host, Ended(event.body, Outcome.FAILED, codes.INTERRUPTED.code, detail), now_ms)
    return host, (BeatSoon(),)
