"""What `/metrics` says: the families of the design, read from the state at the moment of the scrape."""

from __future__ import annotations

from collections import Counter

from gridops import __version__
from gridops.controller.core.apply import lock_of
from gridops.controller.core.modes import overdue, permitted
from gridops.controller.metrics import Counters, Family, Histogram, Sample, render
from gridops.controller.views import View, status
from gridops.planner.render_words import counts


def metrics(view: View, counters: Counters, passes: dict[str, Histogram]) -> str:
    """The whole page."""
    return render([*_fleet(view, counters), *_scopes(view, passes), *_hosts(view), *_counted(counters)])


def _fleet(view: View, counters: Counters) -> list[Family]:
    expiry: list[Sample] = [("", {"role": "root", "name": "root"}, view.soft.chain.root.expires_ms / 1000)]
    refused = [("", {"code": code}, float(n)) for code, n in sorted(view.soft.refusals.items())]
    trusted = 0.0 if view.state.distrust is not None else 1.0
    synced = 0.0 if view.state.newest_refused is not None or view.state.accepted is None else 1.0
    return [
        Family("gridops_build_info", "gauge", "The running version.", [("", {"version": __version__}, 1.0)]),
        Family("gridops_key_expiry_timestamp_seconds", "gauge", "When a document that carries keys expires.", expiry),
        Family("gridops_refusals_total", "counter", "Requests refused, by code.", refused),
        Family("gridops_journal_rows", "gauge", "Number of the newest journal row.", [("", {}, float(view.rows))]),
        Family("gridops_journal_trusted", "gauge", "0 when the journal cannot be trusted.", [("", {}, trusted)]),
        Family("gridops_intent_synced", "gauge", "0 while the newest commit is refused.", [("", {}, synced)]),
        Family("gridops_alarms", "gauge", "Alarms that stand.", [("", {}, float(len(view.state.alarms)))]),
    ]


def _scopes(view: View, passes: dict[str, Histogram]) -> list[Family]:
    quiet: list[Sample] = []
    decisions: list[Sample] = []
    since: list[Sample] = []
    mode: list[Sample] = []
    late: list[Sample] = []
    wanted: dict[str, list[Sample]] = {"desired": [], "ready": [], "unplaced": []}
    locked: list[Sample] = []
    for doc in status(view).scopes:
        scope, labels = doc.scope, {"scope": str(doc.scope)}
        soft, book = view.soft.scope(scope), view.state.scope(scope)
        quiet.append(("", labels, float(soft.quiet)))
        mode.append(("", {**labels, "mode": permitted(view.state, scope, view.now_ms).mode.mode.value}, 1.0))
        late.append(("", labels, 1.0 if {scope, None} & set(overdue(view.state, view.now_ms)) else 0.0))
        locked.append(("", labels, 1.0 if lock_of(book, view.now_ms) is not None else 0.0))
        if book.proposal is not None:
            since.append(("", labels, book.proposal.at_ms / 1000))
        if soft.candidate is not None:
            decisions += [("", {**labels, "action": k.value}, float(n)) for k, n in counts(soft.candidate).items()]
        unplaced = Counter(u.replica.rpartition("/")[0] for u in doc.unplaced)
        for model in doc.models:
            named = {**labels, "model": str(model.profile)}
            wanted["desired"].append(("", named, float(model.want)))
            wanted["ready"].append(("", named, float(model.ready)))
            wanted["unplaced"].append(("", named, float(unplaced[model.profile])))
    durations = [s for scope, h in sorted(passes.items()) for s in h.samples({"scope": scope})]
    return [
        Family("gridops_replans_suppressed_total", "counter", "Plans that gave no new decisions.", quiet),
        Family("gridops_plan_decisions", "gauge", "Decisions of the newest plan.", decisions),
        Family("gridops_plan_pending_since_timestamp_seconds", "gauge", "Since when a proposal waits.", since),
        Family("gridops_mode_info", "gauge", "The mode in force.", mode),
        Family("gridops_freeze_overdue", "gauge", "1 when a freeze is past its end and nobody resolved it.", late),
        Family("gridops_apply_locked", "gauge", "1 while an apply holds the scope's lock.", locked),
        Family("gridops_replicas_desired", "gauge", "Replicas that the newest plan wants.", wanted["desired"]),
        Family("gridops_replicas_ready", "gauge", "Replicas that answer.", wanted["ready"]),
        Family("gridops_replicas_unplaced", "gauge", "Wanted replicas that stand nowhere.", wanted["unplaced"]),
        Family("gridops_reconcile_duration_seconds", "histogram", "How long a plan took.", durations),
    ]


def _hosts(view: View) -> list[Family]:
    seen = [("", {"host": str(h)}, x.report.observed_ms / 1000) for h, x in sorted(view.soft.hosts.items())]
    draining = [
        ("", {"host": str(h.id)}, 1.0 if h.id in view.roster.draining else 0.0) for h in view.roster.desired.hosts
    ]
    return [
        Family("gridops_agent_last_seen_timestamp_seconds", "gauge", "Newest heartbeat of a host.", seen),
        Family("gridops_host_draining", "gauge", "1 while a host is asked to be empty.", draining),
    ]


def _counted(counters: Counters) -> list[Family]:
    return [
        Family(name, "counter", text, counters.of(name))
        for name, text in (
            ("gridops_agent_commands_total", "Receipts of hosts, by outcome."),
            ("gridops_apply_steps_total", "Commands settled, by action and outcome."),
            ("gridops_plans_written_total", "Plan documents written to git."),
            ("gridops_reconcile_total", "Plans made, by what came of them."),
        )
    ]
