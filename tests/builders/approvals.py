"""What a person signs for exactly one command: approvals for tests of hosts, signed by real keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gridops.base.ids import DeviceId, Digest, PersonName, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.model.action import Action, Evict, Load, Operate, Warm
from gridops.model.plan import DecisionKind, Launch, ReadSet, Seat
from gridops.model.policy import ActionClass
from gridops.protocol.messages import Authority, AuthorityKind
from gridops.protocol.outbox import action_key
from gridops.trust.approval import Approval, seal_approval
from gridops.trust.approved import ApprovedDecision, leaves_of, prove, root_of
from gridops.trust.keys import PersonSigner
from gridops.trust.operator import OperatorRequest, seal_operator

SCOPE = ScopeName("default")
NO_LAUNCH = Digest("sha256:" + "0" * 64)
HALF_HOUR = 1_800_000


@dataclass(frozen=True)
class Approver:
    """A person with an approver key of the fleet, and when that person signs."""

    name: str
    signer: PersonSigner
    fleet: Digest
    now_ms: int

    def signs(self, tree: Digest | None, **changes: Any) -> str:
        """An approval of the decisions with this tree."""
        said: dict[str, Any] = {
            "fleet": self.fleet,
            "scope": SCOPE,
            "decisions_digest": Digest("sha256:" + "d" * 64),
            "reads": ReadSet(),
            "decision": "approve",
            "approver": PersonName(self.name),
            "issued_ms": self.now_ms - 1_000,
            "not_after_ms": self.now_ms + HALF_HOUR,
            "decisions_tree": tree,
        }
        return seal_approval(Approval(**{**said, **changes}), self.signer)

    def lets(self, errand: Digest, **changes: Any) -> str:
        """A word for one advised step."""
        said: dict[str, Any] = {
            "fleet": self.fleet,
            "verb": "errand",
            "by": PersonName(self.name),
            "nonce": "n" * 16,
            "issued_ms": self.now_ms - 1_000,
            "not_after_ms": self.now_ms + 300_000,
            "scope": SCOPE,
            "errand": errand,
        }
        return seal_operator(OperatorRequest(**{**said, **changes}), self.signer)


def decision_for(action: Action, launch: Launch | None = None) -> ApprovedDecision:
    """The simplest decision that asks for this step: a start here, or a removal."""
    match action:
        case Warm():
            target = Seat(host=action.host, devices=action.devices)
            return placed(action.replica, target, digest_of(action.launch))
        case Load():
            shown = launch or launch_of(action)
            return placed(action.replica, Seat(host=action.host, devices=(DeviceId("gpu0"),)), digest_of(shown))
        case Operate():
            return placed(action.replica, Seat(host=action.host, devices=()), NO_LAUNCH, kind=DecisionKind.CHANGE)
        case _:
            return ApprovedDecision(kind=DecisionKind.REMOVE, replica=action.replica)


def placed(replica: ReplicaId, target: Seat, launch: Digest, **changes: Any) -> ApprovedDecision:
    said: dict[str, Any] = {"kind": DecisionKind.PLACE, "replica": replica, "target": target, "launch": launch}
    return ApprovedDecision(**{**said, **changes})


def launch_of(load: Load) -> Launch:
    """Some launch of the artifact that is fetched."""
    return Launch(
        profile=load.profile,
        config="q4",  # type: ignore[arg-type]
        engine="llama.cpp",  # type: ignore[arg-type]
        backend="cpu",
        artifact=load.artifact,
        context=4096,
        lanes=1,
    )


Decisions = tuple[ApprovedDecision, ...]


def approved(action: Action, *people: Approver, among: Decisions = (), **changes: Any) -> Authority:
    """Authority for this command alone. `among`: what else was approved; `changes`: another decision or launch."""
    if isinstance(action, Evict) or (isinstance(action, Load) and action.guess):
        words = tuple(p.lets(Digest(action_key(action))) for p in people)
        return Authority(kind=AuthorityKind.APPROVAL, action_class=ActionClass.SCALE_UP, approvals=words)
    launch = changes.get("launch") or (launch_of(action) if isinstance(action, Load) else None)
    decision = changes.get("decision") or decision_for(action, launch)
    leaves = leaves_of((decision, *among))
    return Authority(
        kind=AuthorityKind.APPROVAL,
        action_class=ActionClass.SCALE_UP,
        approvals=tuple(p.signs(root_of(leaves)) for p in people),
        proof=prove(decision, leaves, launch),
    )


def operated(action: Operate, warm: Warm) -> ApprovedDecision:
    """A change of what may change while it runs, of what this command made."""
    seat = Seat(host=warm.host, devices=warm.devices)
    return placed(action.replica, seat, digest_of(warm.launch), kind=DecisionKind.CHANGE)
