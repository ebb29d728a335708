"""One small fleet for the protocol's tests: real keys, a real root, and short ways to make bodies, grants and beats."""

from __future__ import annotations

from dataclasses import replace

from gridops.base.canon import digest_bytes
from gridops.base.ids import DeviceId, Digest, EngineName, HostId, PersonName, ProfileName, ReplicaId, ScopeName
from gridops.base.record import to_bytes
from gridops.model.action import Action, Drain, Load, Operate, Unload, Warm
from gridops.model.plan import Launch
from gridops.model.policy import ActionClass
from gridops.model.profile import Artifact, ArtifactFile, Restart
from gridops.model.snapshot import HostState
from gridops.protocol.fence import Fence, Standing, new_fence, open_heads
from gridops.protocol.messages import (
    Authority,
    AuthorityKind,
    Body,
    Directive,
    Grant,
    GrantMode,
    Head,
    Heartbeat,
    Inventory,
    Outcome,
    Receipt,
    Term,
    genesis,
)
from gridops.protocol.outbox import Cause, Outbox, new_outbox
from gridops.protocol.receipts import Statement
from gridops.trust import root as roots
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner, PersonSigner
from gridops.trust.root import Role, RoleKey, RoleName, Root, RootChain, seal_root
from tests.builders import approvals
from tests.builders.approvals import Approver, operated

NOW = 1_796_000_000_000
MINUTE = 60_000
YEAR = 365 * 86_400_000
ADA = PersonSigner.from_seed(b"a" * 32)
CONTROLLER = MachineSigner.from_seed(b"c" * 32)
NEXT_CONTROLLER = MachineSigner.from_seed(b"n" * 32)
HOST_SIGNER = MachineSigner.from_seed(b"h" * 32)
OTHER_HOST = MachineSigner.from_seed(b"o" * 32)
HOST = HostId("gpu-07")
HOST_KEY = HOST_SIGNER.public.text
PLAN = digest_bytes(b"plan")
TERM = Term(epoch=1, counter=5)
APPROVED = Authority(kind=AuthorityKind.APPROVAL, action_class=ActionClass.SCALE_UP, approvals=("{}",))
"""For those who only carry it: no host believes this."""
STANDING = Authority(kind=AuthorityKind.STANDING, action_class=ActionClass.REPAIR)


def _root(version: int, fleet: Digest | None, *, epoch: int, standing: bool, controller: MachineSigner) -> str:
    ada = (RoleKey(holder=PersonName("ada"), key=ADA.public.text),)
    machine = (RoleKey(holder=PersonName("controller"), key=controller.public.text),)
    root = Root(
        version=version,
        fleet=fleet,
        issued_ms=NOW - MINUTE,
        expires_ms=NOW + YEAR,
        roles=(
            Role(name=RoleName.APPROVER, threshold=1, keys=ada),
            Role(name=RoleName.CONTROLLER, threshold=1, keys=machine),
            Role(name=RoleName.ROOT, threshold=1, keys=ada),
        ),
        controller_epoch=epoch,
        standing=standing,
    )
    return seal_root(root, ADA)


CHAIN: RootChain = roots.genesis(_root(1, None, epoch=1, standing=True, controller=CONTROLLER))
FLEET = CHAIN.fleet
NO_STANDING = roots.genesis(_root(1, None, epoch=1, standing=False, controller=CONTROLLER))
ROTATED = CHAIN.advance(_root(2, FLEET, epoch=2, standing=True, controller=NEXT_CONTROLLER))
START = genesis(FLEET, HOST_KEY)
ANN, BOB = PersonSigner.from_seed(b"1" * 32), PersonSigner.from_seed(b"2" * 32)


def released(chain: RootChain, threshold: int = 2, catalog: int | None = None, *signers: PersonSigner) -> RootChain:
    """The next root, in which these people (ann and bob) sign what may run at all."""
    people = {ANN.public.text: "ann", BOB.public.text: "bob", ADA.public.text: "ada"}
    keys = tuple(RoleKey(holder=PersonName(people[s.public.text]), key=s.public.text) for s in (signers or (ANN, BOB)))
    others = tuple(role for role in chain.root.roles if role.name != RoleName.RELEASE)
    release = Role(name=RoleName.RELEASE, threshold=threshold, keys=keys)
    following = replace(
        chain.root,
        version=chain.root.version + 1,
        fleet=chain.fleet,
        roles=tuple(sorted((*others, release), key=lambda r: r.name)),
        catalog=catalog,
    )
    return chain.advance(seal_root(following, ADA))


def demanding(chain: RootChain, version: str) -> RootChain:
    """The next root, which lets agents be driven from this version on."""
    root = chain.root
    following = replace(root, version=root.version + 1, fleet=chain.fleet, agent_min_version=version)
    return chain.advance(seal_root(following, ADA))


RELEASED = released(CHAIN)
DEMANDING = demanding(CHAIN, "0.10.0")
PERSON = Approver("ada", ADA, FLEET, NOW)


def standing(**changes: object) -> Standing:
    return replace(Standing(now_ms=NOW, fresh=True, chain=CHAIN), **changes)  # type: ignore[arg-type]


def fence() -> Fence:
    return new_fence(FLEET, HOST, HOST_KEY)


def outbox() -> Outbox:
    return new_outbox(FLEET, HOST, HOST_KEY)


def cause(authority: Authority = APPROVED) -> Cause:
    return Cause(plan=PLAN, scope=ScopeName("default"), authority=authority)


def artifact(n: int = 1) -> Artifact:
    return Artifact(
        format="gguf", files=(ArtifactFile(path="m.gguf", sha256=digest_bytes(b"%d" % n), size_bytes=1_000),)
    )


def load(n: int = 1) -> Load:
    return Load(host=HOST, replica=ReplicaId(f"coder/{n}"), profile=ProfileName("coder"), artifact=artifact(n))


def warm(n: int = 1, devices: tuple[str, ...] = ("gpu0",)) -> Warm:
    launch = Launch(
        profile=ProfileName("coder"),
        config=PersonName("q4"),  # type: ignore[arg-type]
        engine=EngineName("llama.cpp"),
        backend="cpu",
        artifact=artifact(n),
        context=4096,
        lanes=1,
    )
    return Warm(
        host=HOST,
        replica=ReplicaId(f"coder/{n}"),
        profile=ProfileName("coder"),
        launch=launch,
        devices=tuple(DeviceId(d) for d in devices),
        device_bytes=1_000,
        host_bytes=10,
        serves=("coder",),
        restart=Restart(),
        drain_ms=1_000,
        warm_ms=1_000,
    )


def drain(n: int = 1) -> Drain:
    incarnation = digest_bytes(b"incarnation %d" % n)
    return Drain(
        host=HOST, replica=ReplicaId(f"coder/{n}"), profile=ProfileName("coder"), incarnation=incarnation, grace_ms=9
    )


def unload(n: int = 1, *, force: bool = False) -> Unload:
    incarnation = digest_bytes(b"incarnation %d" % n)
    return Unload(
        host=HOST, replica=ReplicaId(f"coder/{n}"), profile=ProfileName("coder"), incarnation=incarnation, force=force
    )


def operate(n: int = 1, serves: tuple[str, ...] = ("coder",)) -> Operate:
    return Operate(
        host=HOST,
        replica=ReplicaId(f"coder/{n}"),
        profile=ProfileName("coder"),
        incarnation=digest_bytes(b"incarnation %d" % n),
        serves=serves,
        restart=Restart(),
        drain_ms=1_000,
    )


def body(seq: int = 1, prev: Digest = START, action: Action | None = None) -> Body:
    return Body(
        fleet=FLEET,
        host=HOST,
        host_key=HOST_KEY,
        seq=seq,
        prev=prev,
        scope=ScopeName("default"),
        plan=PLAN,
        action=action or load(seq),
    )


def approved(action: Action, **changes: object) -> Authority:
    """ada approved a decision that asks for this very step."""
    if isinstance(action, Operate) and "decision" not in changes:
        changes["decision"] = operated(action, warm(int(action.replica.rpartition("/")[2])))
    return approvals.approved(action, PERSON, **changes)


def grant(of: Body, **changes: object) -> Grant:
    made = Grant(
        fleet=of.fleet,
        body=of,
        term=TERM,
        mode=GrantMode.EXECUTE,
        issued_ms=NOW - MINUTE,
        not_after_ms=NOW + MINUTE,
        authority=approved(of.action),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def sealed(record: Grant | Receipt | Heartbeat | Directive, signer: MachineSigner = CONTROLLER) -> str:
    return seal(type(record).__name__.lower(), to_bytes(record), signer)


def statement(head: Head, outcome: Outcome = Outcome.SUCCEEDED, **changes: object) -> Statement:
    made = Statement(body=head.body, seq=head.seq, term=TERM, outcome=outcome, began_ms=NOW, ended_ms=NOW)
    return replace(made, **changes)  # type: ignore[arg-type]


def heartbeat(of: Fence, receipt_head: int = 0, **changes: object) -> Heartbeat:
    made = Heartbeat(
        fleet=of.fleet,
        host=of.host,
        boot="b1",
        hseq=1,
        nonce="n1",
        head=of.head,
        term=of.term,
        receipt_head=receipt_head,
        root_version=1,
        clock_ms=NOW,
        agent_version="0.1.0",
        inventory=Inventory(state=HostState.ACCEPTING, generation=1, devices=()),
        open=open_heads(of),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def directive(nonce: str = "n1", **changes: object) -> Directive:
    made = Directive(
        fleet=FLEET,
        host=HOST,
        nonce=nonce,
        now_ms=NOW,
        term=TERM,
        root_version=1,
        acked_rseq=0,
        next_poll_ms=2_000,
        expires_ms=NOW + 5 * MINUTE,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
