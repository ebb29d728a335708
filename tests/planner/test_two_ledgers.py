"""Memory is summed twice: what shall stand, against all that may be given; and what runs meanwhile, with headroom.

Each test names the ledger whose removal it notices. Hosts have one card of 24 GiB, or 40 GiB of shared memory of which
half may be GPU work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import ConfigName, HostId, ReplicaId
from gridops.model.fleet import Host
from gridops.model.plan import Cost, Plan
from gridops.model.policy import Headroom, PlanningPolicy
from gridops.model.profile import Downtime, PlacementRules, Profile
from gridops.planner.actions import actions
from gridops.planner.capacity import Ask, Offer
from gridops.planner.check import check
from gridops.planner.draft import begin
from gridops.planner.eligible import Way, judge
from gridops.planner.gather import gather
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.fleet import Fleet, codes_of, config, decisions, device, digest, host, laptop, profile
from tests.planner.settled import converged

ROOMY = PlanningPolicy(headroom=Headroom(memory_ppm=0))
CARD = host("ant")
SHARED = laptop("ant", devices=(device("unified0", 40, gpu_share_ppm=500_000),))
SCALE = {"card": (CARD, 24, "cuda"), "shared": (SHARED, 20, "metal")}
"""What there is, and how much of it the GPU may have."""


def wants(name: str, gib: float, backend: str, **more: Any) -> Profile:
    version = more.pop("context", 4096)
    return profile(name, configs=(config(name, gib, backends=(backend,), context=version),), **more)


def running(one: Host, *profiles: Profile) -> Fleet:
    fleet = Fleet(hosts=(one,), profiles=profiles, policy=ROOMY)
    return fleet.applied(fleet.plan())


def steps(fleet: Fleet, target: Plan) -> list[str]:
    found = actions(target, fleet.snapshot(), fleet.now, desired=fleet.inputs().intent.desired)
    return [f"{s.action.kind} {s.replica}{f': {s.waits_for}' if s.waits_for else ''}" for s in found]


@pytest.fixture(params=sorted(SCALE))
def place(request: pytest.FixtureRequest) -> tuple[Host, int, str]:
    return SCALE[request.param]


def test_what_shall_stand_is_summed_although_nothing_runs_yet(place: tuple[Host, int, str]) -> None:
    """The desired ledger."""
    one, size, backend = place
    two = (wants("c", size // 2 + 1, backend), wants("d", size // 2, backend))
    fleet = Fleet(hosts=(one,), profiles=two, policy=ROOMY)
    made = fleet.plan()
    assert len(made.placement) == 1
    assert codes_of(made, "d/1") == {"ant": codes.INSUFFICIENT_DEVICE_MEMORY.code}
    # One GiB less of the other, and both stand to the last byte.
    both = fleet.but(profiles=(wants("c", size // 2, backend), two[1])).plan()
    assert len(both.placement) == 2
    grown = replace(
        both,
        placement=tuple(replace(a, device_bytes=a.device_bytes + 1) for a in both.placement[:1]) + both.placement[1:],
    )
    notes = check(grown, fleet.but(profiles=(wants("c", size // 2, backend), two[1])).inputs())
    assert any("with something new there" in n for n in notes), "the check sums it by itself"


def test_what_leaves_still_counts_until_it_is_gone(place: tuple[Host, int, str]) -> None:
    """The live ledger of the planner: a host that has to wait is worse than one that is free, and says how much."""
    one, size, backend = place
    fleet = running(one, wants("c", size - 4, backend))
    other = replace(one, id="bee")  # type: ignore[arg-type]
    later = fleet.but(hosts=(one, other), profiles=(wants("d", 6, backend),))
    choice = next(c for c in later.plan().report.choices if c.replica == "d/1")
    assert choice.host == "bee"
    terms = {t.name: (t.winner, t.runner_up) for t in choice.terms}
    assert terms["harm_waiting"][0] == 0
    assert (terms["harm_waiting"][1] or 0) > 0, "there it would wait for the drain"


@pytest.mark.parametrize(("gib", "waits"), [(4, False), (5, True)])
def test_a_seat_beside_what_leaves_is_at_once_or_after_it(gib: int, waits: bool, place: tuple[Host, int, str]) -> None:
    """The live ledger of the board: 4 GiB are free beside what leaves, to the byte."""
    one, size, backend = place
    asked = wants("d", gib, backend)
    world = look(running(one, wants("c", size - 4, backend)).but(profiles=(asked,)).inputs())
    way = judge(asked, asked.configs[0], world.hosts[one.id], world.planning)
    assert isinstance(way, Way)
    offer = begin(world, choose(world, gather(world))).board.offer(one.id, Ask(ReplicaId("d/1"), asked, way))
    assert isinstance(offer, Offer)
    assert offer.waits is waits


def test_a_start_waits_for_what_still_runs(place: tuple[Host, int, str]) -> None:
    """The live ledger of the steps."""
    one, size, backend = place
    fleet = running(one, wants("c", size - 4, backend)).but(profiles=(wants("d", 6, backend),))
    fleet = fleet.reporting("ant", cached=(digest("d"),))
    first = steps(fleet, fleet.plan())[0]
    assert first.startswith("warm d/1: memory on"), first


def test_headroom_is_kept_while_two_generations_share_a_device() -> None:
    """The live ledger has the headroom, the desired one of who stands does not."""
    policy = PlanningPolicy(headroom=Headroom(memory_ppm=250_000))
    tight = Fleet(hosts=(CARD,), profiles=(wants("c", 10, "cuda", context=1),), policy=policy)
    before = tight.applied(tight.plan())
    after = before.but(profiles=(wants("c", 10, "cuda", context=2, downtime=Downtime.NEVER),))
    made = after.plan()
    assert decisions(made) == [], "18 GiB may be given to what is new, two of 10 are 20"
    loose = after.but(policy=PlanningPolicy(headroom=Headroom(memory_ppm=100_000)))
    assert decisions(loose.plan()) == ["change c/1 ant -> ant"], "21.6 hold both"


@pytest.mark.parametrize("gib", [10, 15])
def test_what_refuses_downtime_changes_only_where_it_can_run_twice(gib: int, place: tuple[Host, int, str]) -> None:
    """The live ledger again, of one replica: 2 x 10 GiB fit 20 and 24, 2 x 15 do not."""
    one, _, backend = place
    fleet = running(one, wants("c", gib, backend))
    new = wants("c", gib, backend, context=9, downtime=Downtime.NEVER)
    made = fleet.but(profiles=(new,)).plan()
    assert decisions(made) == (["change c/1 ant -> ant"] if gib == 10 else [])


def test_the_check_notices_a_replica_that_cannot_run_twice_and_is_not_said_to_be_down(
    place: tuple[Host, int, str],
) -> None:
    one, _, backend = place
    fleet = running(one, wants("c", 15, backend)).but(profiles=(wants("c", 15, backend, context=9),))
    made = fleet.plan()
    assert [d.cost.dip for d in made.decisions] == [1]
    silent = replace(made, decisions=tuple(replace(d, cost=Cost()) for d in made.decisions))
    assert any("cannot run twice" in n for n in check(silent, fleet.inputs()))


@pytest.mark.parametrize(("gib", "runs", "dip"), [(10, True, 1), (7, True, 0), (10, False, 0)])
def test_who_comes_to_where_an_old_process_of_it_runs_is_there_already(gib: int, runs: bool, dip: int) -> None:
    """It is no arrival that waits: beside it 2 x 10 GiB do not fit 24, and 2 x 7 do. Any other arrival waits."""
    named = {name: PlacementRules(allow_hosts=(HostId(name),)) for name in ("ant", "bee")}
    c, m = profile("c", gib=gib, placement=named["ant"]), profile("m", gib=gib, placement=named["bee"])
    fleet = converged(c, m, hosts=(host("ant", (24,)), host("bee", (24,))))
    (there,), (ours,) = (fleet.reports[name].residencies for name in ("bee", "ant"))  # type: ignore[union-attr]
    old = (replace(there, incarnation=digest("an older start")),) if runs else ()
    again = replace(c, configs=(config("c-q4", gib, context=9),))
    made = (
        fleet.reporting("ant", residencies=(ours, *old))
        .but(profiles=(again, replace(m, placement=named["ant"])))
        .plan()
    )
    assert sorted(decisions(made)) == ["change c/1 ant -> ant", "move m/1 bee -> ant"]
    assert {d.replica: d.cost.dip for d in made.decisions} == {"m/1": 0, "c/1": dip}


@pytest.mark.parametrize(
    ("grown", "fits"), [(6, True), (12, False)], ids=["as its file says", "more than its file says"]
)
def test_who_stands_beside_a_second_generation_counts_as_it_was_started(grown: int, fits: bool) -> None:
    """6 + 6 + 6 GiB of 24 run at once, although a file says 12 of one by now; 12 + 6 + 6 with headroom do not."""
    fleet = converged(profile("wide", gib=grown), profile("c", gib=6), hosts=(host("ant", (24,)),))
    again = profile("c", gib=6, configs=(config("c-q4", 6, context=9),))
    fleet = fleet.but(profiles=(profile("wide", gib=12), again))
    made = fleet.plan()
    silent = replace(made, decisions=tuple(replace(d, cost=Cost()) for d in made.decisions))
    assert any("cannot run twice" in n for n in check(silent, fleet.inputs())) is not fits


@pytest.mark.parametrize("name", ["code-q4", "renamed"])
def test_who_shrinks_has_not_grown_whatever_its_config_is_called_by_now(name: str) -> None:
    """Its file says 19.5 GiB of it now, where 18 are: it changes to 17.6, and nobody has to keep headroom for that."""
    fleet = converged(profile("code", gib=15), hosts=(host("ant", (18,)),))
    wide = replace(config("code-q4", 19.5), name=ConfigName(name))
    made = fleet.but(profiles=(profile("code", configs=(wide, config("thin", 17.6))),)).plan()
    assert decisions(made) == ["change code/1 ant -> ant"]
