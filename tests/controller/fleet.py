"""One small real fleet for the controller's tests: a git repository, keys, a root, people who sign, and a clock.

Everything is real but time and machines. `Fleet` makes the files; `Desk` drives a controller in process, one pass at
a time, so that a test reads as a story: commit, beat, pass, apply.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridops.base.ids import HostId, PersonName, PlanId, ProfileName, ScopeName
from gridops.base.record import from_data, to_data
from gridops.controller import intake, views
from gridops.controller.core.projecting import due
from gridops.controller.planning import Planning
from gridops.controller.project import Place, carry_out
from gridops.controller.rebuild import Memory, rebuild
from gridops.controller.service import Controller, Opening, state_dir
from gridops.controller.start import ground
from gridops.controller.statedir import GATEWAY, SEED, TLS_CERT, TLS_KEY
from gridops.disk.keyring import create_secret
from gridops.files.git import Checkout
from gridops.files.trusted import root_texts
from gridops.model.fleet import FleetSettings
from gridops.model.plan import Plan, ReadSet
from gridops.protocol.messages import Beat
from gridops.trust.approval import Approval, seal_approval
from gridops.trust.approved import tree_of
from gridops.trust.found import Founders, first_root
from gridops.trust.keys import MachineSigner, PersonSigner
from gridops.trust.operator import OperatorRequest, seal_operator
from gridops.trust.root import genesis, seal_root
from gridops.trust.tls import self_signed
from tests.controller.scripted_agent import ScriptedAgent

NOW = 1_796_000_000_000
DEFAULT = ScopeName("default")
SHA = "sha256:" + "ab" * 32

HOSTS = """
apiVersion: gridops/v1
kind: Hosts
defaults: {runtimes: {llama.cpp: {backend: cpu}}, disk: {artifacts: 100GiB}}
hosts:
  alpha: {domains: {rack: left}, devices: {cpu0: {kind: cpu, memory: 3GiB}}}
  beta: {domains: {rack: right}, devices: {cpu0: {kind: cpu, memory: 3GiB}}}
"""
PROFILE = """
apiVersion: gridops/v1
kind: Profile
name: {name}
replicas: {replicas}
timing: {{load: 1s, warm: 1s, min_residency: 0ms, scale_down_after: 0ms, drain: 2s}}
configs:
  q4:
    engine: llama.cpp
    backends: [cpu]
    artifact: {{format: gguf, files: [{{path: m.gguf, sha256: {sha}, size: 1MiB}}]}}
    context: {context}
    lanes: 1
    footprint: {{source: declared, device: 400MiB}}
"""
MODE = "apiVersion: gridops/v1\nkind: Mode\nscopes:\n  default: {body}\ndefault: recommend\n"
POLICIES = {
    "policies/fleet.yaml": "apiVersion: gridops/v1\nkind: Fleet\ncontroller: https://127.0.0.1:7443\n",
    "policies/budgets.yaml": (
        "apiVersion: gridops/v1\nkind: Budgets\nscopes:\n  default:\n"
        "    actions: {concurrent: 4, per_device: 1, cooldown: 0s}\n    projection: {plan_file_every: 1s}\n"
    ),
    "policies/planning.yaml": (
        "apiVersion: gridops/v1\nkind: Planning\nheartbeat: {every: 1s, stale_after: 15s, recovery_grace: 2s}\n"
    ),
    "policies/approvals.yaml": (
        "apiVersion: gridops/v1\nkind: Approvals\nrisks:\n"
        "  routine: {need: 1, from: [oncall]}\n  disruptive: {need: 1, from: [oncall]}\n"
        "  destructive: {need: 1, from: [oncall]}\n  trust: {need: root}\n"
        "roles: {oncall: [mira]}\nexpire: 30m\nexecute_within: 24h\n"
    ),
}


def profile(name: str = "coder", replicas: int = 1, context: int = 2048, sha: str = SHA) -> str:
    return PROFILE.format(name=name, replicas=replicas, context=context, sha=sha)


def mode(body: str) -> str:
    return MODE.format(body=body)


RECOMMEND = mode("{mode: recommend}")
OBSERVE = mode("{mode: observe, reason: look only}")
AUTOMATIC = mode("{mode: automatic, automatic: {allow: [repair, scale_up]}}")


@dataclass
class FakeClock:
    """A clock that a test moves."""

    wall: int = NOW
    mono: int = 0

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.mono

    def pass_by(self, ms: int) -> None:
        self.wall += ms
        self.mono += ms


class Fleet:
    """The repository and everybody's keys."""

    def __init__(self, path: Path, *, now_ms: int = NOW, standing: bool = True) -> None:
        self.path = path / "fleet"
        self.state = path / "state"
        self.person = PersonSigner.from_seed(b"p" * 32)
        self.root_signer = PersonSigner.from_seed(b"r" * 32)
        self.seed = b"c" * 32
        self.path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        tls = self_signed(["127.0.0.1", "localhost"], now_ms, 30)
        founders = Founders(
            person=PersonName("mira"),
            root_key=self.root_signer.public,
            person_key=self.person.public,
            controller_key=MachineSigner.from_seed(self.seed).public,
            controller_tls=tls.cert_pem,
        )
        root = first_root(founders, now_ms)
        if not standing:
            root = from_data(type(root), {**to_data(root), "standing": False})
        self.root_text = seal_root(root, self.root_signer)
        self.chain = genesis(self.root_text)
        self.tls = tls
        for name, content in ((SEED, self.seed), (TLS_KEY, tls.key_pem), (GATEWAY, b"gk1_test")):
            create_secret(self.state / name, content)
        (self.state / TLS_CERT).write_text(tls.cert_pem)
        self.agents = {name: self._agent(name) for name in ("alpha", "beta")}
        self._nonce = 0

    def git(self, *args: str) -> str:
        env = {**os.environ, "GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "t@example.invalid",
               "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "t@example.invalid"}  # fmt: skip
        ran = subprocess.run(["git", "-C", str(self.path), *args], capture_output=True, text=True, check=True, env=env)
        return ran.stdout.strip()

    def write(self, files: dict[str, str | None]) -> None:
        for name, text in files.items():
            target = self.path / name
            if text is None:
                target.unlink()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)

    def commit(self, files: dict[str, str | None], message: str = "change") -> str:
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def begin(self, *, hosts: str = HOSTS, admit: bool = True, **more: str) -> str:
        """The first commit: root, policies, two hosts, one profile; host keys when `admit`."""
        files: dict[str, str | None] = {
            "policies/trust/root/1.json": self.root_text,
            **POLICIES,
            "policies/mode.yaml": RECOMMEND,
            "fleet.d/hosts.yaml": hosts,
            "profiles.d/coder.yaml": profile(),
            "profiles.d/spare.yaml": profile("spare", 0),
            **more,
        }
        if admit:
            files.update({f"fleet.d/keys/{name}.yaml": self.key_file(name) for name in self.agents})
        return self.commit(files, "begin")

    def key_file(self, host: str) -> str:
        key = self.agents[host].signer.public.text
        return f"apiVersion: gridops/v1\nkind: HostKey\nhost: {host}\nkey: {key}\n"

    def request(self, verb: str, now_ms: int, *, signer: PersonSigner | None = None, **fields: Any) -> str:
        """A signed operator request."""
        self._nonce += 1
        request = OperatorRequest(
            fleet=self.chain.fleet,
            verb=verb,  # type: ignore[arg-type]
            by=PersonName(fields.pop("by", "mira")),
            nonce=f"nonce-of-a-test-{self._nonce:08}",
            issued_ms=now_ms,
            not_after_ms=now_ms + 300_000,
            **fields,
        )
        return seal_operator(request, signer or self.person)

    def approval(
        self, plan: Plan, now_ms: int, *, reads: ReadSet | None = None, names: tuple[str, ...] = (), **fields: Any
    ) -> str:
        """A signed yes to exactly this plan, of mira unless `by` and `signer` say otherwise."""
        approval = Approval(
            fleet=plan.fleet,
            scope=plan.scope,
            decisions_digest=plan.decisions_digest,
            decisions_tree=fields.pop("tree", tree_of(plan)),
            reads=reads or plan.reads,
            decision=fields.pop("decision", "approve"),
            approver=PersonName(fields.pop("by", "mira")),
            last_replicas=tuple(ProfileName(n) for n in names),
            issued_ms=now_ms,
            not_after_ms=fields.pop("not_after_ms", now_ms + 600_000),
        )
        return seal_approval(approval, fields.pop("signer", self.person))

    def _agent(self, name: str) -> ScriptedAgent:
        seed = name.encode().ljust(32, b".")
        return ScriptedAgent(HostId(name), MachineSigner.from_seed(seed), self.chain)


@dataclass
class Desk:
    """A controller in process with its fleet, driven by hand."""

    fleet: Fleet
    clock: FakeClock = field(default_factory=FakeClock)
    boots: int = 0

    def __post_init__(self) -> None:
        self.checkout = Checkout(self.fleet.path)
        self.start()

    def start(self) -> None:
        """Start a controller on what the state folder holds."""
        tree = self.checkout.tree(self.checkout.head("main"))
        self.controller = Controller(Opening(state_dir(self.fleet.state), root_texts(tree), self.clock))
        self.planning = Planning(self.controller, self.place)
        self.look()

    def restart(self) -> None:
        """The process is gone without a word, and another one begins."""
        self.controller.close()
        self.start()

    def rebuild(self) -> Memory:
        """`gridops controller rebuild`, and a start on what it made."""
        self.controller.close()
        found = ground(self.fleet.path)
        memory = rebuild(found, Opening(state_dir(self.fleet.state), found.roots, FakeClock()))
        self.start()
        return memory

    def place(self) -> Place:
        accepted = self.controller.state.accepted
        settings = accepted.desired.fleet if accepted is not None else FleetSettings()
        return Place(self.checkout, settings, "main", self.controller.signer)

    @property
    def now(self) -> int:
        return self.controller.now()

    @property
    def state(self) -> Any:
        return self.controller.state

    def book(self) -> Any:
        return self.state.scope(DEFAULT)

    def look(self) -> int:
        """Read the newest commit."""
        return self.controller.found(intake.read(self.checkout, self.checkout.head("main"), self.controller.base()))

    def commit(self, files: dict[str, str | None], message: str = "change") -> str:
        made = self.fleet.commit(files, message)
        self.look()
        return made

    def post(self, beat: Beat) -> str:
        return self.controller.beat(beat).directive

    def beat(self, *hosts: str) -> None:
        """Each agent polls once."""
        for name in hosts or tuple(self.fleet.agents):
            self.fleet.agents[name].talk(self.post, self.now)

    def pass_(self, scope: ScopeName = DEFAULT) -> None:
        """Plan until nothing new is decided, then reconcile."""
        for _ in range(6):
            if not run(self.planning.consider(scope)):
                break
        self.controller.reconcile(scope)

    def settle(self, turns: int = 12, step_ms: int = 1_000) -> None:
        """Beats and passes until nothing is under way."""
        for _ in range(turns):
            self.clock.pass_by(step_ms)
            self.beat()
            self.pass_()

    def project(self) -> str | None:
        """Write what is due into git."""
        controller = self.controller
        work = due(controller.state, controller.soft, controller.roster, self.now)
        written = carry_out(self.place(), work)
        controller.commit(written.rows, self.now)
        return written.error

    def proposal(self) -> Plan:
        waits = self.book().proposal
        assert waits is not None, "nothing waits for people"
        plan = waits.plan
        assert isinstance(plan, Plan)
        return plan

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """A signed request of mira, answered."""
        return run(self.planning.operator(self.fleet.request(verb, self.now, **fields)))

    def apply(self, plan: Plan | None = None, *, names: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
        """mira reviews, approves and applies a plan, as the CLI does."""
        wanted = plan or self.proposal()
        document = views.plan(self.controller.view(), wanted, self.controller.signer)
        approval = self.fleet.approval(wanted, self.now, reads=document.binding.reads, names=names)
        given = fields.pop("approvals", (approval,))
        return self.ask("apply", plan=PlanId(wanted.id), approvals=given, **fields)

    def events(self, kind: str) -> list[str]:
        """What was told of one kind since this process began."""
        return [e.text for e in self.controller.events.after(0) if e.kind == kind]

    def executed(self) -> list[tuple[str, str, str]]:
        return [(a.host, k, r) for a in self.fleet.agents.values() for k, r in a.executed]

    def ready(self) -> list[str]:
        """Replicas that answer somewhere."""
        found = [r for a in self.fleet.agents.values() for r, s in a.replicas().items() if s == "ready"]
        return sorted(found)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)
