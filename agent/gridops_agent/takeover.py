"""Takes over an engine that runs here without gridops, and gives one back: by consent at the host, without a restart.

Both only write down what a person said (`keep.taken`), after the engine was proved to be what it seems; the running
agent does the rest. An engine that was taken over becomes a residency when a plan wants exactly what it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from gridops.base.codes import host as codes
from gridops.base.errors import BadSetup, GridopsError, Refusal
from gridops.base.ids import EngineName
from gridops_agent.config import Config
from gridops_agent.core.state import Handle, Held
from gridops_agent.doors import key_of
from gridops_agent.engines import engines
from gridops_agent.engines.base import Door
from gridops_agent.keep import external, systemctl, taken
from gridops_agent.keep.external import External
from gridops_agent.keep.family import family
from gridops_agent.keep.taken import Given, Hands, Taken
from gridops_agent.keep.unit_files import TAKEN_OVER, DropIns, user_folder
from gridops_agent.keep.ways import Unit
from gridops_agent.ledger import Ledger
from gridops_agent.platform import here

LOOPBACK = ("127.0.0.1", "::1")
UNSAID = (
    "it does not say what it works on, so no plan may find in it what it wants, and no drain can see when it is idle; "
    "llama-server says so with --slots and --metrics"
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person named, and the key that the engine asks its callers for."""

    target: str
    key_file: str = ""


async def found(config: Config, wish: Wish) -> Taken:
    """The engine that was named, proved and asked what it serves. Raises Refusal; changes nothing."""
    handle, engine = _resolve(config, wish)
    if any(_same(t.handle, handle) for t in taken.read(config.hands).taken):
        raise Refusal(codes.NOT_OURS.code, f"{wish.target} was taken over already")
    key = key_of(handle.key_file) if handle.key_file else ""
    async with aiohttp.ClientSession(trust_env=False) as http:
        seen = await external.asked(http, engine, key)
    if seen.router:
        raise Refusal(
            codes.NOT_OURS.code,
            f"{wish.target} is a router: it loads and evicts models by itself, so no plan could say what it holds",
            hints=("start one llama-server for each model (-m FILE), or leave it external: it stays in the inventory",),
        )
    if not seen.lists:
        raise Refusal(
            codes.NOT_OURS.code,
            f"{wish.target} lists no model at port {engine.port}",
            hints=("if it asks for a key: --key-file FILE",),
        )
    return Taken(handle=handle, engine=engine.engine, lists=seen.lists, words=engine.words, at_ms=0)


async def unsaid(config: Config, one: Taken) -> str:
    """What an engine does not say of itself and a plan would have to know, in words; empty when nothing is missing."""
    engine = engines(config.engine_command, config.runtime).get(EngineName(one.engine))
    if engine is None or not engine.abilities.counts_work:
        return ""
    key = key_of(one.handle.key_file) if one.handle.key_file else ""
    async with aiohttp.ClientSession(trust_env=False) as http:
        busy = await engine.busy(http, Door(port=one.handle.port, key=key, alias=one.lists[0]))
    return UNSAID if busy is None else ""


def keep(config: Config, one: Taken, now_ms: int) -> None:
    """Write it down; a unit also gets its drop-in, so that systemd restarts it behind nobody's back.

    In this order: a unit that is ours and that systemd restarts is a stranger from then on, whereas one that nobody
    took over and that nobody restarts any more would be lost.
    """
    hands = taken.read(config.hands)
    taken.write(config.hands, replace(hands, taken=(*hands.taken, replace(one, at_ms=now_ms))))
    try:
        renew(config)
    except GridopsError:
        taken.write(config.hands, hands)
        raise


def renew(config: Config) -> None:
    """Give units that were taken over their drop-ins, should a takeover have been killed before it did. Raises Refusal
    for a file of that name that is not ours, and Failed."""
    names = {t.handle.name for t in taken.read(config.hands).taken if t.handle.keeper == "unit"}
    drop_ins = _drop_ins(config)
    units = [unit for unit in config.ways.units if unit.name in names]
    for unit in units:
        if not drop_ins.has(unit.name):
            drop_ins.write(unit, TAKEN_OVER)
    if units:
        systemctl.reload()


def give_back(config: Config, target: str, now_ms: int) -> str:
    """Write down that a residency, or what was taken over, is a person's again. Says which one it was."""
    hands = taken.read(config.hands)
    held = _held(config, target)
    if held is not None:
        handle = held.handle
        given = Given(body=held.body, replica=held.replica, at_ms=now_ms)
        left = tuple(t for t in hands.taken if handle is None or not _same(t.handle, handle))
        _restarts_again(config, *((handle,) if handle is not None else ()))
        taken.write(config.hands, Hands(taken=left, given=(*hands.given, given)))
        return f"{held.replica}, {'no process' if handle is None else _called(handle)}"
    gone = tuple(t for t in hands.taken if target in (t.called, str(t.handle.pid)))
    if not gone:
        raise Refusal(codes.NO_RESIDENCY.code, f"nothing here is called {target}", hints=("gridops-agent status",))
    _restarts_again(config, *(t.handle for t in gone))
    taken.write(config.hands, replace(hands, taken=tuple(t for t in hands.taken if t not in gone)))
    return target


def _restarts_again(config: Config, *handles: Handle) -> None:
    """A unit that is its owner's again is kept alive as its own file says, not as we did. It is so before it is on
    file: a command that was killed in between is said again, and does the whole again."""
    units = [handle.name for handle in handles if handle.keeper == "unit" and handle.name is not None]
    for name in units:
        _drop_ins(config).remove(name)
    if units:
        systemctl.reload()


def _drop_ins(config: Config) -> DropIns:
    return DropIns(user_folder(), str(config.state.resolve()), config.ways.units)


def _held(config: Config, target: str) -> Held | None:
    ledger = Ledger.look(config.ledger)
    try:
        rows = ledger.load("").held.values()
    finally:
        ledger.close()
    matching = [h for h in rows if target in (h.replica, h.body)]
    if len(matching) > 1:
        bodies = ", ".join(sorted(h.body for h in matching))
        raise Refusal(codes.NO_RESIDENCY.code, f"{target} is here more than once: name one of {bodies}")
    return matching[0] if matching else None


def _resolve(config: Config, wish: Wish) -> tuple[Handle, External]:
    if wish.target.isdigit():
        return _process(config, int(wish.target), wish.key_file)
    if wish.target.endswith(".service"):
        return _unit(config, wish.target)
    return _container(config, wish)


def _process(config: Config, pid: int, key_file: str) -> tuple[Handle, External]:
    engine = _engine(config, frozenset((pid,)), f"pid {pid}")
    try:
        owner = psutil.Process(engine.pid).uids().real
    except psutil.Error as error:
        raise Refusal(codes.NOT_OURS.code, f"pid {pid} is gone") from error
    if owner not in (os.geteuid(), *((owner,) if os.geteuid() == 0 else ())):
        raise Refusal(codes.NOT_OURS.code, f"pid {pid} is another person's process (uid {owner})")
    handle = Handle(
        pid=engine.pid,
        birth=engine.birth,
        port=engine.port,
        key_file=_absolute(key_file),
        executable=engine.executable,
        settled=True,
        taken=True,
    )
    return handle, engine


def _unit(config: Config, name: str) -> tuple[Handle, External]:
    unit: Unit | None = next((u for u in config.ways.units if u.name == name), None)
    if unit is None:
        raise BadSetup(
            f"{config.file} does not say what {name} serves",
            hints=(f'[units."{name}"]', 'engine = "llama.cpp"', 'profile = "..."', "port = ..."),
        )
    seen = systemctl.show(name)
    if not seen.lives or not seen.pid:
        raise Refusal(codes.NOT_OURS.code, f"{name} does not run")
    main = here().process(seen.pid)
    pids = frozenset(p.pid for p in family(here(), main)) if main is not None else frozenset((seen.pid,))
    engine = _engine(config, pids, name)
    if engine.port != unit.port:
        raise Refusal(codes.NOT_OURS.code, f"{name} listens at port {engine.port}, {config.file} says {unit.port}")
    handle = Handle(
        pid=seen.pid,
        birth=seen.life,
        port=unit.port,
        key_file=unit.key_file,
        executable=here().executable(seen.pid),
        settled=True,
        keeper="unit",
        name=name,
        taken=True,
    )
    return handle, engine


def _container(config: Config, wish: Wish) -> tuple[Handle, External]:
    if not config.ways.images:
        raise BadSetup(f"{config.file} runs no engine as a container", hints=('[engines.vllm] container = "..."',))
    from gridops_agent.keep.container_api import Containers

    seen = Containers(config.ways.socket).inspect(wish.target)
    if seen is None or not seen["State"].get("Running"):
        raise Refusal(codes.NOT_OURS.code, f"no container {wish.target} runs here")
    words = _outside(seen)
    engine = external.engine_of(words)
    if engine is None:
        raise Refusal(codes.NOT_OURS.code, f"{wish.target} runs no engine that is known: {' '.join(words[:3])}")
    policy = (seen["HostConfig"].get("RestartPolicy") or {}).get("Name") or "no"
    if policy != "no":
        hint = f"docker update --restart no {wish.target}"
        raise Refusal(codes.NOT_OURS.code, f"the runtime would restart {wish.target} by itself", hints=(hint,))
    ports = [p for bound in (seen["NetworkSettings"].get("Ports") or {}).values() for p in bound or ()]
    if len(ports) != 1 or ports[0].get("HostIp") not in LOOPBACK:
        raise Refusal(codes.NOT_OURS.code, f"{wish.target} must publish one port, on 127.0.0.1 only")
    handle = Handle(
        pid=int(seen["State"].get("Pid") or 0),
        birth=str(seen["State"]["StartedAt"]),
        port=int(ports[0]["HostPort"]),
        key_file=_absolute(wish.key_file),
        executable=str(seen["Image"]),
        settled=True,
        keeper="container",
        name=str(seen["Id"]),
        taken=True,
    )
    return handle, External(engine, handle.pid, handle.birth, handle.executable, words, handle.port)


def _outside(seen: Mapping[str, Any]) -> tuple[str, ...]:
    """Its command line with the paths of this host in place of those of its mounts."""
    config = seen["Config"]
    inside = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    places = {m.get("Destination") or m.get("Target"): m.get("Source") for m in _mounts(seen)}
    return tuple(_mapped(str(word), places) for word in inside)


def _mounts(seen: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(seen.get("Mounts") or ()), *(seen["HostConfig"].get("Mounts") or ())]


def _mapped(word: str, places: Mapping[Any, Any]) -> str:
    for inner, outer in sorted(places.items(), key=lambda place: -len(str(place[0]))):
        if word == inner or word.startswith(f"{inner}/"):
            return f"{outer}{word[len(str(inner)) :]}"
    return word


def _engine(config: Config, pids: frozenset[int], called: str) -> External:
    """The engine among these processes. One that carries an agent's mark is that agent's already."""
    given = frozenset(g.body for g in taken.read(config.hands).given)
    engines = external.engines_here(here(), frozenset(), given)
    engine = next((e for e in engines if e.pid in pids), None)
    if engine is None:
        raise Refusal(
            codes.NOT_OURS.code,
            f"{called} is no engine that can be taken over: none that is known, not listening, or an agent's own",
        )
    return engine


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


def _same(one: Handle, other: Handle) -> bool:
    return (one.pid, one.birth, one.name) == (other.pid, other.birth, other.name)


def _called(handle: Handle) -> str:
    return handle.name or f"pid {handle.pid}"
