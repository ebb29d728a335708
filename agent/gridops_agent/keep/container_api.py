"""The door to a container runtime: Docker's Engine API over its socket, which Podman speaks too. Blocking calls.

Only this module opens the `docker` library, and it is imported only on hosts that run engines as containers. It knows
nothing of residencies: it asks, and turns every way of failing into one of three answers (there is none, the runtime
says no, the runtime cannot be asked).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import docker.errors
import docker.types
import requests.exceptions

from gridops.base.errors import Failed
from gridops_agent.hearsay import count

PATIENCE_S = 20
LOG_LINES = 200
LOG_MAX = "8m"


class Silent(Failed):
    """The runtime cannot be asked now: what it would say is unknown."""


@dataclass(frozen=True, slots=True)
class Request:
    """One container to create: everything that may differ between two of them."""

    name: str
    image: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    mounts: tuple[tuple[str, str], ...]
    """(Path on this host, path inside), all of them read-only."""
    port: int
    """On 127.0.0.1 of this host."""
    inner_port: int
    gpus: tuple[str, ...]
    shm_mib: int


def sockets() -> tuple[str, ...]:
    """Where container runtimes usually listen on this machine."""
    personal = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    places = ("/run/docker.sock", "/var/run/docker.sock", f"{personal}/podman/podman.sock", "/run/podman/podman.sock")
    return tuple(f"unix://{place}" for place in places if Path(place).exists())


class Containers:
    """One container runtime. Connects when it is first asked; a runtime that was restarted is simply asked again."""

    def __init__(self, socket: str | None = None) -> None:
        self._socket = socket
        self._client: Any = None
        self._podman = False

    def inspect(self, name: str) -> Mapping[str, Any] | None:
        """What the runtime knows of a container; None when there is none."""
        found = self._ask("inspect_container", name)
        return found if isinstance(found, dict) else None

    def listed(self, labels: Mapping[str, str], stopped: bool = False) -> tuple[Mapping[str, Any], ...]:
        """Containers that carry all of these labels; with `stopped` also those that do not run any more."""
        wanted = [f"{key}={value}" for key, value in sorted(labels.items())]
        rows = self._ask("containers", all=stopped, filters={"label": wanted} if wanted else None)
        return tuple(rows or ())

    def has_image(self, reference: str) -> bool:
        """Whether the image lies here. It is never fetched by us."""
        return self._ask("inspect_image", reference) is not None

    def create(self, request: Request) -> str:
        """Create it, without starting it. Raises Failed with the runtime's words."""
        client = self._connected()
        devices = None
        if request.gpus:
            devices = [
                docker.types.DeviceRequest(driver="nvidia", device_ids=list(request.gpus), capabilities=[["gpu"]])
            ]
        host = client.create_host_config(
            port_bindings={request.inner_port: ("127.0.0.1", request.port)},
            mounts=[docker.types.Mount(inner, outer, type="bind", read_only=True) for outer, inner in request.mounts],
            restart_policy={"Name": "no"},
            device_requests=devices,
            shm_size=request.shm_mib << 20,
            security_opt=["no-new-privileges"],
            log_config=docker.types.LogConfig(type="json-file", config={"max-size": LOG_MAX, "max-file": "1"}),
        )
        made = self._ask(
            "create_container",
            request.image,
            command=list(request.argv[1:]),
            entrypoint=[request.argv[0]],
            name=request.name,
            environment=dict(request.environment),
            labels=dict(request.labels),
            ports=[(request.inner_port, "tcp")],
            host_config=host,
            use_config_proxy=False,
        )
        if made is None:
            raise Failed(f"the image {request.image} is not on this host")
        return str(made["Id"])

    def start(self, name: str) -> None:
        """Start it. Raises Failed with the runtime's words."""
        self._done("start", name)

    def stop(self, name: str, grace_s: int) -> None:
        """Ask it to end; the runtime kills it when the grace is over."""
        self._done("stop", name, timeout=grace_s)

    def kill(self, name: str) -> None:
        """End it now."""
        self._done("kill", name, signal="SIGKILL")

    def remove(self, name: str) -> None:
        """Remove one that has ended, with its log. One that runs is never removed."""
        self._done("remove_container", name, force=False)

    def log(self, name: str) -> str:
        """The end of what it wrote."""
        found = self._ask("logs", name, tail=LOG_LINES)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else ""

    def processes(self, name: str) -> tuple[int, ...]:
        """Its processes, by their numbers on this host: Podman has a word of its own for those."""
        self._connected()
        wanted, asked = ("HPID", "hpid") if self._podman else ("PID", "-eo pid,comm")
        return pids_of(self._ask("top", name, ps_args=asked), wanted)

    def _done(self, verb: str, *words: Any, **options: Any) -> None:
        self._ask(verb, *words, **options)

    def _ask(self, verb: str, *words: Any, **options: Any) -> Any:
        """The answer; None where there is no such container or image. Raises Failed or Silent."""
        client = self._connected()
        try:
            return getattr(client, verb)(*words, **options)
        except docker.errors.NotFound:
            return None
        except docker.errors.APIError as error:
            status = error.status_code or 0
            words_ = str(error.explanation or error)[:300]
            if status == 304:  # it is already so
                return None
            if status >= 500 and verb.startswith(("inspect", "containers")):
                raise Silent(f"the container runtime answers with a fault: {words_}") from error
            raise Failed(f"the container runtime says no: {words_}") from error
        except ValueError as error:  # an answer that is no JSON, such as Podman's empty one to `top` without /proc
            raise Silent(f"the container runtime answers {verb} with nothing that can be read") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            self._client = None
            raise Silent(f"the container runtime does not answer: {error}"[:300]) from error

    def _connected(self) -> Any:
        if self._client is None:
            usual = sockets()
            if self._socket is None and not usual:
                raise Silent("no container runtime listens on this machine (container_socket in agent.toml names one)")
            try:
                client = docker.APIClient(self._socket or usual[0], version="auto", timeout=PATIENCE_S)
                parts = client.version().get("Components") or ()
                self._podman = any("podman" in str(part.get("Name", "")).lower() for part in parts)
                self._client = client
            except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
                raise Silent(f"the container runtime does not answer: {error}"[:300]) from error
        return self._client


def pids_of(table: Any, title: str) -> tuple[int, ...]:
    """One column of what `top` answers: Titles, and Processes as rows of texts. What is no number is no process."""
    titles, rows = (table.get("Titles"), table.get("Processes")) if isinstance(table, dict) else (None, None)
    names = [str(name).upper() for name in titles] if isinstance(titles, list) else []
    if title not in names or not isinstance(rows, list):
        return ()
    at = names.index(title)
    told = [count(str(row[at])) for row in rows if isinstance(row, list) and len(row) > at]
    return tuple(sorted(pid for pid in told if pid is not None))
