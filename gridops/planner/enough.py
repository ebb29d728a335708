"""Whether the replicas of a profile that have a seat suffice for what demand asks, by the lanes they really bring.

A target counts newcomers with the lanes of the preferred config. Where a seat is found for another one, fewer or more
are needed than that: `place` asks here before it seats a newcomer, `room` before it moves others for one, and `settle`
lets go of whoever is needless in the end and says so. Only replicas beyond the baseline, that run nowhere, are ever let
go of here: who stands is `targets`' question. What this leaves is what the next plan would count, so it comes to rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gridops.base.ids import ProfileName, ReplicaId, replica_id, replica_key
from gridops.base.units import counted
from gridops.model.plan import CauseKind
from gridops.planner.draft import Draft, Item
from gridops.planner.incumbents import Incumbent, Verdict
from gridops.planner.sizing import Size


@dataclass(slots=True)
class Turns:
    """One pass over items in order: whoever waits further ahead counts, too, with lanes that it may find."""

    draft: Draft
    widest: bool = False
    """Those ahead count with the most lanes they can find, not with those of the preferred config."""
    _ahead: Counter[ProfileName] = field(default_factory=Counter)
    _stock: dict[ProfileName, tuple[int, int]] = field(default_factory=dict)

    def needs(self, item: Item) -> bool:
        """The item is needed beside those with a seat and those who waited ahead of it."""
        name = item.profile.name
        size = self.draft.sizes[name]
        if not size.varies or not may_go(item):
            return True
        if name not in self._stock:
            self._stock[name] = _stock(self.draft, name)
        (count, lanes), ahead = self._stock[name], self._ahead[name]
        return not size.suffices(count + ahead, lanes + ahead * (size.widest if self.widest else size.each))

    def waits(self, item: Item) -> None:
        """It found no seat. Who stands counts where it stands."""
        if item.origin is None or item.origin.verdict is Verdict.RELEASE:
            self._ahead[item.profile.name] += 1

    def sits(self, item: Item) -> None:
        self._stock.pop(item.profile.name, None)


def may_go(item: Item) -> bool:
    """It runs nowhere, and no pin asks for it. What gave way stays named: somebody took its place."""
    if item.pin is not None or item.cause.kind is CauseKind.DISPLACED:
        return False
    return item.origin is None or item.origin.verdict is Verdict.RELEASE


def needed(draft: Draft, items: Iterable[Item], *, widest: bool = False) -> list[Item]:
    """Those of the items that are needed beside who has a seat, the lowest numbers first."""
    turns, chosen = Turns(draft, widest), set[ReplicaId]()
    kept = list(items)
    # Whoever cannot be let go of is there anyway.
    for item in sorted(kept, key=lambda i: (may_go(i), replica_key(i.replica))):
        if turns.needs(item):
            turns.waits(item)
            chosen.add(item.replica)
    return [i for i in kept if i.replica in chosen]


def resize(draft: Draft, left: Sequence[Item]) -> None:
    """From here on the size of a profile is who has a seat and who is still needed."""
    sizes = dict(draft.sizes)
    waiting = Counter(i.profile.name for i in needed(draft, left) if _homeless(i))
    for name, size in sizes.items():
        if size.varies:
            sizes[name] = size._replace(replicas=max(size.baseline, len(draft.of(name)) + waiting[name]))
    draft.sizes = sizes


@dataclass(frozen=True, slots=True)
class Settled:
    left: tuple[Item, ...]
    """Who found no seat, and is needed."""
    dropped: tuple[Incumbent, ...]
    """Who is gone with its host, and is not needed any more."""
    notes: tuple[str, ...]


def settle(draft: Draft, first: Mapping[ProfileName, Size], left: Sequence[Item]) -> Settled:
    """The finished draft without needless replicas. `first`: what was wanted before anybody had a seat."""
    varying = [name for name in sorted(draft.sizes) if draft.sizes[name].varies]
    if not varying:
        return Settled(tuple(left), (), ())
    for name in varying:
        _let_go(draft, name)
    staying = needed(draft, left)
    resize(draft, staying)
    chosen = {i.replica for i in staying}
    gone = [i for i in left if i.replica not in chosen and not _takes_over(draft, i)]
    notes = []
    for name in varying:
        staying = _numbered(draft, name, staying)
        if note := _told(draft, name, first[name]):
            notes.append(note)
            staying = _with_cause(draft, name, first[name], staying)
    dropped = tuple(i.origin._replace(cause=i.cause) for i in gone if i.origin is not None)
    return Settled(tuple(staying), dropped, tuple(notes))


def _takes_over(draft: Draft, item: Item) -> bool:
    """Whoever is needless because a newcomer found a seat instead of it takes that seat, and keeps its number."""
    new = _new(draft, item.profile.name)
    if item.origin is None or not new:
        return False
    _rename(draft, new[-1], item.replica)
    draft.give(draft.seats[item.replica]._replace(origin=item.origin, cause=item.cause))
    return True


def _homeless(item: Item) -> bool:
    return item.origin is None or item.origin.verdict is Verdict.RELEASE


def _stock(draft: Draft, name: ProfileName) -> tuple[int, int]:
    """How many have a seat, and their lanes. Who is to leave counts as it stands until it has its new seat."""
    lanes = [s.launch.lanes for s in draft.of(name)]
    return len(lanes), sum(lanes)


def _let_go(draft: Draft, name: ProfileName) -> None:
    """Lift newcomers while any of the others suffice: somebody came wider after they were seated."""
    size = draft.sizes[name]
    new = [r for r in _new(draft, name) if draft.seats[r].cause is not None]
    for replica in sorted(new, key=replica_key, reverse=True):
        seats = draft.of(name)
        seated, pinned = draft.seats[replica], draft.world.profiles[name].placement.pins
        if len(seats) <= size.of([s.launch.lanes for s in seats]):
            return
        if seated.assignment.seat.host not in pinned:
            draft.lift(replica)
            draft.choices = [c for c in draft.choices if c.replica != replica]


def _new(draft: Draft, name: ProfileName) -> list[ReplicaId]:
    return sorted((s.assignment.replica for s in draft.of(name) if s.origin is None), key=replica_key)


def _numbered(draft: Draft, name: ProfileName, left: Sequence[Item]) -> list[Item]:
    """Close the gaps that were left: newcomers have the lowest free numbers."""
    seated = _new(draft, name)
    waiting = [i.replica for i in left if i.profile.name == name and i.origin is None]
    new = sorted((*seated, *waiting), key=replica_key)
    old = {s.assignment.replica for s in draft.of(name)} - set(seated)
    old |= {i.replica for i in left if i.profile.name == name and i.origin is not None}
    numbers = (r for n in range(1, len(new) + len(old) + 1) if (r := replica_id(name, n)) not in old)
    names = {was: now for was, now in zip(new, numbers, strict=False) if was != now}
    for was in new:  # from the lowest on, so that a name is free before it is taken
        if was in names and was in draft.seats:
            _rename(draft, was, names[was])
    return [i._replace(replica=names.get(i.replica, i.replica)) if i.replica in waiting else i for i in left]


def _rename(draft: Draft, was: ReplicaId, now: ReplicaId) -> None:
    seated = draft.seats[was]
    host = seated.assignment.seat.host
    claim = draft.board.hosts[host].desired[was]
    draft.lift(was)
    draft.board.put(host, claim._replace(replica=now))
    draft.give(seated._replace(assignment=replace(seated.assignment, replica=now)))
    draft.choices = [replace(c, replica=now) if c.replica == was else c for c in draft.choices]


def _told(draft: Draft, name: ProfileName, first: Size) -> str:
    """The sentence of the report where other lanes than hoped make it another number."""
    size, profile = draft.sizes[name], draft.world.profiles[name]
    if size.replicas == first.replicas or not profile.configs or not _new(draft, name):
        return ""
    lanes = sum(s.launch.lanes for s in draft.of(name))
    stand = f"{counted(len(draft.of(name)), 'replica')} with {counted(lanes, 'lane')}"
    more = "suffice" if size.suffices(*_stock(draft, name)) else "have seats"
    fewer = "fewer" if size.replicas < first.replicas else "more"
    hoped = f"{first.replicas} of {counted(size.each, 'lane')} ({profile.configs[0].name})"
    return f"{name}: {stand} {more}, {fewer} than the {hoped}, as other configs found a seat"


def _with_cause(draft: Draft, name: ProfileName, first: Size, left: Sequence[Item]) -> list[Item]:
    """The number in the cause of a newcomer is the one that is wanted now."""
    start = first.why.rpartition(" => ")[0]
    detail = f"{start} => {counted(draft.sizes[name].replicas, 'replica')} with the configs that found a seat"
    for replica in _new(draft, name):
        seated = draft.seats[replica]
        if seated.cause is not None and seated.cause.detail == first.why:
            draft.give(seated._replace(cause=replace(seated.cause, detail=detail)))
    mine = [i.profile.name == name and i.cause.detail == first.why for i in left]
    return [i._replace(cause=replace(i.cause, detail=detail)) if own else i for i, own in zip(left, mine, strict=True)]
