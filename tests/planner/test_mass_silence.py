"""The brake: when many dedicated hosts fall silent at once a plan takes nothing away, and says so. Else it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId
from gridops.base.units import PPM
from gridops.model.fleet import Drain
from gridops.model.plan import CauseKind, DecisionKind, Plan
from gridops.model.policy import Heartbeat, MassStale, PlanningPolicy
from gridops.planner.check import check
from gridops.planner.planner import plan
from tests.planner.fleet import NOW, Fleet, config, host, laptop, profile

STALE = Heartbeat().stale_after_ms
METAL = config("m", 10, backends=("metal",))


def office(servers: int, laptops: int, rule: MassStale) -> Fleet:
    """Every host has something to do, and a commit that wants a removal, a change and a drain waits for a plan."""
    hosts = [host(f"h{n}", (12,)) for n in range(servers)] + [laptop(f"lap{n}") for n in range(laptops)]
    policy = PlanningPolicy(heartbeat=Heartbeat(mass_stale=rule))
    before = Fleet(
        hosts=tuple(hosts),
        profiles=(
            profile("chat", servers - 2, gib=10, max_per_host=1),
            profile("gone", gib=10),
            profile("notes", laptops, configs=(METAL,), max_per_host=1),
        ),
        policy=policy,
    )
    standing = before.applied(before.plan())
    longer = profile("chat", servers - 2, max_per_host=1, configs=(config("chat-q4", 10, context=8192),))
    return standing.but(profiles=(longer, *before.profiles[2:]))


def taken(made: Plan) -> list[str]:
    """What the plan stops, moves or restarts."""
    kinds = DecisionKind.MOVE, DecisionKind.REMOVE, DecisionKind.CHANGE
    return [d.replica for d in made.decisions if d.kind in kinds or d.cause.kind is CauseKind.DISPLACED]


def expected(ages: list[int], servers: int, rule: MassStale) -> bool:
    """Some window of `within` holds enough of the silent servers: written down from the sentence in the policy."""
    silent = [age for age in ages if age > STALE]
    most = max((sum(1 for b in silent if 0 <= b - a <= rule.within_ms) for a in silent), default=0)
    return most >= rule.at_least and most / servers >= rule.share_ppm / PPM


AGES = st.sampled_from(
    (0, STALE, STALE + 1, STALE + 2, STALE + 30_000, STALE + 60_001, STALE + 60_002, STALE + 200_000)
)
RULES = st.builds(
    MassStale,
    share_ppm=st.sampled_from((0, 250_000, 300_000, 500_000, PPM)),
    at_least=st.sampled_from((1, 2, 3, 5)),
    within_ms=st.sampled_from((0, 30_000, 60_000)),
)


@settings(max_examples=60, deadline=None)
@given(servers=st.integers(3, 8), laptops=st.integers(0, 3), rule=RULES, data=st.data())
def test_no_plan_from_a_mass_stale_snapshot_takes_anything_away_and_every_other_does(
    servers: int, laptops: int, rule: MassStale, data: st.DataObject
) -> None:
    fleet = office(servers, laptops, rule)
    ages = data.draw(st.lists(AGES, min_size=servers, max_size=servers))
    for n, age in enumerate(ages):
        fleet = fleet.reporting(f"h{n}", observed_ms=NOW - age)
    for n in range(laptops):
        # However many laptops are away, and however they went, they are no evidence.
        away = data.draw(st.sampled_from(({}, {"observed_ms": NOW - STALE - 1}, {"goodbye": True})))
        fleet = fleet.reporting(f"lap{n}", **away)
    made = fleet.plan()
    said = [note for note in made.report.notes if codes.MASS_STALE.code in note]
    if expected(ages, servers, rule):
        assert taken(made) == []
        assert len(said) == 1
        assert "nothing is taken away" in said[0]
        assert {a.replica for a in made.placement} >= {a.replica for a in fleet.parent.placement}  # type: ignore[union-attr]
    else:
        assert said == []
        assert any(r.startswith("gone/") for r in taken(made)), "an ordinary plan carries the commit out"


EDGES = {
    "three of ten in a minute": ([1, 2, 3], MassStale(), True),
    "two": ([1, 2], MassStale(share_ppm=200_000), False),
    "a minute apart": ([1, 2, 60_001], MassStale(), True),
    "a millisecond more": ([1, 2, 60_002], MassStale(), False),
    "a share of exactly three tenths": ([1, 2, 3], MassStale(share_ppm=300_000), True),
    "a share just above": ([1, 2, 3], MassStale(share_ppm=300_001), False),
    "an older group counts as well": ([1, 90_000, 90_001, 90_002], MassStale(), True),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_brake_at_its_edges(name: str) -> None:
    late, rule, brakes = EDGES[name]
    fleet = office(10, 0, rule)
    for n, ms in enumerate(late):
        fleet = fleet.reporting(f"h{n}", observed_ms=NOW - STALE - ms)
    assert (taken(fleet.plan()) == []) is brakes


def test_laptops_that_go_together_are_no_evidence() -> None:
    fleet = office(4, 3, MassStale())
    for n in range(3):
        fleet = fleet.reporting(f"lap{n}", observed_ms=NOW - STALE - 1)
    assert taken(fleet.plan()) != []


def test_what_people_said_of_a_host_is_no_silence() -> None:
    """Drained and written-off hosts are decided: they are no evidence, and the others get their replicas back."""
    fleet = office(10, 0, MassStale())
    for n in range(3):
        fleet = fleet.reporting(f"h{n}", observed_ms=NOW - STALE - 1)
    assert taken(fleet.plan()) == []
    drained = fleet.but(drains=(Drain(host=HostId("h0"), reason="fan"),))
    assert taken(drained.plan()) != []
    inputs = replace(fleet.inputs(), written_off=frozenset({HostId("h0")}))
    made = plan(inputs)
    assert taken(made) != []
    assert check(made, inputs) == ()
    assert any("fell silent at once" in note for note in check(made, fleet.inputs()))


def test_the_note_names_some_hosts_and_new_work_still_finds_a_place() -> None:
    fleet = office(12, 0, MassStale())
    for n in range(9):
        fleet = fleet.reporting(f"h{n}", observed_ms=NOW - STALE - 1)
    made = fleet.but(profiles=(*fleet.profiles, profile("new", gib=1))).plan()
    assert [d.replica for d in made.to_do] == ["new/1"]
    assert made.report.notes[0].startswith("9 hosts fell silent at once (h0, h1, h2, h3, h4, h5, h6, h7 and others): ")
