"""A running fleet for tests of whole processes: real `gridops watch`, real agents, engines on a tiny model.

`opened` founds it and ends it; whoever asks says which hosts it has and what its mode file allows. `Office` is what a
person at a desk can do with it. Each module keeps one office for all its tests, and each test leaves it usable.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.demo.scenes import TEMPLATE, Story
from examples.demo.stage import NotReal, Stage
from tests.builders.tiny_gguf import Shape, write_tiny_gguf

PROFILE = """\
apiVersion: gridops/v1
kind: Profile
name: {name}
replicas: {replicas}
timing: {{load: 20s, warm: 10s, min_residency: 1s, scale_down_after: 1s, drain: 5s}}
restart: {{max: 5, per: 10m, backoff: 200ms}}
configs:
  cpu:
    engine: llama.cpp
    backends: [cpu]
    artifact: {{format: gguf, files: [{{path: tiny.gguf, sha256: {sha256}, size: {size}B}}]}}
    context: {context}
    lanes: 1
    footprint: {{source: declared, device: {mib}MiB}}
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


@dataclass
class Office:
    """A running fleet, and its desk."""

    story: Story
    stage: Stage
    model: Path
    mib: int = 150
    """What a profile's file says it needs."""
    context: int = 512

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.story.port}"

    @property
    def state(self) -> Path:
        """The controller's."""
        return self.stage.root / "controller"

    # -- what a person asks for ---------------------------------------------------------------------------------------

    def profile(self, name: str, replicas: int) -> None:
        """Write a profile; nothing is committed."""
        raw = self.model.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        text = PROFILE.format(
            name=name, replicas=replicas, sha256=digest, size=len(raw), mib=self.mib, context=self.context
        )
        (self.stage.fleet / f"profiles.d/{name}.yaml").write_text(text)

    def want(self, **replicas: int) -> str:
        """Commit how many of which profile; the commit."""
        for name, count in replicas.items():
            self.profile(name, count)
        return self.stage.commit(f"Want {replicas}")

    def call(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """One `gridops` command whose ending is the caller's to judge."""
        return subprocess.run(
            ["gridops", "--no-input", *args],
            cwd=self.stage.fleet,
            env=self.stage.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def proposal(self, wanted: str) -> str:
        """The id of the proposal whose headline is as wanted."""

        def waits() -> str:
            scope = self.story.scope
            found = scope.get("proposal")
            if found and found["headline"] == wanted:
                return str(found["id"])
            raise NotReal(f"this is proposed: {found}, while the scope is: {scope}")

        return self.stage.until(f"a proposal: {wanted}", waits, 90)

    def in_force(self, commit: str) -> None:
        """Wait until a commit is the intent."""
        self.stage.until("the commit is in force", lambda: self.story.status()["intent"].get("commit") == commit)

    def have(self, name: str, replicas: int) -> None:
        """Have exactly so many replicas of a profile, by commit and apply."""
        self.profile(name, replicas)
        self.in_force(self.stage.commit(f"{name}: {replicas}"))

        def settled() -> bool:
            ready = [r for r in self.story.ready() if r["profile"] == name]
            found = self.story.scope.get("proposal")
            if found is None:
                return len(ready) == replicas
            done = self.call("apply", found["id"], "--confirm", name)
            assert done.returncode in (0, 4, 75), done.stderr  # a newer proposal may have come in between
            return False

        self.stage.until(f"{replicas} of {name} are ready and nothing waits", settled)

    def settle(self, **replicas: int) -> None:
        """Have exactly these, by commit alone: for automatic mode."""
        self.in_force(self.want(**replicas))
        self.stage.until(f"{replicas} are ready and nothing else runs", lambda: self.is_so(**replicas), 60)

    # -- what is there ------------------------------------------------------------------------------------------------

    def is_so(self, **replicas: int) -> bool:
        """So many are ready, and there is one engine for each that is ready."""
        ready = [r["profile"] for r in self.story.ready()]
        as_wanted = all(ready.count(name) == count for name, count in replicas.items())
        return as_wanted and len(self.story.engines()) == len(ready)

    def bodies(self) -> list[str]:
        """The command that started each living engine."""
        return [process.environ()["GRIDOPS_BODY"] for process in self.story.engines().values()]

    def home(self, profile: str) -> str:
        """The host on which the one replica of a profile is ready."""
        (host,) = (r["host"] for r in self.story.ready() if r["profile"] == profile)
        return str(host)

    # -- what befalls it ----------------------------------------------------------------------------------------------

    def start_controller(self, *args: str) -> None:
        """Without waiting: what is killed again at once may never answer."""
        self.stage.start("controller", "gridops", "watch", "--state", str(self.state), *args)

    def lose_memory(self, how: signal.Signals = signal.SIGKILL) -> None:
        """The controller ends, its journal is deleted, and a new one is made of git."""
        self.stage.stop("controller", how)
        for path in self.state.glob("journal.sqlite*"):
            path.unlink()
        self.stage.run("gridops", "controller", "rebuild", "--state", str(self.state))


@contextlib.contextmanager
def opened(
    models: Path,
    hosts: Sequence[str],
    before: Callable[[Stage], None] = lambda _: None,
    shape: Shape | None = None,
) -> Iterator[Office]:
    """A fleet of these hosts, admitted and heard. `before` may change the files of its first commit."""
    made = write_tiny_gguf(models / "tiny.gguf", shape=shape)
    with Stage(say=lambda _: None) as stage:
        office = Office(Story(stage, models), stage, made.path)
        shutil.copytree(TEMPLATE, stage.fleet)
        for path in (stage.fleet / "profiles.d").glob("*.yaml"):
            path.unlink()
        settings = stage.fleet / "policies/fleet.yaml"
        settings.write_text(settings.read_text().replace(":7443", f":{office.story.port}"))
        office.profile("tiny", 0)
        before(stage)
        stage.git("init", "--quiet", "--initial-branch", "main")
        stage.run("gridops", "trust", "init", "--person", "mira", "--state", str(office.state))
        stage.commit("Found the fleet")
        office.story.start_controller()
        for host in hosts:
            token = stage.run("gridops", "host", "invite", host).strip()
            stage.run(
                *("gridops-agent", "join", "-", "--controller", office.url, "--state", str(stage.agent_state(host))),
                *("--share", "1/4", "--artifacts", str(models), "--no-service", "--no-runtime", "--ports", _ports()),
                typed=token,
            )
            office.story.start_agent(host)
            stage.run("gridops", "host", "admit", host)
        stage.commit(f"Admit {' and '.join(hosts)}")
        stage.until("every host is heard", lambda: _heard(office) >= set(hosts))
        yield office


def _ports() -> str:
    """Ports for this worker's engines alone: one that is taken by another test's engine is a start that is repeated."""
    first = 18_400 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return f"{first}-{first + 99}"


def _heard(office: Office) -> set[str]:
    return {str(h["host"]) for h in office.story.status()["hosts"] if h["heard"]}
