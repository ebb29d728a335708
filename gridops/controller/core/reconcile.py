"""Which commands to give now: the difference between target and snapshot, within limits.

One pass over one scope. Steps are computed anew each time; those already under way are left alone, those that nobody
wants any more and no host has decided are voided, and the rest is queued in order until a limit is reached. A limit
delays a step, it never drops one. Returns rows; the bodies exist once the rows are durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId, Digest, HostId, ProfileName
from gridops.base.units import counted
from gridops.controller.core import rows as r
from gridops.controller.core.catalogs import in_the_way, made_under
from gridops.controller.core.disrupted import Service
from gridops.controller.core.evidence import proven, steps_of
from gridops.controller.core.going import Going, artifact
from gridops.controller.core.learned import RETRIABLE, RETRIES, kind_of, named, tried
from gridops.controller.core.observe import fresh, seen, unseen_success
from gridops.controller.core.parted import parted
from gridops.controller.core.precedence import Queue, queue_of
from gridops.controller.core.rights import No, Rights, may_issue, mends, not_the_last, still_right
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import profile_of
from gridops.controller.core.uncertain import in_doubt
from gridops.model.action import Action, DeviceGeneration, Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.plan import Plan
from gridops.model.policy import ActionLimits
from gridops.model.snapshot import HostReport, Snapshot
from gridops.planner.actions import Step
from gridops.planner.authority import errand
from gridops.protocol import outbox as ob
from gridops.protocol.messages import GrantMode
from gridops.protocol.outbox import Cause, Outbox

UNWANTED = "the target does not want it any more"
GIVES_WAY = "files that are needed there come first"
PATIENCE_MS = 120_000
"""How long a success is believed that the host's reports do not show. Then the report alone counts again."""


@dataclass
class Pass:
    """One pass: what it reads, and the outboxes as they grow."""

    rights: Rights
    soft: Soft
    roster: Roster
    target: Plan
    snapshot: Snapshot
    limits: ActionLimits
    outboxes: dict[HostId, Outbox]
    steps: tuple[Step, ...]
    """All that remains to be done, in order."""
    rows: list[r.Row] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    queued: int = 0
    keys: dict[int, str] = field(default_factory=dict)
    """By the id of a step's action: what tells it from other wishes (`outbox.action_key`), worked out once."""

    def key(self, action: Action) -> str:
        known = self.keys.get(id(action))
        return known if known is not None else self.keys.setdefault(id(action), ob.action_key(action))

    @cached_property
    def going(self) -> Going:
        """What is under way; first asked when what is not wanted any more has been taken back."""
        made = Going(self.rights.scope, lambda host: fresh(self.soft, self.roster, host, self.rights.now_ms))
        for host, outbox in self.outboxes.items():
            made.add(host, ob.open_entries(outbox))
        for host, book in sorted(self.rights.state.hosts.items()):
            made.keep(host, book.uncertain.values())
        return made

    @cached_property
    def wished(self) -> frozenset[str]:
        return frozenset(self.key(step.action) for step in self.steps)

    @cached_property
    def queue(self) -> Queue:
        """Who might give a turn up, as it was when the pass began to queue."""
        own = (
            (host, entry)
            for host, outbox in self.outboxes.items()
            for entry in ob.open_entries(outbox)
            if entry.body.scope == self.rights.scope and fresh(self.soft, self.roster, host, self.rights.now_ms)
        )
        return queue_of(self.target, own)

    @cached_property
    def service(self) -> Service:
        return Service(self.rights, self.soft, self.roster)

    @cached_property
    def proven(self) -> frozenset[str]:
        """Ends that rest on what will hold a while longer; mostly nobody asks."""
        return proven(self.rights, self.soft, self.roster)

    @cached_property
    def ending(self) -> dict[ProfileName, list[tuple[Drain | Unload, ob.Entry]]]:
        """Destructive commands that were under way when the pass began to queue, by what their profile is called."""
        found: dict[ProfileName, list[tuple[Drain | Unload, ob.Entry]]] = {}
        for host, outbox in self.outboxes.items():
            for entry in ob.open_entries(outbox):
                if isinstance(action := entry.body.action, Drain | Unload) and not parted(self.rights.state, host):
                    found.setdefault(profile_of(self.rights.now_called(action.replica)), []).append((action, entry))
        return found

    def report(self, host: HostId) -> HostReport | None:
        return self.soft.report(host)


@dataclass(frozen=True)
class Outcome:
    """What a pass came to. `steps` are all that remain to be done, queued or not."""

    rows: tuple[r.Row, ...]
    held: tuple[str, ...]
    steps: tuple[Step, ...]
    queued: int

    @cached_property
    def hosts(self) -> frozenset[HostId]:
        """Where something remains to be done: asked at every heartbeat."""
        return frozenset(step.action.host for step in self.steps)


def reconcile(rights: Rights, soft: Soft, roster: Roster) -> Outcome:
    """Commands that bring the scope nearer to its target. Nothing without a target, a fresh host and a warrant."""
    book = rights.book
    own = soft.scope(rights.scope)
    own.errands = ()
    if book.target is None or book.target_digest is None:
        return Outcome((), (), (), 0)
    snapshot = seen(soft, roster, rights.scope, rights.now_ms)
    found = steps_of(rights, soft, snapshot)
    own.errands = tuple(step for step in found if errand(step.action) is not None)
    # Repair first; among both the order of turns.
    steps = tuple(sorted(found, key=lambda s: not mends(rights, s.action)))
    turn = Pass(
        rights=rights,
        soft=soft,
        roster=roster,
        target=book.target,
        snapshot=snapshot,
        limits=roster.desired.budgets.of(rights.scope).actions,
        outboxes={host: held.outbox for host, held in sorted(rights.state.hosts.items())},
        steps=steps,
    )
    _take_back(turn)
    _ = turn.queue  # before anything is queued in this pass
    for step in steps:
        _consider(turn, step)
    return Outcome(tuple(turn.rows), tuple(dict.fromkeys(turn.held)), steps, turn.queued)


def _take_back(turn: Pass) -> None:
    """Void what no host has decided and nobody wants or permits any more; stop transfers that have no purpose.

    A destructive command that became unsafe takes all of its profile with it (A-334): what made it unsafe may not be
    seen yet for the others.
    """
    wanted = {turn.key(s.action) for s in turn.steps if s.waits_for is None or not _destructive(s)}
    needed = {s.action.host for s in turn.steps if isinstance(s.action, Load) and not s.action.guess}
    meant = {(a.seat.host, a.replica) for a in turn.target.placement}
    unsafe: set[ProfileName] = set()
    found: list[tuple[HostId, ob.Entry, str]] = []
    for host, entry in _undecided(turn):
        if entry.delivered:
            action = entry.body.action
            if isinstance(action, Load) and action.guess:
                if host in needed or entry.key not in wanted:
                    found.append((host, entry, GIVES_WAY if host in needed else UNWANTED))
            elif isinstance(action, Load) and (host, action.replica) not in meant:
                found.append((host, entry, UNWANTED))
            continue
        no = still_right(turn.rights, entry, turn.report(host))
        answers = fresh(turn.soft, turn.roster, host, turn.rights.now_ms)
        aimless = entry.key not in wanted and (answers or parted(turn.rights.state, host))
        if no is None and not aimless:
            continue
        found.append((host, entry, no.detail if no is not None else UNWANTED))
        if isinstance(entry.body.action, Drain | Unload):
            unsafe.add(profile_of(turn.rights.now_called(entry.body.action.replica)))
    taken = {(host, entry.body.seq) for host, entry, _ in found}
    for host, entry in _undecided(turn):
        action = entry.body.action
        batch = isinstance(action, Drain | Unload) and profile_of(turn.rights.now_called(action.replica)) in unsafe
        if batch and not entry.delivered and (host, entry.body.seq) not in taken:
            found.append((host, entry, f"another destructive command of {action.profile} became unsafe"))
    for host, entry, why in found:
        _void(turn, host, entry.body.seq, why)


def _undecided(turn: Pass) -> list[tuple[HostId, ob.Entry]]:
    """Open commands of the scope that are not being voided already."""
    return [
        (host, entry)
        for host, outbox in turn.outboxes.items()
        for entry in ob.open_entries(outbox)
        if entry.body.scope == turn.rights.scope and entry.wanted is GrantMode.EXECUTE
    ]


def _void(turn: Pass, host: HostId, seq: int, why: str) -> None:
    turn.outboxes[host] = ob.void(turn.outboxes[host], seq)
    turn.rows.append(r.BodyVoided(host=host, seq=seq, why=why[:500]))


def _consider(turn: Pass, step: Step) -> None:
    host, action = step.action.host, step.action
    outbox = turn.outboxes.get(host)
    if outbox is None or ob.pending(outbox, turn.key(action)) is not None:
        return
    no = _not_now(turn, step, outbox)
    if no is not None:
        turn.held.append(no)
        return
    authority = may_issue(turn.rights, action, turn.report(host))
    if isinstance(authority, No):
        turn.held.append(authority.detail)
        return
    many = turn.service.crowded(action, authority)
    if many is not None:
        turn.held.append(f"{action.kind} on {host} waits: {many}")
        return
    cause = Cause(
        plan=turn.rights.book.target_digest or Digest(""),
        scope=turn.rights.scope,
        authority=authority,
        precondition=_precondition(turn, action, outbox),
        catalog=made_under(turn.rights.state, action),
    )
    try:
        grown, body = ob.enqueue(outbox, action, cause, outbox.fleet, turn.rights.now_ms)
    except Refusal as refusal:
        turn.held.append(f"{host}: {refusal.message}")
        return
    turn.outboxes[host] = grown
    turn.going.add(host, grown.entries[-1:])
    turn.service.told(action)
    turn.queued += 1
    turn.rows.append(r.BodyQueued(body=body, authority=authority))


def _not_now(turn: Pass, step: Step, outbox: Outbox) -> str | None:
    """Why a step waits, as a line for people; None when it may go."""
    action, rights = step.action, turn.rights
    host, replica = action.host, action.replica
    what = f"{replica}: {action.kind} on {host}" if errand(action) is None else named(action)
    if not fresh(turn.soft, turn.roster, host, rights.now_ms):
        return f"{what} waits: the host is silent"
    stopped = outbox.held or rights.state.held(host)
    if stopped is not None:
        return f"{what} waits: commands to the host are stopped ({stopped})"
    if rights.state.term is None or not ob.ready(outbox, rights.state.term):
        return f"{what} waits: the host has not yet heard this controller"
    if outbox.unknown and not isinstance(action, Load):
        return f"{what} waits for {counted(len(outbox.unknown), 'command')} there that this controller has forgotten"
    if step.waits_for is not None:
        return f"{what} waits: {step.waits_for}"
    unsigned = in_the_way(rights.state, turn.report(host), action)
    if unsigned is not None:
        return f"{what} waits: {unsigned}"
    if replica in unseen_success(rights.state.hosts[host], turn.soft, host, rights.now_ms, PATIENCE_MS):
        return f"{what} waits: the host has not yet reported its last step"
    doubt = in_doubt(rights.state.hosts[host], action)
    if doubt is not None:
        return f"{what} waits: {doubt}"
    last = not_the_last(rights, action)
    if last is not None:
        return f"{what} waits: {last.detail}"
    if isinstance(action, Drain | Unload) and turn.key(action) not in turn.proven:
        return f"{what} waits: who serves instead has to be heard again first, or nobody is led there yet"
    return _spaced_out(turn, action, what) or _withdrawn(turn, action, what) or _over_limit(turn, action, what)


def _spaced_out(turn: Pass, action: Action, what: str) -> str | None:
    """Back-off after failures of (kind, host, profile), cooldown after success of the very same step."""
    book, now_ms = turn.rights.state.hosts[action.host], turn.rights.now_ms
    attempt, of = book.attempts.get((kind_of(action), action.profile)), tried(action)
    if attempt is not None and attempt.of not in (None, of):
        attempt = None
    counts = attempt is not None and (attempt.code not in RETRIABLE or attempt.failures >= RETRIES)
    if attempt is not None and counts and now_ms < attempt.wait_until_ms:
        seconds = -(-(attempt.wait_until_ms - now_ms) // 1000)
        return f"{what} waits {seconds} s: it failed {counted(attempt.failures, 'time')} ({attempt.code or 'no code'})"
    ended, success = book.cooled.get((action.kind, action.replica)), book.successes.get(action.replica)
    if success is not None and success.action.kind == action.kind and tried(success.action) != of:
        return None
    if ended is not None and now_ms - ended < turn.limits.cooldown_ms:
        return f"{what} waits: the same step ended {(now_ms - ended) // 1000} s ago"
    return None


def _withdrawn(turn: Pass, action: Action, what: str) -> str | None:
    """A destructive command that came too late to be taken back may be running: no further one for its profile."""
    if not isinstance(action, Drain | Unload):
        return None
    for other, entry in turn.ending.get(profile_of(turn.rights.now_called(action.replica)), ()):
        before = f"an earlier {other.kind} of {other.replica} on {other.host}"
        if entry.wanted is GrantMode.VOID:
            return f"{what} waits: {before} was withdrawn and has not answered"
        if entry.key not in turn.wished:
            return f"{what} waits: {before} is not wanted any more and may still be carried out"
    return None


def _over_limit(turn: Pass, action: Action, what: str) -> str | None:
    # Repair never waits for optional work: only other repair counts before it. What one device does is never shared.
    counts = turn.going.beside(action, repair=mends(turn.rights, action))
    if counts.in_scope >= turn.limits.concurrent:
        under_way = f"{what} waits: {counts.in_scope} of {counted(turn.limits.concurrent, 'command')} under way"
        return f"{under_way}{_make_way(turn, action)}"
    if isinstance(action, Load):
        here, same = counts.fetching[action.host], counts.artifacts[artifact(action)]
        if here >= turn.limits.transfers_per_host:
            return f"{what} waits: {counted(here, 'transfer')} to the host {'is' if here == 1 else 'are'} under way"
        if same >= turn.limits.loads_per_artifact:
            return f"{what} waits: {counted(same, 'host')} {'is' if same == 1 else 'are'} fetching the same artifact"
        return None
    report = turn.report(action.host)
    mine = devices_of(action, report)
    busy = sum(1 for e in turn.going.effects(action.host) if mine & devices_of(e.body.action, report))
    if mine and busy >= turn.limits.per_device:
        return f"{what} waits for {counted(busy, 'command')} on its devices"
    return None


def _make_way(turn: Pass, action: Action) -> str:
    """A step that may go has its turn from who serves a lower class and was not heard of; with words on it."""
    if not isinstance(action, Load | Warm) or errand(action) is not None:
        return ""
    if isinstance(may_issue(turn.rights, action, turn.report(action.host)), No):
        return ""
    if not turn.queue.takes_what_comes():
        found = turn.queue.first_to_yield(action.profile, repair=mends(turn.rights, action))
        if found is None:
            return ""
        _void(turn, found[0], found[1].body.seq, f"{action.profile} is more important, and no turn was free")
    return ", and one that no host has heard of gives its turn up"


def devices_of(action: Action, report: HostReport | None) -> frozenset[DeviceId]:
    """Devices that an action touches; a transfer touches none."""
    match action:
        case Warm():
            return frozenset(action.devices)
        case Drain() | Unload():
            found = [r for r in report.residencies if r.incarnation == action.incarnation] if report is not None else []
            return frozenset(d for residency in found for d in residency.devices)
        case Load() | Operate() | Evict():
            return frozenset()


def _precondition(turn: Pass, action: Action, outbox: Outbox) -> tuple[DeviceGeneration, ...]:
    """The device generations that the step was computed from, for devices that nothing of ours is changing now."""
    report = turn.report(action.host)
    if not isinstance(action, Warm) or report is None:
        return ()
    changing = {d for e in ob.open_entries(outbox) for d in devices_of(e.body.action, report)}
    found = (report.device(d) for d in sorted(action.devices) if d not in changing)
    return tuple(DeviceGeneration(device=d.id, generation=d.generation) for d in found if d is not None)[
        : limits.DEVICES_PER_HOST
    ]


def _destructive(step: Step) -> bool:
    return isinstance(step.action, Drain | Unload)
