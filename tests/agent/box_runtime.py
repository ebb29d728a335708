"""A container runtime on a unix socket, for tests: Docker's Engine API as documented, with real processes inside.

Stands in for a Docker or Podman that a machine may not have; `test_containers_contract.py` runs the same story against
a real one where there is one, and holds this one's answers against what a real Podman said. Each call can be told to
fail. Its "containers" are child processes of the test: published ports and read-only mounts are translated back.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

XLL = Path(__file__).parents[2] / "agent/gridops_agent/engines/xll_server.py"
API, OLDEST = "1.41", "1.24"
NEVER = "0001-01-01T00:00:00Z"


@dataclass
class Box:
    """One container."""

    id: str
    name: str
    spec: Mapping[str, Any]
    created: float
    process: subprocess.Popen[bytes] | None = None
    started: str = NEVER
    oom: bool = False
    paused: bool = False
    error: str = ""
    log: Path | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def status(self) -> str:
        if self.process is None:
            return "created"
        return "paused" if self.paused else "running" if self.running else "exited"

    @property
    def exit_code(self) -> int:
        code = self.process.poll() if self.process is not None else 0
        return 0 if code is None else code if code >= 0 else 128 - code


class Refused(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


Break = Callable[[], None]


@dataclass
class Runtime:
    """The state of the runtime. `broken` maps a verb, such as `start`, to what happens instead of it."""

    folder: Path
    images: dict[str, str] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    broken: dict[str, Break] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    # --- as a person at the machine would -------------------------------------------------------------------------

    def find(self, name: str) -> Box:
        for box in self.boxes.values():
            if name in (box.id, box.name) or (len(name) >= 12 and box.id.startswith(name)):
                return box
        raise Refused(404, f"No such container: {name}")

    def only(self) -> Box:
        (box,) = self.boxes.values()
        return box

    def end(self) -> None:
        for box in self.boxes.values():
            if box.process is not None:
                box.process.send_signal(signal.SIGCONT)
                box.process.kill()
                box.process.wait()

    # --- the API --------------------------------------------------------------------------------------------------

    def version(self) -> Any:
        return {"Version": "0", "ApiVersion": API, "MinAPIVersion": OLDEST, "Os": "linux", "Arch": "amd64"}

    def image(self, reference: str) -> Any:
        if reference not in self.images:
            raise Refused(404, f"No such image: {reference}")
        return {"Id": self.images[reference], "RepoDigests": [reference]}

    def create(self, name: str, spec: Mapping[str, Any]) -> Any:
        self.image(spec["Image"])
        if any(box.name == name for box in self.boxes.values()):
            raise Refused(409, f'Conflict. The container name "/{name}" is already in use')
        box = Box(os.urandom(32).hex(), name, spec, time.time())
        self.boxes[box.id] = box
        return {"Id": box.id, "Warnings": []}

    def start(self, name: str) -> None:
        box = self.find(name)
        if box.running:
            raise Refused(304, "")
        published = self._published(box)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", published))
            except OSError as error:
                text = f"driver failed programming external connectivity: Bind for 127.0.0.1:{published} failed: "
                raise Refused(500, text + "port is already allocated") from error
        box.log = self.folder / f"{box.id[:12]}.log"
        with box.log.open("ab") as log:
            box.process = subprocess.Popen(
                self._argv(box), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(box)
            )
        box.started = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 10**9:09d}Z"
        box.oom = box.paused = False

    def inspect(self, name: str) -> Any:
        box = self.find(name)
        alive = box.running
        state = {
            "Status": box.status,
            "Running": alive,
            "Paused": box.paused,
            "Restarting": False,
            "OOMKilled": box.oom,
            "Dead": False,
            "Pid": box.process.pid if alive and box.process is not None else 0,
            "ExitCode": box.exit_code,
            "Error": box.error,
            "StartedAt": box.started,
            "FinishedAt": NEVER,
        }
        host = {k: box.spec["HostConfig"].get(k) for k in ("PortBindings", "RestartPolicy", "Mounts", "DeviceRequests")}
        config = {k: box.spec.get(k) for k in ("Labels", "Cmd", "Entrypoint", "Env", "Image", "ExposedPorts")}
        return {
            "Id": box.id,
            "Name": f"/{box.name}",
            "Created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(box.created)),
            "Image": self.images[box.spec["Image"]],
            "State": state,
            "HostConfig": host,
            "Config": {**config, "Tty": False},
            "NetworkSettings": {"Ports": host["PortBindings"] if alive else {}},
        }

    def containers(self, stopped: bool, filters: Mapping[str, list[str]]) -> Any:
        rows = []
        for box in self.boxes.values():
            labels = box.spec.get("Labels") or {}
            wanted = dict(entry.partition("=")[::2] for entry in filters.get("label", ()))
            if wanted.items() <= labels.items() and (stopped or box.running):
                rows.append(self._row(box, labels))
        return rows

    def _row(self, box: Box, labels: Mapping[str, str]) -> Any:
        ports = [
            {"IP": one["HostIp"], "PrivatePort": int(inner.split("/")[0]), "PublicPort": int(one["HostPort"])}
            for inner, bound in (box.spec["HostConfig"].get("PortBindings") or {}).items()
            for one in bound
            if box.running
        ]
        return {
            "Id": box.id,
            "Names": [f"/{box.name}"],
            "Image": box.spec["Image"],
            "ImageID": self.images[box.spec["Image"]],
            "Created": int(box.created),
            "State": box.status,
            "Status": box.status,
            "Labels": dict(labels),
            "Ports": ports,
        }

    def stop(self, name: str, grace_s: int) -> None:
        box = self.find(name)
        if not box.running or box.process is None:
            raise Refused(304, "")
        box.process.terminate()
        try:
            box.process.wait(grace_s)
            return
        except subprocess.TimeoutExpired:
            box.process.kill()
        box.process.wait()

    def kill(self, name: str, number: str) -> None:
        box = self.find(name)
        if not box.running or box.process is None:
            raise Refused(409, f"Container {box.id} is not running")
        box.process.send_signal(getattr(signal, number))
        if number == "SIGKILL":
            box.process.wait()

    def remove(self, name: str) -> None:
        box = self.find(name)
        if box.running:
            raise Refused(409, f"You cannot remove a running container {box.id}")
        del self.boxes[box.id]

    def logs(self, name: str) -> bytes:
        """Frames of the multiplexed stream: one byte of stream, three of nothing, four of length."""
        box = self.find(name)
        text = box.log.read_bytes() if box.log is not None else b""
        return b"".join(b"\2\0\0\0" + len(li).to_bytes(4, "big") + li for li in text.splitlines(keepends=True))

    def top(self, name: str) -> Any:
        box = self.find(name)
        if not box.running or box.process is None:
            raise Refused(409, f"Container {box.id} is not running")
        return {"Titles": ["PID", "COMMAND"], "Processes": [[str(box.process.pid), "llama-server"]]}

    # --- translation ----------------------------------------------------------------------------------------------

    def _published(self, box: Box) -> int:
        ((bound,),) = box.spec["HostConfig"]["PortBindings"].values()
        assert bound["HostIp"] == "127.0.0.1", "published for everybody"
        return int(bound["HostPort"])

    def _argv(self, box: Box) -> list[str]:
        words = [*box.spec["Entrypoint"], *box.spec["Cmd"]]
        (inner,) = (key.split("/")[0] for key in box.spec["HostConfig"]["PortBindings"])
        places = {m["Target"]: m["Source"] for m in box.spec["HostConfig"]["Mounts"]}
        assert all(m["ReadOnly"] for m in box.spec["HostConfig"]["Mounts"])
        said = {inner: str(self._published(box)), "0.0.0.0": "127.0.0.1", **places}
        # What follows --port is a port; a path inside is a path outside; nothing else is touched.
        if "--device" in words:  # a program in an image is newer than our wrapper, which has no GPU to leave alone
            del words[words.index("--device") : words.index("--device") + 2]
        return [sys.executable, "-P", str(XLL), *(said.get(word, word) for word in words[1:])]

    def _environment(self, box: Box) -> dict[str, str]:
        given = dict(entry.partition("=")[::2] for entry in box.spec.get("Env") or ())
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "HOME") if name in os.environ}
        return {**kept, "OMP_WAIT_POLICY": "passive", **given}


_PATHS = (
    ("GET", r"/images/(.+)/json", "inspect_image"),
    ("POST", r"/containers/create", "create"),
    ("GET", r"/containers/json", "containers"),
    ("GET", r"/containers/([^/]+)/json", "inspect"),
    ("POST", r"/containers/([^/]+)/start", "start"),
    ("POST", r"/containers/([^/]+)/stop", "stop"),
    ("POST", r"/containers/([^/]+)/kill", "kill"),
    ("GET", r"/containers/([^/]+)/logs", "logs"),
    ("GET", r"/containers/([^/]+)/top", "top"),
    ("DELETE", r"/containers/([^/]+)", "remove"),
)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        pass

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        try:
            status, answer = self._answer(unquote(url.path), query, body)
        except Refused as refused:
            status, answer = refused.status, {"message": refused.message}
        except ConnectionAbortedError:
            self.close_connection = True
            return
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode() if answer is not None else b""
        raw = b"" if status in (204, 304) else raw
        self.send_response(status)
        kind = "application/vnd.docker.multiplexed-stream" if isinstance(answer, bytes) else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the standard library's names

    def _answer(self, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        runtime = self.server.runtime
        if re.fullmatch(r"(/v\d+\.\d+)?/version", path):
            return 200, runtime.version()
        match = re.fullmatch(r"/v(\d+\.\d+)(/.*)", path)
        if match is None:
            raise Refused(404, "page not found")
        if tuple(map(int, match.group(1).split("."))) > tuple(map(int, API.split("."))):
            raise Refused(400, f"client version {match.group(1)} is too new. Maximum supported API version is {API}")
        for method, pattern, verb in _PATHS:
            found = re.fullmatch(pattern, match.group(2))
            if method == self.command and found is not None:
                name = found.group(1) if found.groups() else query.get("name", "")
                with runtime.lock:
                    runtime.calls.append((verb, name))
                    if verb in runtime.broken:
                        runtime.broken[verb]()
                    return self._do(verb, name, query, body)
        raise Refused(404, "page not found")

    def _do(self, verb: str, name: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        runtime = self.server.runtime
        match verb:
            case "inspect_image":
                return 200, runtime.image(name)
            case "create":
                return 201, runtime.create(name, body)
            case "containers":
                stopped = query.get("all") in ("1", "true", "True")
                return 200, runtime.containers(stopped, json.loads(query.get("filters", "{}")))
            case "inspect":
                return 200, runtime.inspect(name)
            case "logs":
                return 200, runtime.logs(name)
            case "top":
                return 200, runtime.top(name)
            case "start":
                return 204, runtime.start(name)
            case "stop":
                return 204, runtime.stop(name, int(query.get("t", "10")))
            case "kill":
                return 204, runtime.kill(name, query.get("signal", "SIGKILL"))
        return 204, runtime.remove(name)


class Server(ThreadingHTTPServer):
    """The runtime on its socket. Use it in a `with`."""

    address_family = socket.AF_UNIX
    daemon_threads = True

    def __init__(self, place: Path, runtime: Runtime) -> None:
        self.runtime = runtime
        self.place = place
        super().__init__(str(place), _Handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "socket", 0

    def get_request(self) -> tuple[Any, Any]:
        request, _ = self.socket.accept()
        return request, ("socket", 0)

    @property
    def url(self) -> str:
        return f"unix://{self.place}"

    def __enter__(self) -> Server:
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self.place.unlink(missing_ok=True)
        self.runtime.end()


def says(status: int, message: str) -> Break:
    """Fail a call with this answer."""

    def fail() -> None:
        raise Refused(status, message)

    return fail


def hangs_up() -> None:
    """Fail a call by closing the connection: nobody knows whether it was done."""
    raise ConnectionAbortedError
