"""The life of an engine process as its host remembers it: placed, spawned, listed, died, restarted, adopted.

A residency has at most one living process, because a new one is started only after the old one is proved gone. What
cannot be proved stays `failed` with its memory counted, until it is proved or gone. The watch may tell of a residency
that was unloaded while it looked: that is no news.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.codes import devices as device_codes
from gridops.base.codes import host as codes
from gridops.base.ids import Digest
from gridops.model.action import Unload
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core import keepalive, local, yielding
from gridops_agent.core.commands import Answer, ended
from gridops_agent.core.events import (
    AwaitListed,
    BeatSoon,
    Died,
    Effect,
    Ended,
    Found,
    GivenBack,
    Holding,
    Listed,
    Placed,
    Proved,
    Released,
    Resumed,
    RetryDue,
    Spawned,
    StartAgain,
    StartFailed,
    Stopping,
    Stuck,
)
from gridops_agent.core.generations import touch
from gridops_agent.core.state import Held, Host, drop, put, told

_NEWS: tuple[Effect, ...] = (BeatSoon(),)
_AT_REST = (ResidencyState.DRAINING, ResidencyState.FAILED, ResidencyState.OFFLOADED)


def placed(host: Host, event: Placed) -> Host:
    """The port is known before the process, so that a process found by its cookie can be reached."""
    return _set(host, replace(host.held[event.body], port=event.port, handle=None))


def spawned(host: Host, event: Spawned) -> Host:
    """There is a process. What the one before it owed has come back, or this one would not have been started."""
    return _set(host, replace(host.held[event.body], handle=event.handle, owed=()))


def listed(host: Host, event: Listed, now_ms: int) -> Answer:
    """Ready. If this was the warm command's first start, that command has succeeded."""
    held = host.held[event.body]
    # A drain may have begun while it was starting: then it is up, and still not to be used.
    draining = held.state is ResidencyState.DRAINING or held.to_end
    state = ResidencyState.DRAINING if draining else ResidencyState.READY
    host = _set(
        host,
        replace(
            held,
            state=state,
            since_ms=now_ms if held.stood_ms is None or draining else held.stood_ms,
            stood_ms=None,
            handle=event.handle,
            port=event.handle.port,
            applied=True,
            code=None,
            detail=None,
        ),
    )
    if event.body in host.commands:
        return ended(host, Ended(event.body, Outcome.SUCCEEDED), now_ms)
    return host, _NEWS


def died(host: Host, event: Died, now_ms: int) -> Answer:
    """The process is gone. What has been applied is kept alive; what drains, is to end or never came up is not."""
    if event.body not in host.held:
        return host, ()
    held = host.held[event.body]
    closed = held.code == codes.RELEASE_STUCK.code and bool(held.owed)
    if closed or held.code == device_codes.DEVICE_LOST.code:
        # It goes on when its memory or its device is back, not before; what it says stays the reason for that.
        return _set(host, replace(held, handle=None)), _NEWS
    held = replace(held, handle=None, since_ms=now_ms, owed=event.owed or held.owed)
    if held.state is ResidencyState.DRAINING:
        return _set(host, replace(held, detail=told(f"{event.detail} while draining"))), _NEWS
    if event.body in host.commands:
        return start_failed(host, StartFailed(event.body, codes.START_FAILED.code, event.detail), now_ms)
    if held.offload:
        return yielding.offloaded(host, held, now_ms)
    if not held.applied:  # its command was answered as failed; it was kept only because it could not be ended
        return touch(replace(host, held=drop(host.held, event.body)), held.warm.devices), _NEWS
    return _kept_alive(host, held, event.detail, now_ms)


def _kept_alive(host: Host, held: Held, why: str, now_ms: int) -> Answer:
    if held.to_end:  # its unload may have failed: it has ended all the same, as it was told to
        gone = replace(held, state=ResidencyState.DRAINING, code=None, detail=told(f"{why}; it was told to end"))
        return touch(_set(host, gone), held.warm.devices), _NEWS
    verdict = keepalive.after_death(held, now_ms)
    if isinstance(verdict, keepalive.GivenUp):
        failed = replace(
            held,
            state=ResidencyState.FAILED,
            retry_at_ms=None,
            code=codes.START_FAILED.code,
            detail=told(f"{why}; {verdict.why}"),
        )
        return touch(_set(host, failed), held.warm.devices), _NEWS
    waiting = replace(
        held, state=ResidencyState.WARMING, retry_at_ms=verdict, code=None, detail=told(f"{why}; starts again")
    )
    return _set(host, waiting), _NEWS


def start_failed(host: Host, event: StartFailed, now_ms: int) -> Answer:
    """Nothing of this start is left. A first start ends its command; a restart counts and is tried again."""
    held = replace(host.held[event.body], handle=None, since_ms=now_ms)
    if event.body not in host.commands:
        if held.state is ResidencyState.DRAINING:
            return _set(host, held), _NEWS
        if held.offload or (held.applied and yielding.taken_back(event.code)):
            return yielding.offloaded(host, held, now_ms)
        return _kept_alive(host, held, event.detail, now_ms)
    host = touch(replace(host, held=drop(host.held, event.body)), held.warm.devices)
    return ended(host, Ended(event.body, Outcome.FAILED, event.code, event.detail), now_ms)


def stuck(host: Host, event: Stuck, now_ms: int) -> Answer:
    """Alive, and not ours to touch or not to be ended: kept as failed, with its memory counted."""
    held = host.held.get(event.body)
    if held is None or held.code == event.code:
        return host, ()
    # What drains goes on draining: were it failed, its end would look like a death that keep-alive repairs.
    draining = held.state is ResidencyState.DRAINING
    state = ResidencyState.DRAINING if draining else ResidencyState.FAILED
    held = replace(held, state=state, since_ms=now_ms, retry_at_ms=None, code=event.code, detail=told(event.detail))
    host = touch(_set(host, held), held.warm.devices)
    if event.body in host.commands:
        return ended(host, Ended(event.body, Outcome.FAILED, event.code, event.detail), now_ms)
    return host, _NEWS


def stopping(host: Host, event: Stopping) -> Host:
    """What its process holds now is remembered before the first signal, so that no restart of the agent loses it."""
    held = host.held.get(event.body)
    return host if held is None else _set(host, replace(held, owed=event.owed))


def holding(host: Host, event: Holding) -> Host:
    """What a living process was seen to hold. Who is gone holds nothing new: what it owes was said by its death."""
    held = host.held.get(event.body)
    return host if held is None or held.handle is None else _set(host, replace(held, owed=event.owed))


def released(host: Host, event: Released, now_ms: int) -> Answer:
    """Its memory has come back. If that was all that kept it from its next step, the step is taken now."""
    held = host.held.get(event.body)
    if held is None:
        return host, ()
    host = _set(host, replace(held, owed=()))
    if held.code != codes.RELEASE_STUCK.code or held.handle is not None:
        return host, ()
    detail = "its memory has come back"
    open_again = replace(host.held[event.body], code=None, detail=detail, since_ms=now_ms)
    host = touch(_set(host, open_again), held.warm.devices)
    if held.state in (ResidencyState.DRAINING, ResidencyState.OFFLOADED):
        return host, _NEWS
    return died(host, Died(event.body, detail), now_ms)


def proved(host: Host, event: Proved, now_ms: int) -> Answer:
    """A doubt about a living process is resolved: it is ours. It counts as ready once it is listed again."""
    if event.body not in host.held:
        return host, ()
    held = replace(host.held[event.body], since_ms=now_ms, code=None, detail="proved again")
    if held.state is ResidencyState.DRAINING:
        return _set(host, held), _NEWS
    if held.to_end:
        return touch(_set(host, replace(held, state=ResidencyState.DRAINING)), held.warm.devices), _NEWS
    held = replace(held, state=ResidencyState.WARMING)
    return touch(_set(host, held), held.warm.devices), (AwaitListed(event.body), *_NEWS)


def given_back(host: Host, event: GivenBack, now_ms: int) -> Answer:
    """The engine is a person's again: the residency is forgotten, and whoever worked on it hears so."""
    held = host.held.get(event.body)
    if held is None:
        return host, ()
    host = touch(replace(host, held=drop(host.held, event.body)), held.warm.devices)
    if event.body in host.commands:
        return ended(host, Ended(event.body, Outcome.FAILED, codes.GIVEN_BACK.code, "given back at the host"), now_ms)
    return host, _NEWS


def retry_due(host: Host, event: RetryDue, now_ms: int) -> Answer:
    held = host.held.get(event.body)
    if held is None or not keepalive.due(held, now_ms) or not host.verdict.admits:
        return host, ()
    if local.closed(host, held.warm.devices) is not None:
        return host, ()
    return _set(host, keepalive.restarted(held, now_ms)), (StartAgain(event.body),)


def resumed(host: Host, event: Resumed, now_ms: int) -> Answer:
    """The agent is back. Adopt what is proved, keep alive what died, fail what was interrupted; re-run nothing."""
    effects: list[Effect] = []
    for body in sorted(host.held):
        host, more = _resume(host, body, event.found[body], now_ms)
        effects += more
    for body in sorted(host.commands):
        if body not in host.held:
            host, more = _interrupted(host, body, now_ms)
            effects += more
    return host, tuple(effects)


def _resume(host: Host, body: Digest, found: Found, now_ms: int) -> Answer:
    held = host.held[body]
    if not found.gone and found.handle is None:
        return stuck(host, Stuck(body, codes.NOT_OURS.code, found.detail), now_ms)
    if found.handle is not None:
        host = _set(host, replace(held, handle=found.handle, port=found.handle.port))
        if held.code == codes.NOT_OURS.code:
            return proved(host, Proved(body), now_ms)
        return host, ((AwaitListed(body),) if held.state is ResidencyState.WARMING else ())
    if body in host.commands:
        detail = "the agent stopped while the engine was starting, and no process of it is left"
        return start_failed(host, StartFailed(body, codes.INTERRUPTED.code, detail), now_ms)
    at_rest = held.handle is None and held.state in _AT_REST
    if at_rest or held.retry_at_ms is not None:
        return host, ()
    return died(host, Died(body, found.detail or "ended while the agent was away"), now_ms)


def _interrupted(host: Host, body: Digest, now_ms: int) -> Answer:
    """An open command without a process of its own to prove it. An unload whose residency is proved empty succeeded."""
    detail = "the agent stopped before this command had an outcome; it is not run again by itself"
    action = host.commands[body].body.action
    if isinstance(action, Unload) and host.commands[body].began_ms is not None:
        target = host.held.get(action.incarnation)
        doubted = target is not None and target.code == codes.NOT_OURS.code
        empty = target is None or (target.handle is None and target.state is ResidencyState.DRAINING)
        if empty and target is not None and target.owed:
            detail = "its process is gone, and that its memory came back was not seen before the agent stopped"
        elif empty and not doubted:
            return ended(host, Ended(body, Outcome.SUCCEEDED, detail="proved after a restart of the agent"), now_ms)
    return ended(host, Ended(body, Outcome.FAILED, codes.INTERRUPTED.code, detail), now_ms)


def _set(host: Host, held: Held) -> Host:
    return replace(host, held=put(host.held, held.body, held))
