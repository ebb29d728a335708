"""The stage of one run: its folders, its processes, and the promise that none of them survives it.

Engines outlive their agent on purpose, so ending the agents is not enough. The stage makes itself the reaper of
orphans (Linux `PR_SET_CHILD_SUBREAPER`), which also works in a container whose first process reaps nothing. Its own is
who was started by one of its daemons, or with the home that only a stage gives: never who merely names its folder,
as an editor or a `tail` on its logs does, and never another child of the process that the stage lives in.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

PR_SET_CHILD_SUBREAPER = 36
BIN = Path(sys.executable).parent
T = TypeVar("T")


class NotReal(Exception):
    """A step of the demo did not show what it promises."""


@dataclass
class Stage:
    """Folders and processes of one run. Use as a context manager."""

    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gridops-demo-")))
    say: Callable[[str], None] = print
    keep: bool = False
    """Leave the folder behind, to look at its logs."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list)
    """What was given to commands on their standard input, which no other process sees."""
    met: dict[int, float] = field(default_factory=dict)
    """Processes of this run that were seen alive, with their births: what is reaped at the end, should it be ours by
    then. The daemons themselves are not among them: whoever started them collects them."""

    def __enter__(self) -> Stage:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        (self.root / "logs").mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        if self.keep:
            self.say(f"kept: {self.root}")
        else:
            shutil.rmtree(self.root, ignore_errors=True)

    @property
    def fleet(self) -> Path:
        """The operators' repository."""
        return self.root / "fleet"

    def agent_state(self, host: str) -> Path:
        return self.root / f"agent-{host}"

    @property
    def env(self) -> dict[str, str]:
        """A closed environment: nothing of the caller's git, keys or locale leaks into the story."""
        kept = {k: v for k, v in os.environ.items() if k in ("LD_LIBRARY_PATH", "LANG", "TMPDIR", "VIRTUAL_ENV")}
        return kept | {
            "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.root),
            "GRIDOPS_KEYS": str(self.root / "keys"),
            "GRIDOPS_STATE": str(self.root / "controller"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_AUTHOR_NAME": "mira",
            "GIT_AUTHOR_EMAIL": "mira@example.invalid",
            "GIT_COMMITTER_NAME": "mira",
            "GIT_COMMITTER_EMAIL": "mira@example.invalid",
            "OMP_WAIT_POLICY": "passive",
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
        }

    # -- commands ---------------------------------------------------------------------------------------------------

    def run(self, *argv: str, ok: tuple[int, ...] = (0,), quiet: bool = False, typed: str = "") -> str:
        """Run one command as the operator would, show it, and return what it wrote to stdout."""
        self.typed += [typed] if typed else []
        shown = " ".join(argv)
        if not quiet:
            self.say(f"$ {shown}")
        done = subprocess.run(
            argv, cwd=self._cwd(), env=self.env, capture_output=True, text=True, timeout=120, input=typed
        )
        if not quiet:
            for line in (done.stdout + done.stderr).rstrip().splitlines():
                self.say(f"  {line}")
        if done.returncode not in ok:
            wanted = " or ".join(map(str, ok))
            raise NotReal(f"`{shown}` ended with {done.returncode}, not {wanted}\n{done.stdout}{done.stderr}")
        return done.stdout

    def git(self, *argv: str, quiet: bool = True) -> str:
        return self.run("git", *argv, quiet=quiet)

    def commit(self, message: str) -> str:
        """Commit everything in the operators' repository, as a person would."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        head = self.git("rev-parse", "HEAD").strip()
        self.say(f'  commit {head[:7]} "{message}"')
        return head

    def _cwd(self) -> Path:
        return self.fleet if self.fleet.is_dir() else self.root

    # -- processes --------------------------------------------------------------------------------------------------

    def start(self, name: str, *argv: str) -> subprocess.Popen[bytes]:
        """Start a daemon in a session of its own; what it prints goes to `logs/<name>.log`."""
        self.say(f"$ {' '.join(argv)} &")
        with open(self.root / "logs" / f"{name}.log", "ab") as log:
            made = subprocess.Popen(
                argv,
                cwd=self._cwd(),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running[name] = made
        return made

    def stop(self, name: str, how: int = signal.SIGTERM) -> int:
        """Signal one daemon and wait until it is gone."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            return process.wait(timeout=20)
        except subprocess.TimeoutExpired as slow:
            process.kill()
            process.wait(timeout=10)
            raise NotReal(f"{name} did not stop within 20 s of signal {how}\n{self.tail(name)}") from slow

    def tail(self, name: str, lines: int = 25) -> str:
        """The end of a daemon's log, for a failure message."""
        path = self.root / "logs" / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    def check_alive(self) -> None:
        """A daemon that died on its own is a failure of the step that runs now."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise NotReal(f"{name} ended by itself with {process.returncode}\n{self.tail(name)}")

    def until(self, what: str, probe: Callable[[], T | None], seconds: float = 30) -> T:
        """Wait until `probe` answers something true; its last answer is the evidence when it never does."""
        deadline, last = time.monotonic() + seconds, "no answer yet"
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                answer = probe()
                if answer:
                    return answer
                last = f"last answer: {answer!r}"
            except NotReal as error:
                last = str(error)
            time.sleep(0.1)
        logs = "\n".join(f"--- {name}\n{self.tail(name)}" for name in self.running)
        raise NotReal(f"waited {seconds:.0f} s for: {what}\n{last}\n{logs}")

    def survivors(self) -> list[psutil.Process]:
        """Every living process of this run: what its daemons started, and whoever carries its home."""
        found: dict[int, psutil.Process] = {}
        for daemon in self.running.values():
            with contextlib.suppress(psutil.Error):
                if daemon.poll() is None:
                    process = psutil.Process(daemon.pid)
                    found |= {p.pid: p for p in (process, *process.children(recursive=True))}
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error):
                # The birth is read before the home: when the number is given away in between, nobody is signalled.
                process = psutil.Process(pid)
                if pid != os.getpid() and process.environ().get("HOME") == str(self.root):
                    found[pid] = process
        daemons = {daemon.pid for daemon in self.running.values()}
        for pid, process in found.items():
            with contextlib.suppress(psutil.Error):
                if pid not in daemons:
                    self.met[pid] = process.create_time()
        return [p for p in found.values() if _living(p)]

    def end(self) -> None:
        """Stop everything, gently first. Safe to call more than once."""
        for name in list(self.running):
            with contextlib.suppress(NotReal, OSError):
                self.stop(name)
        for how in (signal.SIGTERM, signal.SIGKILL):
            left = self.survivors()
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(how)
            psutil.wait_procs(left, timeout=5)
        _reap(self.met)


def _living(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _reap(met: dict[int, float]) -> None:
    """Collect orphans that were handed to us, so that a container's process table stays clean.

    Only by number and birth: a number that was given away since may be another child of the process we live in, and
    whoever started that one wants to hear how it ended.
    """
    for pid, born in sorted(met.items()):
        with contextlib.suppress(ChildProcessError, psutil.Error):
            if psutil.Process(pid).create_time() == born:
                os.waitpid(pid, os.WNOHANG)


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def ctrl_c_ends() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt too, so that every way of ending runs the clean-up."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
