"""How rows are written into the journal: the name of each kind, and a row as bytes and back.

Called by `writer` alone. A name is never changed and never given to another kind: old journals are replayed by it.
"""

from __future__ import annotations

from typing import Any

from gridops.base.record import from_bytes, to_bytes
from gridops.controller.core import rows as r

KINDS: dict[str, type[Any]] = {
    "started": r.Started,
    "clock_leapt": r.ClockLeapt,
    "rebuilt": r.Rebuilt,
    "target_restored": r.TargetRestored,
    "distrusted": r.Distrusted,
    "root_taken": r.RootTaken,
    "catalog_taken": r.CatalogTaken,
    "intent_accepted": r.IntentAccepted,
    "intent_refused": r.IntentRefused,
    "proposed": r.Proposed,
    "proposal_closed": r.ProposalClosed,
    "target_set": r.TargetSet,
    "errand_approved": r.ErrandApproved,
    "apply_ended": r.ApplyEnded,
    "resumed": r.Resumed,
    "unlocked": r.Unlocked,
    "host_seen": r.HostSeen,
    "head_seen": r.HeadSeen,
    "outbox_set": r.OutboxSet,
    "term_seen": r.TermSeen,
    "body_queued": r.BodyQueued,
    "body_voided": r.BodyVoided,
    "receipt_taken": r.ReceiptTaken,
    "outcome_proved": r.OutcomeProved,
    "written_off": r.WrittenOff,
    "host_back": r.HostBack,
    "invited": r.Invited,
    "join_pending": r.JoinPending,
    "join_settled": r.JoinSettled,
    "frozen": r.Frozen,
    "thawed": r.Thawed,
    "alarm_raised": r.AlarmRaised,
    "alarm_cleared": r.AlarmCleared,
    "nonce_used": r.NonceUsed,
    "plan_written": r.PlanWritten,
    "result_written": r.ResultWritten,
    "state_written": r.StateWritten,
}
_NAMES: dict[type[Any], str] = {kind: name for name, kind in KINDS.items()}


def kind_of(row: r.Row) -> str:
    """The journal's name of a row's kind."""
    return _NAMES[type(row)]


def encode(row: r.Row) -> bytes:
    """The row as it is journalled: canonical JSON."""
    return to_bytes(row)


def decode(kind: str, raw: bytes) -> r.Row | None:
    """The row that was journalled; None for a kind of a newer program, which an older one must not guess at."""
    found = KINDS.get(kind)
    if found is None:
        return None
    row: r.Row = from_bytes(found, raw)
    return row
