"""The independent checker: re-derives every safety rule on a finished plan, with arithmetic of its own.

It shares no code with the rooms that make plans (a contract of the import linter), so that one mistake has to be made
twice to pass. Called on every plan by the controller before it is shown to anybody, and by every test. `check` returns
notes, each a sentence with its subject; an empty tuple means clean. It never repairs anything.

A seat is *new* when neither the parent nor a living process holds it already with the same command: new seats have to
meet every rule, standing ones only those that running on does not excuse.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from gridops.base import canon, limits
from gridops.base.codes import placement as codes
from gridops.base.ids import Digest, HostId, ReplicaId
from gridops.base.record import digest_of, to_data
from gridops.model.fleet import HostClass
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan, Terms, Unplaced
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Downtime
from gridops.model.snapshot import (
    ResidencyState,
)
from gridops.planner.check_leaves import leaves
from gridops.planner.check_seats import beside, counts, hosts, memory, policy, price
from gridops.planner.check_view import Given, View

PPM = 1_000_000
SPREAD_SHORT = codes.SPREAD_SHORT.code
SHOWN = (DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE, DecisionKind.REMOVE, DecisionKind.CANNOT_PLACE)


def check(plan: Plan, inputs: Given, *, partial: bool = False) -> tuple[str, ...]:
    """Notes about everything that is wrong with the plan; empty when clean.

    `partial`: the plan carries out only some of the decisions (`restrict`), so that not every wanted replica appears.
    """
    view = View(plan, inputs, partial)
    rules = [_document, _references, hosts, policy, memory, beside, counts, price, leaves, _decisions, _takes_away]
    rules += [] if partial else [_complete, _promises]
    return tuple(sorted({note for rule in rules for note in rule(view)}))


def _document(view: View) -> Iterator[str]:
    """The document agrees with itself."""
    plan = view.plan
    second = datetime.fromtimestamp(plan.created_ms // 1000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    if plan.id != f"{second}-{plan.decisions_digest.removeprefix('sha256:')[:8]}":
        yield f"plan id {plan.id} does not follow from its second and decisions"
    parent = view.inputs.parent
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
    terms = {t.profile for t in view.plan.terms}
    for a in view.plan.placement:
        if a.launch not in view.launches:
            yield f"{a.replica} runs a launch that the plan does not hold"
        if a.profile not in terms:
            yield f"{a.replica} has no terms"
        if not a.replica.startswith(f"{a.profile}/"):
            yield f"{a.replica} is not a replica of {a.profile}"
    for unused in sorted(set(view.launches) - {a.launch for a in view.plan.placement}):
        yield f"launch {unused} belongs to no replica"


def _decisions(view: View) -> Iterator[str]:
    """The decisions are exactly the difference between parent and placement, and say how grave they are."""
    plan = view.plan
    expected = dict(_differences(view))
    listed = {(d.kind, d.replica): (d.source, d.target) for d in plan.decisions}
    for kind, replica in sorted(expected.keys() - listed.keys()):
        yield f"the plan does {kind.value} {replica} and no decision says so"
    for kind, replica in sorted(listed.keys() - expected.keys()):
        yield f"decision {kind.value} {replica} has no difference behind it"
    for key in sorted(expected.keys() & listed.keys()):
        if expected[key] != listed[key]:
            yield f"decision {key[0].value} {key[1]} names other seats than the placement"
    left = {a.profile for a in plan.placement} | {view.names.get(a.profile, a.profile) for a in plan.placement}
    for d in plan.decisions:
        if d.kind is not DecisionKind.REMOVE:
            continue
        last = d.profile not in left and d.cause.kind is not CauseKind.HOST_LOST
        if d.last_replica != last:
            yield f"removing {d.replica} {'does not say that it is' if last else 'says that it is'} the last replica"
        gone = d.profile not in view.profiles and d.profile not in view.names.values()
        if (last or gone) and d.risk is not Risk.DESTRUCTIVE:
            yield f"removing {d.replica} takes something for good and is called {d.risk.value}"
        if gone and d.action_class is not ActionClass.REMOVE:
            yield f"removing {d.replica} of a profile that is gone is called {d.action_class.value}"
    for d in plan.decisions:
        placed = view.placed.get(d.replica)
        if d.target is not None and (placed is None or d.launch != placed.launch):
            yield f"decision {d.kind.value} {d.replica} does not say what will run"


def _differences(view: View) -> Iterator[tuple[tuple[DecisionKind, ReplicaId], tuple[object, object]]]:
    parent = view.inputs.parent
    was = {t.profile: t for t in parent.terms} if parent is not None else {}
    now = {t.profile: t for t in view.plan.terms}
    survives = set()
    placed = {d.replica for d in view.plan.decisions if d.kind is DecisionKind.PLACE}
    for a in view.plan.placement:
        old = view.former(a)
        if old is None:
            yield (DecisionKind.PLACE, a.replica), (None, a.seat)
            continue
        survives.add(old.replica)
        if old.seat.host != a.seat.host or (old.seat != a.seat and old.launch == a.launch):
            yield (DecisionKind.MOVE, a.replica), (old.seat, a.seat)
        elif (
            old.launch != a.launch
            or old.replica != a.replica
            or _acts_otherwise(was.get(old.profile), now.get(a.profile))
        ):
            yield (DecisionKind.CHANGE, a.replica), (old.seat, a.seat)
        elif a.replica in placed:
            # Started again where it stands: only when its host says that nothing of it runs, and could take it.
            names = view.known_as(a)
            mine = [r for r in view.live(a.seat.host) if r.replica in names and r.identity == a.launch]
            if view.beat(a.seat.host) is None and all(r.state is ResidencyState.FAILED for r in mine):
                yield (DecisionKind.PLACE, a.replica), (None, a.seat)
    for replica, old in view.before.items():
        if replica not in survives:
            yield (DecisionKind.REMOVE, replica), (old.seat, None)
    for missing in view.plan.report.unplaced:
        yield (DecisionKind.CANNOT_PLACE, missing.replica), (None, None)


def _acts_otherwise(old: Terms | None, new: Terms | None) -> bool:
    if old is None or new is None:
        return False
    return (old.serves, old.restart, old.timing.drain_ms) != (new.serves, new.restart, new.timing.drain_ms)


def _takes_away(view: View) -> Iterator[str]:
    """What may not be taken: anything after mass silence; and a serving replica whose profile refuses downtime."""
    taking = [d for d in view.plan.decisions if d.source is not None and d.source != d.target]
    taking += [d for d in view.plan.decisions if d.kind is DecisionKind.CHANGE and d.cost.dip]
    if _mass_silence(view):
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


def _mass_silence(view: View) -> bool:
    rule, beat = view.desired.planning.heartbeat.mass_stale, view.desired.planning.heartbeat
    dedicated, silent = 0, []
    drained = {d.host for d in view.desired.drains if d.until_ms is None or d.until_ms > view.inputs.now_ms}
    keys = {k.host for k in view.desired.keys if not k.expunged}
    for host in view.hosts.values():
        if host.host_class is not HostClass.DEDICATED or host.scope != view.plan.scope or host.id in drained:
            continue
        if view.declared or host.id not in keys or host.id in view.inputs.written_off:
            continue
        dedicated += 1
        report = view.reports.get(host.id)
        since = report.observed_ms if report is not None else view.inputs.watching_since_ms
        gone = report is not None and report.goodbye
        if since is not None and not gone and view.clock - since > beat.stale_after_ms:
            silent.append(since)
    silent.sort()
    most = max((bisect_right(silent, first + rule.within_ms) - n for n, first in enumerate(silent)), default=0)
    return most >= rule.at_least and most * PPM >= rule.share_ppm * dedicated


def _complete(view: View) -> Iterator[str]:
    """Every wanted replica stands somewhere or is reported once, with one headline and one line per declared host."""
    missing = [u.replica for u in view.plan.report.unplaced]
    if len(missing) != len(set(missing)) or set(missing) & set(view.placed):
        yield "a replica is reported as unplaced twice, or although it stands"
    for u in view.plan.report.unplaced:
        if not u.code.startswith("GO5") or not u.detail:
            yield f"{u.replica} is unplaced without a headline"
        yield from _reasons(view, u, lines=len(missing) * len(view.hosts))
    silence = _mass_silence(view)
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
    silence = _mass_silence(view)
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
    found = set()
    for name in hosts:
        host = view.hosts.get(name)
        place = name if level == "host" else host.domain(level) if host is not None else None
        if place is not None:
            found.add(str(place))
    return found


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
