"""Writes what `core.projecting` found due into git, and pushes where a remote is configured. Runs in a thread.

Every piece stands by itself: a failure is told and tried again, and never blocks a repair. The rows it returns say
what stands now; writing the same thing twice changes nothing, so a crash before those rows are durable is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gridops.base.errors import GridopsError
from gridops.base.record import to_bytes
from gridops.controller.core import rows as r
from gridops.controller.core.projecting import Work, WritePlan, WriteResult, WriteState
from gridops.files.git import Checkout
from gridops.files.projection import STATE_BRANCH, PlanBranch
from gridops.files.push import push
from gridops.model.fleet import FleetSettings
from gridops.trust.envelope import seal
from gridops.trust.keys import Signer


@dataclass(frozen=True, slots=True)
class Place:
    """Where to write, and with which key plan documents are signed."""

    checkout: Checkout
    settings: FleetSettings
    watched: str
    signer: Signer

    def branch(self) -> PlanBranch:
        return PlanBranch(
            self.checkout, self.settings.plans_branch, path=self.settings.plans_path, watched=self.watched
        )


@dataclass(slots=True)
class Written:
    rows: list[r.Row] = field(default_factory=list)
    error: str | None = None
    unpushed: bool = False
    """Everything is written here, but a remote does not have it yet."""


def carry_out(place: Place, work: Sequence[Work], *, owed: bool = False) -> Written:
    """Write each piece in order; stop at the first failure, keeping what stands. `owed`: a push failed before."""
    written = Written()
    try:
        branch = place.branch()
        for piece in work:
            written.rows.extend(_one(place, branch, piece))
    except GridopsError as error:
        written.error = error.message
        return written
    if place.settings.remote_url is not None and (written.rows or owed):
        names = [branch.branch.name, STATE_BRANCH]
        failed = [p.detail for p in push(place.checkout, place.settings.remote_url, names) if not p.ok]
        written.error, written.unpushed = "; ".join(failed) or None, bool(failed)
    return written


def _one(place: Place, branch: PlanBranch, piece: Work) -> list[r.Row]:
    match piece:
        case WritePlan():
            return _plan(place, branch, piece)
        case WriteResult():
            branch.write_result(piece.plan, piece.result, at_ms=_date(piece.result))
            return [r.ResultWritten(plan=piece.plan, scope=piece.scope, final=True)]
        case WriteState():
            branch.write_state(piece.scope, piece.snapshot)
            return [r.StateWritten(scope=piece.scope, digest=piece.digest)]


def _plan(place: Place, branch: PlanBranch, piece: WritePlan) -> list[r.Row]:
    plan = piece.plan
    commit = branch.write(plan, seal("plan", to_bytes(plan), place.signer), piece.approvals)
    rows: list[r.Row] = [r.PlanWritten(plan=plan.id, scope=plan.scope, commit=commit, batch=piece.batch)]
    if piece.result is not None:
        branch.write_result(plan.id, piece.result, at_ms=_date(piece.result))
        final = piece.batch or piece.result.get("outcome") != "under way"
        rows.append(r.ResultWritten(plan=plan.id, scope=plan.scope, final=final))
    return rows


def _date(result: object) -> int | None:
    found = result.get("applied_ms") if isinstance(result, dict) else None
    return found if isinstance(found, int) else None
