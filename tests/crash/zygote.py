"""Starts `gridops` and `gridops-agent` as real processes at a tenth of the price: everything is imported before a fork.

Run as a program by `Nursery`: one JSON line for each start or question on stdin, one JSON line for the answer on
stdout. What it starts is a process of its own, with its own environment and log, and dies as any other does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

PROGRAMS = ("gridops", "gridops-agent")


class Nursery:
    """The asking side. Use as a context manager; what still runs at its end is killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> Nursery:
        root = Path(__file__).resolve().parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}:{root / 'agent'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def start(self, argv: list[str], cwd: Path, log: Path, env: dict[str, str]) -> int:
        """Start one of the two programs; its number."""
        return int(self._ask({"run": argv, "cwd": str(cwd), "log": str(log), "env": env}))

    def ended(self, pid: int) -> int | None:
        """The exit code; negative for a signal; None while it runs. Asked once more after that is a fault."""
        code = self._ask({"ended": pid})
        return None if code is None else int(code)

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, "the zygote is gone"
        return json.loads(line)


def child(question: dict[str, Any]) -> int:
    """In the fork: become the program."""
    out = os.open(question["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    for number, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(number, target)
    os.chdir(question["cwd"])
    os.setsid()
    os.environ.update(question["env"])
    program, *args = question["run"]
    if program == "gridops":
        from gridops.cli.entry import main
    else:
        from gridops_agent.cli.entry import main
    return main(args)


def serve() -> None:
    """Until stdin ends."""
    import gridops.cli.main
    import gridops.controller.shell_full
    import gridops.controller.start  # noqa: F401 - imported here, so that no child has to
    import gridops_agent.cli.main
    import gridops_agent.shell  # noqa: F401

    alive: set[int] = set()
    for line in sys.stdin.buffer:
        question = json.loads(line)
        if "run" in question:
            pid = os.fork()
            if pid == 0:
                code = 70
                try:
                    code = child(question)
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            alive.add(pid)
            answer: int | None = pid
        else:
            found, status = os.waitpid(question["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if found else None
            if found:
                alive.discard(found)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in sorted(alive):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    serve()
