"""A catalog in words: what may run, what is missing, what nobody needs; and the bounds that people type.

Used by `gridops trust catalog`, `sign`, `verify` and `show`. Whoever signs reads these lines, so they name every bound
of an entry. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gridops.base.ids import short
from gridops.base.record import from_data, to_data
from gridops.base.units import counted, render_bytes
from gridops.cli.output import Usage
from gridops.files.catalogs import Missing
from gridops.model.catalog import Catalog, Entry, Network, Slot
from gridops.trust.catalog import says

NUMBERS = ("context", "lanes", "devices")
BYTES = ("device_bytes", "host_bytes")


def next_lines(now: Catalog | None, lacks: Sequence[Missing], spare: Sequence[str]) -> list[str]:
    """What may run now, and what would have to be signed."""
    lines = entry_lines(now) if now is not None else ["No catalog: whatever a profile asks for may run."]
    if lacks:
        lines += ["", f"Not signed: {counted(len(lacks), 'config')} of the files"]
        for lack in lacks:
            lines.append(f"  {lack.name}: {lack.why}")
            if lack.entry is not None:
                lines += [f"    would be signed: {line.strip()}" for line in _entry(lack.entry)]
    if spare:
        lines += ["", f"Needed by nothing in the files: {', '.join(spare)}  (gridops trust catalog --write --drop)"]
    if lacks:
        lines += ["", "Sign what you have read: gridops trust catalog --write"]
    elif now is not None:
        lines += ["", "Everything in the files is signed."]
    return lines


def entry_lines(catalog: Catalog) -> list[str]:
    """Each entry with its bounds."""
    what = counted(len(catalog.entries), "entry", "entries")
    lines = [f"Catalog {catalog.version}, {what}: nothing else may run on hosts that have seen it."]
    for entry in catalog.entries:
        lines += _entry(entry)
    return lines


def _entry(entry: Entry) -> Iterator[str]:
    files = " or ".join(f"{f.name} {short(f.content)}" for f in entry.artifacts)
    yield f"  {entry.name}: {entry.engine} on {' or '.join(entry.backends)}, files of {files}"
    devices = counted(entry.devices, "device")
    memory = f"{render_bytes(entry.device_bytes)} of each and {render_bytes(entry.host_bytes)} of the host"
    yield f"    context up to {entry.context}, {counted(entry.lanes, 'lane')}, {devices}, {memory}"
    for slot in entry.args:
        yield f"    {slot.name}: {says(slot)}{', and it must be said' if slot.needed else ''}"
    if entry.builds:
        yield f"    started by {' or '.join(entry.builds)} alone"
    if entry.environment:
        yield f"    variables: {', '.join(entry.environment)}"
    for one in entry.artifacts:
        if one.credential is not None:
            yield f"    {one.credential} is shown to {one.source} alone"
    if entry.network is Network.OWN:
        yield "    in a network of its own"


def bounds_of(entry: Entry, bound: str, said: str) -> Entry:
    """An entry with one bound as somebody typed it: `context=32768`, `threads=1..16`, `flash_attn=on,off`."""
    name, equals, value = bound.partition("=")
    if not equals or not value:
        raise Usage(f"--allow {said}: expected ENTRY:NAME=VALUES, such as chat/q4:context=32768")
    if name == "network":
        if value not in tuple(Network):
            raise Usage(f"--allow {said}: a network is host or own")
        return replace(entry, network=Network(value))
    if name in NUMBERS or name in BYTES:
        if not value.isascii() or not value.isdigit():
            raise Usage(f"--allow {said}: {name} is a whole number")
        return from_data(Entry, {**to_data(entry), name: int(value)})
    low, dots, high = value.partition("..")
    if dots:
        try:
            slot = Slot(name=name, low=int(low), high=int(high))
        except ValueError:
            raise Usage(f"--allow {said}: a range is two whole numbers, such as 1..16") from None
    else:
        slot = Slot(name=name, values=tuple(sorted(set(value.split(",")))))
    slots = {s.name: s for s in entry.args} | {name: slot}
    return replace(entry, args=tuple(slots[n] for n in sorted(slots)))
