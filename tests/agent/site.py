"""One host on this machine for tests: keys, root, ledger, a tiny model, and a controller's pen to sign commands with.

Agents made here are the real ones, with real engine processes; only the network to a controller is left out, unless a
test brings a controller of its own. Whatever a test does, `end` leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from gridops.base.canon import digest_bytes
from gridops.base.ids import (
    ConfigName,
    DeviceId,
    Digest,
    EngineName,
    HostId,
    PersonName,
    ProfileName,
    ReplicaId,
    ScopeName,
)
from gridops.base.record import digest_of, to_bytes
from gridops.disk.keyring import create_secret
from gridops.model.action import Action, DeviceGeneration, Drain, Load, Operate, Unload, Warm
from gridops.model.plan import Launch
from gridops.model.policy import Sensor
from gridops.model.profile import Artifact, ArtifactFile, EngineArg, Restart
from gridops.protocol.messages import (
    Authority,
    Body,
    Directive,
    GatewayKey,
    Grant,
    GrantMode,
    Receipt,
    Term,
)
from gridops.protocol.messages import (
    genesis as first_head,
)
from gridops.protocol.receipts import stored
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner, PersonSigner
from gridops.trust.root import Role, RoleKey, RoleName, Root, RootChain, genesis, seal_root
from gridops.trust.tls import TlsIdentity, self_signed
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config, write_config
from gridops_agent.core.events import Heard
from gridops_agent.core.protection import Sample
from gridops_agent.core.state import Held
from gridops_agent.keep.child import HOME
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity
from gridops_agent.platform import here
from gridops_agent.platform.base import Process
from gridops_agent.shell import Agent
from gridops_agent.statefolder import keep_roots
from tests.agent.lookout import WELL
from tests.builders.approvals import Approver, approved, operated
from tests.builders.tiny_gguf import Made

PERSON = PersonSigner.from_seed(b"p" * 32)
CONTROLLER = MachineSigner.from_seed(b"c" * 32)
HOST = HostId("forge")
CLIENT_KEY = "a client's key, never stored"
KEYS = (GatewayKey(name="gateway", sha256=digest_bytes(CLIENT_KEY.encode())),)
DAY = 86_400_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def root_of(tls: TlsIdentity | None) -> RootChain:
    """Root 1 of the test's fleet."""
    person = (RoleKey(holder=PersonName("ada"), key=PERSON.public.text),)
    machine = (RoleKey(holder=PersonName("controller"), key=CONTROLLER.public.text),)
    root = Root(
        version=1,
        issued_ms=wall_ms() - DAY,
        expires_ms=wall_ms() + 300 * DAY,
        roles=(
            Role(name=RoleName.APPROVER, threshold=1, keys=person),
            Role(name=RoleName.CONTROLLER, threshold=1, keys=machine),
            Role(name=RoleName.ROOT, threshold=1, keys=person),
        ),
        controller_epoch=1,
        controller_tls=(tls.cert_pem,) if tls is not None else (),
        standing=True,
    )
    return genesis(seal_root(root, PERSON))


def free_ports(count: int = 6) -> tuple[int, int]:
    """A range of loopback ports that nobody listens on now."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        if first + count > 65_000 or first < 2_000:
            continue
        if all(is_free(port) for port in range(first, first + count)):
            return first, first + count - 1


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass
class Site:
    """A host's state folder, and what its controller has issued so far."""

    state: Path
    model: Made
    tls: TlsIdentity | None = None
    artifacts: tuple[Path, ...] = ()
    seq: int = 0
    term: Term = field(default_factory=lambda: Term(epoch=1, counter=1))
    offset_ms: int = 0
    readings: dict[str, Any] = field(default_factory=dict)
    chain: RootChain = field(init=False)
    config: Config = field(init=False)
    head: Digest = field(init=False)

    def __post_init__(self) -> None:
        self.chain = root_of(self.tls)
        self.config = Config(
            state=self.state,
            controller="https://127.0.0.1:1",
            host=HOST,
            fleet=self.chain.fleet,
            artifact_folders=self.artifacts or (self.model.path.parent,),
            share=Fraction(1, 2),
            ports=free_ports(),
        )
        self.signer = MachineSigner.from_seed(b"h" * 32)
        self.head = first_head(self.chain.fleet, self.host_key)

    @property
    def host_key(self) -> str:
        return self.signer.public.text

    @property
    def identity(self) -> Identity:
        return Identity(fleet=self.chain.fleet, host=HOST, host_key=self.host_key)

    def join(self) -> Site:
        """As if `gridops-agent join` had run."""
        self.state.mkdir(mode=0o700, parents=True)
        create_secret(self.config.seed, b"h" * 32)
        front = self_signed(("127.0.0.1",), wall_ms() - DAY, 3_650)
        create_secret(self.config.front_key, front.key_pem)
        self.config.front_cert.write_text(front.cert_pem)
        Ledger.create(self.config.ledger, self.identity, (self.chain.text,)).close()
        keep_roots(self.config, (self.chain.text,))
        write_config(self.config)
        return self

    def agent(self) -> Agent:
        return Agent(self.config, "0.1.0", self.sense)

    def sense(self) -> Sample:
        """What this machine would sense if it were well; `readings` are otherwise. Sensors have tests of their own.

        What other programs on the machine of the tests use of its memory is nothing that a test may depend on.
        """
        calm = replace(WELL, ram_ppm=None, absent=frozenset({Sensor.MEMORY}))
        return replace(calm, mono_ms=SystemClock().boottime_ms(), **self.readings)

    # --- what a controller signs ----------------------------------------------------------------------------------

    def body(self, action: Action, precondition: tuple[DeviceGeneration, ...] = (), catalog: int | None = None) -> Body:
        """The next body of this host."""
        self.seq += 1
        body = Body(
            fleet=self.chain.fleet,
            host=HOST,
            host_key=self.host_key,
            seq=self.seq,
            prev=self.head,
            scope=ScopeName("default"),
            plan=digest_bytes(b"plan"),
            action=action,
            precondition=precondition,
            catalog=catalog,
        )
        self.head = digest_of(body)
        return body

    def grant(self, body: Body, mode: GrantMode = GrantMode.EXECUTE) -> str:
        now = wall_ms() + self.offset_ms
        grant = Grant(
            fleet=self.chain.fleet,
            body=body,
            term=self.term,
            mode=mode,
            issued_ms=now - 1_000,
            not_after_ms=now + 300_000,
            authority=self.authority(body.action),
        )
        return seal("grant", to_bytes(grant), CONTROLLER)

    def authority(self, action: Action) -> Authority:
        """ada approved a decision that asks for this very step."""
        ada = Approver("ada", PERSON, self.chain.fleet, wall_ms() + self.offset_ms)
        if isinstance(action, Operate):
            return approved(action, ada, decision=operated(action, self.warm()))
        return approved(action, ada)

    def directive(self, grants: Iterable[str] = (), acked: int = 0, nonce: str = "n") -> Directive:
        now = wall_ms() + self.offset_ms
        return Directive(
            fleet=self.chain.fleet,
            host=HOST,
            nonce=nonce,
            now_ms=now,
            term=self.term,
            root_version=1,
            acked_rseq=acked,
            grants=tuple(grants),
            keys=KEYS,
            next_poll_ms=200,
            expires_ms=now + 300_000,
        )

    # --- actions --------------------------------------------------------------------------------------------------

    def artifact(self, **changes: object) -> Artifact:
        file = ArtifactFile(path=self.model.path.name, sha256=Digest(self.model.digest), size_bytes=self.model.size)
        return replace(Artifact(format="gguf", files=(file,)), **changes)  # type: ignore[arg-type]

    def launch(self, profile: str = "tiny", **changes: object) -> Launch:
        made = Launch(
            profile=ProfileName(profile),
            config=ConfigName("cpu"),
            engine=EngineName("llama.cpp"),
            backend="cpu",
            artifact=self.artifact(),
            context=512,
            lanes=2,
            args=(EngineArg(name="threads", value="1"),),
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def warm(self, profile: str = "tiny", number: int = 1, **changes: object) -> Warm:
        made = Warm(
            host=HOST,
            replica=ReplicaId(f"{profile}/{number}"),
            profile=ProfileName(profile),
            launch=self.launch(profile),
            devices=(DeviceId("cpu0"),),
            device_bytes=64 << 20,
            host_bytes=0,
            serves=(profile, f"{profile}-alias"),
            restart=Restart(max=3, per_ms=600_000, backoff_ms=100),
            drain_ms=5_000,
            warm_ms=1_000,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def load(self, profile: str = "tiny", **changes: object) -> Load:
        made = Load(
            host=HOST, replica=ReplicaId(f"{profile}/1"), profile=ProfileName(profile), artifact=self.artifact()
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def drain(self, incarnation: Digest, grace_ms: int = 60_000) -> Drain:
        names = {"replica": ReplicaId("tiny/1"), "profile": ProfileName("tiny")}
        return Drain(host=HOST, incarnation=incarnation, grace_ms=grace_ms, **names)  # type: ignore[arg-type]

    def unload(self, incarnation: Digest, *, force: bool = False) -> Unload:
        names = {"replica": ReplicaId("tiny/1"), "profile": ProfileName("tiny")}
        return Unload(host=HOST, incarnation=incarnation, force=force, **names)  # type: ignore[arg-type]

    def operate(self, incarnation: Digest, serves: tuple[str, ...]) -> Operate:
        return Operate(
            host=HOST,
            replica=ReplicaId("tiny/1"),
            profile=ProfileName("tiny"),
            incarnation=incarnation,
            serves=serves,
            restart=Restart(max=1, per_ms=1_000, backoff_ms=50),
            drain_ms=1_000,
        )

    # --- the end --------------------------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Living processes that this host's agents have started."""
        return [process.pid for process in self._left()]

    def _left(self) -> list[Process]:
        platform, home = here(), str(self.state.resolve())
        return [
            p for p in platform.processes() if not p.zombie and (platform.environment(p.pid) or {}).get(HOME) == home
        ]

    def end(self) -> None:
        """Kill whatever is left. A test that has to rely on it for more than tidying says so itself."""
        deadline = time.monotonic() + 10
        while (left := self._left()) and time.monotonic() < deadline:
            for process in left:
                here().send(process, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
            time.sleep(0.02)
        assert not left


async def command(agent: Agent, site: Site, action: Action, **body: object) -> Digest:
    """Issue one command; returns the identity of its body. What ends is called as its host calls it."""
    if isinstance(action, Drain | Unload) and (held := agent.memory.host.held.get(action.incarnation)) is not None:
        action = replace(action, replica=held.replica, profile=held.profile)
    made = site.body(action, **body)  # type: ignore[arg-type]
    await hear(agent, site, site.grant(made))
    return digest_of(made)


async def hear(agent: Agent, site: Site, *grants: str) -> None:
    """A fresh directive with these grants."""
    directive = site.directive(grants, acked=agent.memory.host.receipts.acked)
    await agent.effects.tell(Heard(directive, floor_ms=directive.now_ms, epoch=1))


async def receipt(agent: Agent, body: Digest) -> Receipt:
    """The final receipt of a command, when it is there."""
    await until(lambda: stored(agent.memory.host.receipts, body) is not None, f"a receipt for {body}")
    made = stored(agent.memory.host.receipts, body)
    assert made is not None
    assert made.final
    return made


async def done(agent: Agent, site: Site, action: Action, **body: object) -> Receipt:
    """Issue a command and wait for its receipt, and until nobody works on its residency any more."""
    issued = await command(agent, site, action, **body)
    made = await receipt(agent, issued)
    residency = getattr(action, "incarnation", issued)
    await until(lambda: residency not in agent.effects.handled, "the hands to be free")
    return made


PATIENCE_S = 90
"""A machine with other work is slow, and a condition that never comes fails all the same."""


async def until(holds: Callable[[], bool], what: str = "it") -> None:
    """Wait for a condition, never for a time."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"waited {PATIENCE_S} s for {what}"
        await asyncio.sleep(0.02)


def held_of(agent: Agent, body: Digest) -> Held:
    return agent.memory.host.held[body]


def pid_of(agent: Agent, body: Digest) -> int:
    handle = held_of(agent, body).handle
    assert handle is not None
    return handle.pid
