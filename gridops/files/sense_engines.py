"""Is there an engine of that name, and can it do what a config asks of it? Judged without any host.

Called by `sense`, by the table of `engine_facts`. A slip of the fingers is an error with its repair. A stranger is a
warning only: agents may be newer than whoever reads the files, and a host that cannot start it refuses. What goes
against an engine's nature is an error: every host would refuse it, and nobody who reads the plan would learn so. Never
judges whether a host has the engine; that is `sense_placement`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from gridops.base.codes import sense as codes
from gridops.base.units import counted
from gridops.files import near
from gridops.files.diagnose import Fix
from gridops.files.engine_facts import ENGINES, EngineFacts
from gridops.files.gather import Declared, Gathered
from gridops.files.nodes import Node, Scalar
from gridops.files.reader import replace
from gridops.files.shape import Items, Read, Table
from gridops.model.profile import Modality


def judge(found: Gathered) -> None:
    """Each engine that a host or a config names, and each format that a config hands to one."""
    _runtimes(found.hosts[name] for name in sorted(found.hosts))
    for name in sorted(found.profiles):
        profile = found.profiles[name]
        configs = profile.read.get("configs")
        for config in configs.values.values() if isinstance(configs, Table) else ():
            if isinstance(config, Read):
                _config(profile, config)


def _runtimes(hosts: Iterable[Declared]) -> None:
    """One finding for each place: a file's `defaults` give many hosts the same one, and some of them more."""
    places: dict[tuple[str, int, int], tuple[Declared, Node, str]] = {}
    taken: dict[tuple[str, int, int], set[str]] = {}
    for host in hosts:
        runtimes = host.read.get("runtimes")
        entries = runtimes.entries if isinstance(runtimes, Table) else {}
        for engine in sorted(entries.keys() - ENGINES.keys()):
            key = entries[engine].key
            place = (host.source.file, key.line, key.column)
            places.setdefault(place, (host, key, engine))
            taken.setdefault(place, set(entries)).intersection_update(entries)
    for place, (host, node, engine) in sorted(places.items(), key=lambda item: item[0]):
        _stranger(host, node, engine, taken[place])


def _config(profile: Declared, config: Read) -> None:
    engine, artifact = config.get("engine"), config.get("artifact")
    if not isinstance(engine, str):
        return
    facts = ENGINES.get(engine)
    if facts is None:
        _stranger(profile, config.node("engine"), engine)
        return
    _nature(profile, config, engine, facts)
    reads = facts.formats
    form = artifact.get("format") if isinstance(artifact, Read) else None
    if isinstance(artifact, Read) and isinstance(form, str) and form not in reads:
        node, message = artifact.node("format"), f"{engine} cannot read the format `{form}`"
        close = near.nearest(form, reads)
        if close is None:
            profile.reader.warn(codes.ENGINE_FORMAT, node, message, f"it reads {', '.join(sorted(reads))}")
        else:
            profile.reader.error(codes.ENGINE_FORMAT, node, message, f"did you mean `{close}`?", fix=_fix(node, close))


def _nature(profile: Declared, config: Read, engine: str, facts: EngineFacts) -> None:
    """What a config asks that its engine cannot do on any host."""
    say, modality = profile.reader.error, profile.read.get("modality", Modality.TEXT)
    if isinstance(modality, Modality) and modality not in facts.modalities:
        able = ", ".join(sorted(facts.modalities))
        message = f"`{engine}` cannot produce {modality}, which the profile is for"
        say(codes.ENGINE_CANNOT, config.node("engine"), message, f"it produces {able}")
    lanes = config.get("lanes", 1)
    if facts.lanes is not None and isinstance(lanes, int) and lanes > facts.lanes:
        message = f"`{engine}` cannot be held to {counted(lanes, 'lane')}"
        say(codes.ENGINE_CANNOT, config.node("lanes"), message, f"write `lanes: {facts.lanes}`")
    devices, artifact = config.get("devices"), config.get("artifact")
    if isinstance(devices, Read):
        _cut(profile, config, devices, facts)
    form = artifact.get("format") if isinstance(artifact, Read) else None
    if isinstance(artifact, Read) and form in facts.formats:
        _files(profile, artifact, engine, facts)


def _cut(profile: Declared, config: Read, devices: Read, facts: EngineFacts) -> None:
    """One replica over several devices."""
    count, shard, engine = devices.get("count", 1), devices.get("shard", "tensor"), config.get("engine")
    if not isinstance(count, int) or count < 2:
        return
    backends = config.get("backends")
    named = backends.values if isinstance(backends, Items) else ()
    if facts.shards is None:
        hint = "write `count: 1`"
        profile.reader.error(codes.ENGINE_CANNOT, devices.node("count"), f"`{engine}` is not cut over devices", hint)
    elif "cpu" in named and not facts.cuts_cpus:
        message = f"`{engine}` on a CPU is not cut over {count} devices"
        profile.reader.error(
            codes.ENGINE_CANNOT, devices.node("count"), message, "write a config of its own for the CPU"
        )
    elif shard not in facts.shards:
        message, hint = f"`{engine}` cannot be cut by {shard}", f"it can by {', '.join(sorted(facts.shards))}"
        profile.reader.error(codes.ENGINE_CANNOT, devices.node("shard"), message, hint)


def _files(profile: Declared, artifact: Read, engine: str, facts: EngineFacts) -> None:
    """Files of the right format that are not what the engine needs."""
    files, source, say = artifact.get("files"), artifact.get("source"), profile.reader.error
    rows = [row for row in files.values if isinstance(row, Read)] if isinstance(files, Items) else []
    paths = [path for row in rows if isinstance(path := row.get("path"), str)]
    whole = isinstance(files, Items) and files.whole and len(paths) == len(files.nodes)
    if whole and facts.needs is not None and not any(path.rpartition("/")[2] == facts.needs for path in paths):
        message, hint = (
            f"the artifact has no {facts.needs}, without which `{engine}` reads nothing",
            "list every file of it",
        )
        say(codes.ENGINE_CANNOT, artifact.node("files"), message, hint)
    if whole and facts.one_file is not None and len(paths) != 1:
        say(codes.ENGINE_CANNOT, artifact.node("files"), f"`{engine}` takes one file: {facts.one_file}")
    if facts.source is not None and not (isinstance(source, str) and re.fullmatch(facts.source, source)):
        if "source" in artifact.entries and not isinstance(source, str):
            return  # said already
        say(codes.ENGINE_CANNOT, artifact.node("source"), f"`{engine}` needs a source of the form {facts.source_says}")


def _stranger(declared: Declared, node: Node, engine: str, taken: Collection[str] = ()) -> None:
    """An engine without an adapter. Half a name tells which is meant, not surely enough to write it: `llama`."""
    message = f"no agent starts an engine `{engine}`"
    begun = [known for known in sorted(ENGINES) if known.startswith(engine)]
    close = begun[0] if len(begun) == 1 else near.nearest(engine, ENGINES)
    if close is None:
        declared.reader.warn(codes.UNKNOWN_ENGINE, node, message, f"engines: {', '.join(sorted(ENGINES))}")
        return
    fix = _fix(node, close) if not begun and close not in taken else None
    declared.reader.error(codes.UNKNOWN_ENGINE, node, message, f"did you mean `{close}`?", fix=fix)


def _fix(node: Node, word: str) -> Fix | None:
    return Fix(f"write `{word}`", (replace(node, word),)) if isinstance(node, Scalar) else None
