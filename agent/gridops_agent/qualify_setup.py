"""From `gridops-agent qualify ENGINE MODEL` to what is run: files and their digests, the launch, the keeper, the port.

A model is a file, a folder with all of its files, or `ollama://NAME:TAG` with the registry's digest. Refuses while an
agent runs, and while an engine of this host lives: its memory would be in the reading.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import BadSetup, Failed, Refusal
from gridops.base.ids import ConfigName, DeviceId, Digest, EngineName, ProfileName, short
from gridops.disk.keyring import read_secret
from gridops.model.action import DeviceShare
from gridops.model.fleet import DeviceKind
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, ArtifactFile, DeviceNeed, EngineArg
from gridops.protocol.qualification import Found, Qualification
from gridops.trust.keys import MachineSigner
from gridops_agent import evidence, facts
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config
from gridops_agent.doors import Doors, key_of
from gridops_agent.engines import engines, services
from gridops_agent.engines.base import Adapter, Door, Engine, Start
from gridops_agent.keep import taken
from gridops_agent.keep.base import Spawn
from gridops_agent.keep.keepers import Keepers
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger
from gridops_agent.platform import here
from gridops_agent.qualify import Bench, Outcome, Run
from gridops_agent.qualify_memory import Memories
from gridops_agent.sensors.senses import CardSense
from gridops_agent.statefolder import only_one

_MODEL_FILES = 1_024
"""A model of several hundred gigabytes has some hundred files; a home folder named by mistake has many more."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asked for."""

    engine: str
    model: str
    backend: str = "cpu"
    context: int = 4096
    lanes: int = 1
    devices: tuple[str, ...] = ()
    args: tuple[EngineArg, ...] = ()
    digest: str | None = None
    share_ppm: int = 0
    settle_ms: int = limits.QUALIFY_SETTLE_MS
    apart_ms: int = 2_000
    """Between two looks at its memory."""


@dataclass(frozen=True, slots=True)
class Made:
    """What came of it."""

    outcome: Outcome
    file: Path
    evidence: Digest


async def qualify(config: Config, wish: Wish, version: str, say: Callable[[Found], None]) -> Made:
    """Run it, sign what was found, and write it. Raises Busy while an agent runs."""
    signer = MachineSigner.from_seed(read_secret(config.seed))
    with only_one(config):
        keepers = keepers_of(config)
        try:
            await _require_nothing(config, keepers, _body(wish))
            bench = await _bench(config, wish, keepers)
            keepers.know({bench.spawn.body: bench.start.launch}.get)
            async with aiohttp.ClientSession(trust_env=False) as http:
                outcome = await Run(bench, http, say).all()
        finally:
            await keepers.close()
            Doors(config.engines).close(_body(wish))
        made = Qualification(
            fleet=config.fleet,
            host=config.host,
            at_ms=SystemClock().wall_ms(),
            agent_version=version,
            engine_version=outcome.version,
            launch=bench.start.launch,
            identity=outcome.identity,
            steps=tuple(outcome.steps),
            readings=outcome.readings,
            host_bytes=outcome.host_bytes,
            passed=outcome.passed,
            refused=outcome.refused,
        )
        file, digest = evidence.keep(config.qualified, made, signer)
    return Made(outcome, file, digest)


async def _require_nothing(config: Config, keepers: Keepers, own: Digest) -> None:
    """Another engine's memory would be in the reading, or be taken for free. `own`: what this call may have left."""
    ledger = Ledger.look(config.ledger)
    try:
        held = ledger.load("").held
    finally:
        ledger.close()
    given = {one.body for one in taken.read(config.hands).given}
    for one in sorted(held.values(), key=lambda h: h.replica):
        if one.body not in given and not await keepers.absent(one):
            raise Failed(
                f"{one.replica} runs on this host, and its memory would be in the reading",
                hints=("gridops-agent stop ends the engines of a host whose agent does not run",),
            )
    for what, body in await keepers.strangers(frozenset({*held, *given, own})):
        raise Failed(
            f"{what} is left of a run that was cut off ({short(body)}), and its memory would be in the reading",
            hints=(f"end it first: {what}", "or repeat the call that was cut off: it ends what it left"),
        )


def _body(wish: Wish) -> Digest:
    """The name under which its processes go; the same for the same model, so that a second run finds what is left."""
    return digest_bytes(f"qualify {wish.engine} {wish.model}".encode())


async def _bench(config: Config, wish: Wish, keepers: Keepers) -> Bench:
    started, known = engines(config.engine_command, config.runtime), services(config.ways.services)
    name = EngineName(wish.engine)
    engine, service = started.get(name), known.get(name)
    adapter: Adapter | None = engine or service
    if adapter is None:
        there = ", ".join(sorted({*started, *known}))
        raise BadSetup(f"`{wish.engine}` is no engine of this host; there are {there}")
    artifact, model = await asyncio.to_thread(artifact_of, adapter, wish)
    cards = CardSense()
    devices, gpus = await asyncio.to_thread(_devices, wish, cards)
    launch = Launch(
        profile=ProfileName("qualify"),
        config=ConfigName("qualify"),
        engine=name,
        backend=wish.backend,
        artifact=artifact,
        context=wish.context,
        lanes=wish.lanes,
        devices=DeviceNeed(count=len(devices)),
        args=tuple(sorted(wish.args, key=lambda a: a.name)),
    )
    body, doors = _body(wish), Doors(config.engines)
    keeper = keepers.of_launch(launch)
    swept = await keeper.stop(body, None)
    if not swept.gone:
        raise Failed(f"an earlier qualification is left: {swept.detail}")
    place = keeper.place(launch)
    port = place.port if place is not None else _free_port(config.ports)
    key_file = Path(place.key_file) if place is not None else doors.key_file(body)
    shares = tuple(DeviceShare(device=d, ppm=wish.share_ppm) for d in devices) if wish.share_ppm else ()
    start = Start(launch=launch, model=model, port=port, key_file=key_file, gpus=gpus, shares=shares)
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    refused = adapter.objection(launch)
    if engine is not None and place is None:
        inside = keeper.inside(start)
        if refused is None:
            try:
                argv = await asyncio.to_thread(engine.command, inside)
            except Refusal as refusal:
                refused = refusal.message
        environment = dict(engine.environment(inside))
    spawn = Spawn(
        body=body, argv=argv, environment=environment, folder=doors.folder(body), port=port, key_file=key_file,
        begin=start, companions=engine.companions() if engine is not None else (),
    )  # fmt: skip
    spawn.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = key_of(key_file) if str(key_file) not in ("", ".") else ""
    door = Door(port=port, key=key, alias=launch.profile, launch=launch)
    memories = Memories(here(), cards, devices, wish.apart_ms / 1_000)
    build = await asyncio.to_thread(build_here, config, engine) if engine is not None and place is None else ""
    return Bench(engine, service, keeper, start, door, spawn, memories, refused, build, wish.settle_ms)


def build_here(config: Config, engine: Engine) -> str:
    """What would be started of an engine on this host: an image is what its digest says."""
    image = config.ways.images.get(engine.name)
    return image.reference if image is not None else engine.build()


def artifact_of(adapter: Adapter, wish: Wish) -> tuple[Artifact, Path]:
    """The model as an artifact, every file hashed, and where its first file is."""
    form = min(adapter.abilities.formats)
    if adapter.abilities.own_store:
        if wish.digest is None:
            raise BadSetup(f"{wish.model} needs --digest, the digest that its registry gives it")
        file = ArtifactFile(path="manifest", sha256=Digest(wish.digest), size_bytes=1)
        return Artifact(format=form, files=(file,), source=wish.model), Path()
    path = Path(wish.model).absolute()
    try:
        return _read_whole(form, path)
    except OSError as error:
        raise Failed(
            f"{error.filename or path} cannot be read: {error.strerror}",
            hints=("MODEL is a model file, or a folder that holds one model and nothing else",),
        ) from error


def _read_whole(form: str, path: Path) -> tuple[Artifact, Path]:
    """Every file of a model, hashed. Raises OSError: one that cannot be read, or that goes meanwhile, is none."""
    base = path.parent if path.is_file() else path
    found = [path] if path.is_file() else (p for p in path.rglob("*") if p.is_file())
    files = sorted(itertools.islice(found, _MODEL_FILES + 1))
    if not files:
        raise BadSetup(f"{path} is neither a model file nor a folder with one")
    if len(files) > _MODEL_FILES:
        raise BadSetup(
            f"{path} holds more than {_MODEL_FILES} files: that is no model",
            hints=("MODEL is a model file, or a folder that holds one model and nothing else",),
        )
    return Artifact(format=form, files=tuple(_hashed(f, base) for f in files)), files[0]


def _hashed(file: Path, base: Path) -> ArtifactFile:
    with file.open("rb") as source:
        digest = Digest("sha256:" + hashlib.file_digest(source, "sha256").hexdigest())
    return ArtifactFile(path=file.relative_to(base).as_posix(), sha256=digest, size_bytes=file.stat().st_size)


def _devices(wish: Wish, cards: CardSense) -> tuple[tuple[DeviceId, ...], tuple[str, ...]]:
    """The devices to run on and the UUIDs of the cards among them."""
    ram = facts.ram(here(), ())
    if wish.backend == "cpu" or (ram.kind is DeviceKind.UNIFIED and not wish.devices):
        return (ram.id,), ()
    seen = {card.id: card for card in cards.look().cards}
    wanted = [DeviceId(d) for d in wish.devices] or sorted(seen)[:1]
    missing = [d for d in wanted if d not in seen]
    if missing or not wanted:
        what = missing[0] if missing else "card"
        raise BadSetup(f"this host has no {what}; it has {', '.join(sorted(seen)) or 'none'}")
    return tuple(sorted(wanted)), tuple(uuid for d in sorted(wanted) if (uuid := seen[d].uuid))


def _free_port(ports: tuple[int, int]) -> int:
    for port in range(ports[0], ports[1] + 1):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed(f"no port between {ports[0]} and {ports[1]} is free on 127.0.0.1")
