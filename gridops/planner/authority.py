"""Who may do what: the one table from (decision, cause) to class and risk, and what each mode demands.

`classify` is asked once per decision while planning. `judge` says which change sets of a finished plan may be carried
out by gridops itself; it never looks at approvals, which people give for the rest. Limits and windows hold back the
change sets that hit them, never the whole plan, and repair is counted first so that it does not wait for other work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.ids import ProfileName
from gridops.model.action import Action, Evict, Load
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan
from gridops.model.policy import ActionClass, ApprovalPolicy, Mode, Risk, RiskNeed, ScopeMode
from gridops.planner.budgets import UNLIMITED, Circumstances, Tally, closed

_REPAIR = (ActionClass.REPAIR, Risk.ROUTINE)
_ROLLOUT = (ActionClass.ROLLOUT, Risk.DISRUPTIVE)
_MOVE_FOR_GAIN = (ActionClass.REBALANCE, Risk.DISRUPTIVE)
_GROW = (ActionClass.SCALE_UP, Risk.ROUTINE)

TABLE: dict[tuple[DecisionKind, CauseKind], tuple[ActionClass, Risk]] = {
    (DecisionKind.PLACE, CauseKind.INTENT): _GROW,
    (DecisionKind.PLACE, CauseKind.DEMAND): _GROW,
    (DecisionKind.PLACE, CauseKind.RENAMED): _GROW,
    (DecisionKind.PLACE, CauseKind.POLICY): _GROW,
    (DecisionKind.PLACE, CauseKind.HOST_LOST): _REPAIR,
    (DecisionKind.PLACE, CauseKind.UNHEALTHY): _REPAIR,
    (DecisionKind.PLACE, CauseKind.FAILED_START): _REPAIR,
    (DecisionKind.PLACE, CauseKind.DRAIN): _REPAIR,
    (DecisionKind.PLACE, CauseKind.DISPLACED): _REPAIR,
    (DecisionKind.PLACE, CauseKind.REBALANCE): _MOVE_FOR_GAIN,
    (DecisionKind.MOVE, CauseKind.HOST_LOST): _REPAIR,
    (DecisionKind.MOVE, CauseKind.UNHEALTHY): _REPAIR,
    (DecisionKind.MOVE, CauseKind.FAILED_START): _REPAIR,
    (DecisionKind.MOVE, CauseKind.DRAIN): (ActionClass.REPAIR, Risk.DISRUPTIVE),
    (DecisionKind.MOVE, CauseKind.INTENT): _ROLLOUT,
    (DecisionKind.MOVE, CauseKind.POLICY): _ROLLOUT,
    (DecisionKind.MOVE, CauseKind.RENAMED): _ROLLOUT,
    (DecisionKind.MOVE, CauseKind.DEMAND): _MOVE_FOR_GAIN,
    (DecisionKind.MOVE, CauseKind.REBALANCE): _MOVE_FOR_GAIN,
    (DecisionKind.MOVE, CauseKind.DISPLACED): _MOVE_FOR_GAIN,
    (DecisionKind.CHANGE, CauseKind.INTENT): _ROLLOUT,
    (DecisionKind.CHANGE, CauseKind.POLICY): _ROLLOUT,
    (DecisionKind.CHANGE, CauseKind.RENAMED): _ROLLOUT,
    (DecisionKind.CHANGE, CauseKind.HOST_LOST): _REPAIR,
    (DecisionKind.CHANGE, CauseKind.UNHEALTHY): _REPAIR,
    (DecisionKind.CHANGE, CauseKind.FAILED_START): _REPAIR,
    (DecisionKind.CHANGE, CauseKind.DRAIN): _REPAIR,
    (DecisionKind.CHANGE, CauseKind.DEMAND): _ROLLOUT,
    (DecisionKind.CHANGE, CauseKind.REBALANCE): _MOVE_FOR_GAIN,
    (DecisionKind.CHANGE, CauseKind.DISPLACED): _MOVE_FOR_GAIN,
    (DecisionKind.REMOVE, CauseKind.INTENT): (ActionClass.SCALE_DOWN, Risk.ROUTINE),
    (DecisionKind.REMOVE, CauseKind.DEMAND): (ActionClass.SCALE_DOWN, Risk.ROUTINE),
    (DecisionKind.REMOVE, CauseKind.POLICY): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
    (DecisionKind.REMOVE, CauseKind.RENAMED): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
    (DecisionKind.REMOVE, CauseKind.HOST_LOST): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
    (DecisionKind.REMOVE, CauseKind.UNHEALTHY): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
    (DecisionKind.REMOVE, CauseKind.FAILED_START): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
    (DecisionKind.REMOVE, CauseKind.DRAIN): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
    (DecisionKind.REMOVE, CauseKind.REBALANCE): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
    (DecisionKind.REMOVE, CauseKind.DISPLACED): (ActionClass.REMOVE, Risk.DESTRUCTIVE),
}
"""Class and risk of each decision by its cause; every pair of enum members that does something has a line (a test)."""


ERRANDS: dict[str, tuple[ActionClass, Risk]] = {
    "prefetch": _GROW,
    "evict": (ActionClass.SCALE_DOWN, Risk.ROUTINE),
}
"""Class and risk of what is done on disks by advice alone. No plan decides it, so no approval of a plan speaks for it:
a mode that allows the class does it, or a person's word for that very step. A fetch ahead of demand begins a scale-up,
and deleting it is the way back."""


def errand(action: Action) -> ActionClass | None:
    """The class of a step that nobody decided and that stands on files alone; None for all others."""
    match action:
        case Load(guess=True):
            return ERRANDS["prefetch"][0]
        case Evict():
            return ERRANDS["evict"][0]
        case _:
            return None


class Traits(NamedTuple):
    """What raises or lowers a decision's place in the table."""

    ends: bool = False
    """A removal without a successor: its profile is no longer declared, or its host no longer ours."""
    last: bool = False
    empty: bool = False
    """It follows from an empty set of hosts or profiles."""
    gentle: bool = False
    """Nothing restarts: served ids, restart policy, drain grace, or a new name."""
    dips: bool = False


PLAIN = Traits()
"""Nothing raises or lowers it."""


def classify(kind: DecisionKind, cause: CauseKind, traits: Traits = PLAIN) -> tuple[ActionClass, Risk]:
    """Class and risk of a decision."""
    if kind is DecisionKind.CANNOT_PLACE:
        return _GROW
    group, risk = TABLE[kind, cause]
    if kind is DecisionKind.REMOVE and (traits.ends or traits.empty):
        return ActionClass.REMOVE, Risk.DESTRUCTIVE
    if traits.empty or (kind is DecisionKind.REMOVE and traits.last):
        return group, Risk.DESTRUCTIVE
    if traits.gentle:
        return group, Risk.ROUTINE
    return group, Risk.DISRUPTIVE if traits.dips and risk is Risk.ROUTINE else risk


def effective_mode(mode: ScopeMode, now_ms: int) -> Mode:
    """The mode in force: `after` holds from `until` on; an end without a successor never loosens anything."""
    if mode.until_ms is None or now_ms < mode.until_ms:
        return mode.mode
    return mode.after if mode.after is not None else stricter(mode.mode, Mode.RECOMMEND)


def stricter(a: Mode, b: Mode) -> Mode:
    return a if a.looseness <= b.looseness else b


@dataclass(frozen=True, slots=True)
class Judgement:
    """Change sets that may be carried out by standing authority, and why each of the others is held."""

    allowed: frozenset[int]
    held: tuple[tuple[int, str, str], ...]
    """(change set, placement code, sentence), in order of change sets."""


def judge(plan: Plan, mode: ScopeMode, now_ms: int, circumstances: Circumstances = UNLIMITED) -> Judgement:
    """What gridops may do by itself now. Everything else waits for people."""
    sets = change_sets(plan.to_do)
    held: dict[int, tuple[Code, str]] = {}
    for number, decisions in sets.items():
        reason = _forbidden(plan, decisions, mode, now_ms) or closed(decisions, circumstances, now_ms)
        if reason is not None:
            held[number] = reason
    # Repair draws on the limits first; then the order of the plan.
    free = [n for n in sets if n not in held]
    tally = Tally(plan, circumstances, now_ms)
    for number in sorted(free, key=lambda n: (not all(d.action_class is ActionClass.REPAIR for d in sets[n]), n)):
        reason = tally.over(sets[number])
        if reason is not None:
            held[number] = reason
    return Judgement(
        allowed=frozenset(n for n in sets if n not in held),
        held=tuple((n, held[n][0].code, held[n][1]) for n in sorted(held)),
    )


def change_sets(decisions: Iterable[Decision]) -> dict[int, tuple[Decision, ...]]:
    """Decisions by change set, in order."""
    found: dict[int, list[Decision]] = {}
    for decision in decisions:
        found.setdefault(decision.change_set, []).append(decision)
    return {n: tuple(found[n]) for n in sorted(found)}


def demand(plan: Plan, keep: frozenset[int], policy: ApprovalPolicy) -> RiskNeed:
    """What people must give for these change sets: the need of the highest risk among them."""
    order = tuple(Risk)
    risks = [d.risk for d in plan.to_do if d.change_set in keep]
    return policy.need(max(risks, key=order.index) if risks else Risk.ROUTINE)


def _forbidden(plan: Plan, decisions: tuple[Decision, ...], mode: ScopeMode, now_ms: int) -> tuple[Code, str] | None:
    """Why standing authority does not reach these decisions at all."""
    current, rules = effective_mode(mode, now_ms), mode.automatic
    if plan.hypothetical:
        return codes.HELD_HYPOTHETICAL, "made without live hosts or a commit"
    if current is not Mode.AUTOMATIC:
        return codes.HELD_MODE, f"mode is {current.value}"
    if plan.intent.empty:
        return codes.HELD_EMPTY_SET, f"no {' and no '.join(plan.intent.empty)} declared in {plan.scope}"
    for decision in decisions:
        if decision.action_class not in rules.allow:
            return codes.HELD_CLASS, f"{decision.replica}: {decision.action_class.value} is not in automatic.allow"
        if decision.last_replica and decision.profile not in rules.last_replica:
            return codes.HELD_LAST_REPLICA, f"{decision.replica} is the last replica of {decision.profile}"
    for profile in displacing(decisions):
        if profile not in rules.allow_displace:
            displaced = next(d for d in decisions if d.cause.kind is CauseKind.DISPLACED)
            return codes.HELD_DISPLACE, f"{profile} would displace {displaced.replica}"
    return None


def displacing(decisions: Iterable[Decision]) -> tuple[ProfileName, ...]:
    """Profiles that one change set loads in place of others, in order: each needs `allow_displace`."""
    together = tuple(decisions)
    if all(d.cause.kind is not CauseKind.DISPLACED for d in together):
        return ()
    loaded = (d.profile for d in together if d.target is not None and d.cause.kind is not CauseKind.DISPLACED)
    return tuple(dict.fromkeys(loaded))
