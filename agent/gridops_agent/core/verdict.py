"""The host's protection of itself: one look at a sample, with what was seen before, to one of six states.

Called by the protection loop once a second. Pure: the same looks give the same verdicts. What it must never do: call
a missing sensor well, let a person's word loosen what safety asks for, or let a worse sample give a looser state.

Each signal has a latch: on once it was bad for its debounce without a break, off once it was well for its recovery
without a break, unchanged by what is neither. So a state lasts at least its recovery, and nothing goes to and fro
faster. A look that could not read the sensor breaks a recovery, since nothing well was seen, and breaks no debounce,
since nothing was seen to end: a sensor that fails now and then hides no danger. The first look has no history: what
is bad then counts at once, or a host that starts anew under its owner's hands would take work for ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from gridops.base import limits
from gridops.base.codes import protection as codes
from gridops.base.units import PPM, render_ms
from gridops.model.policy import ClassProtection
from gridops.model.snapshot import HostState
from gridops_agent.core.protection import Guard, Latch, Level, Override, OverrideKind, Sample, Verdict
from gridops_agent.core.signals import Signal, signals


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that one verdict is made from, but the rules and what was before."""

    sample: Sample
    busy: bool = False
    """Work is in flight; unknown counts as busy."""
    override: Override | None = None
    faults: tuple[str, ...] = ()
    """Coded faults of the agent itself, such as a damaged ledger: unhealthy until it starts anew."""


def judge(guard: Guard, look: Look, rules: ClassProtection) -> tuple[Guard, Verdict]:
    """The next memory and the verdict."""
    at = look.sample.mono_ms
    # While nobody looked, nothing was seen to last: what was under way begins again from here.
    broken = guard.at_ms is not None and not 0 <= at - guard.at_ms <= limits.PROTECTION_GAP_MS
    seen = signals(look.sample, rules)
    latches = {s.name: _latched(guard.latches.get(s.name), s, at, broken) for s in seen}
    on = [s for s in seen if latches[s.name].on]
    wants = any(s.level is Level.PAUSE for s in on) or _says(look, OverrideKind.PAUSE)
    guard = _yielding(Guard(at, MappingProxyType(latches), guard.yielding_since_ms, guard.paused), look, rules, wants)
    return guard, _verdict(guard, look, rules, on)


def _latched(latch: Latch | None, signal: Signal, at: int, broken: bool) -> Latch:
    """The latch of one signal after one more sample."""
    old = latch if latch is not None else Latch()
    unseen = signal.blind and not broken
    bad_since = old.bad_since_ms if unseen else _since(old.bad_since_ms, at, signal.bad, broken)
    well_since = _since(old.well_since_ms, at, signal.well, broken)
    on = old.on
    lasted = bad_since is not None and at - bad_since >= signal.debounce_ms
    if signal.bad and (lasted or (latch is None and not signal.unknown)):
        on = True
    elif well_since is not None and at - well_since >= signal.recovery_ms:
        on = False
    return Latch(on, bad_since, well_since)


def _since(before: int | None, at: int, holds: bool, broken: bool) -> int | None:
    if not holds:
        return None
    return at if before is None or broken else before


def _yielding(guard: Guard, look: Look, rules: ClassProtection, wants: bool) -> Guard:
    """Whoever wants to pause lets what is in flight end first, within the grace."""
    at = look.sample.mono_ms
    if not wants:
        return Guard(at, guard.latches)
    since = guard.yielding_since_ms
    if since is None or since > at:
        since = at
    return Guard(at, guard.latches, since, guard.paused or not look.busy or at - since >= rules.drain_grace_ms)


def _says(look: Look, kind: OverrideKind) -> bool:
    return look.override is not None and look.override.kind is kind


def _verdict(guard: Guard, look: Look, rules: ClassProtection, on: list[Signal]) -> Verdict:
    state = _state(guard, look, on)
    admits = state in (HostState.ACCEPTING, HostState.THROTTLED)
    return Verdict(
        state=state,
        reasons=_reasons(look, on),
        lanes_ppm=min((s.share_ppm for s in on), default=PPM) if admits else 0,
        retry_after_ms=0 if state is HostState.ACCEPTING else rules.retry_after_ms,
        yields=guard.paused,
    )


def _state(guard: Guard, look: Look, on: list[Signal]) -> HostState:
    """The strictest that anybody asks for."""
    if _says(look, OverrideKind.QUARANTINE):
        return HostState.QUARANTINED
    if look.faults or any(s.level is Level.UNHEALTHY for s in on):
        return HostState.UNHEALTHY
    if guard.paused:
        return HostState.PAUSED
    if guard.yielding_since_ms is not None or _says(look, OverrideKind.DRAIN):
        return HostState.DRAINING
    return HostState.THROTTLED if on else HostState.ACCEPTING


def _reasons(look: Look, on: list[Signal]) -> tuple[str, ...]:
    """Coded, the strictest first: a person's word, faults, then what was sensed."""
    said: list[str] = []
    if (override := look.override) is not None:
        left = f", {render_ms(override.left_ms)} left" if override.left_ms is not None else ""
        said.append(f"{codes.LOCAL_OVERRIDE.code}: {override.kind} by a person: {override.reason}{left}")
    said += look.faults
    strictest: dict[str, str] = {}
    for signal in sorted(on, key=lambda s: (-s.level, s.name)):
        strictest.setdefault(signal.code.code, f"{signal.code.code}: {signal.text}")
    return (*said, *strictest.values())[: limits.REASONS_PER_HOST]
