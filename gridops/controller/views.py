"""Turns state and soft state into the documents of the read-only endpoints. Decides nothing, changes nothing.

Called by `http`. Everything shown here is computed from the same functions that act, so what a person sees is what
the controller goes by.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops import __version__
from gridops.base.ids import PlanId, ProfileName, ScopeName
from gridops.base.record import to_bytes
from gridops.base.units import render_instant
from gridops.controller import documents as d
from gridops.controller.core import apply as applying
from gridops.controller.core.attempts import under_way
from gridops.controller.core.given_up import given_up
from gridops.controller.core.lessons import learned
from gridops.controller.core.modes import Permitted, overdue, permitted
from gridops.controller.core.observe import reckoned
from gridops.controller.core.progress import LOCK_IDLE_MS, Progress
from gridops.controller.core.propose import written_off
from gridops.controller.core.rights import Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import Apply, ScopeBook, State
from gridops.controller.core.strays import strays
from gridops.controller.errand_docs import errand_docs
from gridops.controller.faults import Fault
from gridops.controller.host_docs import alarm_docs, host_doc
from gridops.controller.models import models
from gridops.model.intent import Desired
from gridops.model.plan import Plan
from gridops.model.policy import Risk
from gridops.planner.render_words import headline
from gridops.trust.approved import tree_of
from gridops.trust.envelope import seal
from gridops.trust.keys import Signer, parse_key

EXITS = {"done": 0, "failed": 6, "superseded": 6, "expired": 6, "unlocked": 6}
STEPS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class View:
    """Everything a document may be made from, at one moment."""

    state: State
    soft: Soft
    now_ms: int
    rows: int
    ready: bool
    progress: dict[PlanId, tuple[Progress, ...]]
    """Of the newest apply of each scope, as the last pass saw it."""
    faults: tuple[tuple[str, Fault], ...] = ()
    """Faults of our own that stand, by what was being done."""
    behind_ms: int = 0
    """By how much this machine's clock is behind controller time, which never goes back."""

    @property
    def roster(self) -> Roster:
        accepted = self.state.accepted
        return self.soft.roster(accepted.desired if accepted is not None else _NOTHING)


_NOTHING = Desired()


def status(view: View) -> d.StatusDoc:
    """What is, per scope and host."""
    scopes = view.roster.desired.scopes if view.state.accepted is not None else tuple(sorted(view.state.scopes))
    return d.StatusDoc(
        time=render_instant(view.now_ms),
        fleet=view.soft.chain.fleet,
        controller=_controller(view),
        intent=_intent(view),
        scopes=tuple(_scope(view, s) for s in sorted({*scopes, *view.state.scopes})),
        hosts=tuple(host_doc(view, h.id) for h in sorted(view.roster.desired.hosts, key=lambda h: h.id)),
        pending=pending(view).pending,
        alarms=alarm_docs(view),
        trust=_trust(view),
    )


def fronts(view: View) -> d.FrontsDoc:
    """The fronts that their own hosts vouch for now. Whether a host is heard, and what it serves, is `status`'s."""
    known = ((host, view.soft.hosts[host].binding) for host in sorted(view.soft.hosts) if view.roster.admitted(host))
    found = tuple(
        d.FrontDoc(host=host, endpoint=b.says.endpoint, binding=b.text, until=render_instant(b.says.not_after_ms))
        for host, b in known
        if b is not None and b.holds(view.now_ms)
    )
    return d.FrontsDoc(time=render_instant(view.now_ms), fleet=view.soft.chain.fleet, fronts=found)


def snapshot(view: View) -> d.SnapshotDoc:
    """What the planner sees, and what it compares with."""
    books = sorted(view.state.scopes.items())
    targets = ((s, b.target) for s, b in books)
    waiting = ((s, b.proposal.plan) for s, b in books if b.proposal is not None)
    return d.SnapshotDoc(
        time=render_instant(view.now_ms),
        fleet=view.soft.chain.fleet,
        watching_since_ms=view.soft.started_ms,
        snapshot=reckoned(view.state, view.soft, view.roster, None, view.now_ms),
        targets=tuple(d.TargetPlanDoc(scope=s, plan=p) for s, p in targets if p is not None),
        proposals=tuple(d.TargetPlanDoc(scope=s, plan=p) for s, p in waiting),
        learned=learned(view.state.hosts, view.roster.desired.profiles, view.now_ms),
        written_off=written_off(view.state),
        circumstances=tuple(_circumstances(view, scope) for scope, book in books if book.target is not None),
    )


def _circumstances(view: View, scope: ScopeName) -> d.CircumstancesDoc:
    rights = Rights(view.state, scope, permitted(view.state, scope, view.now_ms), view.soft.chain, view.now_ms)
    down = given_up(rights, view.soft, view.roster)
    return d.CircumstancesDoc(
        scope=scope,
        given_up=tuple(d.GivenUpDoc(replica=g.replica, cause=g.cause, was=g.was) for g in down),
        strays=tuple(
            d.StrayDoc(replica=s.replica, profile=s.profile, seat=s.seat, cause=s.cause, was=s.was)
            for s in strays(rights, view.soft, view.roster)
        ),
        under_way=tuple(sorted(under_way(rights))),
    )


def plans(view: View) -> d.PlansDoc:
    """The newest plans, newest last."""
    lines = tuple(
        d.PlanLineDoc(
            id=p.id,
            scope=p.scope,
            decisions_digest=p.decisions_digest,
            headline=headline(p),
            created=render_instant(p.created_ms),
            state=_plan_state(view, p),
        )
        for p in view.state.plans.values()
    )
    return d.PlansDoc(plans=lines)


def plan(view: View, found: Plan, signer: Signer) -> d.PlanDoc:
    """One plan, as signed, with what an approval has to bind to now."""
    candidate = view.soft.scope(found.scope).candidate
    same = candidate is not None and candidate.decisions_digest == found.decisions_digest
    reads = candidate.reads if same and candidate is not None else found.reads
    book = view.state.scope(found.scope)
    last = next((a for a in reversed(book.applies) if found.id in a.names), None)
    return d.PlanDoc(
        id=found.id,
        state=_plan_state(view, found),
        plan=found,
        envelope=seal("plan", to_bytes(found), signer),
        binding=d.BindingDoc(
            fleet=found.fleet,
            scope=found.scope,
            decisions_digest=found.decisions_digest,
            reads=reads,
            decisions_tree=tree_of(found),
        ),
        needs=_needs(view, found),
        last_replicas=_last(found),
        apply=_apply(view, last) if last is not None else None,
        approval_ms=view.roster.desired.approvals.expire_ms,
    )


def pending(view: View) -> d.PendingListDoc:
    """Hosts that wait for a commit with their key."""
    found = tuple(
        d.PendingDoc(
            host=host,
            host_key=p.host_key,
            fingerprint=parse_key(p.host_key).key_id,
            since=render_instant(p.at_ms),
            facts=p.facts,
            former=p.former,
        )
        for host, p in sorted(view.state.pending.items())
    )
    return d.PendingListDoc(pending=found)


def _controller(view: View) -> d.ControllerDoc:
    term = view.state.term
    return d.ControllerDoc(
        version=__version__,
        term=f"{term.epoch}.{term.counter}" if term is not None else "",
        started=render_instant(view.soft.started_ms),
        rows=view.rows,
        ready=view.ready,
        trusted=view.state.distrust is None,
        project_error=view.soft.project_error,
    )


def _intent(view: View) -> d.IntentDoc:
    accepted, refused, git = view.state.accepted, view.state.newest_refused, view.soft.git
    return d.IntentDoc(
        branch=git.branch,
        commit=accepted.commit if accepted is not None else None,
        subject=accepted.subject if accepted is not None else "",
        accepted=render_instant(accepted.at_ms) if accepted is not None else None,
        tip=git.tip,
        checked=render_instant(git.checked_ms) if git.checked_ms else None,
        error=git.error,
        refused=None
        if refused is None
        else d.RefusedDoc(
            commit=refused.commit,
            subject=refused.subject,
            problems=refused.problems,
            count=refused.count,
            since=render_instant(refused.at_ms),
        ),
    )


def _trust(view: View) -> d.TrustDoc:
    root, catalog = view.soft.chain.root, view.state.catalog
    return d.TrustDoc(
        root=root.version,
        expires=render_instant(root.expires_ms),
        expired=view.soft.chain.expired(view.now_ms),
        soon=view.soft.chain.ageing(view.now_ms),
        signed_commits=bool(root.signed_commits),
        catalog=catalog.version if catalog is not None else None,
    )


def _scope(view: View, scope: ScopeName) -> d.ScopeDoc:
    book, soft = view.state.scope(scope), view.soft.scope(scope)
    candidate = soft.candidate
    target = book.target
    return d.ScopeDoc(
        scope=scope,
        mode=_mode(permitted(view.state, scope, view.now_ms), view, scope),
        quiet=soft.quiet,
        models=models(view.state, view.soft, view.roster, scope, view.now_ms),
        target=_target(book),
        proposal=_proposal(view, book),
        apply=_apply(view, book.applies[-1]) if book.applies else None,
        lock=_lock(book, view.now_ms),
        held=(*soft.unsafe, *soft.held, *soft.waits)[:STEPS_SHOWN],
        retirements=target.retirements if target is not None else (),
        unplaced=candidate.report.unplaced if candidate is not None else (),
        drift=candidate.to_do[:STEPS_SHOWN] if candidate is not None else (),
        errands=errand_docs(view.state, view.soft, view.roster.desired, scope, view.now_ms),
    )


def _mode(standing: Permitted, view: View, scope: ScopeName) -> d.ModeDoc:
    mode = standing.mode
    freeze = view.state.freezes.get(scope) or view.state.freezes.get(None)
    late = overdue(view.state, view.now_ms)
    return d.ModeDoc(
        effective=mode.mode.value,
        configured=standing.configured.value,
        allow=mode.automatic.allow if standing.automatic else (),
        reason=mode.reason,
        until=render_instant(mode.until_ms) if mode.until_ms is not None else None,
        because=standing.because,
        freeze=None
        if freeze is None
        else d.FreezeDoc(
            by=freeze.by,
            reason=freeze.reason,
            since=render_instant(freeze.at_ms),
            until=render_instant(freeze.until_ms) if freeze.until_ms is not None else None,
            overdue=scope in late or None in late,
        ),
    )


def _target(book: ScopeBook) -> d.TargetDoc | None:
    if book.target is None or book.target_digest is None:
        return None
    return d.TargetDoc(
        id=book.target.id,
        digest=book.target_digest,
        decisions_digest=book.target.decisions_digest,
        since=render_instant(book.target_ms),
        replicas=len(book.target.placement),
    )


def _proposal(view: View, book: ScopeBook) -> d.ProposalDoc | None:
    if book.proposal is None:
        return None
    waits = book.proposal.plan
    return d.ProposalDoc(
        id=waits.id,
        decisions_digest=waits.decisions_digest,
        headline=headline(waits),
        cause=book.proposal.cause,
        since=render_instant(book.proposal.at_ms),
        written=waits.id in view.state.written,
        needs=_needs(view, waits),
        last_replicas=_last(waits),
    )


def _needs(view: View, of: Plan) -> tuple[d.NeedDoc, ...]:
    policy = view.roster.desired.approvals
    barred = applying.authors(view.state, policy, of.scope)
    found = []
    for risk in sorted({x.risk for x in of.to_do}, key=list(Risk).index):
        need, people = applying.needs(view.soft.chain, policy, risk)
        found.append(d.NeedDoc(risk=risk.value, need=need, people=tuple(sorted(people - barred))))
    return tuple(found)


def _last(of: Plan) -> tuple[ProfileName, ...]:
    return tuple(sorted({x.profile for x in of.to_do if x.last_replica}))


def _apply(view: View, of: Apply) -> d.ApplyDoc:
    steps = tuple(_step(line) for line in view.progress.get(of.plan.id, ())[:STEPS_SHOWN])
    return d.ApplyDoc(
        id=of.plan.id,
        proposal=of.proposal,
        by=of.by,
        approved_by=of.approvers,
        began=render_instant(of.began_ms),
        ended=render_instant(of.ended_ms) if of.ended_ms is not None else None,
        outcome=of.outcome,
        exit_code=EXITS.get(of.outcome) if of.outcome is not None else None,
        steps=steps,
    )


def _step(line: Progress) -> d.StepDoc:
    return d.StepDoc(
        n=line.decision.n,
        action=line.decision.kind.value,
        replica=line.decision.replica,
        state=line.state.value,
        phase=line.phase,
        host=line.host,
        code=line.failure.code if line.failure is not None else None,
        detail=line.failure.detail if line.failure is not None else None,
    )


def _lock(book: ScopeBook, now_ms: int) -> d.LockDoc | None:
    held = applying.lock_of(book, now_ms)
    if held is None:
        return None
    return d.LockDoc(
        holder=held.by,
        plan=held.plan.id,
        since=render_instant(held.began_ms),
        expires=render_instant(held.moved_ms + LOCK_IDLE_MS),
    )


def _plan_state(view: View, of: Plan) -> str:
    book = view.state.scope(of.scope)
    if book.target is not None and book.target.id == of.id:
        return "in force"
    if book.proposal is not None and book.proposal.plan.id == of.id:
        return "waits"
    if any(of.id in a.names for a in book.applies):
        return "applied"
    return "rejected" if applying.rejected_by(book, view.soft.chain, of) is not None else "replaced"
