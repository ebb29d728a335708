"""What git does not show yet: proposals, targets, results and the material snapshot, in the order of writing.

A pure question about state and soft state, asked after every pass; the shell writes the answer in a thread and
journals what stands. Nothing here is needed to act: git is where people read, not a bus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import is_not
from typing import Any

from gridops.base.ids import Digest, PlanId, ScopeName
from gridops.base.record import digest_of, with_one
from gridops.base.units import render_instant
from gridops.controller.core.observe import seen
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import Apply, Batch, ScopeBook, State
from gridops.model.plan import Plan
from gridops.model.snapshot import DeviceReport, HostReport, Snapshot
from gridops.protocol.messages import AuthorityKind

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A plan document; with `result`, what became of it beside it."""

    plan: Plan
    approvals: tuple[str, ...] = ()
    batch: bool = False
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class WriteResult:
    plan: PlanId
    scope: ScopeName
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WriteState:
    scope: ScopeName
    snapshot: Snapshot
    digest: Digest


Work = WritePlan | WriteResult | WriteState


def due(state: State, soft: Soft, roster: Roster, now_ms: int, *, with_state: bool = True) -> tuple[Work, ...]:
    """Everything that is to be written now, oldest meaning first; the snapshot only when asked for."""
    work: list[Work] = []
    for scope, book in sorted(state.scopes.items()):
        if book.proposal is not None and book.proposal.plan.id not in state.written:
            work.append(WritePlan(book.proposal.plan))
        work.extend(_applies(state, book))
        batch = _batch(state, book, roster, scope, now_ms)
        if batch is not None:
            work.append(batch)
    for scope in roster.desired.scopes if with_state else ():
        snapshot = material(seen(soft, roster, scope, now_ms))
        digest = digest_of(_timeless(snapshot, roster.desired.planning.heartbeat.stale_after_ms))
        if snapshot.hosts and digest != state.scope(scope).state_digest:
            work.append(WriteState(scope, snapshot, digest))
    return tuple(work)


def material(snapshot: Snapshot) -> Snapshot:
    """The snapshot in coarse numbers: bytes to the GiB, nothing that changes with every request."""
    return replace(snapshot, hosts=tuple(_coarse(report) for report in snapshot.hosts))


def result_of(apply: Apply) -> dict[str, Any]:
    """What became of an apply, as people and `controller rebuild` read it."""
    failures = [
        {
            "replica": replica,
            "host": f.host,
            "action": f.kind,
            "outcome": f.outcome,
            "code": f.code or "",
            "detail": f.detail or "",
            "at": render_instant(f.at_ms),
        }
        for replica, f in sorted(apply.failures.items())
    ]
    result: dict[str, Any] = {
        "applied_ms": apply.began_ms,
        "applied": render_instant(apply.began_ms),
        "by": apply.by,
        "approved_by": list(apply.approvers),
        "authority": AuthorityKind.APPROVAL.value,
        "outcome": apply.outcome or "under way",
    }
    if apply.ended_ms is not None:
        result["ended"] = render_instant(apply.ended_ms)
    if failures:
        result["failures"] = failures
    return result


def _applies(state: State, book: ScopeBook) -> list[Work]:
    """Each apply is written when it begins, so that a lost journal still leaves who put what into force, and once more
    when it has ended."""
    work: list[Work] = []
    for apply in book.applies:
        plan = apply.plan
        if plan.id not in state.results:
            work.append(WritePlan(plan, apply.approvals, result=result_of(apply)))
        elif apply.outcome is not None and not apply.written:
            work.append(WriteResult(plan.id, plan.scope, result_of(apply)))
    return work


def _batch(state: State, book: ScopeBook, roster: Roster, scope: ScopeName, now_ms: int) -> WritePlan | None:
    """What automatic mode did, as one document of what is in force; at once if nothing was written lately."""
    batch = book.batch
    if not batch.plans or book.target is None:
        return None
    every_ms = roster.desired.budgets.of(scope).plan_file_every_ms
    if batch.written_ms is not None and now_ms - batch.written_ms < every_ms:
        return None
    return WritePlan(book.target, batch=True, result=_automatic(batch, book))


def _automatic(batch: Batch, book: ScopeBook) -> dict[str, Any]:
    return {
        "applied_ms": book.target_ms,
        "applied": render_instant(book.target_ms),
        "by": "automatic",
        "authority": AuthorityKind.STANDING.value,
        "outcome": "in force",
        "plans": list(batch.plans),
        "since": render_instant(batch.since_ms),
    }


def _coarse(report: HostReport) -> HostReport:
    """What is coarse already stays the object it is: this is asked of every host every few seconds."""
    devices = tuple(map(_coarse_device, report.devices))
    if any(map(is_not, devices, report.devices)):
        report = with_one(report, "devices", devices)
    if any(r.in_flight for r in report.residencies):
        still = tuple(with_one(r, "in_flight", 0) if r.in_flight else r for r in report.residencies)
        report = with_one(report, "residencies", still)
    free = report.disk_free_bytes
    return with_one(report, "disk_free_bytes", _to_gib(free)) if free is not None and free % GIB else report


def _coarse_device(device: DeviceReport) -> DeviceReport:
    coarse = _to_gib(device.external_bytes)
    if coarse == device.external_bytes and device.external_ms is None:
        return device
    return replace(device, external_bytes=coarse, external_ms=None)


def _timeless(snapshot: Snapshot, stale_after_ms: int) -> Snapshot:
    """What makes two situations different: everything but when it was seen, and whether that was lately."""
    now_ms = snapshot.observed_ms
    hosts = tuple(
        with_one(with_one(h, "since_ms", None), "observed_ms", int(now_ms - h.observed_ms <= stale_after_ms))
        for h in snapshot.hosts
    )
    return replace(snapshot, observed_ms=0, hosts=hosts)


def _to_gib(value: int) -> int:
    return (value + GIB // 2) // GIB * GIB
