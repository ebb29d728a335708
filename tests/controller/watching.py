"""`gridops watch` as a real process with a real TLS listener, and a client that pins it as agents and the CLI do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from gridops.base.errors import Refusal
from gridops.base.record import to_data
from gridops.protocol.messages import Beat
from gridops.trust.tls import pinned_client_context
from tests.controller.fleet import Fleet

START_S = 40.0


class Watch:
    """One process at a time on one fleet; `kill` is kill -9."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.log = fleet.state / "watch.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self._http: httpx.Client | None = None

    def start(self, *flags: str) -> None:
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command("watch"), "-o", "json", "--state", str(self.fleet.state), "--listen", "127.0.0.1:0", *flags],
                cwd=self.fleet.path,
                stdout=out,
                stderr=out,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self.url = self._wait_for_url()
        context = pinned_client_context((self.fleet.tls.cert_pem,))
        self._http = httpx.Client(base_url=self.url, verify=context, timeout=20.0, trust_env=False)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)
        self._close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(15)
        self._close()
        return code

    @property
    def http(self) -> httpx.Client:
        assert self._http is not None
        return self._http

    def get(self, path: str) -> Any:
        return self.http.get(path).json()

    def post(self, beat: Beat) -> str:
        """One poll of an agent, as the agent sends it."""
        answer = self.http.post("/v1/beat", json=to_data(beat))
        body = answer.json()
        if answer.status_code != 200:
            raise Refusal(body["error"]["code"], body["error"]["message"])
        return str(body["directive"])

    def operator(self, request: str) -> Any:
        return self.http.post("/v1/operator", json={"request": request}).json()

    def until(self, question: Any, seconds: float = 30.0) -> Any:
        """Ask until the answer is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = question()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s; the log says:\n{self.log.read_text()[-3000:]}")

    def _wait_for_url(self) -> str:
        def found() -> str | None:
            assert self.process is not None
            for line in self.log.read_text().splitlines():
                text = json.loads(line).get("text", "") if line.startswith("{") else ""
                if "listening on " in text:
                    return str(text.split("listening on ")[1].split(";")[0])
            if self.process.poll() is not None:
                raise AssertionError(f"watch ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
            return None

        return str(self.until(found, START_S))

    def _close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def command(*args: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from gridops.cli.entry import main; sys.exit(main())", *args]


def gridops(fleet: Fleet, *args: str) -> subprocess.CompletedProcess[str]:
    """Run one command in the fleet's checkout."""
    return subprocess.run(command(*args), cwd=fleet.path, capture_output=True, text=True, timeout=60, check=False)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def journal_of(state: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(state.glob("journal.sqlite*")))
