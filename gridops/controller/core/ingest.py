"""What a host says: its heartbeat and its receipts become rows and a newer report. Also the answer's contents.

The caller has verified signatures. Order matters: who speaks (one agent or two), then heads, then receipts, then the
inventory, because each is judged by the one before it. Receipts are rows before they are acknowledged. Nothing here
decides what to do next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gridops.base import limits
from gridops.base.codes.control import REPLAYED
from gridops.base.codes.protocol import OLD_CATALOG, RECEIPT_GAP
from gridops.base.codes.trust import WRONG_FLEET
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId
from gridops.base.record import with_one
from gridops.base.units import counted
from gridops.controller.core import rows as r
from gridops.controller.core import terms
from gridops.controller.core.catalogs import ahead
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Heard, Soft
from gridops.controller.core.state import State
from gridops.controller.core.uncertain import proofs
from gridops.model.snapshot import HostReport, HostState
from gridops.protocol import outbox as ob
from gridops.protocol.alarm import Alarm, alarm
from gridops.protocol.binding import Bound, open_binding
from gridops.protocol.messages import Ability, Grant, Heartbeat, Inventory, Receipt
from gridops.protocol.outbox import Outbox
from gridops.protocol.pulse import Pulse, beat, in_doubt, is_of_now, told
from gridops.trust.keys import parse_key


@dataclass(frozen=True, slots=True)
class Signed:
    """A verified receipt and the text that proves it."""

    receipt: Receipt
    envelope: str


@dataclass(frozen=True, slots=True)
class Said:
    """What one request of a host came to."""

    rows: tuple[r.Row, ...]
    heard: Heard | None
    """None: nothing newer than what is known, or nothing that must be of now (`pulse.is_of_now`)."""
    pulse: Pulse
    refusal: Refusal | None = None
    """The heartbeat is an old one: it is not answered, and counts only for telling two agents apart."""
    doubted: bool = False
    """Old as well, of a run that nobody knows: it is answered, with nothing to act on (`pulse.Doubt`)."""


@dataclass(frozen=True, slots=True)
class Word:
    """One request of a host, verified."""

    heartbeat: Heartbeat
    digest: Digest
    """Of the heartbeat."""
    roster: Roster
    """Whose word counts, when hosts say what they have obeyed."""
    receipts: Sequence[Signed] = ()


def take(state: State, soft: Soft, host_key: str, word: Word, now_ms: int) -> Said:
    """Rows for one request. Raises Refusal `wrong_fleet`, which changes nothing."""
    heartbeat = word.heartbeat
    host = heartbeat.host
    if heartbeat.fleet != soft.chain.fleet:
        raise Refusal(WRONG_FLEET.code, f"the heartbeat of {host} is for fleet {heartbeat.fleet}", subject=host)
    known = _pulse(state, soft, host, host_key)
    judged = beat(known, heartbeat, word.digest)
    if isinstance(judged, Alarm):
        return Said(_alarms(state, (judged,), True), None, known)
    pulse, news = judged
    if not news and in_doubt(pulse, heartbeat.boot) is not None:
        return Said((), None, told(pulse, heartbeat.boot, now_ms), doubted=True)
    if not news:
        # Remembered all the same: a second one that goes on from it means a second agent.
        words = f"heartbeat {heartbeat.hseq} of {host} is an old one; does another agent run with a copy of its key?"
        return Said((), None, pulse, Refusal(REPLAYED.code, words, subject=host))
    rows: list[r.Row] = []
    outbox = _outbox(state, soft, host, host_key, rows)
    outbox = _heads(state, outbox, heartbeat, rows)
    # Before the host obeys this controller's term its head may still move, and so may what its receipts follow.
    ready = state.term is not None and ob.ready(outbox, state.term)
    for item in sorted(word.receipts, key=lambda s: s.receipt.rseq) if ready else ():
        outbox = _receipt(state, outbox, item, rows)
    rows.extend(terms.seen(state, soft, word.roster, heartbeat))
    rows.extend(_catalog(state, heartbeat))
    if not _of_now(state, soft, host_key, heartbeat):
        # It is answered, and its next word will do: until then the host is silent, not lost.
        return Said(tuple(rows), None, pulse)
    book = state.hosts.get(host)
    if book is not None:
        rows.extend(proofs(book, heartbeat))
    if book is not None and book.written_off_ms is not None:
        rows.append(r.HostBack(host=host))
    return Said(tuple(rows), _heard(soft, host_key, heartbeat, now_ms), pulse)


def _of_now(state: State, soft: Soft, host_key: str, heartbeat: Heartbeat) -> bool:
    """A recorded heartbeat, played to a controller that has just started, must not pass for a living host."""
    book = state.hosts.get(heartbeat.host)
    new = book is None or book.outbox.host_key != host_key or book.seen_ms >= soft.started_ms
    return state.term is None or is_of_now(heartbeat, state.term, first=new and state.rebuilt_ms is None)


def due(state: State, heartbeat: Heartbeat, now_ms: int) -> tuple[Grant, ...]:
    """Grants for the next directive; none while commands to it are stopped. Nobody is sent what it cannot read."""
    host = heartbeat.host
    book = state.hosts.get(host)
    if book is None or state.term is None or state.held(host) is not None:
        return ()
    grants = ob.grants_due(book.outbox, state.term, now_ms)
    if Ability.PROOF.value in (heartbeat.inventory.abilities or ()):
        return grants
    return tuple(replace(g, authority=replace(g.authority, proof=None)) for g in grants)


def roots_for(state: State, version: int) -> tuple[str, ...]:
    """Root documents that a host does not have yet, in order, bounded."""
    return tuple(state.roots[max(version, 0) :][: limits.ROOTS_PER_DIRECTIVE])


def _pulse(state: State, soft: Soft, host: HostId, host_key: str) -> Pulse:
    """What was heard under this very key; a new key is a new counterparty."""
    book = state.hosts.get(host)
    same = book is not None and book.outbox.host_key == host_key
    return soft.pulses.get(host, Pulse(host=host)) if same else Pulse(host=host)


def _outbox(state: State, soft: Soft, host: HostId, host_key: str, rows: list[r.Row]) -> Outbox:
    book = state.hosts.get(host)
    if book is not None and book.outbox.host_key == host_key:
        return book.outbox
    rows.append(r.HostSeen(fleet=soft.chain.fleet, host=host, host_key=host_key))
    return ob.new_outbox(soft.chain.fleet, host, host_key)


def _heads(state: State, outbox: Outbox, heartbeat: Heartbeat, rows: list[r.Row]) -> Outbox:
    learned = ob.relearn(outbox, heartbeat, state.term)
    if isinstance(learned, Alarm):
        rows.extend(_alarms(state, (learned,), False))
        if outbox.held is not None:
            return outbox
        held = ob.hold(outbox, learned)
        rows.append(r.OutboxSet(outbox=held, why=learned.detail))
        return ob.clear_alarms(held)
    rows.extend(_alarms(state, learned.alarms, False))
    learned = ob.clear_alarms(learned)
    if learned.head != outbox.head:
        why = f"the host has decided {counted(heartbeat.head.seq, 'command')}, this journal knew of {outbox.head.seq}"
        rows.append(r.OutboxSet(outbox=learned, why=why))
        # Every command is journalled before it is sent: a host that is ahead proves that memory was lost. A rebuilt
        # controller knows that, of each host until that has spoken once; what it forgets later is lost anew.
        expected = state.rebuilt_ms is not None and outbox.obeyed is None
        if heartbeat.head.seq > outbox.head.seq and not expected and state.distrust is None:
            words = f"{outbox.host}: {why}: it is older than the fleet; run: gridops controller rebuild"
            rows.append(r.Distrusted(reason=words))
    elif learned != outbox:
        rows.append(r.HeadSeen(host=outbox.host, seq=heartbeat.head.seq, obeyed=heartbeat.term))
    return learned


def _receipt(state: State, outbox: Outbox, item: Signed, rows: list[r.Row]) -> Outbox:
    settled = ob.settle(outbox, item.receipt)
    rows.extend(_alarms(state, settled.alarms, False))
    if ob.clear_alarms(settled) != ob.clear_alarms(outbox):
        rows.append(r.ReceiptTaken(receipt=item.receipt, envelope=item.envelope))
        gap = f"{RECEIPT_GAP.code}:{outbox.host}"
        if gap in state.alarms and not settled.alarms:
            rows.append(r.AlarmCleared(key=gap))
    return ob.clear_alarms(settled)


def _catalog(state: State, heartbeat: Heartbeat) -> tuple[r.Row, ...]:
    """The commit in force is older than what this host was sent: the branch was rewound, or another one commands."""
    key, words = f"{OLD_CATALOG.code}:{heartbeat.host}", ahead(state, heartbeat)
    if words is not None:
        return _alarms(state, (alarm(OLD_CATALOG, heartbeat.host, words),), False)
    return (r.AlarmCleared(key=key),) if key in state.alarms else ()


def _alarms(state: State, found: Sequence[Alarm], stops: bool) -> tuple[r.Row, ...]:
    rows = []
    for one in found:
        key = f"{one.code}:{one.host}"
        if key not in state.alarms:
            rows.append(r.AlarmRaised(key=key, text=f"{one.host}: {one.detail}", host=one.host if stops else None))
    return tuple(rows)


def wants_binding(soft: Soft, heartbeat: Heartbeat, now_ms: int) -> bool:
    """Whether a host is to say who answers at its front: it can, and what is known of it ends soon or is nothing."""
    inventory, heard = heartbeat.inventory, soft.hosts.get(heartbeat.host)
    if Ability.BINDING.value not in (inventory.abilities or ()) or inventory.endpoint is None:
        return False
    return heard is None or heard.binding is None or heard.binding.ends_soon(now_ms)


def _binding(soft: Soft, host_key: str, heartbeat: Heartbeat, now_ms: int) -> Bound | None:
    """The newest binding that this host key signed and that is about the front of this heartbeat.

    One that does not hold is none: nobody is sent to that front, and the host is asked again.
    """
    inventory, before, found = heartbeat.inventory, soft.hosts.get(heartbeat.host), None
    if inventory.binding is not None:
        with contextlib.suppress(Refusal):
            fleet = soft.chain.fleet
            key, host = parse_key(host_key), heartbeat.host
            found = open_binding(inventory.binding, key, fleet=fleet, host=host, now_ms=now_ms)
    for bound in (found, before.binding if before is not None else None):
        ours = bound is not None and bound.key == host_key and bound.holds(now_ms)
        if bound is not None and ours and bound.is_about(inventory.endpoint, inventory.front_cert):
            return bound
    return None


def _heard(soft: Soft, host_key: str, heartbeat: Heartbeat, now_ms: int) -> Heard:
    before = soft.hosts.get(heartbeat.host)
    inventory = _dated(heartbeat.inventory, before.report if before is not None else None, now_ms)
    report = HostReport(
        host=heartbeat.host,
        observed_ms=now_ms,
        state=inventory.state,
        since_ms=_since(before.report if before is not None else None, inventory.state, now_ms),
        reasons=inventory.reasons,
        generation=inventory.generation,
        devices=tuple(sorted(inventory.devices, key=lambda d: d.id)),
        residencies=tuple(
            sorted(inventory.residencies, key=lambda x: (x.profile, x.replica or "", x.incarnation or ""))
        ),
        runtimes=tuple(sorted(inventory.runtimes, key=lambda x: (x.engine, x.backend))),
        cached=tuple(sorted(inventory.cached)),
        disk_free_bytes=inventory.disk_free_bytes,
        goodbye=inventory.goodbye,
        agent_version=heartbeat.agent_version,
        endpoint=inventory.endpoint,
        measured=tuple(sorted(inventory.measured, key=lambda m: m.evidence)) if inventory.measured else None,
        prefetched=tuple(sorted(inventory.prefetched, key=lambda p: (p.since_ms, p.profile, p.files)))
        if inventory.prefetched
        else None,
        abilities=tuple(sorted(inventory.abilities)) if inventory.abilities else None,
        left=inventory.left or None,
    )
    return Heard(
        report=report,
        boot=heartbeat.boot,
        receipt_head=heartbeat.receipt_head,
        decided=heartbeat.head.seq,
        root_version=heartbeat.root_version,
        clock_ms=heartbeat.clock_ms,
        front_cert=inventory.front_cert,
        binding=_binding(soft, host_key, heartbeat, now_ms),
        alarms=heartbeat.alarms,
        heartbeat=heartbeat,
    )


def _dated(inventory: Inventory, before: HostReport | None, now_ms: int) -> Inventory:
    """With moments that lie ahead of controller time taken for those at which they were first heard of.

    Until a host has heard us in its present run it goes by its wall clock, and what it wrote down by one that was years
    ahead stays there when that has been put right: such a replica would be too young to move for years, and files that
    nobody asked for would never grow old (A-406). What lies behind is at worst from before a clock that was put ahead:
    a host's time never goes back behind what it has heard.
    """
    most_ms = now_ms + limits.ISSUED_AHEAD_MS
    late = [r for r in inventory.residencies if r.since_ms is not None and r.since_ms > most_ms]
    guesses = [p for p in inventory.prefetched or () if p.since_ms > most_ms]
    if not late and not guesses:
        return inventory
    heard: dict[object, int] = {}
    if before is not None:
        heard |= {(r.incarnation, r.state): r.since_ms for r in before.residencies if r.since_ms is not None}
        heard |= {(p.profile, p.files): p.since_ms for p in before.prefetched or ()}
    return replace(
        inventory,
        residencies=tuple(
            with_one(r, "since_ms", heard.get((r.incarnation, r.state), now_ms)) if r in late else r
            for r in inventory.residencies
        ),
        prefetched=tuple(
            with_one(p, "since_ms", heard.get((p.profile, p.files), now_ms)) if p in guesses else p
            for p in inventory.prefetched or ()
        ),
    )


def _since(before: HostReport | None, state: HostState, now_ms: int) -> int | None:
    if before is None:
        return None
    return before.since_ms if before.state is state else now_ms
