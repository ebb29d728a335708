"""What would have to be signed for an intent: entries that admit its configs as they stand, and those nobody needs.

`gridops trust catalog` shows and makes them; people sign what they have read. An entry bounds one config: its files,
arguments and context exactly, its memory with a margin, because measured footprints replace declared ones. Bounds that
people widened by hand stay as wide. Must never sign, and never say that a catalog counts: that is `trust.release`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gridops.files.engine_facts import ENGINES
from gridops.files.tree import Tree
from gridops.files.trusted import CATALOG
from gridops.footprint.need import Need, UnknownNeed, need
from gridops.model.catalog import Catalog, Entry, Files, Slot
from gridops.model.intent import Desired
from gridops.model.profile import Config, Profile
from gridops.planner.eligible import launch_of
from gridops.trust.catalog import Start, content, starts

MARGIN_PPM = 100_000
"""Of memory, above what the file says. Double: a stolen controller may make an engine take more; half: a measured
footprint that is a little larger than the declared one is refused."""
_PPM, _MIB = 1_000_000, 1 << 20


@dataclass(frozen=True, slots=True)
class Missing:
    """A config that nobody signed as it stands."""

    name: str
    why: str
    entry: Entry | None
    """What would admit it; None where its footprint is unknown, so that nothing can bound it."""


def without(tree: Tree) -> Tree:
    """The tree without its catalog: for whoever makes the next one, whatever is wrong with this one."""
    return _Without(tree)


class _Without:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in self._tree.paths() if path != CATALOG)

    def read(self, path: str) -> bytes:
        return self._tree.read(path)


def missing(catalog: Catalog, desired: Desired) -> tuple[Missing, ...]:
    """What of the intent is not signed, by name."""
    found: list[Missing] = []
    for profile, config in _configs(desired):
        takes = need(config, desired.planning)
        name = f"{profile.name}/{config.name}"
        if isinstance(takes, UnknownNeed):
            found.append(Missing(name, takes.reason, None))
            continue
        why = next((no for s in _starts(profile, config, takes) if (no := starts(catalog, s)) is not None), None)
        if why is not None:
            before = next((e for e in catalog.entries if e.name == name), None)
            found.append(Missing(name, why, _entry(name, profile, config, takes, before)))
    return tuple(found)


def unneeded(catalog: Catalog, desired: Desired) -> tuple[str, ...]:
    """Entries by which nothing of the intent is admitted."""
    asked = [
        start
        for profile, config in _configs(desired)
        if isinstance(takes := need(config, desired.planning), Need)
        for start in _starts(profile, config, takes)
    ]
    alone = {entry.name: replace(catalog, entries=(entry,)) for entry in catalog.entries}
    return tuple(name for name, one in alone.items() if all(starts(one, start) is not None for start in asked))


def grown(catalog: Catalog, entries: Iterable[Entry], *, now_ms: int) -> Catalog:
    """The next version with these entries. One of the same name with other files stays, under the version it was of:
    what still runs may be moved, and a change may be undone, until somebody drops it."""
    named = {entry.name: entry for entry in catalog.entries}
    for entry in entries:
        before = named.get(entry.name)
        if before is not None and before.artifacts != entry.artifacts:
            old = f"{entry.name}@{catalog.version}"
            named[old] = replace(before, name=old)
        named[entry.name] = entry
    return replace(catalog, version=catalog.version + 1, issued_ms=now_ms, entries=_sorted(named.values()))


def dropped(catalog: Catalog, names: Iterable[str]) -> Catalog:
    """The same without these entries."""
    gone = frozenset(names)
    return replace(catalog, entries=_sorted(entry for entry in catalog.entries if entry.name not in gone))


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _configs(desired: Desired) -> Iterator[tuple[Profile, Config]]:
    yield from ((profile, config) for profile in desired.profiles for config in profile.configs)


def _starts(profile: Profile, config: Config, takes: Need) -> Iterator[Start]:
    """Each way in which a plan may start it: on devices of their own, and on those that are the host's RAM."""
    for backend in config.backends:
        launch = launch_of(profile, config, backend)
        yield Start(launch, config.devices.count, takes.device_bytes, takes.host_bytes)
        yield Start(launch, config.devices.count, takes.device_bytes + takes.host_bytes, 0)


def _entry(name: str, profile: Profile, config: Config, takes: Need, before: Entry | None) -> Entry:
    artifact, facts = config.artifact, ENGINES.get(config.engine)
    files = Files(
        name=profile.name,
        content=content(artifact),
        source=artifact.source if artifact.credential is not None else None,
        credential=artifact.credential,
    )
    entry = Entry(
        name=name,
        engine=config.engine,
        backends=tuple(sorted(config.backends)),
        artifacts=(files,),
        context=config.context,
        lanes=config.lanes,
        devices=config.devices.count,
        device_bytes=_margin(takes.device_bytes + takes.host_bytes),
        host_bytes=_margin(takes.host_bytes),
        args=tuple(Slot(name=a.name, values=(a.value,)) for a in sorted(config.args, key=lambda a: a.name)),
        environment=facts.variables if facts is not None else (),
    )
    return entry if before is None or before.engine != entry.engine else _as_wide(entry, before)


def _as_wide(entry: Entry, before: Entry) -> Entry:
    """Bounds of before that are wider than what is asked for now were somebody's wish."""
    slots = {slot.name: slot for slot in before.args}
    merged = {slot.name: _wider(slot, slots.get(slot.name)) for slot in entry.args}
    return replace(
        entry,
        context=max(entry.context, before.context),
        lanes=max(entry.lanes, before.lanes),
        devices=max(entry.devices, before.devices),
        device_bytes=max(entry.device_bytes, before.device_bytes),
        host_bytes=max(entry.host_bytes, before.host_bytes),
        args=tuple(merged[name] for name in sorted(merged)),
        builds=before.builds,
        network=before.network,
    )


def _wider(slot: Slot, before: Slot | None) -> Slot:
    if before is None or (before.low is None and len(before.values) < 2):
        return slot
    return replace(before, values=tuple(sorted({*before.values, *slot.values})))


def _margin(size: int) -> int:
    return -(-size * (_PPM + MARGIN_PPM) // _PPM // _MIB) * _MIB
