"""What somebody who means harm, or bad luck, does to a running fleet: each is held off, and nothing healthy is lost.

One fleet for the whole module: a controller, two hosts, a tiny model, automatic mode with every class allowed. Every
test leaves it usable for the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from examples.demo.scenes import HOSTS, TEMPLATE, Story
from examples.demo.stage import Stage
from tests.builders.tiny_gguf import write_tiny_gguf

PROFILE = """\
apiVersion: gridops/v1
kind: Profile
name: {name}
replicas: {replicas}
timing: {{load: 20s, warm: 10s, min_residency: 1s, scale_down_after: 1s, drain: 5s}}
restart: {{max: 2, per: 10m, backoff: 200ms}}
configs:
  cpu:
    engine: llama.cpp
    backends: [cpu]
    artifact: {{format: gguf, files: [{{path: tiny.gguf, sha256: {sha256}, size: {size}B}}]}}
    context: 512
    lanes: 1
    footprint: {{source: declared, device: 150MiB}}
    args: {{threads: 1}}
"""
AUTOMATIC = """\
apiVersion: gridops/v1
kind: Mode
scopes:
  default:
    mode: automatic
    automatic: {allow: [repair, scale_up, scale_down, rollout, rebalance, remove], last_replica: [tiny]}
default: recommend
"""


class Fleet:
    """A running fleet of two hosts that does what commits say."""

    def __init__(self, stage: Stage, models: Path) -> None:
        self.stage, self.models, self.story = stage, models, Story(stage, models)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.story.port}"

    @property
    def state(self) -> Path:
        return self.stage.root / "controller"

    def want(self, **replicas: int) -> None:
        """Commit how many of which profile."""
        raw = (self.models / "tiny.gguf").read_bytes()
        for name, count in replicas.items():
            text = PROFILE.format(name=name, replicas=count, sha256=hashlib.sha256(raw).hexdigest(), size=len(raw))
            (self.stage.fleet / f"profiles.d/{name}.yaml").write_text(text)
        self.stage.commit(f"Want {replicas}")

    def is_so(self, **replicas: int) -> bool:
        ready = [r["profile"] for r in self.story.ready()]
        as_wanted = all(ready.count(name) == count for name, count in replicas.items())
        return as_wanted and len(self.story.engines()) == len(ready)

    def settle(self, **replicas: int) -> None:
        self.want(**replicas)
        self.stage.until(f"{replicas} are ready and nothing else runs", lambda: self.is_so(**replicas), 60)

    def bodies(self) -> list[str]:
        """The command that started each living engine."""
        return [process.environ()["GRIDOPS_BODY"] for process in self.story.engines().values()]

    def start_controller(self) -> None:
        """Without waiting: what is killed again at once may never answer."""
        self.stage.start("controller", "gridops", "watch", "--state", str(self.state))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    models = tmp_path_factory.mktemp("models")
    write_tiny_gguf(models / "tiny.gguf")
    with Stage(say=lambda _: None) as stage:
        fleet = Fleet(stage, models)
        shutil.copytree(TEMPLATE, stage.fleet)
        for path in (stage.fleet / "profiles.d").glob("*.yaml"):
            path.unlink()
        settings = stage.fleet / "policies/fleet.yaml"
        settings.write_text(settings.read_text().replace(":7443", f":{fleet.story.port}"))
        # One document at the start and then none for long: what automatic mode does afterwards is not in git.
        budgets = stage.fleet / "policies/budgets.yaml"
        budgets.write_text(budgets.read_text().replace("plan_file_every: 1s", "plan_file_every: 30m"))
        (stage.fleet / "policies/mode.yaml").write_text(AUTOMATIC)
        stage.git("init", "--quiet", "--initial-branch", "main")
        stage.run("gridops", "trust", "init", "--person", "mira", "--state", str(fleet.state))
        stage.commit("Found the fleet")
        fleet.story.start_controller()
        for host in HOSTS:
            token = stage.run("gridops", "host", "invite", host).strip()
            stage.run(
                *("gridops-agent", "join", token, "--controller", fleet.url, "--state", str(stage.agent_state(host))),
                *("--share", "1/4", "--artifacts", str(models), "--no-service", "--no-runtime"),
            )
            fleet.story.start_agent(host)
            stage.run("gridops", "host", "admit", host)
        fleet.settle(keep=1)
        stage.until("the first document is in git", fleet.story.plan_documents)
        yield fleet


def test_a_rebuilt_controller_keeps_what_no_document_knows(fleet: Fleet) -> None:
    """Git is a batch behind, and the host that runs the newest replica comes back last."""
    fleet.settle(keep=1, tiny=1)
    stage, before = fleet.stage, sorted(fleet.story.engines())
    late = next(r["host"] for r in fleet.story.ready() if r["profile"] == "tiny")
    stage.stop(f"agent-{late}")
    stage.stop("controller", signal.SIGKILL)
    for path in fleet.state.glob("journal.sqlite*"):
        path.unlink()
    stage.run("gridops", "controller", "rebuild", "--state", str(fleet.state))
    fleet.start_controller()
    other = next(h for h in HOSTS if h != late)
    stage.until("one is heard", lambda: any(h["heard"] for h in fleet.story.status()["hosts"] if h["host"] == other))
    stage.until("it waits for the other", lambda: not fleet.story.status()["controller"]["ready"])
    assert sorted(fleet.story.engines()) == before
    fleet.story.start_agent(late)
    stage.until("both are ready again", lambda: fleet.is_so(keep=1, tiny=1))
    assert sorted(fleet.story.engines()) == before


def test_killed_at_any_moment_nothing_is_doubled_and_no_bystander_is_touched(fleet: Fleet) -> None:
    fleet.settle(keep=1, tiny=0)
    stage, story = fleet.stage, fleet.story
    bystander = sorted(story.engines())
    for turn, wanted in enumerate((2, 0, 1, 2)):
        fleet.want(tiny=wanted)
        for victim in (("controller",), ("agent-alpha",), ("agent-beta", "controller"))[turn % 3]:
            stage.stop(victim, signal.SIGKILL)
            fleet.start_controller() if victim == "controller" else story.start_agent(victim.removeprefix("agent-"))
        bodies = fleet.bodies()
        assert len(bodies) == len(set(bodies)), "one command, two engines"
        assert set(bystander) <= set(story.engines())
    stage.until("two are ready", lambda: fleet.is_so(keep=1, tiny=2), 60)
    assert set(bystander) <= set(story.engines())
    assert json.loads(stage.run("gridops", "plan", "-o", "json"))["decisions"] == []


def test_a_stranger_on_the_engines_port_is_left_alone_and_another_port_is_taken(fleet: Fleet) -> None:
    stage, story = fleet.stage, fleet.story
    fleet.settle(keep=1, tiny=1)
    home, port = next((r["host"], r["port"]) for r in story.ready() if r["profile"] == "tiny")
    pid, engine = next((p, e) for p, e in story.engines().items() if str(port) in e.cmdline())
    argv = engine.cmdline()
    stage.stop(f"agent-{home}", signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    lookalike = subprocess.Popen([argv[0], "-c", "import time; time.sleep(60)", *argv[1:]], start_new_session=True)
    try:
        stage.until("the port is free", lambda: _free(port))
        with socket.create_server(("127.0.0.1", port)):
            story.start_agent(home)
            stage.until("it is up on another port", lambda: fleet.is_so(keep=1, tiny=1), 40)
        assert lookalike.poll() is None, "a process of somebody else was signalled"
    finally:
        lookalike.kill()
        lookalike.wait()


def test_observe_takes_back_what_no_host_has_heard_yet(fleet: Fleet) -> None:
    fleet.settle(keep=1, tiny=0)
    stage, before = fleet.stage, sorted(fleet.story.engines())
    mode = stage.fleet / "policies/mode.yaml"
    for host in HOSTS:
        stage.stop(f"agent-{host}")
    fleet.want(tiny=2)
    mode.write_text(AUTOMATIC.replace("mode: automatic", "mode: observe").replace("    automatic:", "    # automatic:"))
    observed = stage.commit("Only look")
    stage.until("the commit is in force", lambda: fleet.story.status()["intent"]["commit"] == observed)
    for host in HOSTS:
        fleet.story.start_agent(host)
    stage.until("the bystander is ready", lambda: fleet.is_so(keep=1, tiny=0))
    assert sorted(fleet.story.engines()) == before
    mode.write_text(AUTOMATIC)
    fleet.settle(keep=1, tiny=0)


def test_a_model_file_changed_in_place_is_not_started_again(fleet: Fleet) -> None:
    fleet.settle(keep=1, tiny=1)
    before = sorted(fleet.story.engines())
    model = fleet.models / "tiny.gguf"
    good, seen = model.read_bytes(), model.stat()
    with model.open("r+b") as file:  # same size, same inode, and the old time put back
        file.seek(len(good) - 1)
        file.write(bytes([good[-1] ^ 1]))
    os.utime(model, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    try:
        os.kill(before[-1], signal.SIGKILL)
        why = fleet.stage.until("the host says why", lambda: _details(fleet, "has SHA-256"))
        assert "tiny.gguf" in why
        assert "it is not started" in why
        assert sorted(fleet.story.engines()) == before[:-1]
    finally:
        model.write_bytes(good)


@pytest.mark.parametrize("path", ["/v1/beat", "/v1/join", "/v1/operator"])
def test_whatever_is_sent_unsigned_is_refused_in_words_and_is_no_fault(fleet: Fleet, path: str) -> None:
    field = "heartbeat" if path == "/v1/beat" else "request"
    signed = json.dumps({"payload": "eyJob3N0X2tleSI6ICJcdWQ4MDAifQ==", "signatures": []})
    bodies = [
        b"",
        b"[]",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"a":' * 5_000,
        b'{"%s":NaN}' % field.encode(),
        b'{"%s":1e999}' % field.encode(),
        b'{"%s":"\\ud800"}' % field.encode(),
        b'{"\\ud800":1}',
        json.dumps({field: signed}).encode(),
        json.dumps({field: "[" * 3_000}).encode(),
        b"{" + b" " * (4 << 20),
    ]
    trusted = ssl.create_default_context(cafile=str(fleet.state / "keys/controller.tls.pem"))
    trusted.check_hostname = False
    with httpx.Client(verify=trusted, trust_env=False, timeout=20) as client:
        for body in bodies:
            answer = client.post(fleet.url + path, content=body)
            assert 400 <= answer.status_code < 500, (body[:40], answer.text)
            assert answer.json()["error"]["message"]
        assert client.get(f"{fleet.url}/v1/events", params={"after": "²"}).status_code == 400
        assert client.get(f"{fleet.url}/v1/plans/..%2f..%2fkeys").status_code == 404


def test_a_caller_that_goes_away_or_speaks_old_tls_leaves_no_fault_behind(fleet: Fleet) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(("127.0.0.1", fleet.story.port))) as half:
        half.sendall(b"POST /v1/beat HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", fleet.story.port)) as old:
        context.wrap_socket(old)
    assert fleet.story.status()["controller"]["ready"]
    assert "fault while answering" not in (fleet.stage.root / "logs/controller.log").read_text()


def _details(fleet: Fleet, words: str) -> str:
    found = [json.dumps(m) for s in fleet.story.status()["scopes"] for m in s["models"]]
    return next((text for text in found if words in text), "")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0
