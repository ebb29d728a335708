"""What a host is told: its directive. The mode is read again here: it may have changed since the command was made.

Called for every heartbeat, after its rows are durable. `taken_back` comes first and gives rows of its own; then
`directive` holds whatever may still go. Granting is repeated until the host has decided, so losing an answer loses
nothing, and a command that may not go any more is granted as void, because its number has to be used up.
Nothing is taken away on what was seen before a host fell silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gridops.base import limits
from gridops.base.ids import HostId, ScopeName
from gridops.controller.core import rows as r
from gridops.controller.core.catalogs import for_host
from gridops.controller.core.ingest import roots_for, wants_binding
from gridops.controller.core.pace import busy_ms, calm_ms, longest_ms
from gridops.controller.core.rights import Rights, still_right
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import State
from gridops.footprint.need import identity
from gridops.model.action import Drain, Evict, Unload
from gridops.model.policy import ClassProtection
from gridops.model.snapshot import HostReport
from gridops.planner.errands import objection
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Directive, GatewayKey, GrantMode, Heartbeat, Term
from gridops.protocol.outbox import Outbox

VALID_MS = 120_000
"""How long a directive may travel."""
REST_BYTES = 64 << 10
"""Of a directive, for keys, protection, numbers and what escaping adds to envelopes."""
ESCAPED_CHARS = 64
"""Quotes of an envelope that stands as a text in another one."""
OLD_EVIDENCE = "the host was silent: what was seen before is too old to take anything away"
UNPROVEN = "by the newest words of the other hosts nothing may be taken away here now"


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes into a directive besides what the state knows."""

    grants: tuple[str, ...]
    """Sealed."""
    keys: tuple[GatewayKey, ...]
    busy: bool
    """Something is to be done there."""
    soft: Soft
    """Who else is asked for more, and since when this controller is there."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known in the moment of delivery."""

    report: HostReport | None
    """The host's newest word: files are told to go only if it bears that out."""
    heard_lately: bool
    """The host was fresh until this very heartbeat. One that comes back from silence, or that a restarted controller
    hears for the first time, takes nothing away on what was seen before: the next pass looks again."""
    proven: Callable[[ScopeName], frozenset[str]]
    """Ends that what was heard bears out for a while longer (`evidence.proven`). Asked only where an end is to go."""
    crowded: Callable[[ob.Entry], str | None]
    """Whether an end would disrupt one more replica than may be by now (`disrupted.Service`)."""


def taken_back(state: State, host: HostId, rights: Mapping[ScopeName, Rights], known: Evidence) -> tuple[r.Row, ...]:
    """Void rows for commands that the host has not decided and that may not go any more."""
    book = state.hosts.get(host)
    if book is None:
        return ()
    rows: list[r.Row] = []
    for entry in ob.open_entries(book.outbox):
        if entry.delivered or entry.wanted is GrantMode.VOID:
            continue
        no = still_right(rights[entry.body.scope], entry, known.report)
        why = no.detail if no is not None else _ill_founded(rights[entry.body.scope], entry, known)
        if why is not None:
            rows.append(r.BodyVoided(host=host, seq=entry.body.seq, why=why[:500]))
    return tuple(rows)


def _ill_founded(rights: Rights, entry: ob.Entry, known: Evidence) -> str | None:
    """Why what a command takes away may not go after all, as things are known now."""
    action = entry.body.action
    if not isinstance(action, Drain | Unload | Evict):
        return None
    if not known.heard_lately:
        return OLD_EVIDENCE
    if isinstance(action, Evict):
        return _kept(rights, action, known.report)
    return known.crowded(entry) if entry.key in known.proven(entry.body.scope) else UNPROVEN


def undecided(state: State, host: HostId) -> tuple[ScopeName, ...]:
    """Scopes of the commands that the host has not decided: by whose rights `taken_back` judges. Mostly none."""
    book = state.hosts.get(host)
    return tuple(sorted({e.body.scope for e in ob.open_entries(book.outbox) if not e.delivered})) if book else ()


def _kept(rights: Rights, action: Evict, report: HostReport | None) -> str | None:
    """Why files may not go after all, by the newest report (A-546)."""
    target, accepted = rights.book.target, rights.state.accepted
    if target is None or accepted is None or report is None:
        return OLD_EVIDENCE
    launches = {identity(launch): launch for launch in target.launches}
    profile = next((p for p in accepted.desired.profiles if p.name == action.profile), None)
    return objection(action, report, target, launches, profile.placement.pins if profile is not None else ())


def directive(state: State, roster: Roster, heartbeat: Heartbeat, answer: Answer, now_ms: int) -> Directive:
    """The answer to one heartbeat, not yet sealed."""
    host = heartbeat.host
    book = state.hosts.get(host)
    busy = answer.busy or bool(answer.grants) or book is None or _unsettled(state, book.outbox)
    beat, quick = roster.desired.planning.heartbeat, answer.soft.quick
    (quick.add if busy else quick.discard)(host)
    up_ms = now_ms - answer.soft.started_ms
    roots, catalog = roots_for(state, heartbeat.root_version), for_host(state, heartbeat)
    return Directive(
        fleet=heartbeat.fleet,
        host=host,
        nonce=heartbeat.nonce,
        now_ms=now_ms,
        term=state.term or Term(epoch=0, counter=0),
        root_version=len(state.roots),
        acked_rseq=book.outbox.acked_rseq if book is not None else 0,
        roots=roots,
        grants=_fitting(answer.grants, sum(len(text) for text in (*roots, catalog or ""))),
        protection=protection_of(roster, host),
        keys=answer.keys,
        next_poll_ms=busy_ms(beat, len(quick)) if busy else calm_ms(beat, heartbeat.nonce, up_ms, len(roster.hosts)),
        expires_ms=now_ms + VALID_MS,
        catalog=catalog,
        wants_binding=wants_binding(answer.soft, heartbeat, now_ms) or None,
    )


def _fitting(grants: tuple[str, ...], taken: int) -> tuple[str, ...]:
    """As many grants, in order, as fit beside what else is said; the others come with the next answer.

    A directive that is longer than a host reads would make it deaf.
    """
    room, kept = limits.DIRECTIVE_BYTES - REST_BYTES - taken, 0
    for grant in grants:
        room -= len(grant) + ESCAPED_CHARS
        kept += room >= 0
    return grants[:kept]


def nothing(state: State, soft: Soft, roster: Roster, heartbeat: Heartbeat, now_ms: int) -> Directive:
    """The answer to a run that is in doubt (`pulse.Doubt`): the time, and nothing to act on.

    No key, so that the front of a copy lets nobody in, and no receipt is acknowledged that it may not have made. Its
    pace is the slowest that a host is given, so that the other run speaks meanwhile if it lives.
    """
    said = directive(state, roster, heartbeat, Answer((), (), False, soft), now_ms)
    acked = min(said.acked_rseq, heartbeat.receipt_head)
    return replace(said, acked_rseq=acked, next_poll_ms=longest_ms(roster.desired.planning.heartbeat))


def _unsettled(state: State, outbox: Outbox) -> bool:
    return bool(ob.open_entries(outbox)) or state.term is None or not ob.ready(outbox, state.term)


def protection_of(roster: Roster, host: HostId) -> ClassProtection | None:
    """When the host has to yield, by its class: what the files say, else the default of the class."""
    declared = roster.hosts.get(host)
    if declared is None:
        return None
    return roster.desired.protection.of(declared.host_class.value)
