"""A fleet in a real repository, a command line in this process, and a controller that says what a test wants."""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gridops.base.record import to_bytes
from gridops.cli.person import chain_of
from gridops.files.git import Checkout
from gridops.files.projection import PlanBranch
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from tests.builders.calls import Call, caller


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


@pytest.fixture
def git() -> Callable[..., str]:
    def calling(where: Path, *args: str) -> str:
        done = subprocess.run(["git", *args], cwd=where, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return calling


@pytest.fixture
def fleet(tmp_path: Path, repository: Path, git: Callable[..., str]) -> Path:
    """The quickstart, committed, without a root of trust."""
    root = tmp_path / "ops"
    shutil.copytree(repository / "examples/quickstart", root)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "First fleet")
    return root


@dataclass
class Trusted:
    """A fleet with keys: whoever holds the controller's can write plans."""

    root: Path
    state: Path
    signer: MachineSigner

    def branch(self) -> PlanBranch:
        return PlanBranch(Checkout(self.root))

    def write(self, plan: Any) -> None:
        self.branch().write(plan, seal("plan", to_bytes(plan), self.signer))

    @property
    def fleet(self) -> Any:
        return chain_of(self.root).fleet


@pytest.fixture
def trusted(fleet: Path, tmp_path: Path, git: Callable[..., str], call: Call) -> Trusted:
    state = tmp_path / "state"
    made = call("-C", fleet, "trust", "init", "--person", "mira", "--state", state)
    assert made.code == 0, made.err
    git(fleet, "add", ".")
    git(fleet, "commit", "-q", "-m", "Trust")
    return Trusted(fleet, state, MachineSigner.from_seed((state / "keys/controller.seed").read_bytes()))


@dataclass
class Controller:
    """A TLS server with the fleet's own certificate; `answers` maps paths to (status, document)."""

    url: str
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)


def serve(cert: Path, key: Path) -> Iterator[Controller]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            path = self.path.partition("?")[0]
            controller.asked.append((self.path, body))
            status, document = controller.answers.get(path, (404, "not here"))
            raw = document.encode() if isinstance(document, str) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = _answer  # noqa: N815 - the names are the library's

        def log_message(self, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    controller = Controller(f"https://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield controller
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def controller(trusted: Trusted, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    for found in serve(trusted.state / "keys/controller.tls.pem", trusted.state / "keys/controller.tls.key"):
        monkeypatch.setenv("GRIDOPS_CONTROLLER", found.url)
        yield found
