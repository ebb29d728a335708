"""What is permitted in a scope right now: the stricter of everything that speaks.

Asked when planning and again when issuing. The accepted commit speaks, a refused tip speaks where it is tighter, a
freeze speaks without git, a missing mode file and a journal that cannot be trusted mean `recommend` at most. Nothing
here ever loosens: only a valid commit does, by becoming the accepted one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gridops.base.ids import HostId, ScopeName
from gridops.controller.core.state import Freeze, State
from gridops.model.fleet import Drain
from gridops.model.intent import Desired
from gridops.model.policy import Automatic, Mode, ModePolicy, ScopeMode
from gridops.planner.authority import effective_mode


@dataclass(frozen=True, slots=True)
class Permitted:
    """The mode in force. `mode` is resolved: its own `until` has been applied and is gone."""

    mode: ScopeMode
    configured: Mode
    """What the accepted commit says by itself."""
    because: tuple[str, ...] = ()
    """Why it is stricter than configured, for people."""
    freeze: Freeze | None = None

    @property
    def observes(self) -> bool:
        return self.mode.mode is Mode.OBSERVE

    @property
    def automatic(self) -> bool:
        return self.mode.mode is Mode.AUTOMATIC


def permitted(state: State, scope: ScopeName, now_ms: int) -> Permitted:
    """The stricter of the accepted commit, the refused tip, freezes, and what the controller may claim to know."""
    base = _resolved(_committed(state), scope, now_ms)
    mode, because = base, []
    if state.accepted is None:
        mode, because = _bounded(mode, Mode.RECOMMEND), ["no valid commit yet"]
    elif state.accepted.mode_missing:
        last = _resolved(state.last_mode or ModePolicy(), scope, now_ms)
        mode = _bounded(last, Mode.RECOMMEND)
        because.append("policies/mode.yaml is missing or unreadable in the commit in force")
    for tip in (state.refused, state.off_line):
        tighter = _tightened(mode, tip.mode, scope, now_ms) if tip is not None else mode
        if tip is not None and tighter != mode:
            because.append(f"the refused commit {tip.commit[:8]} is stricter")
        mode = tighter
    if state.distrust is not None:
        if mode.mode is Mode.AUTOMATIC:
            because.append(state.distrust)
        mode = _bounded(mode, Mode.RECOMMEND)
    freeze = standing_freeze(state, scope, now_ms)
    if freeze is not None:
        because.append(f"frozen by {freeze.by}: {freeze.reason}")
        mode = replace(_bounded(mode, Mode.OBSERVE), reason=freeze.reason)
    return Permitted(mode, base.mode, tuple(because), freeze)


def standing_freeze(state: State, scope: ScopeName, now_ms: int) -> Freeze | None:
    """The freeze that holds for a scope: its own before the fleet's."""
    for key in (scope, None):
        found = state.freezes.get(key)
        if found is not None and (found.until_ms is None or now_ms < found.until_ms):
            return found
    return None


def overdue(state: State, now_ms: int) -> tuple[ScopeName | None, ...]:
    """Freezes whose end has passed and that nobody resolved: they no longer hold, and stay visible."""
    late = [k for k, f in state.freezes.items() if f.until_ms is not None and now_ms >= f.until_ms]
    return tuple(sorted(late, key=lambda k: k or ""))


def drains(state: State) -> tuple[Drain, ...]:
    """Drains of the accepted commit, and those that a refused tip adds or prolongs; it ends and shortens none."""
    accepted = state.accepted.desired.drains if state.accepted is not None else ()
    known: dict[HostId, Drain] = {d.host: d for d in accepted}
    for drain in state.refused.drains if state.refused is not None else ():
        before = known.get(drain.host)
        if before is None or later(before.until_ms, drain.until_ms) != before.until_ms:
            known[drain.host] = drain
    return tuple(known[h] for h in sorted(known))


def later(one: int | None, other: int | None) -> int | None:
    """The later of two ends; None is no end at all."""
    return None if one is None or other is None else max(one, other)


def desired_now(state: State) -> Desired | None:
    """The accepted intent with everything that tightens it; what plans are made from."""
    if state.accepted is None:
        return None
    desired, wanted = state.accepted.desired, drains(state)
    return desired if wanted == desired.drains else replace(desired, drains=wanted)


def stricter(one: ScopeMode, other: ScopeMode) -> ScopeMode:
    """The lesser of two resolved modes; what both allow, and no more."""
    looser, tighter = sorted((one, other), key=lambda m: m.mode.looseness, reverse=True)
    if tighter.mode is not Mode.AUTOMATIC:
        return replace(tighter, automatic=Automatic())
    a, b = one.automatic, other.automatic
    both = Automatic(
        allow=tuple(c for c in a.allow if c in b.allow),
        allow_displace=tuple(p for p in a.allow_displace if p in b.allow_displace),
        last_replica=tuple(p for p in a.last_replica if p in b.last_replica),
    )
    return replace(looser, automatic=both)


def _committed(state: State) -> ModePolicy:
    return state.accepted.desired.mode if state.accepted is not None else ModePolicy()


def _resolved(policy: ModePolicy, scope: ScopeName, now_ms: int) -> ScopeMode:
    entry = policy.of(scope)
    mode = effective_mode(entry, now_ms)
    ended = entry.until_ms is not None and now_ms >= entry.until_ms
    if ended:
        return replace(entry, mode=mode, until_ms=None, after=None, reason=None)
    return replace(entry, mode=mode, after=None)


def _bounded(mode: ScopeMode, most: Mode) -> ScopeMode:
    if mode.mode.looseness <= most.looseness:
        return mode
    return replace(mode, mode=most)


def _tightened(mode: ScopeMode, tip: ModePolicy | None, scope: ScopeName, now_ms: int) -> ScopeMode:
    if tip is None:
        return _bounded(mode, Mode.RECOMMEND)
    other = _resolved(tip, scope, now_ms)
    if mode.mode.looseness < other.mode.looseness:
        return mode
    if mode.mode is other.mode and mode.mode is not Mode.AUTOMATIC:
        return mode
    return stricter(mode, other)
