"""Yielding: what a host's verdict about itself does to its residencies. Host protection outranks keep-alive.

While a host is paused, memory is given back: an idle engine is stopped and its residency is `offloaded`, which changes
nothing in the plan. What is planned stays reserved here (`local.planned_bytes`), so nobody is let in on the room that
it comes back to; it comes back by keep-alive once the host takes work again and it still fits. Neither way counts as a
restart. What was begun is ended also after a crash in its middle: the mark is durable before anything is signalled.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.codes import host as codes
from gridops.model.snapshot import ResidencyState
from gridops_agent.core import local
from gridops_agent.core.commands import Answer
from gridops_agent.core.events import Act, BeatSoon, GiveBack, Recall, StartAgain, StateChanged
from gridops_agent.core.generations import host_state
from gridops_agent.core.state import Held, Host, drop, put, told

_LOADED = (ResidencyState.READY, ResidencyState.WARMING)


def state_changed(host: Host, event: StateChanged) -> Answer:
    """The host's word about itself; the controller hears of another state at once."""
    news = (BeatSoon(),) if event.verdict.state is not host.state else ()
    return host_state(host, event.verdict), news


def gives_back(host: Host, held: Held) -> bool:
    """Whether the memory of a residency is to be given back now, once it is idle."""
    if held.handle is None or not held.applied or held.state not in _LOADED:
        return False
    return held.offload or host.verdict.yields


def give_back(host: Host, event: GiveBack) -> Answer:
    """It was seen idle: from now on it takes nothing new, and its engine is stopped whatever happens in between."""
    held = host.held.get(event.body)
    if held is None or not gives_back(host, held):
        return host, ()
    if held.offload:
        return host, (Act(event.body),)
    why = host.reasons[0] if host.reasons else f"this host is {host.state}"
    stood = held.since_ms if held.state is ResidencyState.READY else held.stood_ms
    held = replace(held, offload=True, stood_ms=stood, detail=told(f"gives its memory back: {why}"))
    return _set(host, held), (Act(event.body), BeatSoon())


def offloaded(host: Host, held: Held, now_ms: int) -> Answer:
    """Its process is gone, by the word of this host. Its restarts are what they were."""
    held = replace(
        held,
        state=ResidencyState.OFFLOADED,
        since_ms=now_ms,
        handle=None,
        retry_at_ms=None,
        offload=False,
        code=None,
        detail="its memory is given back while this host protects itself",
    )
    return _set(host, held), (BeatSoon(),)


def recall(host: Host, event: Recall, now_ms: int) -> Answer:
    """The host takes work again: load it, if there is still room for it."""
    held = host.held.get(event.body)
    if held is None or held.state is not ResidencyState.OFFLOADED or not host.verdict.admits or not host.measured:
        return host, ()
    shut = local.closed(host, held.warm.devices)
    no = (codes.RELEASE_STUCK.code, shut[1]) if shut is not None else None
    no = no or local.room(replace(host, held=drop(host.held, held.body)), held.warm)
    if no is not None:
        # Said once: the numbers change all the time, and each word is a write to the ledger.
        known = held.code == no[0]
        return (host, ()) if known else (_set(host, replace(held, code=no[0], detail=told(no[1]))), (BeatSoon(),))
    held = replace(
        held,
        state=ResidencyState.WARMING,
        since_ms=now_ms,
        code=None,
        detail="comes back: this host takes work again",
    )
    return _set(host, held), (StartAgain(event.body), BeatSoon())


def taken_back(code: str) -> bool:
    """Whether a start failed only because the host takes no work now."""
    return code == codes.HOST_STATE.code


def _set(host: Host, held: Held) -> Host:
    return replace(host, held=put(host.held, held.body, held))
