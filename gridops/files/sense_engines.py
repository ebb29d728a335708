"""Is there an engine of that name, and does it read the files that a config gives it? Judged without any host.

Called by `sense`. A slip of the fingers is an error with its repair. A stranger is a warning only: agents may be newer
than whoever reads the files, and a host that cannot start it refuses. Never judges whether a host has the engine; that
is `sense_placement`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gridops.base.codes import sense as codes
from gridops.files import near
from gridops.files.diagnose import Fix
from gridops.files.gather import Declared, Gathered
from gridops.files.kinds_profile import ENGINE_FORMATS
from gridops.files.nodes import Node, Scalar
from gridops.files.reader import replace
from gridops.files.shape import Read, Table


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
        for engine in sorted(entries.keys() - ENGINE_FORMATS.keys()):
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
    reads = ENGINE_FORMATS.get(engine)
    if reads is None:
        _stranger(profile, config.node("engine"), engine)
        return
    form = artifact.get("format") if isinstance(artifact, Read) else None
    if isinstance(artifact, Read) and isinstance(form, str) and form not in reads:
        node, message = artifact.node("format"), f"{engine} cannot read the format `{form}`"
        close = near.nearest(form, reads)
        if close is None:
            profile.reader.warn(codes.ENGINE_FORMAT, node, message, f"it reads {', '.join(sorted(reads))}")
        else:
            profile.reader.error(codes.ENGINE_FORMAT, node, message, f"did you mean `{close}`?", fix=_fix(node, close))


def _stranger(declared: Declared, node: Node, engine: str, taken: Collection[str] = ()) -> None:
    """An engine without an adapter. Half a name tells which is meant, not surely enough to write it: `llama`."""
    message = f"no agent starts an engine `{engine}`"
    begun = [known for known in sorted(ENGINE_FORMATS) if known.startswith(engine)]
    close = begun[0] if len(begun) == 1 else near.nearest(engine, ENGINE_FORMATS)
    if close is None:
        declared.reader.warn(codes.UNKNOWN_ENGINE, node, message, f"engines: {', '.join(sorted(ENGINE_FORMATS))}")
        return
    fix = _fix(node, close) if not begun and close not in taken else None
    declared.reader.error(codes.UNKNOWN_ENGINE, node, message, f"did you mean `{close}`?", fix=fix)


def _fix(node: Node, word: str) -> Fix | None:
    return Fix(f"write `{word}`", (replace(node, word),)) if isinstance(node, Scalar) else None
