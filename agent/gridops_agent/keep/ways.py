"""How this host runs each engine, as `agent.toml` says it: a program, an image, a unit or a loopback service.

Read with the rest of the configuration, before anything is asked of any engine. What could name something else than it
seems to (a moving tag, a path in a unit's name, an address that is not this machine) is refused here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gridops.base.ids import is_name

IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]{0,254}@sha256:[0-9a-f]{64}")
UNIT = re.compile(r"[A-Za-z0-9:_.@-]{1,240}\.service")
SERVICE = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):(\d{1,5})")
DEFAULT_SHM_MIB = 1_024
"""Shared memory of a container. Engines that split a model talk through it; Docker's own 64 MiB are too few."""


@dataclass(frozen=True, slots=True)
class Image:
    """`[engines.X] container`: the image that brings the program, by digest."""

    reference: str
    backend: str
    entrypoint: tuple[str, ...] = ()
    """Instead of the program's usual name inside such an image."""
    port: int = 8_000
    """Where the engine listens inside; outside it is one of this host's ports, on loopback."""
    shm_mib: int = DEFAULT_SHM_MIB


@dataclass(frozen=True, slots=True)
class Unit:
    """`[units."X.service"]`: an engine that a person set up as a systemd user unit, and what it serves."""

    name: str
    engine: str
    profile: str
    backend: str
    port: int
    devices: tuple[str, ...] = ()
    key_file: str = ""
    """Where the key lies that it asks its callers for; empty when it asks for none."""


@dataclass(frozen=True, slots=True)
class Ways:
    """All of it. An engine that is not named here is a program on PATH, run as a child process."""

    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    images: Mapping[str, Image] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    units: tuple[Unit, ...] = ()
    socket: str | None = None
    """`container_socket`: where the container runtime listens, if not at a usual place."""


def read_ways(raw: Mapping[str, Any]) -> Ways:
    """`engines`, `units`, `container_socket` and the older `engine_command`. Raises ValueError with a sentence."""
    commands = {n: _words(w, f"engine_command.{n}") for n, w in sorted(_table(raw, "engine_command").items())}
    images: dict[str, Image] = {}
    services: dict[str, str] = {}
    for name, way in sorted(_table(raw, "engines").items()):
        where = f'engines."{name}"'
        if not isinstance(way, dict) or len(way.keys() & {"command", "container", "service"}) != 1:
            raise ValueError(f"`{where}` must say one of command, container or service")
        if "command" in way:
            _only(way, where, "command")
            commands[name] = _words(way["command"], f"{where}.command")
        elif "service" in way:
            _only(way, where, "service")
            services[name] = _service(way["service"], f"{where}.service")
        else:
            images[name] = _image(way, where)
    units = tuple(_unit(n, u) for n, u in sorted(_table(raw, "units").items()))
    _each_once(units)
    return Ways(commands, images, services, units, _socket(raw.get("container_socket")))


def ways_lines(ways: Ways) -> list[str]:
    """The same as lines of TOML, tables last."""
    lines = [f"container_socket = {_toml(ways.socket)}"] if ways.socket is not None else []
    for name, words in sorted(ways.commands.items()):
        lines += [f"[engines.{_toml(name)}]", f"command = {_toml(words)}"]
    for name, image in sorted(ways.images.items()):
        lines += [f"[engines.{_toml(name)}]", f"container = {_toml(image.reference)}"]
        lines += _fields(image, "backend", "entrypoint", "port", "shm_mib")
    for name, address in sorted(ways.services.items()):
        lines += [f"[engines.{_toml(name)}]", f"service = {_toml(address)}"]
    for unit in ways.units:
        lines += [f"[units.{_toml(unit.name)}]"]
        lines += _fields(unit, "profile", "engine", "backend", "port", "devices", "key_file")
    return lines


def _fields(of: Image | Unit, *names: str) -> list[str]:
    return [f"{name} = {_toml(getattr(of, name))}" for name in names if getattr(of, name) not in ("", ())]


def _toml(value: object) -> str:
    """A TOML value; JSON's escapes are a subset of TOML's."""
    return json.dumps(value, ensure_ascii=True)


def check_unit(name: str) -> str:
    """A unit's name that is nothing but one: no path, no option, no second line. Raises ValueError."""
    if UNIT.fullmatch(name) is None or name.startswith(("-", ".")) or ".." in name:
        raise ValueError(f"`{name}` is not the name of a unit, such as llama.service")
    return name


def _image(way: Mapping[str, Any], where: str) -> Image:
    _only(way, where, "container", "backend", "entrypoint", "port", "shm_mib")
    reference = way["container"]
    if not isinstance(reference, str) or IMAGE.fullmatch(reference) is None:
        raise ValueError(
            f"`{where}.container` must name an image by its digest, NAME@sha256:..., because a tag can move "
            f"(docker image inspect --format '{{{{.RepoDigests}}}}' NAME); it is {reference}"
        )
    backend = way.get("backend", "cuda")
    if not isinstance(backend, str) or not is_name(backend):
        raise ValueError(f"`{where}.backend` must be a word such as cuda or cpu")
    return Image(
        reference=reference,
        backend=backend,
        entrypoint=_words(way.get("entrypoint", []), f"{where}.entrypoint"),
        port=_number(way.get("port", 8_000), f"{where}.port", 1, 65_535),
        shm_mib=_number(way.get("shm_mib", DEFAULT_SHM_MIB), f"{where}.shm_mib", 1, 1 << 20),
    )


def _unit(name: str, unit: object) -> Unit:
    where = f'units."{name}"'
    check_unit(name)
    if not isinstance(unit, dict) or not {"profile", "engine", "port"} <= unit.keys():
        raise ValueError(f"`{where}` must say profile, engine and port")
    _only(unit, where, "profile", "engine", "backend", "port", "devices", "key_file")
    key_file = unit.get("key_file", "")
    for key, value in (("profile", unit["profile"]), ("engine", unit["engine"])):
        if not isinstance(value, str) or not is_name(value):
            raise ValueError(f"`{where}.{key}` must be a name")
    if not isinstance(key_file, str) or (key_file and not key_file.startswith("/")):
        raise ValueError(f"`{where}.key_file` must be an absolute path")
    return Unit(
        name=name,
        engine=unit["engine"],
        profile=unit["profile"],
        backend=str(unit.get("backend", "cpu")),
        port=_number(unit["port"], f"{where}.port", 1, 65_535),
        devices=_words(unit.get("devices", []), f"{where}.devices"),
        key_file=key_file,
    )


def _each_once(units: tuple[Unit, ...]) -> None:
    seen: dict[object, str] = {}
    for unit in units:
        for key in (unit.port, (unit.engine, unit.profile)):
            if key in seen:
                raise ValueError(f"the units {seen[key]} and {unit.name} have the same port, or serve the same profile")
            seen[key] = unit.name


def _service(value: object, where: str) -> str:
    match = SERVICE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match.group(2)) <= 65_535:
        raise ValueError(f"`{where}` must be an address on this machine, such as http://127.0.0.1:11434")
    return f"http://127.0.0.1:{int(match.group(2))}" if match.group(1) != "[::1]" else match.group(0)


def _socket(value: object) -> str | None:
    if value is None or (isinstance(value, str) and value.startswith("unix:///")):
        return value
    raise ValueError("`container_socket` must be a socket of this machine, such as unix:///run/user/1000/podman.sock")


def _table(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f'`{key}` must be a table, such as {{"llama.cpp" = ...}}')
    return value


def _only(table: Mapping[str, Any], where: str, *known: str) -> None:
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise ValueError(f"`{where}` has no key `{unknown[0]}`; known are {', '.join(sorted(known))}")


def _words(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"`{where}` must be a list of texts")
    return tuple(value)


def _number(value: object, where: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"`{where}` must be a number from {low} to {high}")
    return value
