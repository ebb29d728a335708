"""From a plan to what follows: nothing, a proposal for people, or a target that the mode allows by itself.

`fingerprint` decides whether a plan is needed at all, `inputs` what it is made from, `follow` what it leads to. The
planner itself runs in between, in the shell's thread, on values that cannot change. A plan that the independent
checker objects to leads to nothing but an alarm.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.codes.placement import HELD_DISRUPTION, HELD_MOVES, HELD_WINDOW, KEEPS_FAILING
from gridops.base.ids import Digest, HostId, ScopeName, short
from gridops.base.units import render_ms
from gridops.controller.core import rows as r
from gridops.controller.core.apply import lock_of, rejected_by
from gridops.controller.core.attempts import failing, under_way
from gridops.controller.core.budgeting import circumstances
from gridops.controller.core.crowding import crowded
from gridops.controller.core.fold_plans import UNNEEDED
from gridops.controller.core.given_up import given_up
from gridops.controller.core.lessons import learned
from gridops.controller.core.modes import Permitted, desired_now, drains, permitted
from gridops.controller.core.observe import fresh, reckoned, recovering
from gridops.controller.core.rights import Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.silence import unanswered
from gridops.controller.core.soft import Fingerprint, ScopeSoft, Soft
from gridops.controller.core.state import ScopeBook, State
from gridops.controller.core.strays import strays
from gridops.model.fleet import Host
from gridops.model.intent import Desired, Intent
from gridops.model.plan import Plan
from gridops.model.policy import ActionClass
from gridops.model.snapshot import HostState
from gridops.planner.authority import change_sets, judge
from gridops.planner.planner import Inputs
from gridops.planner.restrict import restrict
from gridops.planner.standing import patience_ms
from gridops.protocol.messages import Ability, AuthorityKind
from gridops.trust.approved import approved_decisions

WAIT_STEP_MS = 5_000
"""How often a plan is made again while the last one only waits for time to pass (a cooldown, a residency, a grace)."""
ROOM_STEP_MS = 60_000
"""How often while a replica stands nowhere: room that others give back is a reading, and no reading is a trigger."""
GUESS_STEP_MS = 300_000
"""How often while files lie somewhere that were fetched on a guess: they go after a time, and no event says so."""
TIMED = frozenset({HELD_WINDOW.code, HELD_MOVES.code, HELD_DISRUPTION.code})
"""Holds that end without anybody doing anything, so the question is asked again."""
AUTO_AGAIN_MS = 60_000
"""One automatic attempt per decisions digest and minute: a plan that does not stick must not become a loop."""


def fingerprint(
    state: State, soft: Soft, roster: Roster, scope: ScopeName, standing: Permitted, now_ms: int
) -> Fingerprint:
    """All that may make a plan necessary (ux 3.8): commit, mode, drains, hosts lost, back or changed, the target."""
    assert state.accepted is not None  # asked only once a commit is in force
    book, last = state.scope(scope), soft.scope(scope)
    active = {d.host for d in drains(state) if d.until_ms is None or now_ms < d.until_ms}
    hosts = tuple(_host(soft, roster, h, now_ms) for h in roster.hosts_of(scope))
    rights = Rights(state, scope, standing, soft.chain, now_ms)
    down = given_up(rights, soft, roster)
    report = last.candidate.report if last.candidate is not None else None
    # What keeps failing waits for room on another host, as who stands nowhere does.
    timed = last.timed or (report is not None and any(w.code != KEEPS_FAILING.code for w in report.waiting))
    roomless = report is not None and bool(report.unplaced or report.waiting)
    step_ms = WAIT_STEP_MS if timed else ROOM_STEP_MS if roomless else 0
    if not step_ms and any(soft.hosts[h.id].report.prefetched for h in roster.hosts_of(scope) if h.id in soft.hosts):
        step_ms = GUESS_STEP_MS
    return Fingerprint(
        desired=soft.digest_of(state.accepted.desired),
        drains=tuple(sorted(active)),
        parent=book.target_digest,
        mode=(standing.mode.mode, standing.mode.automatic),
        hosts=hosts,
        measured=_measured(soft, roster, scope),
        written_off=written_off(state),
        given_up=tuple((g.replica, g.was.old) for g in down),
        strays=tuple(change.old for s in strays(rights, soft, roster) for change in s.was),
        failing=failing(rights),
        crowded=crowded(book.proposal.plan, soft, roster) if book.proposal is not None else (),
        applying=lock_of(book, now_ms) is not None,
        waiting=now_ms // step_ms if step_ms else 0,
    )


def _measured(soft: Soft, roster: Roster, scope: ScopeName) -> tuple[tuple[HostId, Digest], ...]:
    """By which measurements footprints are known, in one order."""
    heard = [(h.id, soft.hosts[h.id].report.measured) for h in roster.hosts_of(scope) if h.id in soft.hosts]
    return tuple(sorted((host, one.evidence) for host, measured in heard for one in measured or ()))


def inputs(state: State, soft: Soft, roster: Roster, scope: ScopeName, now_ms: int, version: str) -> Inputs | None:
    """What a plan is made from; None while there is no intent, or hosts that were here may still speak."""
    desired = desired_now(state)
    if desired is None or state.accepted is None or recovering(state, soft, roster, now_ms):
        return None
    intent = soft.intent if soft.intent is not None and soft.intent.commit == state.accepted.commit else _bare(state)
    book = state.scope(scope)
    rights = Rights(state, scope, permitted(state, scope, now_ms), soft.chain, now_ms)
    snapshot = reckoned(state, soft, roster, scope, now_ms)
    return Inputs(
        intent=replace(intent, desired=desired),
        scope=scope,
        fleet=soft.chain.fleet,
        snapshot=snapshot,
        parent=book.target,
        now_ms=now_ms,
        version=version,
        watching_since_ms=soft.started_ms,
        waiting=book.proposal.plan if book.proposal is not None else None,
        written_off=frozenset(written_off(state)),
        given_up=given_up(rights, soft, roster),
        strays=strays(rights, soft, roster),
        learned=learned(state.hosts, [p for p in desired.profiles if p.scope == scope], now_ms),
        prefetched=tuple(p for report in snapshot.hosts for p in report.prefetched or ()),
        under_way=under_way(rights),
        agents_from=soft.chain.agents_from,
    )


def follow(rights: Rights, soft: Soft, roster: Roster, plan: Plan, cause: str) -> tuple[r.Row, ...]:
    """What a fresh plan leads to. Rows, or none when nothing new was decided."""
    book, last = rights.book, soft.scope(rights.scope)
    last.candidate, last.planned_ms, last.held, last.timed = plan, rights.now_ms, (), False
    if plan.to_do and rights.permitted.observes:
        last.quiet += 1
        return ()
    auto = _automatic(rights, soft, roster, plan) if plan.to_do else ()
    if auto:
        return auto
    silent = unanswered(rights, soft, roster, plan)
    if silent and book.proposal is not None:
        last.quiet += 1
        kept = f"plan {short(book.proposal.plan.decisions_digest)} is kept"
        last.held = (*last.held, f"{kept} until these hosts are heard again, or lost: {', '.join(silent)}")
        last.timed = True
        return ()
    if not plan.to_do:
        return _withdrawn(book, rights, _why_nothing(rights, soft, roster), last)
    return _proposed(rights, book, last, plan, cause)


def _automatic(rights: Rights, soft: Soft, roster: Roster, plan: Plan) -> tuple[r.Row, ...]:
    """The target that the mode allows by itself: the plan, restricted to the change sets it may carry out."""
    standing, book, last = rights.permitted, rights.book, soft.scope(rights.scope)
    if not standing.automatic or rights.state.distrust is not None or rights.chain.expired(rights.now_ms):
        return ()
    if not rights.chain.root.standing:
        last.held = ("the trust root permits no standing authority: everything waits for people",)
        return ()
    judgement = judge(plan, standing.mode, rights.now_ms, circumstances(rights, soft, roster))
    allowed = judgement.allowed
    if lock_of(book, rights.now_ms) is not None:
        # While people apply, only repair goes on beside them.
        sets = change_sets(plan.to_do)
        allowed = frozenset(n for n in allowed if all(d.action_class is ActionClass.REPAIR for d in sets[n]))
    last.held = tuple(f"{code}: {detail}" for _, code, detail in judgement.held)
    last.timed = any(code in TIMED for _, code, _ in judgement.held)
    if not allowed:
        return ()
    target = restrict(plan, book.target, allowed)
    tried_ms = last.auto.get(target.decisions_digest)
    if tried_ms is not None and rights.now_ms - tried_ms < AUTO_AGAIN_MS:
        ago = render_ms(rights.now_ms - tried_ms)
        last.held = (*last.held, f"plan {short(target.decisions_digest)} was carried out {ago} ago and did not last")
        last.timed = True
        return ()
    last.auto = {k: at for k, at in last.auto.items() if rights.now_ms - at < AUTO_AGAIN_MS}
    last.auto[target.decisions_digest] = rights.now_ms
    row = r.TargetSet(
        plan=target,
        kind=AuthorityKind.STANDING,
        by="automatic",
        until_ms=rights.now_ms + roster.desired.approvals.execute_within_ms,
        last_replicas=standing.mode.automatic.last_replica,
    )
    closed = _closed(book, rights, "carried out by itself") if _covers(target, book) else ()
    return (row, *closed)


def _proposed(rights: Rights, book: ScopeBook, last: ScopeSoft, plan: Plan, cause: str) -> tuple[r.Row, ...]:
    """A proposal, unless people have this very question before them already, or answered it with no."""
    waits = book.proposal
    if waits is not None and _same_question(waits.plan, plan):
        last.quiet += 1
        return ()
    no = rejected_by(book, rights.chain, plan)
    if no is not None:
        last.quiet += 1
        last.held = (*last.held, f"plan {short(plan.decisions_digest)} was rejected by {no}")
        return _withdrawn(book, rights, "replaced by a plan that was rejected", last) if waits is not None else ()
    replaced = _closed(book, rights, "replaced") if waits is not None else ()
    return (*replaced, r.Proposed(plan=plan, cause=cause))


def _same_question(waits: Plan, plan: Plan) -> bool:
    """An approval of the one is an approval of the other, to hosts too."""
    same = waits.decisions_digest == plan.decisions_digest
    return same and approved_decisions(waits) == approved_decisions(plan)


def _withdrawn(book: ScopeBook, rights: Rights, why: str, last: ScopeSoft) -> tuple[r.Row, ...]:
    if book.proposal is None:
        last.quiet += 1
        return ()
    return _closed(book, rights, why)


def _closed(book: ScopeBook, rights: Rights, why: str) -> tuple[r.Row, ...]:
    if book.proposal is None:
        return ()
    return (r.ProposalClosed(scope=rights.scope, plan=book.proposal.plan.id, why=why),)


def _why_nothing(rights: Rights, soft: Soft, roster: Roster) -> str:
    """A proposal on a host that is lost or full by now is no longer possible, which is another thing than done."""
    waits = rights.book.proposal
    full = crowded(waits.plan, soft, roster) if waits else ()
    if full:
        return f"others took the memory that it counted on: {', '.join(full)}"
    hosts = {s.host for d in waits.plan.to_do for s in (d.source, d.target) if s is not None} if waits else set()
    lost = sorted(host for host in hosts if not fresh(soft, roster, host, rights.now_ms))
    return f"its hosts are silent: {', '.join(lost)}" if lost else UNNEEDED


def _covers(target: Plan, book: ScopeBook) -> bool:
    return book.proposal is not None and book.proposal.plan.decisions_digest == target.decisions_digest


def _host(soft: Soft, roster: Roster, host: Host, now_ms: int) -> tuple[str, str, str, int]:
    """How it stands. The moment in which its time is over is news: nothing else tells that a laptop stays away."""
    beat = roster.desired.planning.heartbeat
    grace_ms = max(beat.recovery_grace_ms, beat.stale_after_ms)
    patience = patience_ms(host, beat.stale_after_ms)

    def over(since_ms: int | None) -> str:
        listened = now_ms - soft.started_ms >= grace_ms
        return ", its time is over" if listened and now_ms - (since_ms or 0) >= patience else ""

    heard = soft.hosts.get(host.id)
    if heard is None:
        return host.id, f"admitted{over(soft.started_ms)}" if roster.admitted(host.id) else "declared", "", 0
    report = heard.report
    asleep = f"{'asleep' if report.goodbye else 'silent'}{over(report.observed_ms)}"
    standing = "heard" if fresh(soft, roster, host.id, now_ms) else asleep
    takes_work = report.state in (HostState.ACCEPTING, HostState.THROTTLED)
    state = report.state.value if takes_work else f"{report.state.value}{over(report.since_ms)}"
    if roster.desired.catalog is not None and not report.can(Ability.CATALOG.value):
        state = f"{state}, knows no catalog"
    if soft.chain.outdated(report.agent_version) is not None:
        state = f"{state}, too old for {soft.chain.agents_from}"
    return host.id, standing, state, report.generation


def written_off(state: State) -> tuple[HostId, ...]:
    """Silent hosts that people have given up."""
    return tuple(sorted(host for host, known in state.hosts.items() if known.written_off_ms is not None))


def _bare(state: State) -> Intent:
    """The accepted intent without positions, until its commit has been read again after a restart."""
    accepted = state.accepted
    desired = accepted.desired if accepted is not None else Desired()
    return Intent(
        desired=desired,
        commit=accepted.commit if accepted is not None else None,
        subject=accepted.subject if accepted is not None else "",
    )


def cause_of(before: Fingerprint | None, after: Fingerprint) -> str:
    """Which trigger made the plan, in a word."""
    if before is None:
        return "start"
    for word, changed in (
        ("intent", before.desired != after.desired),
        ("drain", before.drains != after.drains),
        ("mode", before.mode != after.mode),
        ("target", before.parent != after.parent),
        ("hosts", (before.hosts, before.written_off) != (after.hosts, after.written_off)),
        ("failed", (before.given_up, before.failing) != (after.given_up, after.failing)),
        ("stray", before.strays != after.strays),
        ("room", before.crowded != after.crowded),
        ("apply ended", before.applying and not after.applying),
    ):
        if changed:
            return word
    return "waited"
