"""The ground of a load run: a real fleet repository with as many hosts as wanted, and the controller as a process.

Everything is real but the machines: root chain, host keys in commits, policies, TLS, SQLite on disk. The process is
read from outside (`/proc`, through psutil), so that what measures is never part of what is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from gridops.base.ids import DeviceId, HostId
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops.trust.keys import MachineSigner
from gridops.trust.tls import pinned_client_context
from tests.controller.fleet import Fleet, mode
from tests.controller.scripted_agent import Room, ScriptedAgent
from tests.controller.watching import Watch

GIB = 1 << 30
GPUS = 2
BY_ITSELF = mode("{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, rebalance]}}")
PROFILE = """
apiVersion: gridops/v1
kind: Profile
name: {name}
replicas: {replicas}
timing: {{load: 1s, warm: 1s, min_residency: 0ms, scale_down_after: 0ms, drain: 2s}}
configs:
  q4:
    engine: llama.cpp
    backends: [cuda]
    artifact: {{format: gguf, files: [{{path: {name}.gguf, sha256: {digest}, size: 18GiB}}]}}
    context: 8192
    lanes: 4
    footprint: {{source: declared, device: 20GiB, host: 2GiB}}
"""
_WATCH = "import sys; from gridops.cli.entry import main; sys.exit(main())"
_PROFILED = (
    "import cProfile, sys, time; from gridops.cli.entry import main; "
    "p = cProfile.Profile(time.process_time); p.enable(); code = main(); "
    "p.disable(); p.dump_stats({file!r}); sys.exit(code)"
)


def room(host: str) -> Room:
    """A machine with two cards of 48 GiB."""
    cards = tuple(
        DeviceReport(
            id=DeviceId(f"gpu{n}"),
            kind=DeviceKind.GPU,
            model="L40S",
            total_bytes=48 * GIB,
            uuid=f"GPU-{host}-{n}",
            generation=1,
        )
        for n in range(GPUS)
    )
    memory = DeviceReport(id=DeviceId("cpu0"), kind=DeviceKind.CPU, total_bytes=256 * GIB, generation=1)
    return Room(devices=(memory, *cards), backend="cuda")


class Crowded(Fleet):
    """A repository with `hosts` admitted hosts and `models` profiles, of which none is wanted yet."""

    def __init__(self, path: Path, hosts: int, models: int, *, every: str = "10s") -> None:
        self.names = [f"host-{n:05d}" for n in range(hosts)]
        self.models = models
        self.every = every
        super().__init__(path, now_ms=time.time_ns() // 1_000_000 - 60_000)
        self.agents = {name: self._host(name) for name in self.names}

    def found(self) -> None:
        """The first commit: everybody is admitted."""
        self.begin(
            hosts=self._hosts(),
            **{
                "policies/budgets.yaml": (
                    "apiVersion: gridops/v1\nkind: Budgets\nscopes:\n  default:\n"
                    "    actions: {concurrent: 10000, loads_per_artifact: 10000, transfers_per_host: 4, cooldown: 0s}\n"
                ),
                "policies/planning.yaml": (
                    f"apiVersion: gridops/v1\nkind: Planning\nheartbeat: {{every: {self.every}}}\n"
                ),
                "profiles.d/coder.yaml": self._profile("coder", 0),
                "profiles.d/spare.yaml": self._profile("spare", 0),
            },
        )

    def want(self, each: int, called: str = "model") -> None:
        """A commit that wants `each` replicas of every model, which the controller may bring about by itself."""
        files: dict[str, str | None] = {"policies/mode.yaml": BY_ITSELF}
        for n in range(self.models):
            files[f"profiles.d/{called}-{n:03d}.yaml"] = self._profile(f"{called}-{n:03d}", each)
        self.commit(files, f"{each} replicas of each {called}")

    def _hosts(self) -> str:
        head = (
            "apiVersion: gridops/v1\nkind: Hosts\n"
            "defaults: {runtimes: {llama.cpp: {backend: cuda}}, disk: {artifacts: 1TiB}}\nhosts:\n"
        )
        cards = ", ".join(f"gpu{n}: {{kind: gpu, model: L40S, memory: 48GiB}}" for n in range(GPUS))
        devices = f"devices: {{cpu0: {{kind: cpu, memory: 256GiB}}, {cards}}}"
        lines = [
            f"  {name}: {{domains: {{rack: r{n // 16}}}, max_replicas: 2, {devices}}}\n"
            for n, name in enumerate(self.names)
        ]
        return head + "".join(lines)

    def _profile(self, name: str, replicas: int) -> str:
        return PROFILE.format(name=name, replicas=replicas, digest=name.encode().hex().ljust(64, "0")[:64])

    def _host(self, name: str) -> ScriptedAgent:
        signer = MachineSigner.from_seed(name.encode().ljust(32, b"."))
        return ScriptedAgent(HostId(name), signer, self.chain, room=room(name))


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used up to a moment."""

    wall_s: float
    cpu_s: float
    rss_mib: float

    def since(self, before: Usage) -> tuple[float, float]:
        """CPU seconds, and their share of one core, since an earlier reading."""
        spent = self.cpu_s - before.cpu_s
        return spent, spent / max(self.wall_s - before.wall_s, 1e-9)


class Process(Watch):
    """The controller's process on a crowded fleet."""

    def __init__(self, fleet: Fleet, profile: Path | None = None, code: Path | None = None) -> None:
        """`code`: another checkout whose controller runs instead, for a before beside an after."""
        super().__init__(fleet)
        self.port = 0
        self._profile = profile
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if code is not None:
            self._env["PYTHONPATH"] = os.pathsep.join((str(code), str(code / "agent")))

    def start(self, *flags: str) -> None:
        """Start it and wait for its address; the same one again after a kill, as a service has."""
        code = _WATCH if self._profile is None else _PROFILED.format(file=str(self._profile))
        where = ["--state", str(self.fleet.state), "--listen", f"127.0.0.1:{self.port}"]
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "watch", "-o", "json", *where, *flags],
                cwd=self.fleet.path,
                stdout=out,
                stderr=out,
                env=self._env,
            )
        self.url = self._wait_for_url()
        self.port = urlsplit(self.url).port or 0
        context = pinned_client_context((self.fleet.tls.cert_pem,))
        self._http = httpx.Client(base_url=self.url, verify=context, timeout=30.0, trust_env=False)

    def usage(self) -> Usage:
        assert self.process is not None
        seen = psutil.Process(self.process.pid)
        times = seen.cpu_times()
        return Usage(time.monotonic(), times.user + times.system, seen.memory_info().rss / (1 << 20))
