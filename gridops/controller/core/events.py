"""What happened, in words: each journal row that means something to a person is one line.

The events endpoint, the log of `watch` and the CLI say the same, because all of them read this. Rows that only keep
the books (a head, a nonce, a projection) have no words.
"""

from __future__ import annotations

from gridops.base.units import render_clock, render_ms
from gridops.controller.core import rows as r
from gridops.controller.core.learned import named
from gridops.planner.render_words import headline, short_plan
from gridops.protocol.messages import AuthorityKind, Outcome


def words(row: r.Row) -> tuple[str, str] | None:
    """Kind and sentence of an event; None for a row without one."""
    return _of_intent(row) or _of_plans(row) or _of_hosts(row) or _of_people(row)


def _of_intent(row: r.Row) -> tuple[str, str] | None:
    match row:
        case r.IntentAccepted():
            return "intent", f'intent {row.commit[:7]} "{row.subject}"'
        case r.IntentRefused():
            first = row.problems[0] if row.problems else "no problem given"
            more = f" (and {row.count - 1} more)" if row.count > 1 else ""
            kind = "intent_refused" if row.off_line is None else "intake_refused"
            return kind, f"commit {row.commit[:7]} is refused, the last good one stays: {first}{more}"
        case r.ClockLeapt() if row.by_ms:
            return "clock", f"the machine's clock leapt forwards by {render_ms(row.by_ms)}"
        case r.Distrusted():
            return "alarm", f"journal: {row.reason}; recommend only, no commands"
        case r.Rebuilt():
            return "rebuilt", f"rebuilt from git: {', '.join(row.plans) or 'no plan was ever applied'}"
        case r.TargetRestored():
            return "rebuilt", f"plan {short_plan(row.plan)} {row.plan.scope} is in force again, from git"
        case r.RootTaken():
            return "root", f"root document {row.version}"
        case r.CatalogTaken():
            words = f"catalog {row.version}: nothing else may run" if row.text else "no catalog is asked for any more"
            return "catalog", words
        case _:
            return None


def _of_plans(row: r.Row) -> tuple[str, str] | None:
    match row:
        case r.Proposed():
            what = f"plan {short_plan(row.plan)} {row.plan.scope}: {headline(row.plan)}"
            return "proposed", f"{what} ({row.cause}); waits for people"
        case r.ProposalClosed():
            by = f" by {row.by}" if row.by else ""
            return "proposal_closed", f"plan {row.plan.rpartition('-')[2]} {row.scope}: {row.why}{by}"
        case r.TargetSet():
            by = f"applied by {row.by}, approved by {', '.join(row.approvers)}"
            how = "automatic" if row.kind is AuthorityKind.STANDING else by
            return "target_set", f"plan {short_plan(row.plan)} {row.plan.scope}: {headline(row.plan)}; {how}"
        case r.ApplyEnded():
            return "apply_ended", f"apply {row.plan.rpartition('-')[2]} {row.scope}: {row.outcome}"
        case r.Resumed():
            return "resumed", f"apply {row.plan.rpartition('-')[2]} {row.scope}: resumed by {row.by}"
        case r.ErrandApproved():
            return "errand", f"{row.what} in {row.scope}: {row.by} lets it be done"
        case r.Unlocked():
            return "unlocked", f"lock of {row.scope} broken by {row.by}: {row.reason}"
        case _:
            return None


def _of_hosts(row: r.Row) -> tuple[str, str] | None:
    match row:
        case r.HostSeen():
            return "host", f"host {row.host} is here"
        case r.OutboxSet():
            return "alarm", f"host {row.outbox.host}: {row.why}"
        case r.BodyQueued():
            action = row.body.action
            return "command", f"{named(action)}, command {row.body.seq}"
        case r.BodyVoided():
            return "voided", f"command {row.seq} to {row.host} is taken back: {row.why}"
        case r.ReceiptTaken():
            return "receipt", _receipt(row)
        case r.OutcomeProved():
            who = f", by {row.by}" if row.by is not None else ""
            return "receipt", f"host {row.host}: command {row.seq} {row.outcome.value} after all{who}: {row.evidence}"
        case r.WrittenOff():
            return "host", f"host {row.host} was written off by {row.by}: {row.reason}"
        case r.HostBack():
            return "host", f"host {row.host} is back after it was written off"
        case r.JoinPending():
            asks = "asks to join with" if row.former is None else "signs over to its next key"
            return "host", f"host {row.host} {asks} {row.host_key}"
        case r.JoinSettled():
            return "host", f"host {row.host}: {row.why}"
        case _:
            return None


def _of_people(row: r.Row) -> tuple[str, str] | None:
    match row:
        case r.Invited():
            return "host", f"host {row.host} is invited by {row.by} until {render_clock(row.expires_ms)}"
        case r.Frozen():
            until = f" until {render_clock(row.until_ms)}" if row.until_ms is not None else ""
            return "frozen", f"{row.scope or 'every scope'} frozen by {row.by}{until}: {row.reason}"
        case r.Thawed():
            return "thawed", f"{row.scope or 'every scope'} thawed by {row.by}"
        case r.AlarmRaised():
            return "alarm", row.text
        case r.AlarmCleared():
            return "alarm_cleared", row.key
        case _:
            return None


def _receipt(row: r.ReceiptTaken) -> str:
    receipt = row.receipt
    if receipt.outcome is Outcome.SUCCEEDED:
        return f"host {receipt.host}: command {receipt.seq} succeeded"
    detail = f": {receipt.detail}" if receipt.detail else ""
    return f"host {receipt.host}: command {receipt.seq} {receipt.outcome.value} ({receipt.code or 'no code'}){detail}"
