"""What a plan says besides its decisions: what waits, which promises are not kept, and sentences about the whole.

Read by `render` and `explain`; decides nothing. Why a single replica stands nowhere is `why`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gridops.base.codes import placement as codes
from gridops.base.ids import ReplicaId
from gridops.base.units import counted, render_lack
from gridops.model.fleet import HostClass
from gridops.model.plan import CauseKind, HostLine, Shortfall
from gridops.model.profile import Downtime, Profile
from gridops.planner.draft import Draft, Item, Seated
from gridops.planner.incumbents import Verdict
from gridops.planner.targets import domain, pins
from gridops.planner.world import Standing


def waiting(draft: Draft, left: Sequence[Item]) -> tuple[HostLine, ...]:
    """Replicas that should leave or change and cannot yet, at the host they stay on, and pins on closed hosts."""
    found = []
    for item in left:
        if item.origin is None or item.origin.verdict is Verdict.RELEASE:
            continue
        host, why = item.origin.host, item.cause.detail
        if item.changes and item.profile.downtime is Downtime.NEVER:
            detail = f"{item.replica}: {why}; no room for a second process and the profile refuses downtime"
            found.append(HostLine(host=host, code=codes.DOWNTIME_NEVER.code, detail=detail))
        elif item.changes and item.origin.stuck:
            detail = f"{item.replica}: {why}; its process is in an unknown state, which has to be resolved first"
            found.append(HostLine(host=host, code=codes.NOWHERE_ELSE.code, detail=detail))
        elif item.cause.kind is CauseKind.FAILED_START:
            detail = f"{item.replica} {why}, and no other host may take it, so it stays and is tried again"
            found.append(HostLine(host=host, code=codes.KEEPS_FAILING.code, detail=detail))
        else:
            verb = "change" if item.changes else "leave"
            detail = f"{item.replica} should {verb} ({why}) and no host can take it, so it stays"
            found.append(HostLine(host=host, code=codes.NOWHERE_ELSE.code, detail=detail))
    pinned = [(r, s) for r, s in draft.seats.items() if s.origin is not None and s.origin.pinned and s.cause is None]
    for replica, seat in sorted(pinned, key=lambda entry: entry[0]):
        view = draft.world.hosts.get(seat.assignment.seat.host)
        if view is not None and view.closed is not None and view.standing in (Standing.DRAINING, Standing.NOT_SERVING):
            detail = f"{replica} stays: the profile pins it to this host ({view.closed.detail})"
            found.append(HostLine(host=view.host.id, code=view.closed.code, detail=detail))
    return tuple(sorted(found, key=lambda line: (line.host, line.code, line.detail)))


def shortfalls(draft: Draft) -> tuple[Shortfall, ...]:
    """Promises not kept by replicas that stand: failure domains, hosts that do not serve, memory that shrank."""
    found = []
    silent = {h for h, v in draft.world.hosts.items() if v.standing in (Standing.NOT_SERVING, Standing.LOST)}
    for profile in draft.world.profiles.values():
        if profile.spread is None and not silent:
            continue
        seats = draft.of(profile.name)
        found += _spread(draft, profile, seats)
        serving = [s for s in seats if s.assignment.seat.host not in silent] if silent else seats
        if len(serving) < len(seats):
            hosts = ", ".join(sorted({s.assignment.seat.host for s in seats} & silent))
            away, stand = len(seats) - len(serving), "stand" if len(seats) > 1 else "stands"
            detail = f"{away} of {counted(len(seats), 'replica')} {stand} on hosts that do not serve: {hosts}"
            code = codes.NOT_SERVING.code
            found.append(Shortfall(profile=profile.name, code=code, detail=detail, want=len(seats), have=len(serving)))
    return tuple(found + _crowded(draft))


def notes(draft: Draft, counts: Sequence[str] = ()) -> tuple[str, ...]:
    """Sentences about the whole plan. `counts`: where seats made another number of replicas than hoped."""
    world, found = draft.world, []
    if world.mass_stale:
        hosts = ", ".join(world.mass_stale[:8]) + (" and others" if len(world.mass_stale) > 8 else "")
        rule = f"nothing is taken away; gridops rule {codes.MASS_STALE.code}"
        found.append(f"{len(world.mass_stale)} hosts fell silent at once ({hosts}): {rule}")
    if not any(
        v.host.scope == world.inputs.scope and v.host.host_class is not HostClass.EXTERNAL for v in world.hosts.values()
    ):
        found.append("no host is declared in this scope: nothing can be placed")
    if not world.profiles:
        found.append("no profile is declared in this scope")
    return (*found, *_pins_in_vain(draft), *counts)


def _pins_in_vain(draft: Draft) -> list[str]:
    """A pin that names no host of the scope holds nobody: silence would let people believe that it does."""
    found = []
    for name, profile in draft.world.profiles.items():
        wished = profile.placement.pins
        strange = sorted(set(wished) - set(pins(profile, draft.world))) if wished else ()
        if strange:
            named = ", ".join(strange[:8]) + (" and others" if len(strange) > 8 else "")
            what = "which is no host" if len(strange) == 1 else "which are no hosts"
            found.append(f"{name} is pinned to {named}, {what} of scope {profile.scope}: nobody is held there")
    return found


def _spread(draft: Draft, profile: Profile, seats: Collection[Seated]) -> list[Shortfall]:
    spread = profile.spread
    if spread is None or not seats:
        return []
    places = {domain(draft.world, s.assignment.seat.host, spread.by) for s in seats} - {None}
    wanted = min(spread.min, draft.sizes[profile.name].replicas)
    if len(places) >= wanted:
        return []
    stand = f"{counted(len(seats), 'replica')} {'stand' if len(seats) > 1 else 'stands'}"
    detail = f"{stand} in {len(places)} of at least {counted(wanted, 'domain')} of level {spread.by}"
    return [Shortfall(profile=profile.name, code=codes.SPREAD_SHORT.code, detail=detail, want=wanted, have=len(places))]


def _crowded(draft: Draft) -> list[Shortfall]:
    found = []
    for host, board in draft.board.hosts.items():
        room = board.crowded() if board.desired else None
        if room is None:
            continue
        there = [c for c in board.desired.values() if room.id in c.devices or (c.host_bytes and room is board.view.ram)]
        last = max(there or board.desired.values(), key=lambda c: (-_priority(draft, c.replica), c.replica))
        used, have = board.use(room.id, live=False).all_bytes, max(0, room.raw_bytes)
        wants, may, _ = render_lack(used, have)
        detail = f"{host} {room.id}: {wants} where {may} may be, first to go {last.replica}"
        code = codes.OVER_MEMORY.code
        found.append(Shortfall(profile=last.profile, code=code, detail=detail, want=used, have=have))
    return found


def _priority(draft: Draft, replica: ReplicaId) -> int:
    profile = draft.world.profiles.get(draft.seats[replica].assignment.profile) if replica in draft.seats else None
    return profile.priority if profile is not None else 0
