"""What limits and windows hold back: one change set at a time, by which budget, how much of it is used, when it opens.

Asked by `authority.judge` for what gridops would do by itself, and by the controller again before a command is given
(`shut`, `Tally.one_more`). Never asked about what people approved: applying a plan is how they say that it shall be
done all the same.
Every limit counts what goes on at once: what an earlier plan set going and has not arrived yet is in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.ids import ReplicaId, replica_key
from gridops.base.units import PPM, counted, render_instant, render_ppm
from gridops.base.windows import UTC, WeeklyTimes, ZoneRules, parse_weekly
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan
from gridops.model.policy import ActionClass, BudgetPolicy, DisruptionBudget, Risk, ScopeBudgets, Window

HOUR_MS = 3_600_000
NAMED = 3
"""Replicas that a line names; of the others it says how many they are."""
TURNS = 32
"""So many ends of windows are followed to find when all of them are open; beyond that nothing is said."""
NEVER = "it never opens by itself: apply the plan, or raise it"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What limits are judged against. The shell fills it in."""

    budgets: ScopeBudgets | None = None
    zones: Mapping[str, ZoneRules] = field(default_factory=dict)
    """Rules of the zones that windows name. A window in any other zone denies, and permits nothing."""
    moved_ms: tuple[int, ...] = ()
    """When replicas were moved lately, one entry a move."""
    moving: tuple[ReplicaId, ...] = ()
    """On their way by an earlier plan, and not for repair."""
    disrupted: tuple[ReplicaId, ...] = ()
    """Wanted, served before, and not yet (or not any more) where the plan in force wants them."""
    under_way: frozenset[ReplicaId] = frozenset()
    """Their load or start where the plan in force wants them has been commanded and has not ended."""


UNLIMITED = Circumstances()

Held = tuple[Code, str]


def closed(decisions: Sequence[Decision], here: Circumstances, now_ms: int) -> Held | None:
    """What holds a change set back now: an attempt that may still succeed, or a window; all classes have to be open."""
    trying = [d.replica for d in decisions if d.cause.kind is CauseKind.FAILED_START and d.replica in here.under_way]
    if trying:
        return codes.HELD_ATTEMPT, f"{_names(trying)}: it is being tried again where it stands"
    if here.budgets is None:
        return None
    classes = tuple(dict.fromkeys(d.action_class for d in decisions))
    found = shut(here.budgets.windows, classes, here.zones, now_ms)
    return None if found is None else (codes.HELD_WINDOW, f"{_names(d.replica for d in decisions)}: {found}")


def shut(
    windows: Sequence[Window], classes: Collection[ActionClass], zones: Mapping[str, ZoneRules], now_ms: int
) -> str | None:
    """Which window denies any of these classes now, and when none does any more; None while all are open."""
    mine = [(n, w) for n, w in enumerate(windows, 1) if set(classes) - set(w.exclude)]
    number, window = next(((n, w) for n, w in mine if _denies(w, zones, now_ms)), (0, None))
    if window is None:
        return None
    wanted = next(c for c in classes if c not in window.exclude)
    line = f"{wanted.value} is closed by windows[{number}] ({window.deny})"
    if _hours(window.deny, zones) is None:
        return f"{line}: its time zone is not known here, so it counts as closed"
    opens_ms = _opens(lambda at: any(_denies(w, zones, at) for _, w in mine), [w.deny for _, w in mine], zones, now_ms)
    return f"{line}, opens {render_instant(opens_ms)}" if opens_ms is not None else f"{line}; {NEVER}"


class Tally:
    """Counts what has been let through, against the limits of moves and disruptions."""

    def __init__(self, plan: Plan, here: Circumstances, now_ms: int) -> None:
        self._budgets, self._zones, self._now_ms = here.budgets, here.zones, now_ms
        self._moving = list(here.moving)
        self._moved_ms = sorted(at for at in here.moved_ms if now_ms - at < HOUR_MS)
        self._disrupted = list(here.disrupted)
        self._wanted = len(plan.placement) + len(plan.report.unplaced)

    def over(self, decisions: Sequence[Decision]) -> Held | None:
        """The limit these decisions would break; None lets them through and counts them."""
        if self._budgets is None:
            return None
        moves = [d.replica for d in decisions if is_move(d)]
        # Who is down or on the way already is counted once, whatever is decided about it now.
        fall = [d for d in decisions if disrupts(d) and d.replica not in self._disrupted]
        reason = self._moves(decisions, moves) or self._disruptions(decisions, fall)
        if reason is not None:
            return reason
        self._moving += [r for r in moves if r not in self._moving]
        self._moved_ms += [self._now_ms] * len(moves)
        self._disrupted += [d.replica for d in fall]
        return None

    def one_more(self, replica: ReplicaId, action_class: ActionClass) -> str | None:
        """Why a replica that serves may not be stopped now, whoever decided it when: nobody may have served then."""
        found = self._exceeded({action_class}, 1) if self._budgets is not None else None
        return None if found is None else f"{replica}: {found[0]}; {found[1]}"

    def _moves(self, decisions: Sequence[Decision], moves: Sequence[ReplicaId]) -> Held | None:
        assert self._budgets is not None
        limits, more, who = self._budgets.moves, len(moves), _names(d.replica for d in decisions)
        if not moves:
            return None
        others = [r for r in self._moving if r not in moves]
        if len(others) + more > limits.per_plan:
            used = (
                f"{len(others)} of {counted(limits.per_plan, 'move')} go on at once{_those(others)}, {more} more wanted"
            )
            opens = NEVER if more > limits.per_plan else "it opens when they have arrived"
            return codes.HELD_MOVES, f"{who}: moves.per_plan: {used}; {opens}"
        excess = len(self._moved_ms) + more - limits.per_hour
        if excess > 0:
            used = (
                f"{len(self._moved_ms)} of {counted(limits.per_hour, 'move')} made within an hour, {more} more wanted"
            )
            opens = NEVER
            if more <= limits.per_hour:
                opens = f"it opens {render_instant(self._moved_ms[excess - 1] + HOUR_MS)}"
            return codes.HELD_MOVES, f"{who}: moves.per_hour: {used}; {opens}"
        return None

    def _disruptions(self, decisions: Sequence[Decision], fall: Sequence[Decision]) -> Held | None:
        found = self._exceeded({d.action_class for d in fall}, len(fall))
        who = _names(d.replica for d in decisions)
        return None if found is None else (codes.HELD_DISRUPTION, f"{who}: {found[0]}; {found[1]}")

    def _exceeded(self, classes: Collection[ActionClass], more: int) -> tuple[str, str] | None:
        """The first budget that so many more would exceed, how much of it is used, and when it opens."""
        assert self._budgets is not None
        for n, budget in enumerate(self._budgets.disruptions, 1):
            most = self.most(budget, self._now_ms)
            if not set(classes) & set(budget.reasons) or len(self._disrupted) + more <= most:
                continue
            used = f"{len(self._disrupted)} of {most} disrupted at once{_those(self._disrupted)}, {more} more wanted"
            return f"{_title(n, budget)}: {used}", self._reopens(budget, more, most)
        return None

    def most(self, budget: DisruptionBudget, at_ms: int) -> int:
        """So many replicas may be disrupted at once. Outside its hours a budget allows one at a time."""
        if budget.during is not None and not _inside(budget.during, self._zones, at_ms):
            return 1
        share = budget.max_ppm * self._wanted // PPM if budget.max_ppm is not None else None
        limits = [v for v in (budget.max_count, share) if v is not None]
        most = min(limits) if limits else 1
        # A share of a small fleet rounds up to one; only an explicit zero means none.
        return most if 0 in (budget.max_count, budget.max_ppm) else max(1, most)

    def _reopens(self, budget: DisruptionBudget, more: int, most: int) -> str:
        hours = _hours(budget.during, self._zones) if budget.during is not None else None
        turn_ms = hours[0].turns(self._now_ms, hours[1]) if hours is not None else None
        later = self.most(budget, turn_ms) if turn_ms is not None else most
        ways = ["when they serve again"] if more <= most else []
        if turn_ms is not None and more <= later and later > most:
            ways.append(f"{render_instant(turn_ms)} for {later}")
        return f"it opens {' or '.join(ways)}" if ways else NEVER


def is_move(decision: Decision) -> bool:
    """What `moves` limits: going elsewhere for anything but repair."""
    return decision.kind is DecisionKind.MOVE and decision.action_class is not ActionClass.REPAIR


def disrupts(decision: Decision) -> bool:
    """A running replica is stopped or restarted for it."""
    return (
        decision.source is not None and decision.risk is not Risk.ROUTINE and decision.kind is not DecisionKind.REMOVE
    )


def _title(n: int, budget: DisruptionBudget) -> str:
    share = render_ppm(budget.max_ppm) if budget.max_ppm is not None else None
    most = " and ".join(str(v) for v in (budget.max_count, share) if v is not None)
    during = f" during {budget.during}" if budget.during is not None else ""
    return f"disruptions[{n}] ({', '.join(r.value for r in budget.reasons)}: max {most}{during})"


def _names(replicas: Iterable[ReplicaId]) -> str:
    found = sorted(set(replicas), key=replica_key)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def _those(replicas: Sequence[ReplicaId]) -> str:
    return f" ({_names(replicas)})" if replicas else ""


def _hours(text: str, zones: Mapping[str, ZoneRules]) -> tuple[WeeklyTimes, ZoneRules] | None:
    """A window with the rules of its zone; None when it cannot be judged here."""
    try:
        times = parse_weekly(text)
    except ValueError:
        return None
    rules = zones.get(times.zone, UTC if times.zone == "UTC" else None)
    return None if rules is None else (times, rules)


def _inside(text: str, zones: Mapping[str, ZoneRules], at_ms: int) -> bool:
    hours = _hours(text, zones)
    return hours is not None and hours[0].holds(at_ms, hours[1])


def _denies(window: Window, zones: Mapping[str, ZoneRules], at_ms: int) -> bool:
    return _hours(window.deny, zones) is None or _inside(window.deny, zones, at_ms)


def _opens(
    shut_at: Callable[[int], bool], texts: Sequence[str], zones: Mapping[str, ZoneRules], now_ms: int
) -> int | None:
    """The first moment at which nothing is shut any more."""
    at_ms = now_ms
    for _ in range(TURNS):
        turns = [h[0].turns(at_ms, h[1]) for text in texts if (h := _hours(text, zones)) is not None]
        ahead = [t for t in turns if t is not None]
        if not ahead:
            return None
        at_ms = min(ahead)
        if not shut_at(at_ms):
            return at_ms
    return None


def zones_named(policy: BudgetPolicy) -> tuple[str, ...]:
    """Time zones of all windows, for whoever brings their rules."""
    found: set[str] = set()
    for scope in policy.scopes:
        texts = [w.deny for w in scope.windows] + [d.during for d in scope.disruptions if d.during is not None]
        for text in texts:
            with contextlib.suppress(ValueError):
                found.add(parse_weekly(text).zone)
    return tuple(sorted(found))
