"""Takes in a person's word for one advised step on a host's disk, where no mode does it by itself.

A plan's advice decides nothing and stands in no digest of decisions, so no approval of a plan speaks for it. The
request names the very step that is advised now, so that nobody says yes to other files than were shown. Called by the
planning of the controller, which has verified the signature; `rights` asks `errands` for what was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gridops.base.codes.control import GO416, GO429, GO430
from gridops.base.codes.trust import GO414
from gridops.base.errors import Refusal
from gridops.base.ids import PersonName, ScopeName
from gridops.controller.core import rows as r
from gridops.controller.core.apply import needs
from gridops.controller.core.errands import key_of, line_of
from gridops.controller.core.learned import named
from gridops.controller.core.modes import permitted
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import State
from gridops.model.action import Action
from gridops.model.intent import Desired
from gridops.model.policy import ApprovalPolicy
from gridops.planner.actions import Step
from gridops.planner.authority import ERRANDS
from gridops.trust.operator import OperatorRequest
from gridops.trust.root import RootChain

Said = tuple[r.ErrandApproved, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A signed request, as it was verified, with the envelope that a grant will carry."""

    request: OperatorRequest
    envelope: str


def approve(state: State, soft: Soft, desired: Desired, asked: Asked, now_ms: int) -> Said:
    """The row for a person's word, and the answer. Raises Refusal: not advised now, or not by this person."""
    request = asked.request
    if state.distrust is not None:
        raise Refusal(GO429.code, state.distrust, hints=(GO429.remedy,))
    scope, step = _meant(soft, request)
    standing = permitted(state, scope, now_ms)
    if standing.observes:
        because = standing.mode.reason or "; ".join(standing.because) or "nothing is done"
        raise Refusal(GO416.code, f"scope {scope} is in mode observe: {because}", hints=(GO416.remedy,))
    need, people = who_may(soft.chain, desired.approvals, step.action)
    if request.by not in people:
        who = f"who may: {', '.join(sorted(people)) or 'nobody'}"
        raise Refusal(GO414.code, f"{request.by} may not let that be done", hints=(who,))
    row = r.ErrandApproved(
        scope=scope,
        errand=key_of(step.action),
        what=named(step.action),
        by=request.by,
        envelope=asked.envelope,
        need=need,
        until_ms=now_ms + desired.approvals.execute_within_ms,
    )
    others = {yes.by for yes in state.scope(scope).errands.get(row.errand, ()) if now_ms < yes.until_ms}
    return row, {"scope": scope, "what": row.what, "need": need, "approved_by": sorted({*others, request.by})}


def who_may(chain: RootChain, policy: ApprovalPolicy, action: Action) -> tuple[int, frozenset[PersonName]]:
    """How many people have to say so, and which: as for an approval."""
    return needs(chain, policy, ERRANDS[line_of(action)][1])


def _meant(soft: Soft, request: OperatorRequest) -> tuple[ScopeName, Step]:
    """The step with the name that was signed, if it is advised now."""
    for scope, own in sorted(soft.scopes.items()):
        for step in own.errands:
            if request.errand == key_of(step.action) and request.scope in (None, scope):
                return scope, step
    raise Refusal(GO430.code, "that is not advised now, or of other files", hints=("what is: gridops advice",))
