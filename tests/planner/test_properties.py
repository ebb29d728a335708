"""What must hold for every fleet: generated worlds, generated events, and the independent checker on each plan.

| promise | shown by |
| --- | --- |
| never over any device or host ledger | `nobody_is_over` here, `check` on every plan, `test_walks` at every step |
| the order of everything is irrelevant | `order_is_irrelevant`, `test_where_properties`, `test_same_bytes` |
| a second plan is empty | `converged_is_quiet`, `test_walks`, `test_room_quiet` |
| noise moves nothing | `test_quiet`, `test_where_properties` (records of any sense), `test_where` |
| what was found is never dismantled for a worse one | `test_quiet` (in a crowd), `test_rulings` |
| `check` is clean | every plan of `Fleet.plan`, and every part of one (`parts_are_clean`) |
| who is unplaced has one headline and a line per host | `missing_say_why`; large fleets: `test_why_counts` |
| nothing destructive without authority | `authority_is_asked` here, `test_authority` row by row |
| the last ready replica is never given up | `the_last_one_stays` here, `test_room`, `test_walks` |
| mass silence takes nothing away | `test_no_rolled_world_loses_anything_to_mass_silence` here, `test_incumbents` |
| nothing vanishes without a decision | `nothing_vanishes` |
| small fleets against exhaustive search | `test_yardsticks`, `test_search` (bounds) |
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.codes import registry
from gridops.base.ids import ProfileName, split_replica
from gridops.base.record import to_bytes
from gridops.model.fleet import DeviceKind, HostKey
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan
from gridops.model.policy import ActionClass, Automatic, Mode, ScopeMode
from gridops.model.snapshot import Ownership, ResidencyState
from gridops.planner.authority import judge
from gridops.planner.check import check
from gridops.planner.planner import plan
from gridops.planner.restrict import restrict
from tests.planner.fleet import SCOPE, Fleet, host
from tests.planner.worlds import Cook, Drawn, change, later, make_fleet, rolled, shuffled

CODES = registry()
SEEDS = (*range(60), 2006, 2082, 700_167, 700_360, 700_477, 700_678, 700_877, 701_018)
EXAMPLES = settings(max_examples=20)


@EXAMPLES
@given(st.data())
def test_every_drawn_world_keeps_every_promise(data: st.DataObject) -> None:
    every_promise(Drawn(data))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_rolled_world_keeps_every_promise(seed: int) -> None:
    every_promise(rolled(seed))


def every_promise(cook: Cook) -> None:
    """A first plan, something happens, a second plan: each promise on both."""
    fleet = make_fleet(cook)
    first = fleet.plan()
    order_is_irrelevant(fleet, cook)
    converged_is_quiet(first, fleet)
    after = change(cook, later(first, fleet))
    for made, of in ((first, fleet), (second := after.plan(), after)):
        nobody_is_over(made, of)
        missing_say_why(made, of)
        authority_is_asked(made, cook)
    the_last_one_stays(second, after)
    order_is_irrelevant(after, cook)
    nothing_vanishes(second, after)
    parts_are_clean(second, after, cook)
    converged_is_quiet(second, after)


def order_is_irrelevant(fleet: Fleet, cook: Cook) -> None:
    """Neither the order of files nor a second call changes one byte."""
    expected = to_bytes(plan(fleet.inputs()))
    order = random.Random(cook.pick(range(1000)))
    assert to_bytes(plan(shuffled(fleet, order).inputs())) == expected
    assert to_bytes(plan(fleet.inputs())) == expected


def converged_is_quiet(made: Plan, fleet: Fleet) -> None:
    """Once carried out, the same question has no new answer.

    Clearing away a failed process is news of its own: the host may be tried again.
    """
    if any(r.state is ResidencyState.FAILED for h in fleet.snapshot().hosts for r in h.residencies):
        return
    after = later(made, fleet)
    again = after.plan()
    if any(d.cause.kind is CauseKind.DEMAND and d.kind is DecisionKind.PLACE for d in again.to_do):
        # Once somebody is ready and requests still suffer, one is added to spare: news, and only once.
        made, again = again, later(again, after).plan()
    assert again.to_do == (), "the planner changes its mind although nothing happened"
    assert _what(again) == _what(made)


def nobody_is_over(made: Plan, fleet: Fleet) -> None:
    """Summed anew: on each pool that has something new, what is planned and what others use is at most its size."""
    names = {p.renamed_from: p.name for p in fleet.profiles if p.renamed_from is not None}

    def now(replica: str | None) -> str:
        profile, _, number = str(replica).rpartition("/")
        return f"{names.get(ProfileName(profile), profile)}/{number}"

    stood = {(now(a.replica), a.seat) for a in fleet.parent.placement} if fleet.parent is not None else set()
    ran = {(now(r.replica), r.devices) for h in fleet.snapshot().hosts for r in h.residencies}
    for declared in fleet.hosts:
        seats = [a for a in made.placement if a.seat.host == declared.id]
        new = [a for a in seats if (a.replica, a.seat) not in stood and (a.replica, a.seat.devices) not in ran]
        seen = fleet.snapshot().host(declared.id)
        others = {d.id: d.external_bytes for d in seen.devices} if seen is not None else {}
        for device in declared.devices:
            arrives = any(device.id in a.seat.devices for a in new)
            planned = sum(a.device_bytes for a in seats if device.id in a.seat.devices)
            size = device.memory_bytes - device.reserve_bytes - others.get(device.id, 0)
            assert not arrives or planned <= size, f"{declared.id} {device.id} shall hold {planned} of {size}"
        ram = next((d for d in declared.devices if d.kind is not DeviceKind.GPU), None)
        if ram is not None and any(a.host_bytes for a in new):
            own = sum(a.device_bytes for a in seats if ram.id in a.seat.devices) + sum(a.host_bytes for a in seats)
            size = ram.memory_bytes - ram.reserve_bytes - others.get(ram.id, 0)
            assert own <= size, f"{declared.id} has too little RAM"


def missing_say_why(made: Plan, fleet: Fleet) -> None:
    """Exactly one headline, and one coded line for each declared host in order."""
    told = [u.replica for u in made.report.unplaced]
    assert len(told) == len(set(told))
    assert told == [d.replica for d in made.decisions if d.kind is DecisionKind.CANNOT_PLACE]
    for u in made.report.unplaced:
        assert u.detail
        assert u.code in CODES
        assert [line.host for line in u.hosts] == sorted(h.id for h in fleet.hosts)
        assert all(line.detail and line.code in CODES for line in u.hosts)


def authority_is_asked(made: Plan, cook: Cook) -> None:
    """Outside automatic nothing is done; there, only what is allowed, and no end without its own consent."""
    allowed = tuple(c for c in ActionClass if cook.pick((True, False)))
    consents = {"allow_displace": cook.pick(((), tuple(t.profile for t in made.terms))), "last_replica": ()}
    for mode in Mode:
        how = ScopeMode(scope=SCOPE, mode=mode, automatic=Automatic(allow=allowed, **consents))
        done = judge(made, how, made.created_ms).allowed
        sets = [d for d in made.to_do if d.change_set in done]
        assert mode is Mode.AUTOMATIC or not sets
        assert all(d.action_class in allowed and not d.last_replica for d in sets)
        taken = [d for d in sets if d.cause.kind is CauseKind.DISPLACED]
        assert not taken or consents["allow_displace"]


def the_last_one_stays(made: Plan, fleet: Fleet) -> None:
    """Of a profile that is still wanted, somebody who is ready now goes on standing, or comes up elsewhere first."""
    ours = {k.host for k in fleet.inputs().intent.desired.keys if not k.expunged}
    ready = {
        r.replica: r.profile
        for h in fleet.snapshot().hosts
        if h.host in ours
        for r in h.residencies
        if r.state is ResidencyState.READY and r.ownership is Ownership.MANAGED and r.replica is not None
    }
    given = {d.replica for d in made.decisions if d.kind is DecisionKind.REMOVE}
    for name in sorted(set(ready.values())):
        wanted = next((p for p in fleet.profiles if p.name == name and p.scope == SCOPE), None)
        planned = {a.replica for a in fleet.parent.placement} if fleet.parent is not None else set()
        mine = {r for r, of in ready.items() if of == name and r in planned}
        if wanted is not None and wanted.replicas_min and mine:
            assert not mine <= given, f"{name} gives up everybody who is ready: {sorted(mine)}"


@pytest.mark.parametrize("seed", range(40))
def test_no_rolled_world_loses_anything_to_mass_silence(seed: int) -> None:
    """Whatever else happens at the same time: files change, hosts fail, somebody drains."""
    cook = rolled(5_000 + seed)
    fleet = make_fleet(cook)
    more = tuple(host(f"silent{n}") for n in range(6))
    if fleet.keys is not None:
        fleet = fleet.but(keys=(*fleet.keys, *(HostKey(host=one.id, key="ed25519:" + "0" * 64) for one in more)))
    fleet = fleet.but(hosts=(*fleet.hosts, *more))
    after = change(cook, later(fleet.plan(), fleet))
    for one in more:
        after = after.reporting(one.id, observed_ms=after.now - 200_000)
    made = after.plan()
    assert any("fell silent at once" in note for note in made.report.notes)
    assert [d for d in made.to_do if d.kind is not DecisionKind.PLACE and not _is_only_terms(d)] == []
    names = {c.new: c.old for d in made.decisions for c in d.changes if c.field == "profile"}
    stands = {(names.get(a.profile, a.profile), split_replica(a.replica)[1]) for a in made.placement}
    assert after.parent is not None
    assert {(a.profile, split_replica(a.replica)[1]) for a in after.parent.placement} <= stands


def _is_only_terms(d: Decision) -> bool:
    """Nothing is stopped or started for it."""
    return d.kind is DecisionKind.CHANGE and d.source == d.target and not d.cost.dip


def nothing_vanishes(made: Plan, fleet: Fleet) -> None:
    """A replica leaves the placement only by a decision that says so."""
    assert fleet.parent is not None
    removed = {d.replica for d in made.decisions if d.kind is DecisionKind.REMOVE}
    renamed = {c.old for d in made.decisions for c in d.changes if c.field == "profile"}
    for a in fleet.parent.placement:
        assert made.assignment(a.replica) is not None or a.replica in removed or a.profile in renamed


def parts_are_clean(made: Plan, fleet: Fleet, cook: Cook) -> None:
    """Any part of the change sets leads to a placement that keeps every rule, and the rest is decided again."""
    sets = sorted({d.change_set for d in made.to_do})
    keep = frozenset(n for n in sets if cook.pick((True, False)))
    part = restrict(made, fleet.parent, keep)
    notes = check(part, fleet.inputs(), partial=True)
    assert notes == (), "\n".join(notes)
    assert {d.change_set for d in part.to_do} == set(keep)
    later(part, fleet).plan()


def _what(made: Plan) -> dict[str, tuple[str, tuple[str, ...], str]]:
    return {a.replica: (a.seat.host, a.seat.devices, a.launch) for a in made.placement}
