"""What must hold of everything that a controller writes into its journal: read row by row, right after it is written.

`watchers` looks at hosts, this at the other side. The rows are what is true of a controller whatever its process
believes, so nothing of its state is asked. Rules S5 (one command a number), S6 (nothing is over before its host said
so), S7 (the last replica that serves is not stopped by us), S8 (`disruptions`) and S10 (targets follow one another, by
somebody's word).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.controller.core import rows as r
from gridops.controller.core.row_kinds import decode
from gridops.controller.core.state import plan_digest
from gridops.lab.broken import Broken
from gridops.lab.disk import Platter
from gridops.lab.disruptions import Disruptions
from gridops.lab.gone import Gone
from gridops.lab.options import Options
from gridops.lab.serving import Serving
from gridops.lab.trace import Trace
from gridops.model.action import Drain, Unload, Warm
from gridops.model.plan import Plan
from gridops.model.policy import ActionClass
from gridops.protocol.messages import Authority, AuthorityKind, Body, Outcome, Receipt
from gridops.protocol.outbox import Outbox

if TYPE_CHECKING:
    from gridops.lab.host import LabHost

_READ = frozenset({"target_set", "target_restored", "body_queued", "body_voided", "receipt_taken"})
_OF_LOSSES = frozenset({"intent_accepted", "written_off", "host_back"})
"""Read only where hosts are lost at all."""
_TOLD_MS = 25_000
"""The longest that a message takes, and a little: so much older than a heartbeat may be what is known by it."""


class Auditor:
    """Reads what is new on the platter."""

    def __init__(self, platter: Platter, hosts: Mapping[HostId, LabHost], trace: Trace, options: Options) -> None:
        self._platter = platter
        self._trace = trace
        self._options = options
        self._disruptions = {scope: Disruptions(options.disruptions) for scope in options.scope_names}
        self._hosts = hosts
        self._believed_ms = options.stale_ms + _TOLD_MS
        self._read = 0
        self._targets: dict[ScopeName, Plan] = {}
        self._dips: dict[ScopeName, set[tuple[ProfileName, Digest]]] = {}
        """What the plan in force, or one before it that is still being carried out, said that it stops first."""
        self._bodies: dict[tuple[HostId, int], Digest] = {}
        self._open: dict[Digest, Body] = {}
        """Commands without a final receipt, withdrawn ones too: until its host says so, nothing is over."""
        self._voided: set[tuple[HostId, int]] = set()
        self.done: set[Digest] = set()
        """Commands that were carried out."""
        self._drained: dict[Digest, set[Digest]] = {}
        """Who was told to go, by which commands: one that was taken back in time, or refused, told nobody."""
        self._ends: dict[Digest, Drain | Unload] = {}
        """What each of those commands said. Kept where a journal forgets them: their hosts may still have them."""
        self.gone = Gone(trace)
        self._kinds = _READ | (_OF_LOSSES if options.lose_every_ms else set())
        self._kinds |= {"outbox_set"} if options.usurper_ppm else set()
        self._kinds |= {"host_seen"} if options.rekey_every_ms else set()
        self._serving = Serving(hosts, self.gone)

    def look(self, now_ms: int) -> None:
        """Take note of who serves, and judge every new row. Raises Broken."""
        self._serving.look(now_ms)
        while self._read < len(self._platter.rows):
            at_ms, _, kind, value = self._platter.rows[self._read]
            self._read += 1
            if kind not in self._kinds:
                continue
            match decode(kind, value):
                case r.TargetSet() as row:
                    self._set(row, at_ms)
                case r.TargetRestored(plan=plan):
                    self._in_force(plan)
                case r.IntentAccepted() | r.WrittenOff() | r.HostBack() as row:
                    self._lost(row, now_ms)
                case r.BodyQueued(body=body, authority=authority):
                    self.gone.asked(body)
                    self._queued(body, now_ms)
                    self._disrupts(body, authority, now_ms)
                case r.HostSeen(host=host, host_key=key):
                    self._another_key(host, key)
                case r.OutboxSet(outbox=outbox):
                    self._adopted(outbox)
                case r.BodyVoided(host=host, seq=seq):
                    self._voided.add((host, seq))
                case r.ReceiptTaken(receipt=receipt):
                    self.gone.said(receipt)
                    self._over(receipt)
                    self._saw(receipt)

    def forget(self) -> None:
        """The journal was replaced by an older one: what was written since is nobody's memory any more."""
        self._read = len(self._platter.rows)
        self._bodies.clear()
        self._open.clear()
        self._targets.clear()
        self._dips.clear()
        self.gone.forget()
        for _, _, kind, value in self._platter.rows if not self._options.talk else ():
            if kind in ("target_set", "target_restored") or kind in _OF_LOSSES:
                self._known_again(decode(kind, value))

    def _known_again(self, row: object) -> None:
        """What stands in a journal that was put in another one's place: it was judged when it was written."""
        match row:
            case r.TargetSet(plan=plan) | r.TargetRestored(plan=plan):
                self._in_force(plan)
            case r.IntentAccepted() | r.WrittenOff() | r.HostBack():
                self.gone.fold(row)

    def _another_key(self, host: HostId, key: str) -> None:
        """Under another key a host is another counterparty. It takes one only when no command is open there, and none
        for the key of before is ever obeyed again: what was asked under that one is over. Raises Broken."""
        kept = self._hosts[host].ledger.kept
        if any(body.host == host for body in self._open.values()) and kept.fence.host_key != key:
            raise Broken("S6", f"what {host} was asked under one key is over by the word of another one")
        self._open = {digest: body for digest, body in self._open.items() if body.host != host}
        self._bodies = {at: digest for at, digest in self._bodies.items() if at[0] != host}

    def _adopted(self, outbox: Outbox) -> None:
        """A host's own account of its commands is taken over: what was never decided there is nobody's any more, and
        its number may be given again. It follows a command that the host does not have, and so never can be."""
        host, known = outbox.host, {e.digest for e in outbox.entries} | {u.body for u in outbox.unknown}
        for digest, body in self._open.items():
            if body.host == host and digest not in known and body.seq > outbox.head.seq:
                self._stays(digest)
        self._open = {digest: body for digest, body in self._open.items() if body.host != host or digest in known}
        kept = {at: digest for at, digest in self._bodies.items() if at[0] != host or at[1] <= outbox.head.seq}
        self._bodies = kept

    def _lost(self, row: r.IntentAccepted | r.WrittenOff | r.HostBack, now_ms: int) -> None:
        """What an expunged host was told is over for the fleet; one that is written off may still say how it ended."""
        open_ = frozenset(body.host for body in self._open.values())
        for host in self.gone.take(row, open_):
            self._serving.forget(host)
        if isinstance(row, r.HostBack):
            self._serving.back(row.host, now_ms)
        self._open = {digest: body for digest, body in self._open.items() if body.host not in self.gone.expunged}

    def _set(self, row: r.TargetSet, at_ms: int) -> None:
        scope, target = row.plan.scope, self._targets.get(row.plan.scope)
        if row.plan.parent != (None if target is None else plan_digest(target)):
            raise Broken("S10", f"plan {row.plan.id} is no child of the one that was in force")
        if row.kind is AuthorityKind.APPROVAL and not any(_speaks(text, row.plan, at_ms) for text in row.approvals):
            raise Broken("S10", f"plan {row.plan.id} is in force by people, and nobody approved it at that moment")
        self._stays_inside(row.plan)
        if any(body.scope == scope and body.plan != plan_digest(row.plan) for body in self._open.values()):
            self._trace.saw("a plan was superseded while it was carried out")
        self._in_force(row.plan)

    def _in_force(self, plan: Plan) -> None:
        scope = plan.scope
        self._targets[scope] = plan
        launches = {a.replica: a.launch for a in plan.placement}
        said = {(d.profile, launches[d.replica]) for d in plan.decisions if d.cost.dip and d.replica in launches}
        placed = {(a.profile, a.launch) for a in plan.placement}
        self._dips[scope] = said | (self._dips.get(scope, set()) & placed)

    def _stays_inside(self, plan: Plan) -> None:
        """A scope's plan says nothing of another scope's hosts and models: nobody there was asked."""
        scope_of = self._options.scope_of
        for placed in plan.placement:
            if {scope_of(placed.profile), scope_of(placed.seat.host)} != {plan.scope}:
                raise Broken("S10", f"plan {plan.id} of {plan.scope} places {placed.replica} on {placed.seat.host}")

    def _queued(self, body: Body, now_ms: int) -> None:
        digest = digest_of(body)
        if self._bodies.setdefault((body.host, body.seq), digest) != digest:
            raise Broken("S5", f"two commands for {body.host} have the number {body.seq}")
        self._open[digest] = body
        action = body.action
        if len({self._options.scope_of(name) for name in (body.host, action.replica.split("/")[0])}) > 1:
            raise Broken("S10", f"{action.kind} {action.replica} on {body.host} reaches into another scope")
        if isinstance(action, Drain | Unload):
            if action.incarnation not in self._drained:  # from then on it serves nobody, and goes
                self._leaves(action, now_ms)
            self._drained.setdefault(action.incarnation, set()).add(digest)
            self._ends[digest] = action
        elif isinstance(action, Warm):
            self._fits(action.host)

    def _fits(self, host: HostId) -> None:
        """What a host holds, and what it may still be made to hold by commands that are not over, fits together."""
        at = self._hosts[host]
        holding = {digest: held.warm.device_bytes for digest, held in at.host.held.items()}
        for digest, body in self._open.items():
            if body.host == host and isinstance(body.action, Warm):
                holding[digest] = body.action.device_bytes
        total = sum(holding.values())
        if total > at.around.options.host_mib << 20:
            raise Broken("S1", f"{len(holding)} starts on {host} that are not over need {total >> 20} MiB together")

    def _leaves(self, action: Drain | Unload, now_ms: int) -> None:
        """What serves is told to go while its profile is wanted: another one serves, or the plan says that it dips."""
        profile, scope = action.profile, self._options.scope_of(action.profile)
        target, dips = self._targets.get(scope), self._dips.get(scope, set())
        if target is None or all(a.profile != profile for a in target.placement):
            return
        ready = self._serving.lately()
        if action.incarnation not in ready or any((profile, a.launch) in dips for a in target.placement):
            return
        if self._alone(action, target):
            return
        _, first_ms, last_ms = ready[action.incarnation]
        since_ms = now_ms - self._believed_ms
        if last_ms < now_ms or first_ms > since_ms:
            return  # it is gone, or so young that nobody need have heard of it
        others = [body for body, (name, _, at) in ready.items() if name == profile and at >= since_ms]
        if others == [action.incarnation]:
            raise Broken("S7", f"{action.kind} {action.replica} on {action.host}: it is the only one that serves")

    def _alone(self, action: Drain | Unload, target: Plan) -> bool:
        """It changes where it stands, and no second one of it has room beside all that is to stand there."""
        there = [a for a in target.placement if a.seat.host == action.host]
        room = (self._options.host_mib << 20) * 95 // 100 - sum(a.device_bytes for a in there)
        return any(a.profile == action.profile and a.device_bytes > room for a in there)

    def _disrupts(self, body: Body, authority: Authority, now_ms: int) -> None:
        """A serving process goes, by nobody's word but that of the mode, and not for repair."""
        action = body.action
        if not isinstance(action, Drain | Unload) or authority.kind is not AuthorityKind.STANDING:
            return
        scope = self._options.scope_of(action.profile)
        target = self._targets.get(scope)
        if target is None:
            return
        ready = self._serving.lately()
        if authority.action_class is ActionClass.REPAIR or action.incarnation not in ready:
            return
        if self._drained.get(action.incarnation, set()) - {digest_of(body)}:
            return  # it was told before, by whoever had the right to: this only ends what went then
        if ready[action.incarnation][2] < now_ms:
            return  # it died by itself: its end takes nothing away
        since_ms = now_ms - self._believed_ms
        serving: dict[ProfileName, set[ReplicaId]] = {}
        for incarnation, (name, _, at_ms) in ready.items():
            if at_ms >= since_ms and incarnation not in self._drained:
                serving.setdefault(name, set()).add(self._serving.called[incarnation])
        self._disruptions[scope].takes(action, target, serving)

    def _over(self, receipt: Receipt) -> None:
        host = self._hosts[receipt.host]
        if not receipt.final:
            return
        self._open.pop(receipt.body, None)
        if receipt.outcome in (Outcome.VOIDED, Outcome.REFUSED):
            self._stays(receipt.body)
        kept = host.ledger.kept.receipts.kept
        if receipt.body not in host.said and all(k.body != receipt.body for k in kept if k.final):
            raise Broken("S6", f"command {receipt.seq} of {receipt.host} is over, and its host never said so")

    def _stays(self, digest: Digest) -> None:
        """If it was a command to go, it was taken back in time, refused, or never came: whoever was meant serves on."""
        action = self._ends.pop(digest, None)
        if action is None:
            return
        self._drained[action.incarnation].discard(digest)
        if not self._drained[action.incarnation]:
            del self._drained[action.incarnation]
            self._disruptions[self._options.scope_of(action.profile)].stays(action.incarnation)

    def _saw(self, receipt: Receipt) -> None:
        """What a batch of runs must have met at all."""
        if not receipt.final:
            return
        if receipt.outcome is Outcome.SUCCEEDED:
            self.done.add(receipt.body)
        if (receipt.host, receipt.seq) in self._voided:
            won = receipt.outcome is Outcome.VOIDED
            self._trace.saw("a withdrawal came in time" if won else "a withdrawal came too late")
        self._trace.saw(f"{receipt.outcome.value} {receipt.code or ''}".strip())


def _speaks(envelope: str, plan: Plan, at_ms: int) -> bool:
    """The words of an approval, read without asking the product: for these decisions, and not over."""
    said = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    for_it = said["decision"] == "approve" and said["decisions_digest"] == plan.decisions_digest
    return bool(for_it and said["issued_ms"] <= at_ms <= said["not_after_ms"])
