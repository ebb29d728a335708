"""Advised steps on disks as documents: what they are for, whether the mode does them, who may let them be done.

Called by `views`. Computed from what the last pass would do, so what is shown is what a signed word would set going.
"""

from __future__ import annotations

from gridops.base.ids import ScopeName
from gridops.controller import documents as d
from gridops.controller.core import errands
from gridops.controller.core.advised import who_may
from gridops.controller.core.modes import permitted
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import State
from gridops.model.action import Action, Evict, Load
from gridops.model.advice import Advice
from gridops.model.intent import Desired
from gridops.planner.authority import errand


def errand_docs(state: State, soft: Soft, desired: Desired, scope: ScopeName, now_ms: int) -> tuple[d.ErrandDoc, ...]:
    """What the newest advice would have done now."""
    own, standing = soft.scope(scope), permitted(state, scope, now_ms)
    advice = own.candidate.report.advice if own.candidate is not None else None
    found = []
    for step in own.errands:
        action, group = step.action, errand(step.action)
        need, people = who_may(soft.chain, desired.approvals, action)
        size, detail = _about(advice or Advice(), action)
        itself = standing.automatic and group in standing.mode.automatic.allow and soft.chain.root.standing
        found.append(
            d.ErrandDoc(
                errand=errands.key_of(action),
                kind=errands.line_of(action),
                host=action.host,
                profile=action.profile,
                size_bytes=size,
                detail=detail,
                by_itself=itself,
                need=need,
                people=tuple(sorted(people)),
                approved_by=errands.people_of(state, scope, action, now_ms),
            )
        )
    return tuple(found)


def _about(advice: Advice, action: Action) -> tuple[int, str]:
    """Its size and what it is for, as the plan says it."""
    if isinstance(action, Evict):
        gone = next((e for e in advice.evict if (e.host, e.files) == (action.host, action.files)), None)
        return (gone.size_bytes, gone.detail) if gone is not None else (0, "")
    if not isinstance(action, Load):
        return 0, ""
    files = {f.sha256 for f in action.artifact.files}
    for one in advice.prefetch:
        if (one.host, one.profile) == (action.host, action.profile) and files.issuperset(one.files):
            return one.size_bytes, one.detail
    return sum(f.size_bytes for f in action.artifact.files), ""
