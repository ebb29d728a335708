"""Freshness and time: is the controller really there, what time does it say it is, and is it one agent that speaks?

The agent's core uses `Session`: a directive counts only if it echoes the nonce of the newest heartbeat, and deadlines
are judged in controller time, which is that of the last fresh directive plus monotonic time. The wall clock counts
only before the first one. Time never goes back: what was heard is a floor, durable through `floor_ms`, and only a new
controller epoch (a rotated key) takes it away, because a thief could have pushed it into the future.

The controller's core uses `Pulse`: which heartbeats are newer, and whether two agents share one key; and `is_of_now`:
whether a heartbeat can be older than this controller, since what was recorded before it began proves nothing.
Nothing here reads a clock; readings arrive as arguments.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base import limits
from gridops.base.codes.protocol import CLOCK_DISAGREES, CLONED_HOST, STALE_SESSION, WRONG_HOST
from gridops.base.codes.trust import WRONG_FLEET
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId
from gridops.base.record import digest_of, record
from gridops.base.units import render_instant, render_ms
from gridops.protocol.alarm import Alarm, alarm
from gridops.protocol.messages import Directive, Heartbeat, Term


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
    said, here = render_instant(told_ms), render_instant(wall_ms)
    if apart > limits.CLOCK_DISAGREE_MS:
        raise Refusal(
            CLOCK_DISAGREES.code,
            f"the controller's clock is {render_ms(apart)} away from this host's",
            evidence=(f"controller: {said}", f"this host:  {here}"),
            hints=("set both clocks right (NTP), then restart the side that was wrong",),
        )
    if floor_ms - told_ms > limits.ISSUED_AHEAD_MS:
        raise Refusal(
            CLOCK_DISAGREES.code,
            f"the controller's clock is {render_ms(floor_ms - told_ms)} behind what the controller said before",
            evidence=(f"now:    {said}", f"before: {render_instant(floor_ms)}"),
            hints=("set the controller's clock right; a rotated controller key (new epoch) starts time anew",),
        )


@record
class Run:
    """What was heard of one run of an agent."""

    boot: str
    hseq: int
    """The newest."""
    recent: tuple[tuple[int, Digest], ...] = ()
    """Numbers and digests of its latest heartbeats, by number."""

    def said(self, hseq: int) -> Digest | None:
        """What it said under a number; None when that is not remembered."""
        return next((digest for n, digest in self.recent if n == hseq), None)

    def with_(self, hseq: int, digest: Digest) -> Run:
        """The run with one more heartbeat."""
        recent = tuple(sorted((*self.recent, (hseq, digest))))[-limits.BEATS_KEPT :]
        return Run(boot=self.boot, hseq=max(self.hseq, hseq), recent=recent)


@record
class Strays:
    """Heartbeats out of turn of one run, each numbered one higher than the one before."""

    boot: str
    hseq: int
    beside: int
    """How far the current run was when they began."""
    count: int = 1


@record
class Pulse:
    """What the controller has heard from the holder of one host key. Soft: after a restart it begins anew."""

    host: HostId
    runs: tuple[Run, ...] = ()
    """The current run last; older ones before it, bounded."""
    strays: Strays | None = None
    heard_ms: int = 0
    """The latest of our own words that the host has repeated: what repeats an earlier one is older."""


def is_of_now(heartbeat: Heartbeat, term: Term, *, first: bool) -> bool:
    """Whether this was surely said after the controller with this term began.

    Each start of a controller takes a higher term, and a host repeats only a term that it was told. So the first
    heartbeat after a restart proves nothing yet, and the one that follows its answer, half a second later, does.
    `first`: nothing was ever heard of this host before this controller began, so there is nothing old to repeat.
    """
    return heartbeat.term.rank >= term.rank or (first and heartbeat.term.rank == (0, 0))


def beat(pulse: Pulse, heartbeat: Heartbeat) -> tuple[Pulse, bool] | Alarm:
    """Judge a verified heartbeat: the new pulse and whether it is news, or the alarm `cloned_host`.

    A new `boot` is a restart. What is late or repeated is the network's fault and ignored: it can keep what one agent
    said, but an agent says each number once and waits for an answer before it says the next. So the same number with
    other contents can only be a second living agent, and so can several out of turn that go on from each other, unless
    the run that is taken for the current one has been silent since: then that one was an old word that came again.
    """
    digest = digest_of(heartbeat)
    known = next((r for r in pulse.runs if r.boot == heartbeat.boot), None)
    # Zero claims nothing: the first word of a new or damaged ledger is never taken for an old one.
    late = 0 < heartbeat.heard_ms < pulse.heard_ms
    heard_ms = max(heartbeat.heard_ms, pulse.heard_ms)
    if known is None:
        if late:
            return pulse, False
        run = Run(boot=heartbeat.boot, hseq=heartbeat.hseq).with_(heartbeat.hseq, digest)
        return replace(pulse, runs=(*pulse.runs, run)[-limits.BOOTS_KEPT :], heard_ms=heard_ms), True
    before = known.said(heartbeat.hseq)
    if before is not None:
        if before == digest:
            return pulse, False
        return alarm(CLONED_HOST, pulse.host, f"two different heartbeats {heartbeat.hseq} of run {known.boot}")
    runs = tuple(r.with_(heartbeat.hseq, digest) if r is known else r for r in pulse.runs)
    if known is pulse.runs[-1] and heartbeat.hseq > known.hseq:
        return replace(pulse, runs=runs, heard_ms=heard_ms), not late
    return _out_of_turn(replace(pulse, runs=runs), heartbeat)


def _out_of_turn(pulse: Pulse, heartbeat: Heartbeat) -> tuple[Pulse, bool] | Alarm:
    strays, current = pulse.strays, pulse.runs[-1]
    if strays is not None and (strays.boot, strays.hseq + 1) == (heartbeat.boot, heartbeat.hseq):
        now = replace(strays, hseq=heartbeat.hseq, count=strays.count + 1)
    else:
        now = Strays(boot=heartbeat.boot, hseq=heartbeat.hseq, beside=current.hseq)
    if now.count < limits.STRAYS_PROVE:
        return replace(pulse, strays=now), False
    if now.boot != current.boot and now.beside == current.hseq:
        mine = next(r for r in pulse.runs if r.boot == now.boot)
        others = tuple(r for r in pulse.runs if r is not mine)
        heard_ms = max(heartbeat.heard_ms, pulse.heard_ms)
        return replace(pulse, runs=(*others, mine), strays=None, heard_ms=heard_ms), True
    detail = f"run {heartbeat.boot} goes on with heartbeat {heartbeat.hseq} beside run {current.boot}"
    return alarm(CLONED_HOST, pulse.host, f"{detail} at {current.hseq}")
