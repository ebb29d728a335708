"""The independent checker: re-derives every safety rule on a finished plan, with arithmetic of its own.

It shares no code with the rooms that make plans (a contract of the import linter), so that one mistake has to be made
twice to pass. Called on every plan by the controller before it is shown to anybody, and by every test. `check` returns
notes, each a sentence with its subject; an empty tuple means clean. It never repairs anything.

A seat is *new* when neither the parent nor a living process holds it already with the same command: new seats have to
meet every rule, standing ones only those that running on does not excuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from gridops.base import canon, limits
from gridops.base.codes import placement as codes
from gridops.base.ids import Digest, HostId, ReplicaId
from gridops.base.record import digest_of, to_data
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan, Unplaced
from gridops.model.profile import Downtime
from gridops.model.snapshot import (
    ResidencyState,
)
from gridops.planner.check_bound import bound, numbers, terms, told
from gridops.planner.check_catalog import catalogued
from gridops.planner.check_causes import causes
from gridops.planner.check_decisions import authority, decisions
from gridops.planner.check_gains import displaced
from gridops.planner.check_leaves import leaves
from gridops.planner.check_places import policy
from gridops.planner.check_seats import beside, claims, counts, hosts, memory, price
from gridops.planner.check_sets import change_sets, changes
from gridops.planner.check_view import Given, View

PPM = 1_000_000
VERSION = 1
"""Of the document: what this checker knows how to read."""
SPREAD_SHORT = codes.SPREAD_SHORT.code
SHOWN = (DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE, DecisionKind.REMOVE, DecisionKind.CANNOT_PLACE)


def check(plan: Plan, inputs: Given, *, partial: bool = False) -> tuple[str, ...]:
    """Notes about everything that is wrong with the plan; empty when clean.

    `partial`: the plan carries out only some of the decisions (`restrict`), so that not every wanted replica appears.
    """
    view = View(plan, inputs, partial)
    rules = [_document, bound, _references, terms, hosts, policy, claims, memory, beside, counts, price, catalogued]
    rules += [decisions, changes, change_sets, authority, causes, leaves, _takes_away]
    rules += [] if partial else [displaced, numbers, told, _complete, _promises]
    return tuple(sorted({note for rule in rules for note in rule(view)}))


def _document(view: View) -> Iterator[str]:
    """The document agrees with itself."""
    plan = view.plan
    second = datetime.fromtimestamp(plan.created_ms // 1000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    if plan.id != f"{second}-{plan.decisions_digest.removeprefix('sha256:')[:8]}":
        yield f"plan id {plan.id} does not follow from its second and decisions"
    parent = view.inputs.parent
    if plan.v != VERSION:
        yield f"the plan is a document of version {plan.v}, and only version {VERSION} is known"
    if plan.parent != (digest_of(parent) if parent is not None else None):
        yield "the parent is not the plan it was made from"
    if _done(plan.decisions) != plan.decisions_digest:
        yield "decisions_digest does not name the decisions"
    order = [(_key(a.replica)) for a in plan.placement]
    if order != sorted(set(order)):
        yield "placement is not sorted or holds a replica twice"
    if [d.n for d in plan.decisions] != sorted({d.n for d in plan.decisions}):
        yield "decisions are not numbered in order"
    shown = [(SHOWN.index(d.kind), _key(d.replica)) for d in plan.decisions]
    if shown != sorted(shown):
        yield "decisions are not in the order in which they are shown"
    dry = view.declared or view.inputs.intent.commit is None or view.inputs.intent.dirty
    if dry and not plan.hypothetical:
        yield "a plan without live hosts or without a commit does not say that it is hypothetical"


def _references(view: View) -> Iterator[str]:
    """Everything a replica needs to be started stands in the plan, and nothing that no replica needs."""
    named = {t.profile for t in view.plan.terms}
    for a in view.plan.placement:
        if a.launch not in view.launches:
            yield f"{a.replica} runs a launch that the plan does not hold"
        if a.profile not in named:
            yield f"{a.replica} has no terms"
        if not a.replica.startswith(f"{a.profile}/"):
            yield f"{a.replica} is not a replica of {a.profile}"
    for unused in sorted(set(view.launches) - {a.launch for a in view.plan.placement}):
        yield f"launch {unused} belongs to no replica"


def _takes_away(view: View) -> Iterator[str]:
    """What may not be taken: anything after mass silence; and a serving replica whose profile refuses downtime."""
    taking = [d for d in view.plan.decisions if d.source is not None and d.source != d.target]
    taking += [d for d in view.plan.decisions if d.kind is DecisionKind.CHANGE and d.cost.dip]
    if view.mass_silent:
        for d in taking:
            yield f"{d.kind.value} {d.replica} takes something away although many hosts fell silent at once"
    for d in taking:
        profile = view.profiles.get(d.profile)
        if d.cost.dip and profile is not None and profile.downtime is Downtime.NEVER:
            yield f"{d.replica} would be down, and {d.profile} refuses downtime"
    for d in view.plan.decisions:
        if d.kind is DecisionKind.REMOVE and d.cause.kind is CauseKind.DISPLACED and not _goes_on(view, d):
            yield f"{d.replica} gives way, and no other replica of {d.profile} that serves goes on"


def _goes_on(view: View, decision: Decision) -> bool:
    """Does a replica of the profile that serves now (or that nobody reports about) keep a place, by whatever name?"""
    after = {old.replica for a in view.plan.placement if (old := view.former(a)) is not None} | view.placed.keys()
    serving = {
        r.replica
        for report in view.reports.values()
        for r in report.residencies
        if r.profile == decision.profile and r.state is ResidencyState.READY
    }
    if not view.declared and decision.replica not in serving:
        return True
    before = {a.replica for a in view.before.values() if a.profile == decision.profile}
    return bool(after & (before if view.declared else serving))


def _complete(view: View) -> Iterator[str]:
    """Every wanted replica stands somewhere or is reported once, with one headline and one line per declared host."""
    missing = [u.replica for u in view.plan.report.unplaced]
    if len(missing) != len(set(missing)) or set(missing) & set(view.placed):
        yield "a replica is reported as unplaced twice, or although it stands"
    for u in view.plan.report.unplaced:
        if not u.code.startswith("GO5") or not u.detail:
            yield f"{u.replica} is unplaced without a headline"
        yield from _reasons(view, u, lines=len(missing) * len(view.hosts))
    silence = view.mass_silent
    for profile in view.profiles.values():
        wanted = view.wanted(profile)
        have, short = len(view.of.get(profile.name, ())), view.missing[profile.name]
        most = view.most(profile)
        if have + short < wanted or (have + short > most and not silence):
            asked = str(wanted) if wanted == most else f"{wanted} to {most}"
            yield f"{profile.name} wants {asked} replicas, {have} stand and {short} are reported missing"
    for retired in view.plan.retirements:
        if retired.profile in view.profiles:
            yield f"{retired.profile} is declared and retired at once"
    for d in view.plan.decisions:
        gone = d.kind is DecisionKind.REMOVE and d.profile not in view.profiles
        if gone and d.profile not in {r.profile for r in view.plan.retirements} | set(view.names.values()):
            yield f"{d.profile} is removed without a retirement"


def _reasons(view: View, missing: Unplaced, lines: int) -> Iterator[str]:
    """One line per declared host; in a plan that would have too many `lines`, counts that add up to the hosts."""
    told, counts = [line.host for line in missing.hosts], missing.counts
    if lines <= limits.HOST_LINES:
        if counts is not None or told != sorted(view.hosts):
            yield f"{missing.replica} is unplaced without exactly one line per declared host"
        return
    found = {c.code: c.hosts for c in counts or () if c.hosts > 0 and c.code.startswith("GO5")}
    if sum(found.values()) != len(view.hosts) or len(found) != len(counts or ()):
        yield f"{missing.replica} is unplaced, and its reasons do not add up to {len(view.hosts)} declared hosts"
    if told != [h for h in (missing.nearest,) if h is not None]:
        yield f"{missing.replica} is unplaced with lines of other hosts than the nearest"


def _promises(view: View) -> Iterator[str]:
    """Pins and failure domains are kept, or the report says that they are not."""
    waiting = {line.detail.partition("/")[0] for line in view.plan.report.waiting}
    short = {s.profile for s in view.plan.report.shortfalls if s.code == SPREAD_SHORT}
    silence = view.mass_silent
    for profile in view.profiles.values():
        hosts = {a.seat.host for a in view.of.get(profile.name, ())}
        for pin in profile.placement.pins:
            known = pin in view.hosts and view.hosts[pin].scope == profile.scope
            said = bool(view.missing[profile.name]) or profile.name in waiting or silence
            if known and pin not in hosts and not said:
                yield f"{profile.name} is pinned to {pin}, does not stand there, and nothing says so"
        if profile.spread is not None and hosts and profile.name not in short:
            stands, missed = len(view.of[profile.name]), view.missing[profile.name]
            wanted = min(profile.spread.min, max(view.wanted(profile), min(stands + missed, view.most(profile))))
            if len(_domains(view, hosts, profile.spread.by)) < wanted:
                yield f"{profile.name} stands in too few domains of level {profile.spread.by}, and nothing says so"


def _domains(view: View, hosts: Iterable[HostId], level: str) -> set[str]:
    return {place for name in hosts if (place := view.domain(name, level)) is not None}


def _done(decisions: Sequence[Decision]) -> Digest:
    """The digest of what will be done, written down a second time."""
    rows = []
    for d in decisions:
        if d.kind is DecisionKind.CANNOT_PLACE:
            continue
        source = None if d.source is None else to_data(d.source)
        target = None if d.target is None else to_data(d.target)
        changes = [to_data(c) for c in d.changes]
        rows.append(
            {
                "kind": d.kind.value,
                "replica": d.replica,
                "source": source,
                "target": target,
                "launch": d.launch,
                "changes": changes,
            }
        )
    return canon.digest(sorted(rows, key=lambda row: (str(row["kind"]), str(row["replica"]))))


def _key(replica: ReplicaId) -> tuple[str, int]:
    name, _, number = replica.rpartition("/")
    return name, int(number)
