"""What is learned from what happened: how often something failed or was started again, and what a process acts by.

`fold` asks it while rows are replayed, `reconcile` for whether a refusal counts; it looks at nothing but what it is
given, so that replay leads to the same state. It never decides what to do about it.
"""

from __future__ import annotations

from typing import Any

from gridops.base import canon, limits
from gridops.base.codes.protocol import BRAKE
from gridops.base.ids import Digest
from gridops.controller.core.state import Attempt, HostBook, ScopeBook
from gridops.footprint.need import identity
from gridops.model.action import Action, Load, Operate, Unload, Warm
from gridops.model.plan import DecisionKind, Plan, Terms
from gridops.model.profile import Timing
from gridops.planner.authority import errand
from gridops.protocol.messages import Receipt

RETRIABLE = frozenset({"precondition", "host_state"})
"""Refusals that say `not now`: the world moved between look and act. They count as failures only when repeated."""
RETRIES = 3
BY_TIME = frozenset({BRAKE.code})
"""A host's brake opens by time alone, in ten minutes at most: the wait for it does not grow."""
STEADY_MS = 21_600_000
"""A replica that stood for so long since it was started again begins a new streak: what failed before is forgotten."""


def count_again(book: ScopeBook, before: Plan, plan: Plan, at_ms: int) -> None:
    """Replicas that a plan starts again where the plan before it had them already: their next time waits longer."""
    stood = {a.replica: a.seat for a in before.placement}
    for decision in plan.to_do:
        if decision.kind is not DecisionKind.PLACE or stood.get(decision.replica) != decision.target:
            continue
        last = book.again.get(decision.replica, Attempt())
        streak = last.failures if at_ms - last.last_ms < STEADY_MS else 0
        book.again[decision.replica] = Attempt(streak + 1, at_ms)


def learn_terms(book: HostBook, action: Action, body: Digest) -> None:
    """What an incarnation acts by from now on; only what a host can act by is known.

    What was unloaded is forgotten. One more than a host can hold pushes out the one that was told something longest
    ago: a host holds no more than that, so what goes is one that ended without an unload. Were it another, it would
    merely hear of changed terms at its next start.
    """
    if isinstance(action, Unload):
        book.terms.pop(action.incarnation, None)
    if not isinstance(action, Warm | Operate):
        return
    incarnation = body if isinstance(action, Warm) else action.incarnation
    book.terms.pop(incarnation, None)
    book.terms[incarnation] = Terms(
        profile=action.profile,
        serves=action.serves,
        replicas_min=0,
        priority=0,
        timing=Timing(drain_ms=action.drain_ms),
        restart=action.restart,
    )
    trim(book.terms, limits.RESIDENCIES_PER_HOST)


def kind_of(action: Action) -> str:
    """What a failure of it speaks about: a guess that could not be fetched holds back nothing that is needed."""
    return "prefetch" if isinstance(action, Load) and action.guess else action.kind


def settled_by(action: Action) -> tuple[str, ...]:
    """Kinds of step whose failures say nothing any more once this one succeeded: its own; and for who ended, or was
    started anew, what failed on the way to its end."""
    return (kind_of(action), "drain", "unload") if isinstance(action, Warm | Unload) else (kind_of(action),)


def named(action: Action) -> str:
    """A step in words. Where it is about files alone it names no replica."""
    return f"{kind_of(action)} {action.replica if errand(action) is None else action.profile} on {action.host}"


def tried(action: Action) -> Digest | None:
    """What a step tries, so that other files or another command do not wait for what failed before them."""
    match action:
        case Load():
            return canon.digest(sorted(f.sha256 for f in action.artifact.files))
        case Warm():
            return identity(action.launch)
        case _:
            return None


def failed(before: Attempt, action: Action, receipt: Receipt, at_ms: int) -> Attempt:
    """One failure more in a row, or the first of something else."""
    of = tried(action)
    same = (before.of is None or before.of == of) and receipt.code not in BY_TIME
    return Attempt(before.failures + 1 if same else 1, at_ms, receipt.code, of)


def counts(attempt: Attempt, receipt: Receipt) -> bool:
    """Whether it is a failure of the step, rather than a `not now` that the next look puts right."""
    return receipt.code not in RETRIABLE or attempt.failures >= RETRIES


def trim(mapping: dict[Any, Any], most: int) -> None:
    """Keep what was put in last."""
    while len(mapping) > most:
        del mapping[next(iter(mapping))]
