"""The ten steps. Each function is one step: it does, it shows, and it raises NotReal when what it shows is not so."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from examples.demo.client import Front, Stream, text_of
from examples.demo.stage import NotReal, Stage, free_port
from gridops.base.errors import GridopsError
from gridops.base.ids import HostId
from gridops.cli.client import connect
from gridops.cli.output import Context
from gridops.protocol.binding import open_binding
from gridops.protocol.messages import TlsBinding
from gridops.trust.keys import parse_key
from gridops.trust.tls import fingerprint

TEMPLATE = Path(__file__).resolve().parent.parent / "quickstart"
HOSTS = ("alpha", "beta")
MODEL = "smollm"


@dataclass
class Story:
    """What one step leaves to the next."""

    stage: Stage
    models: Path
    """Folder with the model file."""
    port: int = field(default_factory=free_port)

    # -- what the controller says -----------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What `gridops status -o json` prints, by the same client: who asks ten times a second starts no process."""
        try:
            found: dict[str, Any] = connect(Context(self.stage.fleet)).get("/v1/status")
        except GridopsError as error:
            raise NotReal(f"no status: {error.message}") from error
        return found

    @property
    def scope(self) -> dict[str, Any]:
        found: dict[str, Any] = next(s for s in self.status()["scopes"] if s["scope"] == "default")
        return found

    def ready(self) -> list[dict[str, Any]]:
        """Residencies that answer, with their host."""
        return [
            {**r, "host": h["host"]} for h in self.status()["hosts"] for r in h["residencies"] if r["state"] == "ready"
        ]

    def front(self, host: str | None = None) -> Front:
        found = next(r for r in self.ready() if host in (None, r["host"]))
        key = (self.stage.root / "controller" / "keys" / "gateway.key").read_text().strip()
        says = self.stage.until(f"{found['host']} says who answers at its front", lambda: self.binding(found["host"]))
        return Front(says.endpoint, says.certificate, key)

    def binding(self, host: str) -> TlsBinding:
        """What a host signed about its front: proved by its key in git, whoever hands it on."""
        try:
            told = connect(Context(self.stage.fleet)).get("/v1/fronts")
        except GridopsError as error:
            raise NotReal(f"no fronts: {error.message}") from error
        text = next((f["binding"] for f in told["fronts"] if f["host"] == host), None)
        if text is None:
            raise NotReal(f"{host} is not among {told['fronts']}")
        file = (self.stage.fleet / f"fleet.d/keys/{host}.yaml").read_text()
        key = parse_key(next(line.split()[1] for line in file.splitlines() if line.startswith("key: ")))
        now_ms, fleet = time.time_ns() // 1_000_000, told["fleet"]
        return open_binding(text, key, fleet=fleet, host=HostId(host), now_ms=now_ms).says

    def engines(self) -> dict[int, psutil.Process]:
        """Living engine processes, by what stands in their environment: the digest of the command that warmed them."""
        found = {}
        for process in self.stage.survivors():
            with contextlib.suppress(psutil.Error):
                if "GRIDOPS_BODY" in process.environ() and os.getpgid(process.pid) == process.pid:
                    found[process.pid] = process
        return found

    def told(self, kind: str) -> list[str]:
        """What the controller has said about rows of a kind; it speaks of a row only once it is durable."""
        log = (self.stage.root / "logs" / "controller.log").read_text().splitlines()
        events = [json.loads(line) for line in log if line.startswith("{")]
        return [e["text"] for e in events if e.get("event") == kind]

    def plan_documents(self) -> list[str]:
        """Ids of the plan documents on the branch that gridops writes."""
        listed = self.stage.run(
            "git", "ls-tree", "-d", "--name-only", "gridops/plans", "plans/default/", quiet=True, ok=(0, 128)
        )
        return sorted(line.rpartition("/")[2] for line in listed.splitlines())

    def start_agent(self, host: str) -> None:
        self.stage.start(f"agent-{host}", "gridops-agent", "run", "--state", str(self.stage.agent_state(host)))

    def start_controller(self) -> None:
        self.stage.start("controller", "gridops", "watch", "--state", str(self.stage.root / "controller"))
        self.stage.until("the controller answers", lambda: self.status()["controller"]["ready"])


def repository(story: Story) -> None:
    """1. An operators' repository, and a root of trust in it."""
    stage = story.stage
    shutil.copytree(TEMPLATE, stage.fleet)
    _edit(stage.fleet / "policies/fleet.yaml", "127.0.0.1:7443", f"127.0.0.1:{story.port}")
    stage.git("init", "--quiet", "--initial-branch", "main")
    stage.run("gridops", "validate")
    stage.run("gridops", "trust", "init", "--person", "mira", "--state", str(stage.root / "controller"))
    stage.commit("Found the fleet")
    stage.run("git", "ls-tree", "-r", "--name-only", "HEAD")


def hosts(story: Story) -> None:
    """2. The reconciler and two hosts, enrolled with one-use tokens and admitted by a commit."""
    stage = story.stage
    story.start_controller()
    for host in HOSTS:
        token = stage.run("gridops", "host", "invite", host, quiet=True).strip()
        stage.say(f"$ gridops host invite {host}    (a one-use token)")
        stage.run(
            *("gridops-agent", "join", "-", "--controller", f"https://127.0.0.1:{story.port}"),
            *("--state", str(stage.agent_state(host)), "--share", "1/4", "--artifacts", str(story.models)),
            *("--no-service", "--no-runtime"),
            quiet=True,
            typed=token,
        )
        stage.say(f"$ gridops-agent join - --state agent-{host} --share 1/4 < token")
        story.start_agent(host)
        stage.run("gridops", "host", "admit", host)
    stage.commit("Admit alpha and beta")
    stage.until("both hosts are heard", lambda: all(h["heard"] and h["admitted"] for h in story.status()["hosts"]))
    machine = psutil.virtual_memory().total
    shares = stage.until("the snapshot is on gridops/state", lambda: _shares(story))
    if sum(shares) > machine // 2:
        raise NotReal(f"two hosts with a quarter each report {shares} of {machine} bytes")
    stage.say(f"  each host reports a quarter of this machine at most: {[s >> 20 for s in shares]} MiB")
    stage.run("gridops", "status")


def proposal(story: Story) -> None:
    """3. Mode recommend: a plan is shown and written to git, and nothing is started."""
    stage = story.stage
    stage.run("gridops", "plan")
    stage.until("the plan file is on gridops/plans", story.plan_documents)
    stage.run("git", "log", "--format=%h %an %s", "gridops/plans")
    stage.run("gridops", "plans", "list")
    if story.engines():
        raise NotReal(f"mode recommend, and engines run: {sorted(story.engines())}")
    stage.say("  no engine process exists")


def approval(story: Story) -> None:
    """4. On-call applies that plan; the host verifies command and model file, starts the server, signs a receipt."""
    stage = story.stage
    waiting = stage.until("a proposal waits", lambda: story.scope.get("proposal"))
    stage.run("gridops", "apply", waiting["id"])
    stage.until("the replica is ready", lambda: len(story.ready()) == 1)
    if len(story.engines()) != 1:
        raise NotReal(f"one replica, and these engines: {sorted(story.engines())}")
    receipts = story.told("receipt")
    if not any("succeeded" in line for line in receipts):
        raise NotReal("the controller has no receipt of a command that succeeded")
    for line in (*story.told("command"), *receipts):
        stage.say(f"  journal: {line}")
    stage.run("gridops", "explain", f"{MODEL}/1")


def completion(story: Story) -> None:
    """5. The model answers through the front, and through the front only."""
    stage, front = story.stage, story.front()
    stage.say(f"  front {front.url}, certificate {fingerprint(front.certificate)[:16]}... (signed by the host)")
    text = text_of(front.ask(MODEL, "What is the capital of France? Answer in one sentence."))
    if not text:
        raise NotReal("the model answered with no text")
    stage.say(f"  {MODEL}: {text}")
    refused = front.ask(MODEL, "hello", with_key=False)
    if refused.status_code != 401:
        raise NotReal(f"without a key the front answered {refused.status_code}, expected 401")
    engine_port = story.ready()[0]["port"]
    past = httpx.post(
        f"http://127.0.0.1:{engine_port}/v1/chat/completions",
        json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
        timeout=10,
        trust_env=False,
    )
    if past.status_code != 401:
        raise NotReal(f"past the front the engine answered {past.status_code}, expected 401")
    stage.say(f"  without the key: {refused.status_code}; past the front, at the engine's port: {past.status_code}")


def scale(story: Story) -> None:
    """6. A commit asks for two replicas and for automatic mode: gridops acts by itself and writes it down once."""
    stage = story.stage
    before = story.plan_documents()
    _edit(stage.fleet / f"profiles.d/{MODEL}.yaml", "replicas: 1", "replicas: 2")
    _edit(
        stage.fleet / "policies/mode.yaml",
        "mode: recommend                     # plans are written, people apply them",
        "mode: automatic\n    automatic: {allow: [repair, scale_up]}",
    )
    stage.run("gridops", "validate")
    stage.commit("Two replicas, and repair and scale up by itself")
    stage.until("two replicas are ready", lambda: len(story.ready()) == 2, seconds=60)
    documents = stage.until("one plan document was projected", lambda: _more(before, story.plan_documents()))
    if len(documents) != 1:
        raise NotReal(f"one automatic batch, and these new plan documents: {documents}")
    by_itself = [line for line in story.told("target_set") if "automatic" in line]
    if len(by_itself) != 1:
        raise NotReal(f"one plan carried out by itself, and the journal says: {by_itself}")
    stage.say(f"  journal: {by_itself[0]}")
    if {r["host"] for r in story.ready()} != set(HOSTS):
        raise NotReal("both replicas stand on one host")
    stage.run("gridops", "plans", "list")
    stage.run("gridops", "status")


def keep_alive(story: Story) -> None:
    """7. The controller is away and an engine dies: its host starts it again. The plan does not change."""
    stage = story.stage
    target, documents = story.scope["target"], story.plan_documents()
    before = story.engines()
    stage.stop("controller")
    victim = min(before)
    before[victim].kill()
    stage.say(f"  controller stopped; kill -9 {victim}")

    def replaced() -> bool:
        now = story.engines()
        return victim not in now and len(now) == len(before) and all(_listening(p) for p in now.values())

    stage.until("the host keeps its replica alive by itself", replaced, seconds=40)
    stage.say(f"  engines now {sorted(story.engines())}, without any controller")
    story.start_controller()
    stage.until("both replicas are ready again", lambda: len(story.ready()) == 2, seconds=40)
    if story.scope["target"]["id"] != target["id"] or story.plan_documents() != documents:
        raise NotReal("a restart by the host changed the plan")
    stage.say(f"  the plan in force is still {target['id']}")


def adoption(story: Story) -> None:
    """8. An agent dies and comes back: it adopts its living engine and starts no second one."""
    stage = story.stage
    before = sorted(story.engines())
    stage.stop("agent-alpha", signal.SIGKILL)
    if sorted(story.engines()) != before:
        raise NotReal("an engine died with its agent")
    stage.say(f"  kill -9 of the agent of alpha; engines still {before}")
    story.start_agent("alpha")
    stage.until("alpha is heard again with its replica", lambda: _fresh_ready(story, "alpha"), seconds=40)
    if sorted(story.engines()) != before:
        raise NotReal(f"engines were {before} and are {sorted(story.engines())}")
    text_of(story.front("alpha").ask(MODEL, "Say yes.", tokens=4))
    stage.say(f"  adopted by proof of identity: {before}, and it answers")


def removal(story: Story) -> None:
    """9. A commit removes the model while it is in use: a proposal, a typed name, and a drain that waits."""
    stage = story.stage
    stream = Stream(story.front("alpha"), MODEL)
    stream.start()
    if not stream.started.wait(30):
        raise NotReal(f"the stream did not begin: {stream.error}")
    (stage.fleet / f"profiles.d/{MODEL}.yaml").unlink()
    stage.commit(f"Remove {MODEL}")
    waiting = stage.until("the removal is a proposal", lambda: story.scope.get("proposal"))
    if len(story.engines()) != 2:
        raise NotReal("an engine was stopped without anybody's approval")
    stage.run("gridops", "--no-input", "apply", waiting["id"], ok=(4, 64))
    stage.say("  refused: nobody typed the name of the last replica")
    stage.run("gridops", "apply", waiting["id"], "--confirm", MODEL)
    stream.join(30)
    if not stream.done or stream.error:
        raise NotReal(f"the stream was cut: {stream.error or 'no [DONE]'} after {len(stream.text)} characters")
    stage.say(f"  the stream ended by itself after {len(stream.text)} characters, then the engine was stopped")
    if story.engines():
        raise NotReal(f"still running: {sorted(story.engines())}")


def the_end(story: Story) -> None:
    """10. Nothing is left but the retirement, and no process of ours survives."""
    stage = story.stage
    stage.until("no residency is left", lambda: not story.ready() and not _live(story))
    shown = stage.run("gridops", "status")
    if f"retired: {MODEL}" not in shown:
        raise NotReal("the retirement is not visible")
    stage.end()
    left = stage.survivors()
    if left:
        raise NotReal(f"processes survived: {[(p.pid, p.name()) for p in left]}")
    stage.say("  no process of this demo is left")


SCENES: tuple[Callable[[Story], None], ...] = (
    repository,
    hosts,
    proposal,
    approval,
    completion,
    scale,
    keep_alive,
    adoption,
    removal,
    the_end,
)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise NotReal(f"{path}: `{old}` is not there")
    path.write_text(text.replace(old, new))


def _more(before: list[str], now: list[str]) -> list[str]:
    return [d for d in now if d not in before]


def _shares(story: Story) -> list[int]:
    """Bytes of memory that each host reports as its own, read from the branch `gridops/state` as anybody could."""
    raw = story.stage.run("git", "show", "gridops/state:state/default.json", quiet=True)
    found = [d["total_bytes"] for h in json.loads(raw)["hosts"] for d in h["devices"] if d["kind"] == "cpu"]
    return found if len(found) == len(HOSTS) else []


def _listening(process: psutil.Process) -> bool:
    family = [process, *process.children(recursive=True)]
    return any(c.status == psutil.CONN_LISTEN for p in family for c in p.net_connections(kind="tcp"))


def _fresh_ready(story: Story, host: str) -> bool:
    """Ready again, and said so by the agent that runs now: its front listens on a port of this run."""
    with contextlib.suppress(StopIteration, httpx.HTTPError, OSError, NotReal):
        return story.front(host).ask(MODEL, "hi", with_key=False).status_code == 401
    return False


def _live(story: Story) -> list[str]:
    states = ("absent", "cached")
    return [r["profile"] for h in story.status()["hosts"] for r in h["residencies"] if r["state"] not in states]
