"""What is local to a host: `agent.toml`, written by `join`, and where each thing lies in the state folder.

Read once when the agent starts. It holds no secret and no wish: what should run comes signed from the controller.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from gridops.base.errors import BadSetup
from gridops.base.ids import Digest, HostId, is_digest, is_name
from gridops.disk.atomic import write_atomic
from gridops_agent.account import began_as_root
from gridops_agent.artifacts.settings import Settings, parse_settings, settings_lines
from gridops_agent.keep.ways import Ways, read_ways, ways_lines

LOCK = "agent.lock"
"""Held by the one agent that runs on a state folder."""
_HEAD = "# Written by `gridops-agent join`, down to its last line."
_END = "# end of agent.toml"
DEFAULT_PORTS = (18300, 18399)
DEFAULT_FRONT = "127.0.0.1:0"
_KEYS = frozenset(
    {"controller", "host", "fleet", "artifact_folders", "share", "ports", "front", "secrets_folder", "engine_command"}
    | {"engines", "units", "container_socket", "artifacts", "route_external"}
)


@dataclass(frozen=True, slots=True)
class Config:
    """`agent.toml` of one state folder."""

    state: Path
    controller: str
    host: HostId
    fleet: Digest
    artifact_folders: tuple[Path, ...] = ()
    share: Fraction = Fraction(1)
    """Part of the machine's memory that this logical host may speak for."""
    ports: tuple[int, int] = DEFAULT_PORTS
    front: str = DEFAULT_FRONT
    secrets_folder: Path | None = None
    engine_command: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By engine: the program to use instead of what is found on PATH."""
    route_external: bool = False
    """Whether the front lets its callers reach engines of this machine that are not ours: its owner's consent."""
    ways: Ways = field(default_factory=Ways)
    """How the other engines are run: as containers, as units, as loopback services."""
    artifacts: Settings = field(default_factory=Settings)
    """How model files are fetched, kept and shared."""

    @property
    def file(self) -> Path:
        return self.state / "agent.toml"

    @property
    def seed(self) -> Path:
        return self.state / "keys" / "host.seed"

    @property
    def next_seed(self) -> Path:
        """Of the key that waits for a commit (`gridops-agent rekey`)."""
        return self.state / "keys" / "host.next.seed"

    @property
    def next_public(self) -> Path:
        """Its public key, by which a seed that has rotted is found."""
        return self.state / "keys" / "host.next.pub"

    @property
    def former_keys(self) -> Path:
        """Public keys that this host had before."""
        return self.state / "former-keys.json"

    @property
    def front_cert(self) -> Path:
        return self.state / "keys" / "front.pem"

    @property
    def front_key(self) -> Path:
        return self.state / "keys" / "front.key"

    @property
    def ledger(self) -> Path:
        return self.state / "ledger.sqlite"

    @property
    def roots(self) -> Path:
        """Copies of the root documents, beside the ledger that holds them too."""
        return self.state / "roots"

    @property
    def engines(self) -> Path:
        return self.state / "engines"

    @property
    def qualified(self) -> Path:
        """Signed qualifications of this host."""
        return self.state / "qualified"

    @property
    def cache(self) -> Path:
        return self.state / "artifacts"

    @property
    def status(self) -> Path:
        return self.state / "status.json"

    @property
    def override(self) -> Path:
        """What a person at the host said; only people write it."""
        return self.state / "override.json"

    @property
    def left(self) -> Path:
        """There once this host has left its fleet."""
        return self.state / "left.json"

    @property
    def log(self) -> Path:
        """Where the agent's own log lies when no journal has it."""
        return self.state / "log"

    @property
    def runtime(self) -> Path:
        """Where `join` puts the pinned llama.cpp runtime when this machine has none."""
        return self.state / "runtime"

    @property
    def hands(self) -> Path:
        """What people at this host handed over or took back."""
        return self.state / "hands.json"

    @property
    def lock(self) -> Path:
        return self.state / LOCK

    @property
    def front_address(self) -> tuple[str, int]:
        host, _, port = self.front.rpartition(":")
        return host.strip("[]"), int(port)


def default_state() -> Path:
    """Where a host keeps its state when nothing is said: the system's place for root, else the person's."""
    if began_as_root():
        return Path("/var/lib/gridops-agent/default")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "gridops-agent" / "default"


def read_config(state: Path) -> Config:
    """The configuration of a state folder. Raises BadSetup that names the file, the key and what is expected."""
    file = state / "agent.toml"
    try:
        text = file.read_text("utf-8")
        raw = tomllib.loads(text)
    except FileNotFoundError as error:
        raise BadSetup(
            f"{file} is missing: this host has not joined a fleet",
            hints=(
                "if it joined with `--state DIR`, say the same `--state DIR` here",
                f"gridops-agent join TOKEN --controller URL --state {state}",
            ),
        ) from error
    except OSError as error:
        hint = f"--state names the folder that join made; {state} is no such folder, or not yours to read"
        raise BadSetup(f"cannot read {file}: {error.strerror}", hints=(hint,)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "mend it by hand, or bring it back from a copy: join wrote it once and nothing rewrites it"
        raise BadSetup(f"{file} is not TOML: {error}", hints=(hint,)) from error
    if text.startswith(_HEAD) and _END not in text.splitlines():
        # What is missing would be taken as never said: the whole machine's memory instead of a share of it.
        hint = "bring it back from a copy; or mend it, and end it with that line"
        raise BadSetup(f"{file} is cut off: its last line, `{_END}`, is missing", hints=(hint,))
    unknown = sorted(raw.keys() - _KEYS)
    if unknown:
        raise BadSetup(f"{file}: unknown key `{unknown[0]}`; known are {', '.join(sorted(_KEYS))}")
    try:
        return _config(state, raw)
    except ValueError as error:
        raise BadSetup(f"{file}: {error}") from error


def _config(state: Path, raw: Mapping[str, Any]) -> Config:
    host, fleet, controller = (_text(raw, key) for key in ("host", "fleet", "controller"))
    if not is_name(host) or not is_digest(fleet):
        raise ValueError("`host` must be a name and `fleet` a digest; both are written by join")
    folders = raw.get("artifact_folders", [])
    ways = read_ways(raw)
    secrets = raw.get("secrets_folder")
    return Config(
        state=state,
        controller=check_controller(controller),
        host=HostId(host),
        fleet=Digest(fleet),
        artifact_folders=tuple(Path(folder) for folder in _texts(folders, "artifact_folders")),
        share=parse_share(_text(raw, "share", "1")),
        ports=_ports(raw.get("ports", list(DEFAULT_PORTS))),
        front=check_front(_text(raw, "front", DEFAULT_FRONT)),
        secrets_folder=Path(secrets) if isinstance(secrets, str) else None,
        engine_command=ways.commands,
        route_external=_flag(raw, "route_external"),
        ways=replace(ways, commands={}),
        artifacts=parse_settings(raw.get("artifacts", {})),
    )


def write_config(config: Config) -> None:
    """Write `agent.toml`. Raises Failed."""
    lines = [
        f"{_HEAD} What is local to this host; nothing here is a secret.",
        f"controller = {_quoted(config.controller)}",
        f"host = {_quoted(config.host)}",
        f"fleet = {_quoted(config.fleet)}",
        f"artifact_folders = [{', '.join(_quoted(str(folder)) for folder in config.artifact_folders)}]",
        f"share = {_quoted(str(config.share))}",
        f"ports = [{config.ports[0]}, {config.ports[1]}]",
        f"front = {_quoted(config.front)}",
    ]
    if config.secrets_folder is not None:
        lines.append(f"secrets_folder = {_quoted(str(config.secrets_folder))}")
    if config.route_external:
        lines.append("route_external = true")
    lines += ways_lines(replace(config.ways, commands=config.engine_command))
    lines += settings_lines(config.artifacts)
    lines.append(_END)
    write_atomic(config.file, ("\n".join(lines) + "\n").encode())


def parse_share(text: str) -> Fraction:
    """`1/4` or `0.25`: more than nothing, at most all. Raises ValueError with a sentence for the user."""
    try:
        share = Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"`{text}` is not a share, such as 1/4") from error
    if not 0 < share <= 1 or share.denominator > 1_000_000:
        raise ValueError(f"a share is more than 0 and at most 1, not {text}")
    return share


def parse_ports(text: str) -> tuple[int, int]:
    """`18300-18399`. Raises ValueError with a sentence for the user."""
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip())
    if match is None:
        raise ValueError(f"`{text}` is not a range of ports, such as 18300-18399")
    return _ports([int(match.group(1)), int(match.group(2))])


def _ports(value: object) -> tuple[int, int]:
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(type(n) is int and 1024 <= n <= 65535 for n in numbers) or numbers[0] > numbers[1]:
        raise ValueError(f"ports must be the first and the last of a range between 1024 and 65535, not {value}")
    return int(numbers[0]), int(numbers[1])


def check_front(text: str) -> str:
    """`HOST:PORT`; port 0 lets the agent choose once. Raises ValueError with a sentence for the user."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"`{text}` is not an address for the front, such as 127.0.0.1:0 or 10.0.0.7:8443")
    return text


def check_controller(url: str) -> str:
    """An https URL without a path. Raises ValueError with a sentence for the user."""
    if re.fullmatch(r"https://[^/\s?#@]+/?", url) is None:
        raise ValueError(f"`{url}` is not the URL of a controller, such as https://gridops.office.example:7443")
    return url.rstrip("/")


def _text(raw: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = raw.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"`{key}` must be a text" if key in raw else f"`{key}` is missing")
    return value


def _flag(raw: Mapping[str, Any], key: str) -> bool:
    """Only the literal true is a consent."""
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"`{key}` must be true or false")
    return value


def _texts(value: object, key: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"`{key}` must be a list of texts")
    return value


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are a subset of TOML's."""
    return json.dumps(text, ensure_ascii=True)
