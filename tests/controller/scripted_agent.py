"""A host for the controller's tests: the real protocol and real signatures around a room of make-believe engines.

It is the double at the edge: everything that is signed, fenced, numbered or chained is done by the product's own
rooms; only processes, artifacts and devices are a dictionary. `talk` is one poll; `post` sends it, in process or over
TLS. Effects end at once unless the script says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId, Digest, EngineName, HostId, ReplicaId
from gridops.base.record import digest_of, to_bytes
from gridops.footprint.need import identity
from gridops.model.action import Action, Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.advice import Prefetched
from gridops.model.fleet import DeviceKind, Runtime
from gridops.model.measured import Measured
from gridops.model.snapshot import DeviceReport, HostState, Residency, ResidencyState
from gridops.protocol import fence as fences
from gridops.protocol import fresh
from gridops.protocol import receipts as chain_of_receipts
from gridops.protocol.alarm import Alarm
from gridops.protocol.covers import as_reported
from gridops.protocol.fence import Cancel, Execute, Fence, Reject, Repeat, Standing, Voided
from gridops.protocol.messages import Beat, Body, Directive, Heartbeat, Inventory, Outcome, Term, Transfer
from gridops.protocol.open import open_directive
from gridops.protocol.receipts import Receipts, Statement, new_receipts
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from gridops.trust.release import NONE_KNOWN, KnownCatalog, take, walked
from gridops.trust.root import RootChain

GIB = 1 << 30
Post = Callable[[Beat], str]


@dataclass
class Room:
    """The make-believe machine: what is cached, what runs, and what the script wants to go wrong."""

    residencies: dict[Digest, Residency] = field(default_factory=dict)
    cached: set[Digest] = field(default_factory=set)
    generation: int = 1
    devices: tuple[DeviceReport, ...] = (
        DeviceReport(id=DeviceId("cpu0"), kind=DeviceKind.CPU, total_bytes=3 * GIB, generation=1),
    )
    state: HostState = HostState.ACCEPTING
    spawned: list[tuple[ReplicaId, Digest]] = field(default_factory=list)
    """Every process ever started: the same body twice would be a fault of the protocol."""
    stopped: list[Digest] = field(default_factory=list)
    fails: dict[str, str] = field(default_factory=dict)
    """Action kind to the code it fails with."""
    slow: set[str] = field(default_factory=set)
    """Action kinds that do not end until `finish`."""
    takes: dict[str, int] = field(default_factory=dict)
    """Action kind to the milliseconds that its receipt claims."""
    there: set[Digest] = field(default_factory=set)
    """Files in its folders that nobody has proved yet: a load has nothing to fetch."""

    guesses: list[Prefetched] = field(default_factory=list)
    """What came on a guess and was not used."""
    abilities: tuple[str, ...] | None = ("binding", "catalog", "evict", "proof")
    backend: str = "cpu"
    measured: tuple[Measured, ...] | None = None
    """What its qualifications came to."""
    transfers: tuple[Transfer, ...] | None = None
    """What it says that it fetches."""
    version: str = "0.1.0"
    """Of its agent."""
    heeds: bool = True
    """Its agent knows that a root may demand a later version; one of before does not ask."""

    def bump(self) -> None:
        self.generation += 1
        self.devices = tuple(replace(d, generation=d.generation + 1) for d in self.devices)


@dataclass
class ScriptedAgent:
    """One host's agent. Survives a restart of the controller; `restart` is a restart of the agent itself."""

    host: HostId
    signer: MachineSigner
    chain: RootChain
    room: Room = field(default_factory=Room)
    boot: str = "boot-1"
    now_ms: int = 0
    goodbye: bool = False
    left: bool | None = None
    claims: bool = False
    """Its heartbeats repeat the latest time that it was told, as a real agent's do."""
    rejects: list[str] = field(default_factory=list)
    executed: list[tuple[str, ReplicaId]] = field(default_factory=list)
    open: dict[Digest, tuple[Body, Term]] = field(default_factory=dict)
    last: Directive | None = None
    known: KnownCatalog = NONE_KNOWN
    binding: str | None = None
    """What it says of its front when it is asked. None: it says nothing."""
    certificate: str = "0" * 64

    def __post_init__(self) -> None:
        key = self.signer.public.text
        self.fence: Fence = fences.new_fence(self.chain.fleet, self.host, key)
        self.receipts: Receipts = new_receipts(self.chain.fleet, self.host, key)
        self.session = fresh.begin(self.chain.fleet, self.host, self.boot)

    def talk(self, post: Post, now_ms: int) -> Directive:
        """One poll: say what is, hear what shall be, do it."""
        self.now_ms = now_ms
        beat = self.beat()
        answer = post(beat)
        return self.hear(answer)

    def beat(self) -> Beat:
        nonce = f"nonce-{self.host}-{self.session.hseq + 1}-{self.boot}"
        self.session = fresh.ask(self.session, nonce, self.now_ms)
        heartbeat = Heartbeat(
            fleet=self.chain.fleet,
            host=self.host,
            boot=self.boot,
            hseq=self.session.hseq,
            nonce=nonce,
            head=self.fence.head,
            term=self.fence.term,
            receipt_head=self.receipts.head,
            root_version=self.chain.root.version,
            clock_ms=self.now_ms,
            agent_version=self.room.version,
            inventory=self.inventory(),
            open=fences.open_heads(self.fence),
            heard_ms=self.session.floor_ms if self.claims else 0,
            catalog_version=self.known.catalog.version if self.known.catalog is not None else None,
        )
        owed = chain_of_receipts.owed(self.receipts)
        sealed = tuple(seal("receipt", to_bytes(r), self.signer) for r in owed)
        return Beat(heartbeat=seal("heartbeat", to_bytes(heartbeat), self.signer), receipts=sealed)

    def hear(self, envelope: str) -> Directive:
        directive = open_directive(envelope, self.chain.keys("controller"))
        self.last = directive
        if directive.wants_binding is not None:
            assert "binding" in (self.room.abilities or ()), "an agent of before reads no such wish"
        self.chain, self.known = walked(self.chain, self.known, directive.roots)
        if directive.catalog is not None:
            assert self.room.abilities is not None, "an agent of before reads no directive with a catalog"
            assert "catalog" in self.room.abilities, "an agent of before reads no directive with a catalog"
            self.known = take(self.known, self.chain, directive.catalog)
        epoch = self.chain.root.controller_epoch
        self.session = fresh.hear(self.session, directive, epoch=epoch, wall_ms=self.now_ms, mono_ms=self.now_ms)
        try:
            self.fence = fences.raise_term(self.fence, directive.term, self.chain)
        except Refusal as refusal:
            self.rejects.append(refusal.code)
            return directive
        acknowledged = chain_of_receipts.acknowledge(self.receipts, directive.acked_rseq)
        assert not isinstance(acknowledged, Alarm), acknowledged
        self.receipts = acknowledged
        for grant in directive.grants:
            self._obey(grant)
        return directive

    def restart(self, boot: str) -> None:
        """The agent begins anew on the same ledger; processes live on."""
        self.boot = boot
        self.session = fresh.begin(
            self.chain.fleet, self.host, boot, floor_ms=self.session.floor_ms, epoch=self.session.epoch
        )

    def twin(self, boot: str) -> ScriptedAgent:
        """Another agent with the same key and a copy of the same ledger and processes: a cloned machine."""
        other = ScriptedAgent(self.host, self.signer, self.chain, room=deepcopy(self.room), now_ms=self.now_ms)
        other.fence, other.receipts, other.session = self.fence, self.receipts, self.session
        other.restart(boot)
        other.claims = self.claims
        return other

    def finish(self, kind: str, outcome: Outcome = Outcome.SUCCEEDED, code: str | None = None) -> None:
        """End the open effects of a kind that was slow."""
        for body, (of, term) in list(self.open.items()):
            if of.action.kind == kind:
                if outcome is Outcome.SUCCEEDED:
                    self._effect(of.action, body)
                self._receipt(of, term, outcome, code)

    def inventory(self) -> Inventory:
        return Inventory(
            state=self.room.state,
            generation=self.room.generation,
            devices=self.room.devices,
            residencies=tuple(sorted(self.room.residencies.values(), key=lambda r: (r.profile, r.replica or ""))),
            runtimes=(Runtime(engine=EngineName("llama.cpp"), backend=self.room.backend),),
            cached=tuple(sorted(self.room.cached)),
            disk_free_bytes=100 * GIB,
            endpoint=f"https://{self.host}.example:8443",
            front_cert=self.certificate,
            binding=self.binding if self.last is not None and self.last.wants_binding else None,
            goodbye=self.goodbye,
            left=self.left,
            prefetched=tuple(self.room.guesses) or None,
            abilities=self.room.abilities,
            measured=self.room.measured,
            transfers=self.room.transfers,
        )

    def replicas(self) -> dict[str, str]:
        """Replica to state, of what runs here."""
        return {r.replica or "": r.state.value for r in self.room.residencies.values()}

    def _obey(self, grant: str) -> None:
        standing = Standing(
            now_ms=fresh.controller_ms(self.session, wall_ms=self.now_ms, mono_ms=self.now_ms),
            fresh=fresh.is_fresh(self.session, self.now_ms),
            chain=self.chain,
            known=self.known,
            owed=chain_of_receipts.owed_count(self.receipts),
            runs=as_reported(self.room.residencies.values()),
            agent=self.room.version if self.room.heeds else "999",
        )
        ruling = fences.examine(self.fence, grant, standing)
        match ruling:
            case Execute(grant=of, fence=kept):
                self.fence = kept
                self._act(of.body, of.term)
            case Voided(grant=of, fence=kept):
                self.fence = kept
                self._receipt(of.body, of.term, Outcome.VOIDED, None)
            case Cancel(body=body):
                if body in self.open:
                    of_body, term = self.open[body]
                    self._receipt(of_body, term, Outcome.VOIDED, None)
            case Reject(code=code, final=final, grant=of, fence=kept):
                self.rejects.append(code)
                if final and of is not None:
                    self.fence = kept
                    self._receipt(of.body, of.term, Outcome.REFUSED, code)
            case Repeat():
                pass

    def _act(self, body: Body, term: Term) -> None:
        action = body.action
        identity_of = digest_of(body)
        self.open[identity_of] = (body, term)
        self.executed.append((action.kind, action.replica))
        stale = [p for p in body.precondition if (d := self._device(p.device)) is None or d.generation != p.generation]
        if stale:
            self._receipt(body, term, Outcome.REFUSED, "precondition")
        elif action.kind in self.room.fails:
            self._receipt(body, term, Outcome.FAILED, self.room.fails[action.kind])
        elif action.kind not in self.room.slow:
            self._effect(action, identity_of)
            self._receipt(body, term, Outcome.SUCCEEDED, None)

    def _device(self, name: DeviceId) -> DeviceReport | None:
        return next((d for d in self.room.devices if d.id == name), None)

    def _effect(self, action: Action, body: Digest) -> None:
        room = self.room
        match action:
            case Load():
                files = {f.sha256 for f in action.artifact.files}
                if action.guess and not files.issubset(room.cached | room.there):
                    size = sum(f.size_bytes for f in action.artifact.files)
                    at = {"host": self.host, "profile": action.profile, "since_ms": self.now_ms}
                    room.guesses.append(Prefetched(files=tuple(sorted(files)), size_bytes=size, **at))  # type: ignore[arg-type]
                room.cached |= files
            case Evict():
                room.guesses = [p for p in room.guesses if p.files != action.files]
                room.cached -= set(action.files)
            case Warm():
                assert body not in {b for _, b in room.spawned}, "one body started two processes"
                room.spawned.append((action.replica, body))
                room.residencies[body] = _running(action, body, self.now_ms)
                room.bump()
            case Drain():
                found = room.residencies[action.incarnation]
                room.residencies[action.incarnation] = replace(found, state=ResidencyState.DRAINING)
                room.bump()
            case Unload():
                room.residencies.pop(action.incarnation, None)
                room.stopped.append(action.incarnation)
                room.bump()
            case Operate():
                found = room.residencies[action.incarnation]
                room.residencies[action.incarnation] = replace(found, replica=action.replica, profile=action.profile)

    def _receipt(self, body: Body, term: Term, outcome: Outcome, code: str | None) -> None:
        identity_of = digest_of(body)
        self.open.pop(identity_of, None)
        statement = Statement(
            body=identity_of,
            seq=body.seq,
            term=term,
            outcome=outcome,
            code=code,
            began_ms=self.now_ms - self.room.takes.get(body.action.kind, 0),
            ended_ms=self.now_ms,
            fetched_bytes=self._fetched(body.action) if outcome is Outcome.SUCCEEDED else None,
        )
        self.receipts, receipt = chain_of_receipts.state(self.receipts, self.boot, statement)
        self.fence = fences.settle(self.fence, identity_of, receipt.rseq)

    def _fetched(self, action: Action) -> int | None:
        files = action.artifact.files if isinstance(action, Load) else ()
        return None if self.room.there.issuperset(f.sha256 for f in files) else sum(f.size_bytes for f in files)


def _running(action: Warm, body: Digest, now_ms: int) -> Residency:
    return Residency(
        profile=action.profile,
        state=ResidencyState.READY,
        replica=action.replica,
        config=action.launch.config,
        incarnation=body,
        identity=identity(action.launch),
        devices=action.devices,
        device_bytes=action.device_bytes,
        host_bytes=action.host_bytes,
        port=40_000,
        since_ms=now_ms,
    )
