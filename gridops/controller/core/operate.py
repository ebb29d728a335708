"""What people ask for besides applying: freeze, thaw, invite, write off, reject, unlock. Signed requests to rows.

The caller has verified the signature and that the request is new. Each function refuses what cannot be meant and
returns rows and the words of the answer. Invitations get their secret from the shell, since chance lives there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gridops.base.codes.control import GO424, GO428, GO430
from gridops.base.errors import Bug, Refusal
from gridops.base.ids import HostId, is_name
from gridops.base.units import render_instant
from gridops.controller.core import rows as r
from gridops.controller.core.apply import find, lock_of
from gridops.controller.core.modes import later, permitted
from gridops.controller.core.observe import fresh
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Heard, Soft
from gridops.controller.core.state import State
from gridops.controller.core.uncertain import reconciled
from gridops.protocol import outbox as ob
from gridops.trust.operator import OperatorRequest

TTL_MS = 3_600_000
TTL_MAX_MS = 7 * 86_400_000
"""A longer invitation is a standing key under another name."""


@dataclass(frozen=True, slots=True)
class Done:
    """Rows to make durable and the answer to give then."""

    rows: tuple[r.Row, ...]
    answer: dict[str, Any] = field(default_factory=dict)


def carry_out(state: State, soft: Soft, roster: Roster, request: OperatorRequest, now_ms: int) -> Done:
    """Every verb that needs neither a plan nor a secret."""
    match request.verb:
        case "freeze":
            return freeze(state, request, now_ms)
        case "thaw":
            return thaw(state, request)
        case "write_off":
            return write_off(state, soft, roster, request, now_ms)
        case "reject":
            return reject(state, request, now_ms)
        case "unlock":
            return unlock(state, request, now_ms)
        case "reconcile_outcome":
            return Done(*reconciled(state, request, _reason(request)))
        case "apply" | "invite" | "errand":
            raise Bug(f"`{request.verb}` takes another way")


def freeze(state: State, request: OperatorRequest, now_ms: int) -> Done:
    """The kill switch. Nothing is asked but a reason: a freeze that is hard to get is none.

    A second one never ends the first earlier: only `thaw` loosens.
    """
    reason = _reason(request)
    if request.until_ms is not None and request.until_ms <= now_ms:
        raise Refusal(GO430.code, f"the freeze would end at {render_instant(request.until_ms)}, which is past")
    known = {*state.scopes, *(state.accepted.desired.scopes if state.accepted is not None else ())}
    if request.scope is not None and known and request.scope not in known:
        # A freeze of nothing would be a false safety.
        raise Refusal(GO430.code, f"there is no scope {request.scope}", hints=(f"scopes: {', '.join(sorted(known))}",))
    before, until_ms = state.freezes.get(request.scope), request.until_ms
    if before is not None and (before.until_ms is None or now_ms < before.until_ms):
        until_ms = later(before.until_ms, until_ms)
    row = r.Frozen(by=request.by, reason=reason, scope=request.scope, until_ms=until_ms)
    until = render_instant(until_ms) if until_ms is not None else None
    return Done((row,), {"scope": request.scope, "mode": "observe", "until": until, "reason": reason})


def thaw(state: State, request: OperatorRequest) -> Done:
    """End a freeze. The mode of the accepted commit holds again, nothing looser."""
    known = request.scope in state.freezes or (request.scope is None and bool(state.freezes))
    if not known:
        raise Refusal(GO430.code, f"scope {request.scope or '(all)'} is not frozen")
    return Done((r.Thawed(by=request.by, scope=request.scope),), {"scope": request.scope})


def invite(state: State, request: OperatorRequest, now_ms: int) -> Done:
    """Permit one join for one host name. The shell adds the token."""
    if request.host is None or not is_name(request.host):
        raise Refusal(GO430.code, f"an invitation names a host, and `{(request.host or '')[:80]}` is no name of one")
    ttl_ms = request.ttl_ms if request.ttl_ms is not None else TTL_MS
    if not 0 < ttl_ms <= TTL_MAX_MS:
        raise Refusal(GO430.code, "an invitation lasts for at least a moment and at most 7 days")
    expires_ms = now_ms + ttl_ms
    row = r.Invited(host=request.host, by=request.by, expires_ms=expires_ms)
    return Done((row,), {"host": request.host, "expires": render_instant(expires_ms)})


def write_off(state: State, soft: Soft, roster: Roster, request: OperatorRequest, now_ms: int) -> Done:
    """Release what a silent host holds, by a person's word; or go on with one whose commands an alarm has stopped.

    A host that answers and is in order is drained instead.
    """
    host, reason = request.host, _reason(request)
    if host is None or host not in state.hosts:
        raise Refusal(GO430.code, f"no host {host or '(none named)'} was ever heard here")
    heard, stopped = soft.hosts.get(host), state.hosts[host].outbox.held or state.held(host)
    if stopped is not None and heard is not None:
        return _believe(state, host, heard)
    if fresh(soft, roster, host, now_ms):
        raise Refusal(
            GO430.code, f"{host} answers: it is not lost", subject=host, hints=(f"gridops drain {host} --reason TEXT",)
        )
    return Done((r.WrittenOff(host=host, by=request.by, reason=reason),), {"host": host})


def _believe(state: State, host: HostId, heard: Heard) -> Done:
    """A person has looked at a host whose commands were stopped: its own account of them holds from here on."""
    accepted = ob.resolve(state.hosts[host].outbox, heard.heartbeat)
    cleared = tuple(r.AlarmCleared(key=key) for key in sorted(state.alarms) if key.endswith(f":{host}"))
    why = "a person accepted the host's account of its commands"
    return Done((r.OutboxSet(outbox=accepted, why=why), *cleared), {"host": host, "accepted": True})


def reject(state: State, request: OperatorRequest, now_ms: int) -> Done:
    """Say no to a proposal, or to a pending host.

    No approval carries the plan from then on. What `automatic.allow` names needs none, and goes on: the answer says so.
    """
    if request.host is not None:
        return _reject_host(state, request, request.host)
    plan = find(state, request.plan) if request.plan is not None else None
    if plan is None:
        raise Refusal(GO424.code, f"no open plan `{request.plan or ''}`")
    proposal = state.scope(plan.scope).proposal
    if proposal is None or proposal.plan.decisions_digest != plan.decisions_digest:
        raise Refusal(GO424.code, f"plan {plan.id} does not wait for anybody")
    closed = r.ProposalClosed(scope=plan.scope, plan=proposal.plan.id, why="rejected", by=request.by)
    standing = permitted(state, plan.scope, now_ms)
    allowed = [c.value for c in standing.mode.automatic.allow] if standing.automatic else []
    return Done((closed,), {"plan": proposal.plan.id, "scope": plan.scope, "automatic": sorted(allowed)})


def unlock(state: State, request: OperatorRequest, now_ms: int) -> Done:
    """Break the lock of an apply. What it set going goes on; only the next apply need not wait."""
    reason = _reason(request)
    if request.scope is None:
        raise Refusal(GO430.code, "name the scope whose lock shall go")
    apply = lock_of(state.scope(request.scope), now_ms)
    if apply is None:
        raise Refusal(GO428.code, f"scope {request.scope} is not locked")
    row = r.Unlocked(scope=request.scope, by=request.by, reason=reason)
    return Done((row,), {"scope": request.scope, "plan": apply.plan.id, "was": apply.by})


def _reject_host(state: State, request: OperatorRequest, host: HostId) -> Done:
    if host not in state.pending:
        raise Refusal(GO430.code, f"{host} is not pending", subject=host)
    return Done((r.JoinSettled(host=host, why="rejected", by=request.by),), {"host": host})


def _reason(request: OperatorRequest) -> str:
    reason = (request.reason or "").strip()
    if not reason:
        raise Refusal(GO430.code, f"`{request.verb}` needs a reason", hints=("--reason TEXT",))
    return reason[:500]
