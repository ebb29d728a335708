"""Freshness and time: is the controller really there, and what time does it say it is?

The agent's core uses `Session`: a directive counts only if it echoes the nonce of the newest heartbeat, and deadlines
are judged in controller time, which is that of the last fresh directive plus monotonic time. The wall clock counts
only before the first one. Time never goes back: what was heard is a floor, durable through `floor_ms`, and only a new
controller epoch (a rotated key) takes it away, because a thief could have pushed it into the future.

What the controller makes of heartbeats is in `pulse`. Nothing here reads a clock; readings arrive as arguments.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base import limits
from gridops.base.codes.protocol import CLOCK_DISAGREES, STALE_SESSION, WRONG_HOST
from gridops.base.codes.trust import WRONG_FLEET
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId
from gridops.base.record import record
from gridops.base.units import render_instant, render_ms
from gridops.protocol.messages import Directive


@record
class Session:
    """One run of an agent as seen by itself. Only `epoch` and `floor_ms` are kept durably, by the caller."""

    fleet: Digest
    host: HostId
    boot: str
    hseq: int = 0
    nonce: str | None = None
    """Of the newest heartbeat, until a directive has echoed it."""
    asked_ms: int = 0
    """Monotonic time of that heartbeat."""
    heard_ms: int | None = None
    """Monotonic time at which the heartbeat was sent that the last fresh directive answered."""
    told_ms: int = 0
    """Controller time in that directive."""
    floor_ms: int = 0
    epoch: int = 0


def begin(fleet: Digest, host: HostId, boot: str, *, floor_ms: int = 0, epoch: int = 0) -> Session:
    """A new run of the agent. `boot` is random; floor and epoch come from the ledger."""
    return Session(fleet=fleet, host=host, boot=boot, floor_ms=floor_ms, epoch=epoch)


def ask(session: Session, nonce: str, mono_ms: int) -> Session:
    """A heartbeat is sent with this nonce and the new `hseq`. Only the newest one can be answered."""
    return replace(session, hseq=session.hseq + 1, nonce=nonce, asked_ms=mono_ms)


def hear(session: Session, directive: Directive, *, epoch: int, wall_ms: int, mono_ms: int) -> Session:
    """Take a verified directive as a sign of life. `epoch` is the controller epoch of the newest root document.

    Raises Refusal and changes nothing: `wrong_fleet`, `wrong_host`, `stale_session`, `clock_disagrees`. Keep `epoch`
    and `floor_ms` of the result durably before acting on its grants.
    """
    if directive.fleet != session.fleet:
        raise Refusal(WRONG_FLEET.code, f"the directive is of fleet {directive.fleet}")
    if directive.host != session.host:
        raise Refusal(WRONG_HOST.code, f"the directive is for {directive.host}, this is {session.host}")
    if session.nonce is None or directive.nonce != session.nonce:
        raise Refusal(STALE_SESSION.code, "the directive does not answer the newest heartbeat")
    if mono_ms - session.asked_ms > limits.STALE_SESSION_MS:
        late = render_ms(mono_ms - session.asked_ms)
        raise Refusal(STALE_SESSION.code, f"the directive came {late} after the heartbeat it answers")
    floor_ms = session.floor_ms if epoch <= session.epoch else 0
    _clock_agrees(directive.now_ms, wall_ms, floor_ms)
    if directive.expires_ms < directive.now_ms + mono_ms - session.asked_ms:
        raise Refusal(STALE_SESSION.code, f"the directive expired at {render_instant(directive.expires_ms)}")
    return replace(
        session,
        nonce=None,
        heard_ms=session.asked_ms,
        told_ms=directive.now_ms,
        floor_ms=max(floor_ms, directive.now_ms),
        epoch=max(epoch, session.epoch),
    )


def is_fresh(session: Session, mono_ms: int) -> bool:
    """A directive answered a heartbeat of at most five minutes ago."""
    return session.heard_ms is not None and mono_ms - session.heard_ms <= limits.STALE_SESSION_MS


def controller_ms(session: Session, *, wall_ms: int, mono_ms: int) -> int:
    """Controller time as far as this host knows: at most late by nothing, so that no deadline is ever extended.

    It counts from the sending of the heartbeat, as if the answer had taken no time.
    """
    if session.heard_ms is None:
        return max(wall_ms, session.floor_ms)
    return max(session.told_ms + mono_ms - session.heard_ms, session.floor_ms)


def steady_ms(last_ms: int, wall_ms: int) -> int:
    """Controller time for the controller itself: its wall clock, but never before what it has said or journalled."""
    return max(last_ms, wall_ms)


def _clock_agrees(told_ms: int, wall_ms: int, floor_ms: int) -> None:
    apart = abs(told_ms - wall_ms)
    if apart > limits.CLOCK_DISAGREE_MS:
        raise Refusal(
            CLOCK_DISAGREES.code,
            f"the controller's clock is {render_ms(apart)} away from this host's",
            evidence=(f"controller: {render_instant(told_ms)}", f"this host:  {render_instant(wall_ms)}"),
            hints=("set both clocks right (NTP), then restart the side that was wrong",),
        )
    if floor_ms - told_ms > limits.ISSUED_AHEAD_MS:
        raise Refusal(
            CLOCK_DISAGREES.code,
            f"the controller's clock is {render_ms(floor_ms - told_ms)} behind what the controller said before",
            evidence=(f"now:    {render_instant(told_ms)}", f"before: {render_instant(floor_ms)}"),
            hints=("set the controller's clock right; a rotated controller key (new epoch) starts time anew",),
        )
