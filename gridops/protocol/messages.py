"""The records on the wire between controller, hosts and operators. Each travels as the payload of a signed envelope.

A *body* is what shall be done: immutable, one per (host, seq), journalled before it is first sent. A *grant* gives a
body its authority for a few minutes and may be issued again; a grant with mode `void` takes it back. The host is
where execute and void are decided: whichever it records first wins, and the other is answered with the outcome.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from gridops.base import limits
from gridops.base.canon import digest
from gridops.base.ids import Digest, HostId, ProfileName, ScopeName
from gridops.base.record import record
from gridops.model.action import Action, DeviceGeneration
from gridops.model.advice import Prefetched
from gridops.model.fleet import Runtime
from gridops.model.measured import Measured
from gridops.model.policy import ActionClass, ClassProtection
from gridops.model.snapshot import DeviceReport, HostState, Residency
from gridops.trust.approved import Proof

WIRE_VERSION = 1


@record
class Term:
    """The controller's write authority. Compared by epoch, then counter; only ever rises."""

    epoch: int
    counter: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.epoch, self.counter


@record
class Body:
    """What shall be done on one host. Identity: the digest of its canonical bytes."""

    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    host_key: str
    seq: int
    """Per host, from 1, contiguous, never reset."""
    prev: Digest
    """Identity of the body before it; for the first, `genesis(fleet, host_key)`."""
    scope: ScopeName
    plan: Digest
    action: Action
    precondition: tuple[DeviceGeneration, ...] = ()
    catalog: int | None = None
    """Version of the catalog that it was made under. None: there was none, or the host's agent knows of none."""


@lru_cache(maxsize=limits.KEYS_KEPT)
def genesis(fleet: Digest, host_key: str) -> Digest:
    """What the first body, and the first receipt, of a host key name as the one before."""
    return digest({"chain": "gridops.host.v1", "fleet": fleet, "host_key": host_key})


class GrantMode(StrEnum):
    EXECUTE = "execute"
    VOID = "void"


class AuthorityKind(StrEnum):
    APPROVAL = "approval"
    """People approved the plan: `approvals` holds their signed envelopes."""
    STANDING = "standing"
    """The class is allowed in automatic mode and the trust root permits standing authority."""


@record
class Authority:
    kind: AuthorityKind
    action_class: ActionClass
    approvals: tuple[str, ...] = ()
    """Signed envelopes as JSON text."""
    proof: Proof | None = None
    """Which of the approved decisions is carried out. None: the host does not ask for it, or nothing was decided."""


@record
class Grant:
    """A re-issuable permission for one body."""

    v: int = WIRE_VERSION
    fleet: Digest
    body: Body
    term: Term
    mode: GrantMode
    issued_ms: int
    not_after_ms: int
    authority: Authority


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    VOIDED = "voided"
    UNKNOWN = "unknown"


@record
class Receipt:
    """The host's signed statement about one body. `rseq` is contiguous and `prev` chains receipts by digest."""

    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    boot: str
    """Random id of this run of the agent."""
    rseq: int
    prev: Digest
    body: Digest
    seq: int
    term: Term
    outcome: Outcome
    final: bool
    code: str | None = None
    """For anything but success: a stable code (`base.codes`)."""
    detail: str | None = None
    began_ms: int
    ended_ms: int
    fetched_bytes: int | None = None
    """For a load: what had to come over the link. None: nothing, so that its duration says nothing about a fetch."""


class Ability(StrEnum):
    """What an agent says it can do beyond the first version of the wire. What is not said is never asked for."""

    EVICT = "evict"
    """It remembers what it fetched on a guess (`Load.guess`), and deletes it when told to (`Evict`)."""
    CATALOG = "catalog"
    """It keeps the signed catalog, and holds each load and start against it."""
    PROOF = "proof"
    """It verifies approvals itself, so it is shown which approved decision a command carries out."""
    BINDING = "binding"
    """It signs who answers at its front (`TlsBinding`) when it is asked to."""


@record
class Transfer:
    """An artifact on its way to the host. A reading: it decides nothing."""

    artifact: Digest
    """Of its files, whatever the source."""
    source: str
    """Where the bytes come from now: a scheme, `peer`, or `here`."""
    done_bytes: int
    size_bytes: int


@record
class Inventory:
    """What a host says about itself: the observable part of `model.snapshot.HostReport`."""

    state: HostState
    reasons: tuple[str, ...] = ()
    generation: int
    devices: tuple[DeviceReport, ...]
    residencies: tuple[Residency, ...] = ()
    runtimes: tuple[Runtime, ...] = ()
    cached: tuple[Digest, ...] = ()
    disk_free_bytes: int | None = None
    endpoint: str | None = None
    front_cert: str | None = None
    """SHA-256 fingerprint (hex) of the front's TLS certificate; the heartbeat's signature binds it to the host."""
    goodbye: bool = False
    transfers: tuple[Transfer, ...] | None = None
    """What is being fetched now. None: nothing."""
    prefetched: tuple[Prefetched, ...] | None = None
    """What was fetched on a guess, is still here and was never used. None: nothing."""
    measured: tuple[Measured, ...] | None = None
    """What this host's qualifications measured, sorted by evidence. None: nothing."""
    abilities: tuple[str, ...] | None = None
    """`Ability`s of the agent; those that a reader does not know are none to it."""
    left: bool | None = None
    """With a goodbye: it does not come back, this host has left its fleet. None: it has not."""
    binding: str | None = None
    """A signed `TlsBinding`, in answer to `Directive.wants_binding`. None: none was asked for."""


@record
class TlsBinding:
    """A host's word on who answers at its front, as kind `tls-binding`. For a day; made and judged in `binding`."""

    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    endpoint: str
    """`https://ADDRESS:PORT`."""
    certificate: str
    """PEM, to be pinned. Its key is none that signs anything else."""
    issued_ms: int
    not_after_ms: int


@record
class Head:
    """How far the host has come: last decided sequence number and the identity of that body."""

    seq: int
    body: Digest


@record
class Heartbeat:
    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    boot: str
    hseq: int
    nonce: str
    """Random; the directive that answers must echo it."""
    head: Head
    term: Term
    receipt_head: int
    """`rseq` of the newest receipt this host has made."""
    root_version: int
    clock_ms: int
    agent_version: str
    speaks: tuple[int, ...] = (WIRE_VERSION,)
    inventory: Inventory
    alarms: tuple[str, ...] = ()
    heard_ms: int = 0
    """Controller time heard durably (`fresh.Session.floor_ms`; 0: no claim): orders heartbeats of several runs."""
    receipt_tail: int = 1
    """`rseq` of the oldest receipt this host can still repeat (`receipts.tail`)."""
    open: tuple[Head, ...] = ()
    """Accepted, without a final receipt (`fence.open_heads`): what a controller that lost its memory adopts."""
    catalog_version: int | None = None
    """Of the catalog here that the newest root document here believes; 0 where one is asked for and none is. None: no
    catalog is asked for here."""


@record
class GatewayKey:
    """A key that clients may present at the front: SHA-256 of a 256-bit random value, never the value."""

    name: str
    sha256: Digest
    profiles: tuple[ProfileName, ...] = ()
    """Empty: all."""


@record
class Directive:
    """The answer to a heartbeat."""

    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    nonce: str
    now_ms: int
    term: Term
    root_version: int
    acked_rseq: int
    roots: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    protection: ClassProtection | None = None
    keys: tuple[GatewayKey, ...] = ()
    next_poll_ms: int
    expires_ms: int
    catalog: str | None = None
    """Signed envelope, where the host is behind and its agent knows catalogs. Taken before the grants."""
    wants_binding: bool | None = None
    """True: the next heartbeat shall carry a `TlsBinding`. Said only to agents that know of it."""


@record
class Facts:
    """What a joining host tells about itself, for the person who admits it."""

    devices: tuple[DeviceReport, ...]
    runtimes: tuple[Runtime, ...]
    agent_version: str
    platform: str


@record
class JoinRequest:
    """Sent once with a join token's MAC (`trust.join`), signed by the new host key."""

    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    host_key: str
    nonce: str
    facts: Facts
    mac: str
    """Empty where the host is in the fleet already and signs over to another key."""
    over: str | None = None
    """A signed `Rekey` by the host's present key, instead of a token. None: the machine joins by a token."""


@record
class Rekey:
    """A host's present key signs over to the next one, as kind `rekey`. It admits nothing: a commit does."""

    v: int = WIRE_VERSION
    fleet: Digest
    host: HostId
    host_key: str
    """The present one."""
    next_key: str
    nonce: str
    """Of the join request that carries it."""


@record
class JoinReply:
    v: int = WIRE_VERSION
    roots: tuple[str, ...]
    mac: str
    """Proves that the controller knows the same secret."""


@record
class Beat:
    """The HTTP request body of one poll: a signed heartbeat and the receipts not yet acknowledged."""

    heartbeat: str
    receipts: tuple[str, ...] = ()
