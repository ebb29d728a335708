"""Steps carried out one pass at a time on generated fleets: memory, serving replicas and convergence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.footprint.ledger import rooms
from gridops.model.plan import Plan
from gridops.model.profile import Downtime
from gridops.model.snapshot import LIVE_STATES, HostState, Ownership, ResidencyState, Snapshot
from tests.planner.fleet import Fleet
from tests.planner.walk import Walk
from tests.planner.worlds import Cook, Drawn, change, make_fleet, rolled


@settings(max_examples=15)
@given(st.data())
def test_every_drawn_walk_arrives_and_takes_nothing_it_could_keep(data: st.DataObject) -> None:
    walk(Drawn(data))


@pytest.mark.parametrize("seed", range(60))
def test_every_rolled_walk_arrives_and_takes_nothing_it_could_keep(seed: int) -> None:
    walk(rolled(seed))


def walk(cook: Cook) -> None:
    """Carry out a plan, let something happen, begin the next, change one's mind halfway, and arrive."""
    fleet = make_fleet(cook)
    first = Walk(fleet, fleet.plan()).run()
    _held_together(first)
    _arrived(first)
    after = change(cook, first.fleet.but(parent=first.target))
    second = Walk(after, after.plan(), terms=first.terms)
    if cook.pick((True, False)):
        second.run()
    else:
        for step in [s for s in second.steps() if s.waits_for is None][: cook.pick(range(6))]:
            second._carry_out(step)
        after = change(cook, second.fleet.but(parent=second.target))
        second = Walk(after, after.plan(), terms=second.terms, taken=second.taken).run()
    _held_together(second)
    _arrived(second)
    # What has been carried out needs nothing more, and the same question has no new answer.
    assert [s for s in second.steps() if s.waits_for is None] == []
    if not any(r.state is ResidencyState.FAILED for s in second.history for h in s.hosts for r in h.residencies):
        assert second.fleet.but(parent=second.target).plan().to_do == ()


def _held_together(walk: Walk) -> None:
    """At every pass: no device holds more than before or than it may, and no profile loses what it can keep."""
    for before, now in zip(walk.history, walk.history[1:], strict=False):
        for host in walk.fleet.hosts:
            _memory(walk.fleet, host.id, before, now)
    wanted = {p.name: sum(1 for a in walk.target.placement if a.profile == p.name) for p in walk.fleet.profiles}
    for profile in walk.fleet.profiles:
        names = (profile.name, profile.renamed_from)
        counts = [_serving(s, names) for s in walk.history]
        floor = min(counts[0], wanted[profile.name])
        if profile.downtime is Downtime.ALLOWED and floor:
            floor -= 1
        assert min(counts) >= floor, f"{profile.name} had {counts[0]} serving, wants {wanted[profile.name]}: {counts}"


def _memory(fleet: Fleet, host: str, before: Snapshot, now: Snapshot) -> None:
    then, here = before.host(host), now.host(host)  # type: ignore[arg-type]
    if then is None or here is None:
        return
    for room in rooms(fleet.host(host), here, 0):
        used = [
            sum(r.device_bytes for r in report.residencies if _ours(r) and room.id in r.devices)
            for report in (then, here)
        ]
        assert used[1] <= max(used[0], room.raw_bytes), f"{host} {room.id} holds {used[1]} of {room.raw_bytes}"


def _ours(residency: object) -> bool:
    return getattr(residency, "ownership") is Ownership.MANAGED and getattr(residency, "state") in LIVE_STATES  # noqa: B009


def _serving(snapshot: Snapshot, names: tuple[str | None, ...]) -> int:
    able = (HostState.ACCEPTING, HostState.THROTTLED, HostState.DRAINING)
    found = {
        r.replica.rpartition("/")[2]
        for h in snapshot.hosts
        for r in h.residencies
        if h.state in able and r.state is ResidencyState.READY and r.profile in names and r.replica is not None
    }
    return len(found)


def _arrived(walk: Walk) -> None:
    """Every replica of the target is ready, or something that steps may not touch stands in its way."""
    waiting = {s.replica: s.waits_for for s in walk.steps()}
    ready = _ready(walk.fleet.snapshot(), walk.target)
    for a in walk.target.placement:
        view = walk.fleet.snapshot().host(a.seat.host)
        fresh = view is not None and not view.goodbye and -30_000 <= walk.fleet.now - view.observed_ms <= 90_000
        keys = {k.host for k in walk.fleet.inputs().intent.desired.keys if not k.expunged}
        drained = {d.host for d in walk.fleet.drains}
        able = fresh and a.seat.host in keys - drained and view is not None
        if able and view is not None and view.state in (HostState.ACCEPTING, HostState.THROTTLED):
            assert a.replica in ready or waiting.get(a.replica), f"{a.replica} never became ready on {a.seat.host}"


def _ready(snapshot: Snapshot, target: Plan) -> set[str]:
    return {
        a.replica
        for a in target.placement
        if (report := snapshot.host(a.seat.host)) is not None
        for r in report.residencies
        if r.replica == a.replica and r.identity == a.launch and r.state is ResidencyState.READY
    }
