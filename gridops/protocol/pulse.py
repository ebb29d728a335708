"""Which heartbeats are newer, and is it one agent that speaks? Used by the controller's core.

A heartbeat that is late or comes again is the network's doing and is ignored. Two agents with one key are told by what
no network can make: one number with two contents, a run that goes on beside another, or two runs that both repeat what
was told to each of them. `is_of_now` says whether a heartbeat can be older than this controller, since what was
recorded before it began proves nothing. Nothing here reads a clock; readings arrive as arguments.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base import limits
from gridops.base.codes.protocol import CLONED_HOST
from gridops.base.ids import Digest, HostId
from gridops.base.record import digest_of, record
from gridops.protocol.alarm import Alarm, alarm
from gridops.protocol.messages import Heartbeat, Term


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
class Doubt:
    """A run that was never heard in time: its first word came after newer ones of another run.

    That is an old word that was held back; or an agent that forgot, since its ledger is an old copy; or a second
    agent beside the first. Its words alone cannot tell. So it is told something (`told`): an old word cannot repeat it.
    """

    boot: str
    hseq: int
    heard_ms: int
    """What it repeated at first."""
    beside_ms: int
    """The latest that the current run had repeated then."""
    told_ms: int | None = None
    """The first of our words that was for it."""
    answers: int = 0
    """Heartbeats in which it repeated that, or a later one."""
    went_on: bool = False
    """The current run repeated a still later one: it lives as well."""


@record
class Pulse:
    """What the controller has heard from the holder of one host key. Soft: after a restart it begins anew."""

    host: HostId
    runs: tuple[Run, ...] = ()
    """The current run last; older ones before it, bounded."""
    strays: Strays | None = None
    heard_ms: int = 0
    """The latest of our own words that the host has repeated: what repeats an earlier one is older."""
    doubts: tuple[Doubt, ...] = ()
    """Bounded, the newest last."""


def is_of_now(heartbeat: Heartbeat, term: Term, *, first: bool) -> bool:
    """Whether this was surely said after the controller with this term began.

    Each start of a controller takes a higher term, and a host repeats only a term that it was told. So the first
    heartbeat after a restart proves nothing yet, and the one that follows its answer, half a second later, does.
    `first`: nothing was ever heard of this host before this controller began, so there is nothing old to repeat.
    """
    return heartbeat.term.rank >= term.rank or (first and heartbeat.term.rank == (0, 0))


def beat(pulse: Pulse, heartbeat: Heartbeat, digest: Digest | None = None) -> tuple[Pulse, bool] | Alarm:
    """Judge a verified heartbeat: the new pulse and whether it is news, or the alarm `cloned_host`.

    A new `boot` is a restart. What is late or repeated is the network's fault and ignored: it can keep what one agent
    said, but an agent says each number once and waits for an answer before it says the next. So the same number with
    other contents can only be a second living agent, and so can several out of turn that go on from each other, unless
    the run that is taken for the current one has been silent since: then that one was an old word that came again.
    `digest`: of the heartbeat, where it is known from its bytes.
    """
    digest = digest or digest_of(heartbeat)
    known = next((r for r in pulse.runs if r.boot == heartbeat.boot), None)
    doubt = in_doubt(pulse, heartbeat.boot)
    # Zero claims nothing: the first word of a new or damaged ledger is never taken for an old one.
    late = 0 < heartbeat.heard_ms < pulse.heard_ms
    heard_ms = max(heartbeat.heard_ms, pulse.heard_ms)
    if known is None:
        if doubt is not None or late:
            return _doubted(pulse, heartbeat, doubt)
        run = Run(boot=heartbeat.boot, hseq=heartbeat.hseq).with_(heartbeat.hseq, digest)
        return _current(replace(pulse, runs=(*pulse.runs, run)[-limits.BOOTS_KEPT :], heard_ms=heard_ms)), True
    before = known.said(heartbeat.hseq)
    if before is not None:
        if before == digest:
            return pulse, False
        return alarm(CLONED_HOST, pulse.host, f"two different heartbeats {heartbeat.hseq} of run {known.boot}")
    if known is pulse.runs[-1] and late:
        # It began with a word that claims nothing, and is older than what another run has repeated: no sign of life.
        noted = replace(known.with_(heartbeat.hseq, digest), hseq=known.hseq)
        return replace(pulse, runs=(*pulse.runs[:-1], noted)), False
    runs = tuple(r.with_(heartbeat.hseq, digest) if r is known else r for r in pulse.runs)
    if known is pulse.runs[-1] and heartbeat.hseq > known.hseq:
        return _went_on(replace(pulse, runs=runs, heard_ms=heard_ms), heartbeat)
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
        return _current(replace(pulse, runs=(*others, mine), strays=None, heard_ms=heard_ms)), True
    detail = f"run {heartbeat.boot} goes on with heartbeat {heartbeat.hseq} beside run {current.boot}"
    return alarm(CLONED_HOST, pulse.host, f"{detail} at {current.hseq}")


def in_doubt(pulse: Pulse, boot: str) -> Doubt | None:
    """What is known of a run that is in doubt. It is answered, and told nothing that it could act on."""
    return next((d for d in pulse.doubts if d.boot == boot), None)


def told(pulse: Pulse, boot: str, now_ms: int) -> Pulse:
    """A run in doubt is answered now. Only the first answer counts: what repeats a later one repeats that too."""
    doubt = in_doubt(pulse, boot)
    if doubt is None or doubt.told_ms is not None:
        return pulse
    return _with(pulse, replace(doubt, told_ms=now_ms))


def _doubted(pulse: Pulse, heartbeat: Heartbeat, doubt: Doubt | None) -> tuple[Pulse, bool] | Alarm:
    """It is a living agent once it repeats what was told to it. Beside another that lives it is a second one; alone,
    after so many words, it is the agent of this host, which forgot."""
    if doubt is None:
        begun = Doubt(boot=heartbeat.boot, hseq=heartbeat.hseq, heard_ms=heartbeat.heard_ms, beside_ms=pulse.heard_ms)
        return _with(pulse, begun), False
    if heartbeat.hseq <= doubt.hseq:
        return pulse, False
    answers = doubt.told_ms is not None and heartbeat.heard_ms >= max(doubt.told_ms, doubt.heard_ms + 1)
    now = replace(doubt, hseq=heartbeat.hseq, answers=doubt.answers + answers)
    if now.answers and now.went_on:
        return _both(pulse, now)
    if now.answers < limits.STRAYS_PROVE:
        return _with(pulse, now), False
    run = Run(boot=heartbeat.boot, hseq=heartbeat.hseq).with_(heartbeat.hseq, digest_of(heartbeat))
    runs = (*pulse.runs, run)[-limits.BOOTS_KEPT :]
    rest = tuple(d for d in pulse.doubts if d.boot != heartbeat.boot)
    heard_ms = max(heartbeat.heard_ms, pulse.heard_ms)
    return _current(replace(pulse, runs=runs, doubts=rest, heard_ms=heard_ms)), True


def _went_on(pulse: Pulse, heartbeat: Heartbeat) -> tuple[Pulse, bool] | Alarm:
    """The current run has said something. Who is in doubt and was told something before that is beside a living one."""
    doubts = tuple(
        replace(d, went_on=True) if d.told_ms is not None and heartbeat.heard_ms > max(d.told_ms, d.beside_ms) else d
        for d in pulse.doubts
    )
    proved = next((d for d in doubts if d.answers and d.went_on), None)
    return _both(pulse, proved) if proved is not None else (replace(pulse, doubts=doubts), True)


def _both(pulse: Pulse, doubt: Doubt) -> Alarm:
    words = f"run {doubt.boot} and run {pulse.runs[-1].boot} both answer what was told to each of them"
    return alarm(CLONED_HOST, pulse.host, words)


def _current(pulse: Pulse) -> Pulse:
    """Another run is the current one: whoever is in doubt was compared with the one before, and is asked again."""
    anew = (replace(d, beside_ms=pulse.heard_ms, told_ms=None, answers=0, went_on=False) for d in pulse.doubts)
    return replace(pulse, doubts=tuple(anew))


def _with(pulse: Pulse, doubt: Doubt) -> Pulse:
    others = tuple(d for d in pulse.doubts if d.boot != doubt.boot)
    return replace(pulse, doubts=(*others, doubt)[-limits.BOOTS_KEPT :])
