"""A controller and a host, or two, as real processes with real engines: one short story, and what must hold after it.

The story: one replica is wanted and comes up by itself (load, warm), then none is wanted and it goes (drain, unload).
`told` lives it once, with one process armed to fail at one moment; a process that ends is started again, as a service
manager would, without the failpoint. `audit` reads what is on the disks afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from gridops.base.ids import HostId
from gridops.base.record import digest_of
from gridops.controller.core.pack import pack
from gridops.controller.core.row_kinds import decode
from gridops.controller.core.rows import BodyQueued, Distrusted, OutboxSet, ReceiptTaken
from gridops.controller.writer import Writer
from gridops.disk.failpoint import NAME
from gridops.disk.keyring import create_secret
from gridops.model.action import Warm
from gridops.protocol.messages import Outcome, Receipt, Term
from gridops.store.journal import Journal
from gridops.trust.keys import MachineSigner
from gridops.trust.tls import pinned_client_context, self_signed
from gridops_agent.config import Config, read_config, write_config
from gridops_agent.keep.child import HOME
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity
from gridops_agent.platform import here
from gridops_agent.platform.base import Process
from gridops_agent.statefolder import keep_roots
from tests.agent.site import free_ports, wall_ms
from tests.builders.reading import Reading
from tests.builders.tiny_gguf import Made
from tests.controller.fleet import Fleet, mode, profile
from tests.crash.zygote import Nursery

CONTROLLER, AGENT, SECOND = "controller", "agent", "second"
AGENTS = {AGENT: HostId("forge"), SECOND: HostId("anvil")}
"""The host of each agent; most stories have the first alone."""
HOSTS = """\
apiVersion: gridops/v1
kind: Hosts
defaults: {runtimes: {llama.cpp: {backend: cpu}}}
hosts:
"""
ONE_HOST = "  {name}: {{domains: {{rack: {name}}}, devices: {{cpu0: {{kind: cpu, memory: 64GiB}}}}}}\n"
MODE = mode(
    "{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, rollout, rebalance, remove],"
    " last_replica: [calm, one, tiny, two]}}"
)
PROTECTION = """\
apiVersion: gridops/v1
kind: Protection
classes:
  dedicated:
    thermal: {throttle: 140, pause: 150, recover: 130}
    memory: {throttle: 99%, pause: 100%}
    unknown_sensor: ignore
    recovery: 1s
"""
PLANNING = """\
apiVersion: gridops/v1
kind: Planning
heartbeat: {every: 500ms, stale_after: 60s, recovery_grace: 1s}
"""
ENDS = {1, 69, 70, 75, 78, -9}
"""With what a process may end that was told to fail. 1: it says what could not be written."""
STORY_S = 150.0
"""A start that failed is tried again after half a minute."""


@dataclass
class Pair:
    """The processes' folders, a port, and what was seen of engines."""

    root: Path
    model: Made
    nursery: Nursery
    port: int
    agents: tuple[str, ...] = (AGENT,)
    running: dict[str, int] = field(default_factory=dict)
    armed: dict[str, str] = field(default_factory=dict)
    ends: list[tuple[str, int]] = field(default_factory=list)
    patience: int = 5
    """So many ends are a fault of the story."""
    spawned: dict[str, set[int]] = field(default_factory=dict)
    """Engines that were seen alive, by the command that started them."""

    @property
    def fleet(self) -> Path:
        return self.root / "fleet"

    def state(self, name: str) -> Path:
        return self.root / ("state" if name == CONTROLLER else AGENTS[name])

    # -- processes ----------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start one of them, armed if it is still to be."""
        if name == CONTROLLER:
            argv = ["gridops", "watch", "-o", "json", "--interval", "100ms", "--state", str(self.state(name))]
            argv += ["--listen", f"127.0.0.1:{self.port}"]
        else:
            argv = ["gridops-agent", "run", "--state", str(self.state(name))]
        env = {NAME: self.armed.pop(name, ""), "HOME": str(self.root), "OMP_WAIT_POLICY": "passive"}
        self.running[name] = self.nursery.start(argv, self.fleet, self.root / f"{name}.log", env)

    def serve(self) -> None:
        """The controller and its first agent begin, and one replica becomes ready."""
        self.start(CONTROLLER)
        self.start(AGENT)
        self.until("one replica is ready", lambda: self.ready() == 1)

    def look(self) -> None:
        """Start again what has ended, and note which engines live."""
        for name, pid in list(self.running.items()):
            code = self.nursery.ended(pid)
            if code is not None:
                self.ends.append((name, code))
                assert len(self.ends) < self.patience, f"{self.ends}\n{self.words(name)}"
                assert code in ENDS, f"{name} ended with {code}\n{self.words(name)}"
                self.start(name)
        alive: dict[str, set[int]] = {}
        for engine in self.engines():
            body = (here().environment(engine.pid) or {}).get("GRIDOPS_BODY")
            if body:
                alive.setdefault(body, set()).add(engine.pid)
                self.spawned.setdefault(body, set()).add(engine.pid)
        assert all(len(pids) == 1 for pids in alive.values()), f"two processes of one body: {alive}"

    def until(self, what: str, holds: Callable[[], bool], most_s: float = STORY_S) -> None:
        end = time.monotonic() + most_s
        while not holds():
            self.look()
            words = "\n".join(self.words(name) for name in (CONTROLLER, *self.agents))
            assert time.monotonic() < end, f"not within {most_s} s: {what}; ends: {self.ends}\n{words}"
            time.sleep(0.05)

    def end(self) -> None:
        """SIGTERM to all, and wait. The controller last: a host may still have something to say."""
        for name in (*self.agents, CONTROLLER):
            pid = self.running.pop(name, None)
            if pid is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 20
            while (code := self.nursery.ended(pid)) is None:
                assert time.monotonic() < deadline, f"{name} does not end\n{self.words(name)}"
                time.sleep(0.02)
            if code not in (0, 128 + signal.SIGTERM):  # a failure that was to come met it on its way out
                self.ends.append((name, code))

    def clear(self) -> None:
        """Whatever happened, nothing of this story lives on."""
        for pid in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.running.clear()
        for engine in self.engines():
            here().send(engine, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(engine.pid, os.WNOHANG)
        shutil.rmtree(self.root, ignore_errors=True)

    def engines(self) -> list[Process]:
        platform, homes = here(), {str(self.state(name).resolve()) for name in self.agents}
        return [
            p for p in platform.processes() if not p.zombie and (platform.environment(p.pid) or {}).get(HOME) in homes
        ]

    def at_work(self) -> int:
        """How many hosts have an engine."""
        return len({(here().environment(engine.pid) or {}).get(HOME) for engine in self.engines()} - {None})

    def words(self, name: str, lines: int = 30) -> str:
        """The end of what a process has said."""
        log = self.root / f"{name}.log"
        return f"--- {name}\n" + ("\n".join(log.read_text().splitlines()[-lines:]) if log.exists() else "")

    # -- the story ----------------------------------------------------------------------------------------------------

    def fired(self, name: str) -> bool:
        """Its failpoint was reached."""
        return "fails now on purpose" in self.words(name, 1_000)

    def want(self, replicas: int) -> None:
        fleet = Bare(self.fleet)
        fleet.commit({"profiles.d/tiny.yaml": wanted(self.model, replicas)}, f"Want {replicas}")

    def ready(self) -> int:
        """How many replicas the controller says are ready; -1 while it says nothing."""
        found = self.seen()
        return -1 if found is None else len(found)

    def ready_names(self) -> list[str]:
        """Their profiles."""
        return self.seen() or []

    def seen(self) -> list[str] | None:
        """The profile of each replica that is ready; None while the controller does not know."""
        hosts = self.hosts()
        if hosts is None or not all(h["heard"] for h in hosts):
            return None
        return [str(r["profile"]) for h in hosts for r in h["residencies"] if r["state"] == "ready"]

    def alarms(self) -> list[str]:
        """What hosts tell of their trouble, as the controller shows it."""
        return [str(a) for h in self.hosts() or [] for a in h.get("alarms", [])]

    def hosts(self) -> list[dict[str, Any]] | None:
        """What the controller says of its hosts; None while it says nothing."""
        try:
            context = pinned_client_context(((self.state(CONTROLLER) / "keys/controller.tls.pem").read_text(),))
            with httpx.Client(verify=context, timeout=5.0, trust_env=False) as http:
                seen = http.get(f"https://127.0.0.1:{self.port}/v1/status")
        except httpx.HTTPError:
            return None
        return list(seen.json()["hosts"]) if seen.status_code == 200 else None

    def idle(self) -> bool:
        """Nothing runs, and the controller knows of nothing that is under way."""
        return self.ready() == 0 and not self.engines() and not open_seqs(self.state(CONTROLLER))

    def tell(self) -> None:
        """The whole story, to its end."""
        self.start(CONTROLLER)
        self.start(AGENT)
        self.until("one replica is ready", lambda: self.ready() == 1)
        self.want(0)
        self.until("it is gone again", self.idle)
        self.end()


class Bare(Fleet):
    """The same repository, after it was copied."""

    def __init__(self, path: Path) -> None:
        self.path = path


def wanted(model: Made, replicas: int, name: str = "tiny") -> str:
    text = profile(name, replicas, context=512).replace("m.gguf", model.path.name).replace("1MiB", f"{model.size}B")
    text = text.replace("sha256:" + "ab" * 32, model.digest).replace("400MiB", "100MiB")
    return text.replace("    lanes: 1\n", "    lanes: 1\n    args: {threads: 1}\n")


def founded(root: Path, model: Made, agents: tuple[str, ...] = (AGENT,)) -> None:
    """Everything that stands before the first start of any process."""
    fleet = Fleet(root, now_ms=wall_ms() - 60_000)
    keys = {}
    for name in agents:
        text = MachineSigner.from_seed(seed_of(name)).public.text
        keys[f"fleet.d/keys/{AGENTS[name]}.yaml"] = (
            f"apiVersion: gridops/v1\nkind: HostKey\nhost: {AGENTS[name]}\nkey: {text}\n"
        )
    fleet.begin(
        hosts=HOSTS + "".join(ONE_HOST.format(name=AGENTS[name]) for name in agents),
        admit=False,
        **{"policies/mode.yaml": MODE, "policies/planning.yaml": PLANNING},
        **{"policies/protection.yaml": PROTECTION, **keys},
        **{"profiles.d/coder.yaml": profile(replicas=0), "profiles.d/tiny.yaml": wanted(model, 1)},
    )
    for name in agents:
        _joined(root, fleet, name, model)


def seed_of(name: str) -> bytes:
    return (b"h" if name == AGENT else b"a") * 32


def _joined(root: Path, fleet: Fleet, name: str, model: Made) -> None:
    """One host's state folder, as if it had joined."""
    host, signer = AGENTS[name], MachineSigner.from_seed(seed_of(name))
    state = root / host
    state.mkdir(mode=0o700)
    config = Config(
        state=state, controller="https://127.0.0.1:1", host=host, fleet=fleet.chain.fleet,
        artifact_folders=(model.path.parent,), ports=(20_000, 20_009),
    )  # fmt: skip
    create_secret(config.seed, seed_of(name))
    front = self_signed(("127.0.0.1",), wall_ms() - 86_400_000, 3_650)
    create_secret(config.front_key, front.key_pem)
    config.front_cert.write_text(front.cert_pem)
    identity = Identity(fleet=fleet.chain.fleet, host=host, host_key=signer.public.text)
    Ledger.create(config.ledger, identity, (fleet.chain.text,)).close()
    keep_roots(config, (fleet.chain.text,))
    write_config(config)


def paired(root: Path, template: Path, model: Made, nursery: Nursery, agents: tuple[str, ...] = (AGENT,)) -> Pair:
    """A copy of what was founded, with ports of its own."""
    shutil.copytree(template, root, symlinks=True)
    each = 7
    first, _ = free_ports(1 + each * len(agents))
    for n, name in enumerate(agents):
        ports = (first + 1 + n * each, first + (n + 1) * each)
        write_config(replace(read_config(root / AGENTS[name]), controller=f"https://127.0.0.1:{first}", ports=ports))
    return Pair(root, model, nursery, first, agents)


# -- what must hold on the disks --------------------------------------------------------------------------------------


def rows_of(state: Path) -> list[Any]:
    journal = Journal.open(state / "journal.sqlite")
    try:
        return [decode(row.kind, row.raw) for row in journal.replay()]
    finally:
        journal.close()


def open_seqs(state: Path) -> set[tuple[str, int]]:
    """Commands that have no receipt yet, by a look beside the running controller."""
    try:
        database = sqlite3.connect(f"file:{state / 'journal.sqlite'}?mode=ro", uri=True, timeout=2)
        rows = database.execute("SELECT kind, value FROM rows WHERE kind IN ('body_queued', 'receipt_taken')")
        seqs: dict[str, set[tuple[str, int]]] = {"body_queued": set(), "receipt_taken": set()}
        for kind, raw in rows:
            value = json.loads(raw)["body" if kind == "body_queued" else "receipt"]
            seqs[kind].add((value["host"], value["seq"]))
        database.close()
    except sqlite3.Error:
        return {("", -1)}
    return seqs["body_queued"] - seqs["receipt_taken"]


def audit(pair: Pair) -> str:
    """What was counted. The invariants that files can show: S3, S4, S5, S6, S11, and nothing empty and confident."""
    state = pair.state(CONTROLLER)
    assert not [p.name for p in state.iterdir() if "damaged" in p.name]
    rows = rows_of(state)
    assert not [row for row in rows if isinstance(row, Distrusted)]
    told = [_audit_host(pair, name, rows) for name in pair.agents]
    _alike(state)
    engines = f"{len(pair.engines())} engines"
    return "; ".join([f"{len(rows)} rows", *told, engines])


def _audit_host(pair: Pair, name: str, rows: list[Any]) -> str:
    """One host's ledger beside what the controller's journal has of it."""
    folder, whose = pair.state(name), AGENTS[name]
    assert not [p.name for p in folder.iterdir() if "damaged" in p.name]
    bodies = _bodies(rows, whose)
    ledger = Ledger.open(folder / "ledger.sqlite", _whose(folder), (), 1)
    try:
        assert ledger.damage is None
        host = ledger.load("audit")
    finally:
        ledger.close()
    kept = host.receipts.kept
    # Numbers order what is accepted, not what ends first: an outcome that the disk did not take is told after the next.
    assert sorted(r.seq for r in kept) == list(range(1, len(kept) + 1)), "one receipt for each command"
    assert [r.rseq for r in kept] == list(range(1, len(kept) + 1)), "receipts have one line"
    assert {r.seq: r.body for r in kept} == bodies, "what was told is what was done"
    heard = [row.receipt for row in rows if isinstance(row, ReceiptTaken) and row.receipt.host == whose]
    taken = {receipt.rseq: digest_of(receipt) for receipt in heard}
    assert taken == {r.rseq: digest_of(r) for r in kept}, "what was told is what was heard"
    assert (host.held, host.commands) == ({}, {}), "nothing is held, and nothing is open"
    _once(pair, kept, bodies)
    return f"{whose}: {len(bodies)} commands, {len(kept)} receipts"


def _bodies(rows: list[Any], host: HostId) -> dict[int, str]:
    """S5: one body for each number. A body that was taken back and issued again has a number of its own."""
    bodies: dict[int, str] = {}
    for row in rows:
        if isinstance(row, BodyQueued) and row.body.host == host:
            assert bodies.setdefault(row.body.seq, digest_of(row.body)) == digest_of(row.body)
        assert not isinstance(row, OutboxSet), row
    return bodies


def _whose(folder: Path) -> Identity:
    config = read_config(folder)
    signer = MachineSigner.from_seed((folder / "keys/host.seed").read_bytes())
    return Identity(fleet=config.fleet, host=config.host, host_key=signer.public.text)


def _alike(state: Path) -> None:
    """S11: read twice, the journal says the same; and terms only rise."""
    found, terms = [], list[Term]()
    for _ in range(2):
        journal = Journal.open(state / "journal.sqlite")
        writer = Writer(Reading(journal))
        writer.replay()
        found.append(json.dumps(pack(writer.state), sort_keys=True))
        terms = [row.term for row in journal.replay()]
        journal.close()
    assert found[0] == found[1]
    assert terms == sorted(terms, key=lambda t: (t.epoch, t.counter))


def _once(pair: Pair, kept: tuple[Receipt, ...], bodies: dict[int, str]) -> None:
    """S3: no command that was answered as failed or interrupted has left a process, and each has had one."""
    done = {r.body for r in kept if r.outcome is Outcome.SUCCEEDED}
    ours = set(bodies.values())
    for body, pids in pair.spawned.items():
        assert body not in ours or len(pids) == 1 or body in done, f"{body} was started {len(pids)} times: {pair.ends}"


def launch_of(state: Path) -> Any:
    """The launch of the first engine that was commanded, by a look beside the running controller."""
    database = sqlite3.connect(f"file:{state / 'journal.sqlite'}?mode=ro", uri=True, timeout=2)
    rows = database.execute("SELECT value FROM rows WHERE kind = 'body_queued' ORDER BY n").fetchall()
    database.close()
    bodies = [decode("body_queued", raw) for (raw,) in rows]
    return next(b.body.action.launch for b in bodies if isinstance(b, BodyQueued) and isinstance(b.body.action, Warm))
