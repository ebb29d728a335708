"""Does what people approved cover this very command? One pure answer, for the host and for the controller.

The host asks at check 11 of its fence and believes nobody else; the controller asks before it makes a command, so that
none goes out that can only be refused. People are the approver keys of the asker's own root documents, as many as
their threshold wants; what they approved is the decision that the command shows (`trust.approved`). What cannot be
judged is not covered. It never asks what a policy file says: a host has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId, Digest, ReplicaId, ScopeName, short
from gridops.base.record import digest_of
from gridops.model.action import Action, Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.plan import DecisionKind
from gridops.model.snapshot import Residency, ResidencyState
from gridops.protocol.messages import Authority
from gridops.protocol.outbox import action_key
from gridops.trust import approval, operator
from gridops.trust.approved import ApprovedDecision, Proof, fits, process_name
from gridops.trust.root import RootChain

_ENDING = frozenset({ResidencyState.DRAINING, ResidencyState.FAILED})
_STARTING = frozenset({DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE})


@dataclass(frozen=True, slots=True)
class Running:
    """What runs under one incarnation, as its host calls and sees it."""

    replica: ReplicaId | None
    launch: Digest | None
    devices: tuple[DeviceId, ...]
    state: ResidencyState


Runs: TypeAlias = Mapping[Digest, Running]


def nothing() -> Runs:
    return MappingProxyType({})


def as_reported(residencies: Iterable[Residency]) -> Runs:
    """What runs on a host, by what it says."""
    return {
        r.incarnation: Running(r.replica, r.identity, r.devices, r.state)
        for r in residencies
        if r.incarnation is not None
    }


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that claims an approval, and the residencies of its host by incarnation."""

    fleet: Digest
    scope: ScopeName
    action: Action
    authority: Authority
    runs: Runs = field(default_factory=nothing)


def uncovered(asked: Asked, chain: RootChain, now_ms: int) -> str | None:
    """Why no approval covers this command, as a sentence; None where one does."""
    action, authority = asked.action, asked.authority
    if not authority.approvals:
        return "the command claims an approval and carries none"
    try:
        if isinstance(action, Evict) or (isinstance(action, Load) and action.guess):
            step = operator.Step(asked.fleet, asked.scope, Digest(action_key(action)))
            operator.require_let(authority.approvals, step, chain, now_ms)
            return None
        proof = authority.proof
        if proof is None:
            return (
                "the command does not show which approved decision it carries out; where its approval was signed by an "
                "older gridops, sign the plan again"
            )
        if not fits(proof):
            return "what the command shows of its approved decision does not belong together"
        claim = approval.Claim(asked.fleet, asked.scope, proof.tree)
        approval.require_carried(authority.approvals, claim, chain, now_ms)
    except Refusal as refusal:
        return "; ".join((refusal.message, *refusal.evidence[:3]))
    return _beyond(proof, action, asked.runs)


def _beyond(proof: Proof, action: Action, runs: Runs) -> str | None:
    """Why the decision that was approved does not ask for this step."""
    match action:
        case Load():
            return _starts(proof.decision, action) or _artifact(proof, action)
        case Warm():
            return _starts(proof.decision, action) or _command(proof.decision, action)
        case Operate():
            return _starts(proof.decision, action) or _stays(proof.decision, action, runs)
        case Drain() | Unload():
            return _ends(proof.decision, action, runs.get(action.incarnation))
        case Evict():
            return "no decision asks for the deletion of files"


def _starts(decision: ApprovedDecision, action: Load | Warm | Operate) -> str | None:
    if action.replica != decision.replica or action.profile != decision.replica.rpartition("/")[0]:
        return f"what was approved is about {decision.replica}, the command about {action.replica}"
    if decision.kind not in _STARTING or decision.target is None:
        return f"what was approved is to {decision.kind.value} {decision.replica}, and nothing is started for that"
    if action.host != decision.target.host:
        return f"what was approved puts {decision.replica} on {decision.target.host}, not on {action.host}"
    return None


def _artifact(proof: Proof, load: Load) -> str | None:
    if proof.launch is None:
        return f"the command does not show the launch that was approved for {load.replica}"
    if proof.launch.artifact != load.artifact:
        return f"the artifact is not the one that was approved for {load.replica}"
    return None


def _command(decision: ApprovedDecision, warm: Warm) -> str | None:
    found = digest_of(warm.launch)
    if found != decision.launch:
        approved = short(decision.launch) if decision.launch is not None else "none"
        return f"{warm.replica} would be started by launch {short(found)}, and {approved} was approved"
    if decision.target is None or sorted(warm.devices) != sorted(decision.target.devices):
        return f"{warm.replica} would be started on {', '.join(warm.devices)}, which was not approved"
    return None


def _stays(decision: ApprovedDecision, operate: Operate, runs: Runs) -> str | None:
    running = runs.get(operate.incarnation)
    if running is None or _is_what_was_decided(decision, operate, running):
        return None  # what is not there is no residency, and is refused as that
    return f"{short(operate.incarnation)} is not what was approved as {decision.replica}"


def beyond_its_end(decision: ApprovedDecision, action: Drain | Unload, runs: Runs) -> str | None:
    """Why a decision, if people approved it, does not ask for the end of this process; None where it does."""
    return _ends(decision, action, runs.get(action.incarnation))


def _ends(decision: ApprovedDecision, action: Drain | Unload, running: Running | None) -> str | None:
    if decision.processes is not None:
        if process_name(action.host, action.incarnation) in decision.processes:
            return None
        return f"what was approved ends {', '.join(decision.processes)}, not {short(action.incarnation)}"
    names = {decision.replica, decision.former}
    for called in (action.replica, running.replica if running is not None else action.replica):
        if called not in names:
            return f"what was approved is about {decision.replica}, and this is {called}"
    if running is None or running.state in _ENDING or not _is_what_was_decided(decision, action, running):
        return None
    return f"what was approved keeps {decision.replica} where it is"


def _is_what_was_decided(decision: ApprovedDecision, action: Operate | Drain | Unload, running: Running) -> bool:
    """It runs by the launch of the decision, and where the decision puts it."""
    target = decision.target
    here = target is not None and target.host == action.host and sorted(target.devices) == sorted(running.devices)
    return here and running.launch == decision.launch
