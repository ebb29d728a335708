"""Whose word sets a target: one apply by people, from the signed request to the row.

`begin` finds the plan and refuses what can be refused without planning; the shell then plans again on what is true
now; `finish` compares decisions, judges approvals against exactly what would be done, and returns the row. Nothing is
changed by a refusal. The CLI calls this through the operator endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.codes.control import GO411, GO412, GO416, GO419, GO422, GO423, GO424, GO428, GO429
from gridops.base.codes.trust import GO421, WRONG_FLEET
from gridops.base.errors import Busy, Refusal
from gridops.base.ids import HostId, PersonName, PlanId, ProfileName, ScopeName, short
from gridops.base.units import counted, render_instant, render_ms
from gridops.controller.core import rows as r
from gridops.controller.core.modes import Permitted, permitted
from gridops.controller.core.progress import LOCK_IDLE_MS
from gridops.controller.core.state import Apply, ScopeBook, State, known_plan
from gridops.model.intent import Desired
from gridops.model.plan import Decision, Plan
from gridops.model.policy import ApprovalPolicy, Risk
from gridops.protocol.messages import AuthorityKind
from gridops.trust.approval import Binding, Verdict, judge
from gridops.trust.approved import tree_of
from gridops.trust.operator import OperatorRequest
from gridops.trust.root import RoleName, RootChain


class Taken(Busy):
    """The lock of a scope is held (GO419, exit 75)."""

    code = GO419.code


@dataclass(frozen=True, slots=True)
class Already:
    """This plan was applied before: nothing to do, and no command sent."""

    apply: Apply


@dataclass(frozen=True, slots=True)
class Question:
    """What shall be put in force: the plan that was reviewed, the same made again now, every approval at hand."""

    reviewed: Plan
    current: Plan
    approvals: tuple[str, ...]
    heard: Mapping[HostId, int | None]
    """The generation of each host that either of them touches, as its newest word says; None for one that is silent."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A target may be set: the row, and what the person should be told."""

    row: r.TargetSet
    notes: tuple[str, ...]


def begin(state: State, request: OperatorRequest, plan: Plan, now_ms: int) -> Already | None:
    """Refuse what needs no planning. Raises Refusal or Busy; `Already` for a plan that is in force."""
    if plan.fleet != request.fleet:
        raise Refusal(
            WRONG_FLEET.code, f"plan {short(plan.decisions_digest)} is of another fleet ({short(plan.fleet)})"
        )
    if request.scope is not None and request.scope != plan.scope:
        raise Refusal(GO424.code, f"plan {plan.id} is of scope {plan.scope}, not {request.scope}")
    if plan.hypothetical:
        raise Refusal(GO423.code, f"plan {plan.id} is hypothetical: it was made without asking any host")
    if state.distrust is not None:
        raise Refusal(GO429.code, state.distrust, hints=(GO429.remedy,))
    _not_observing(permitted(state, plan.scope, now_ms), plan)
    book = state.scope(plan.scope)
    last = book.applies[-1] if book.applies else None
    waits = book.proposal is not None and book.proposal.plan.id == plan.id
    if last is not None and plan.id in last.names and last.outcome in ("done", "failed") and not waits:
        return Already(last)
    _unlocked(book, now_ms)
    return None


def finish(state: State, chain: RootChain, request: OperatorRequest, question: Question, now_ms: int) -> Ready:
    """Judge approvals for what would be done now."""
    reviewed, current = question.reviewed, question.current
    if reviewed.decisions_digest != current.decisions_digest:
        raise _out_of_date(question, state.scope(current.scope).target)
    _not_rejected(state, chain, request, current)
    desired = _desired(state)
    standing = permitted(state, current.scope, now_ms)
    barred = authors(state, desired.approvals, current.scope)
    verdict = approved((chain, desired.approvals, barred), current, question.approvals, now_ms)
    typed = verdict.last_replicas | frozenset(request.last_replicas)
    allowed = frozenset(standing.mode.automatic.last_replica) if standing.automatic else frozenset()
    _names_typed(current, typed | allowed)
    notes = () if _unmoved(reviewed, current) else (_moved_note(question, state.scope(current.scope).target),)
    row = r.TargetSet(
        plan=current,
        kind=AuthorityKind.APPROVAL,
        by=request.by,
        until_ms=now_ms + desired.approvals.execute_within_ms,
        approvals=verdict.texts[: limits.SIGNATURES],
        approvers=verdict.approvers,
        last_replicas=tuple(sorted(typed | allowed)),
        proposal=reviewed.id if reviewed.id != current.id else None,
    )
    return Ready(row, notes)


Electorate = tuple[RootChain, ApprovalPolicy, frozenset[PersonName]]
"""Who may approve: the keys, the rules, and who may not although both say so (`authors`)."""


def approved(who: Electorate, plan: Plan, approvals: Sequence[str], now_ms: int) -> Verdict:
    """Enough people for every risk that the plan contains. An apply by a person needs at least what policy says."""
    chain, policy, barred = who
    tree, waits_ms = tree_of(plan), policy.expire_ms
    binding = Binding(plan.fleet, plan.scope, plan.decisions_digest, plan.reads, barred, tree, waits_ms)
    people: dict[PersonName, str] = {}
    typed: set[ProfileName] = set()
    for risk in sorted({d.risk for d in plan.to_do}, key=lambda x: list(Risk).index(x)) or [Risk.ROUTINE]:
        need, eligible = needs(chain, policy, risk)
        verdict = judge(approvals, chain=chain, binding=binding, need=need, eligible=eligible, now_ms=now_ms)
        people.update(zip(verdict.approvers, verdict.texts, strict=True))
        typed.update(verdict.last_replicas)
    return Verdict(tuple(sorted(people)), frozenset(typed), tuple(people[p] for p in sorted(people)))


def needs(chain: RootChain, policy: ApprovalPolicy, risk: Risk) -> tuple[int, frozenset[PersonName]]:
    """How many approvals a risk needs, and by whom. Without a roster for its roles, any approver of the root.

    As `judge` and every host count them: never fewer than the root wants of approvers, and nobody who holds no
    approver's key, whatever a roster says.
    """
    rule, least = policy.need(risk), max(chain.threshold(RoleName.APPROVER), 1)
    approvers = frozenset(_holders(chain, RoleName.APPROVER))
    if rule.root:
        return max(chain.threshold(RoleName.ROOT), least), approvers & frozenset(_holders(chain, RoleName.ROOT))
    members = frozenset(p for role in rule.roles for p in policy.members(role))
    return max(rule.need, least), approvers & members if members else approvers


def authors(state: State, policy: ApprovalPolicy, scope: ScopeName) -> frozenset[PersonName]:
    """Who may not approve in a scope because they wrote what is asked for: they signed commits since people last
    approved a plan there. What automatic mode did meanwhile ends nothing, since it leaves the rest to people."""
    if policy.author_may_approve:
        return frozenset()
    since_ms = max((a.began_ms for a in state.scope(scope).applies), default=0)
    return frozenset(person for person, at_ms in state.signed.items() if at_ms >= since_ms)


def resume(state: State, request: OperatorRequest, plan: Plan, now_ms: int) -> r.Resumed:
    """Try the failed steps of the newest apply again, under the authority it already has."""
    book = state.scope(plan.scope)
    _not_observing(permitted(state, plan.scope, now_ms), plan)
    last = book.applies[-1] if book.applies else None
    if last is None or plan.id not in last.names:
        raise Refusal(GO428.code, f"plan {plan.id} is not the newest that was applied in scope {plan.scope}")
    if last.outcome is None:
        raise _taken(book, last, now_ms)
    if last.outcome == "done":
        raise Refusal(GO428.code, f"plan {plan.id} was applied and nothing of it failed")
    rights = (*book.warrants.values(), *book.ends.values())
    until_ms = max((w.until_ms for w in rights if w.plan == book.target_digest), default=0)
    if now_ms >= until_ms:
        raise Refusal(
            GO428.code,
            f"the authority of plan {plan.id} ended at {render_instant(until_ms)}"
            if until_ms
            else "another plan is in force",
            hints=("apply a new plan: gridops plans list",),
        )
    return r.Resumed(scope=plan.scope, plan=plan.id, by=request.by)


def find(state: State, wanted: PlanId) -> Plan | None:
    """A plan of the journal by id or by the first digits of its decisions; None when there is none, or several."""
    found = known_plan(state, wanted)
    if len({p.decisions_digest for p in found}) == 1:
        return found[-1]
    return None


def lock_of(book: ScopeBook, now_ms: int) -> Apply | None:
    """Who holds the scope's lock; a dead apply holds nothing."""
    apply = book.under_way
    return apply if apply is not None and now_ms - apply.moved_ms < LOCK_IDLE_MS else None


def _unlocked(book: ScopeBook, now_ms: int) -> None:
    apply = lock_of(book, now_ms)
    if apply is not None:
        raise _taken(book, apply, now_ms)


def _taken(book: ScopeBook, apply: Apply, now_ms: int) -> Taken:
    ago = render_ms(max(now_ms - apply.began_ms, 0))
    return Taken(
        f"locked by {apply.by}, apply {short(apply.plan.decisions_digest)}, {ago} ago",
        hints=("wait for it: gridops status", "if nothing moves it any more: gridops unlock SCOPE --reason TEXT"),
    )


def rejected_by(book: ScopeBook, chain: RootChain, plan: Plan) -> PersonName | None:
    """Whose no stands against these decisions: until that person applies them, or a commit asks for something else.
    The no of somebody who is no approver any more has ended."""
    no = book.rejected.get(plan.decisions_digest)
    return no if no is not None and no in _holders(chain, RoleName.APPROVER) else None


def _not_rejected(state: State, chain: RootChain, request: OperatorRequest, plan: Plan) -> None:
    """An approver's no blocks, whatever others say."""
    no = rejected_by(state.scope(plan.scope), chain, plan)
    if no is None or no == request.by:
        return
    raise Refusal(
        GO421.code,
        f"{no} rejected these decisions",
        subject=no,
        hints=(f"talk to {no}, who alone takes it back: gridops apply {short(plan.decisions_digest)} --as {no}",),
    )


def _not_observing(standing: Permitted, plan: Plan) -> None:
    if not standing.observes:
        return
    freeze = standing.freeze
    if freeze is not None:
        end = f" until {render_instant(freeze.until_ms)}" if freeze.until_ms is not None else ""
        raise Refusal(
            GO416.code, f'scope {plan.scope} is frozen{end} ("{freeze.reason}", by {freeze.by})', hints=(GO416.remedy,)
        )
    reason = f' ("{standing.mode.reason}")' if standing.mode.reason else ""
    raise Refusal(
        GO416.code, f"scope {plan.scope} is in mode observe{reason}", evidence=standing.because, hints=(GO416.remedy,)
    )


def _names_typed(plan: Plan, typed: frozenset[ProfileName]) -> None:
    missing = sorted({d.profile for d in plan.to_do if d.last_replica} - typed)
    if missing:
        raise Refusal(
            GO422.code,
            f"plan {plan.id} removes the last replica of {', '.join(missing)}, and nobody typed its name",
            evidence=tuple(f"{d.replica} is the last replica of {d.profile}" for d in plan.to_do if d.last_replica),
            hints=tuple(f"--confirm {name}" for name in missing),
        )


def _unmoved(reviewed: Plan, current: Plan) -> bool:
    return (reviewed.parent, reviewed.intent.digest, reviewed.reads) == (
        current.parent,
        current.intent.digest,
        current.reads,
    )


def _moved_note(question: Question, in_force: Plan | None) -> str:
    current = question.current
    lines = "; ".join(moved(question, in_force))
    same = counted(len(current.to_do), "decision")
    return f"note[{GO411.code}]: {lines}. Planned again: the same {same}, so it goes on."


def moved(question: Question, in_force: Plan | None) -> tuple[str, ...]:
    """What changed between two plans' inputs, one line each. `in_force` is what the newer one was made against."""
    reviewed, current = question.reviewed, question.current
    lines = []
    if reviewed.intent.digest != current.intent.digest:
        old, new = (p.intent.commit or "-" for p in (reviewed, current))
        lines.append(f'intent {old[:7]} => {new[:7]} "{current.intent.subject}"')
    if reviewed.parent != current.parent:
        lines.append(f"plan in force is now {short(in_force.decisions_digest)}" if in_force else "no plan is in force")
    before, after = ({g.host: g.generation for g in p.reads.hosts} for p in (reviewed, current))
    for host in sorted(before.keys() | after.keys()):
        # Whom the newer decisions leave alone is no part of what they read: what it says now tells why they do.
        then, now = before.get(host), question.heard.get(host)
        if now is None:
            lines.append(f"host {host} is not heard")
        elif then is not None and then != now:
            lines.append(f"host {host} generation {then} => {now}")
    return tuple(lines) or ("neither the intent nor a host that it touches: a reading or the time",)


def _out_of_date(question: Question, in_force: Plan | None) -> Refusal:
    reviewed, current = question.reviewed, question.current
    old = {_done(d) for d in reviewed.decisions}
    new = {_done(d) for d in current.decisions}
    evidence = [f"what moved since {render_instant(reviewed.created_ms)}"]
    evidence += [f"  {line}" for line in moved(question, in_force)]
    evidence.append(f"plan {short(reviewed.decisions_digest)}, as reviewed")
    evidence += [f"  {' ' if _done(d) in new else '*'} {_line(d)}" for d in reviewed.decisions] or ["  no decisions"]
    evidence.append(f"the same question now gives plan {short(current.decisions_digest)}")
    evidence += [f"  {' ' if _done(d) in old else '*'} {_line(d)}" for d in current.decisions] or ["  no decisions"]
    return Refusal(
        GO412.code,
        f"plan {short(reviewed.decisions_digest)} is out of date. Nothing was changed.",
        subject=reviewed.id,
        evidence=tuple(evidence[:60]),
        hints=("review what is true now: gridops plan", "see what waits: gridops plans list"),
    )


def _done(decision: Decision) -> tuple[object, ...]:
    return decision.kind, decision.replica, decision.source, decision.target, decision.changes, decision.launch


def _line(decision: Decision) -> str:
    seats = [f"{s.host} [{','.join(s.devices)}]" for s in (decision.source, decision.target) if s is not None]
    return f"{decision.kind.value} {decision.replica} {' => '.join(seats) or 'nowhere'}"


def _desired(state: State) -> Desired:
    if state.accepted is None:
        raise Refusal(GO424.code, "no commit has been accepted yet, so nothing can be applied")
    return state.accepted.desired


def _holders(chain: RootChain, role: RoleName) -> tuple[PersonName, ...]:
    found = chain.root.role(role)
    return tuple(dict.fromkeys(k.holder for k in found.keys)) if found is not None else ()
