"""The judge of the catalog: may this be loaded, may this be started? Pure, and says why not in one sentence.

The host's fence asks before it accepts a command, the host's heart again when the effect starts, the controller before
it makes one and the planner before it chooses a place. All ask the same function, so that nothing is planned that a
host would refuse. Who signed the catalog is `release`'s; nothing here opens an envelope or knows a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gridops.base import canon
from gridops.base.ids import Digest, is_name, short
from gridops.base.units import render_bytes
from gridops.model.catalog import Catalog, Entry, Files, Network, Slot
from gridops.model.plan import Launch
from gridops.model.profile import Artifact

_DIGITS = 12
"""Of a number in an argument: no engine counts further, and a longer one is no number that was meant."""


@dataclass(frozen=True, slots=True)
class Start:
    """What shall be started, and what it takes."""

    launch: Launch
    devices: int
    """On how many of the host's devices."""
    device_bytes: int
    """On each of them."""
    host_bytes: int


@dataclass(frozen=True, slots=True)
class Program:
    """How a host would start it: what only that host can know."""

    build: str
    """Empty: nobody can say."""
    environment: tuple[str, ...]
    """Names of the variables that are set for it."""
    network: Network


def content(artifact: Artifact) -> Digest:
    """What an artifact is: its format, and which bytes lie under which name. Not where it comes from."""
    return canon.digest({"format": artifact.format, "files": sorted([f.path, f.sha256] for f in artifact.files)})


def loads(catalog: Catalog, artifact: Artifact) -> str | None:
    """Why these files may not be brought to a host; None when they may."""
    named = content(artifact)
    known = [files for entry in catalog.entries for files in entry.artifacts if files.content == named]
    if not known:
        return f"catalog {catalog.version} has no files like these ({short(named)})"
    if any(_may_come(files, artifact) for files in known):
        return None
    return (
        f"catalog {catalog.version} lets {known[0].name} come without {artifact.credential}, or with it from "
        f"{known[0].source or 'nowhere'}"
    )


def starts(catalog: Catalog, start: Start) -> str | None:
    """Why this may not be started, by the entry that comes nearest; None when an entry admits it."""
    return _by_nearest(catalog, start, None)


def runs(catalog: Catalog, start: Start, program: Program) -> str | None:
    """The same with what the host would start it by: one entry has to admit both."""
    return _by_nearest(catalog, start, program)


def _by_nearest(catalog: Catalog, start: Start, program: Program | None) -> str | None:
    launch = start.launch
    if not (is_name(launch.profile) and is_name(launch.config)):
        return f"{launch.profile[:80]!r} with config {launch.config[:80]!r} is no name of a model"
    name, named = f"{launch.profile}/{launch.config}", content(launch.artifact)
    far, nearest = (-1, False), f"catalog {catalog.version} has no entry for {launch.engine} at all"
    for entry in catalog.entries:
        if entry.engine != launch.engine:
            continue
        passed, no = 0, None
        for no in _objections(entry, start, named, program):
            if no is not None:
                break
            passed += 1
        if no is None:
            return None
        if (passed, entry.name == name) > far:  # of two as near, the one that is called so
            far, nearest = (passed, entry.name == name), f"catalog {catalog.version}, entry {entry.name}: {no}"
    return nearest


def _objections(entry: Entry, start: Start, named: Digest, program: Program | None) -> Iterator[str | None]:
    """What an entry says to a start, check by check; None for each that it meets. `named`: what its files are."""
    launch = start.launch
    yield _files(entry, launch.artifact, named)
    yield _one_of(launch.backend, entry.backends, "is for")
    yield from (_argument(entry, name, value) for name, value in _said(launch))
    yield _needed(entry, launch)
    yield _at_most("context", launch.context, entry.context)
    yield _at_most("lanes", launch.lanes, entry.lanes)
    yield _at_most("devices", max(launch.devices.count, start.devices), entry.devices)
    yield _bytes("a device", start.device_bytes, entry.device_bytes)
    yield _bytes("the host", start.host_bytes, entry.host_bytes)
    if program is not None:
        yield _build(entry, program)
        yield _environment(entry, program)
        yield _network(entry, program)


def _files(entry: Entry, artifact: Artifact, named: Digest) -> str | None:
    known = [files for files in entry.artifacts if files.content == named]
    if not known:
        return f"it does not hold these files ({short(named)})"
    if not any(_may_come(files, artifact) for files in known):
        return f"{artifact.credential} is not to be shown to {artifact.source}"
    return None


def _may_come(files: Files, artifact: Artifact) -> bool:
    """The bytes are proved wherever they come from; a secret goes only where people said."""
    return artifact.credential is None or (artifact.credential, artifact.source) == (files.credential, files.source)


def _said(launch: Launch) -> Iterator[tuple[str, str | None]]:
    """Each argument with its value. One that is given twice has none that could be judged."""
    names = [arg.name for arg in launch.args]
    for arg in launch.args:
        yield arg.name, arg.value if names.count(arg.name) == 1 else None


def _argument(entry: Entry, name: str, value: str | None) -> str | None:
    slot = next((s for s in entry.args if s.name == name), None)
    if slot is None:
        return f"the argument {name[:80]!r} has no slot"
    if value is None:
        return f"the argument {name!r} is given twice"
    if value in slot.values or _in_range(slot, value):
        return None
    return f"the argument {name!r} may not be {value[:80]!r}, {says(slot)}"


def _in_range(slot: Slot, value: str) -> bool:
    if slot.low is None or slot.high is None:
        return False
    digits = value.removeprefix("-")
    # Only the usual spelling of a number: `int` also reads underscores, spaces and the digits of other scripts.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        return False
    return str(int(value)) == value and slot.low <= int(value) <= slot.high


def says(slot: Slot) -> str:
    """What a slot lets through, in words."""
    parts = [*slot.values]
    if slot.low is not None and slot.high is not None:
        parts.append(f"{slot.low} to {slot.high}")
    return f"only {' or '.join(parts)}" if parts else "nothing at all"


def _needed(entry: Entry, launch: Launch) -> str | None:
    given = {arg.name for arg in launch.args}
    missing = next((slot.name for slot in entry.args if slot.needed and slot.name not in given), None)
    return None if missing is None else f"the argument {missing!r} is missing"


def _one_of(value: str, known: tuple[str, ...], verb: str) -> str | None:
    return None if value in known else f"it {verb} {' or '.join(known)}, not {value[:80]!r}"


def _at_most(what: str, value: int, most: int) -> str | None:
    return None if 1 <= value <= most else f"{what} from 1 to {most}, not {value}"


def _bytes(where: str, value: int, most: int) -> str | None:
    if 0 <= value <= most:
        return None
    return f"it may take {render_bytes(most)} of {where}, and {render_bytes(value)} are asked for"


def _build(entry: Entry, program: Program) -> str | None:
    if not entry.builds or program.build in entry.builds:
        return None
    return (
        f"the build is to be {' or '.join(entry.builds)}, and here is {program.build[:80] or 'one that nobody knows'}"
    )


def _environment(entry: Entry, program: Program) -> str | None:
    extra = sorted(set(program.environment) - set(entry.environment))
    return f"the variable {extra[0]} may not be set" if extra else None


def _network(entry: Entry, program: Program) -> str | None:
    if entry.network is Network.HOST or program.network is Network.OWN:
        return None
    return "it has to have a network of its own, and would share its host's"
