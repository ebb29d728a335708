"""Stories an operator would tell, from commit to running replicas. `GRIDOPS_BLESS=1` rewrites their text.

Each story is a function that plays scenes on a `Stage`. Plans are checked as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Absence, Drain, Host
from gridops.model.policy import BudgetPolicy, PriceCeiling, ScopeBudgets
from gridops.model.profile import Downtime, PlacementRules, Spread
from gridops.model.snapshot import HostState, ResidencyState
from tests.planner.fleet import SCOPE, Fleet, config, host, laptop, profile, report
from tests.planner.stage import MINUTE, Stage, verify


def racks(count: int, gib: float = 24) -> tuple[Host, ...]:
    return tuple(host(f"h{n}", (gib,), rack=f"r{n % 2}", price_per_hour_micro=800_000) for n in range(count))


def node_outage() -> Stage:
    """A host falls silent, its replicas are replaced elsewhere, and when it returns the old ones go quietly."""
    stage = Stage(Fleet(hosts=racks(4), profiles=(profile("chat", 2, gib=18, spread=Spread(by="rack", min=2)),)))
    stage.say("first commit")
    stage.apply()
    stage.say("h0 falls silent")
    stage.silence("h0")
    stage.apply()
    stage.say("h0 is back")
    stage.fleet = stage.fleet.reporting("h0", observed_ms=stage.fleet.now)
    stage.apply()
    stage.say("and nothing more")
    stage.plan()
    return stage


def laptop_user_returns() -> Stage:
    """A laptop yields to its owner; only after its patience is the replica started elsewhere, and it stays there."""
    wanted = profile("notes", configs=(config("m", 10, backends=("metal", "cuda")),))
    ana = laptop("ana", 32, absence=Absence(replace_after_ms=10 * MINUTE))
    stage = Stage(Fleet(hosts=(ana,), profiles=(wanted,)))
    stage.say("only the laptop is there")
    stage.apply()
    stage.say("a server joins: what may stay stays")
    stage.join(host("zeb"))
    stage.plan()
    stage.say("its owner is back at the keyboard: paused for five minutes, then for ten")
    began = stage.fleet.now
    stage.fleet = stage.fleet.reporting("ana", state=HostState.PAUSED, since_ms=began, reasons=("owner is active",))
    stage.later(5 * MINUTE)
    stage.plan()
    stage.later(5 * MINUTE)
    stage.apply()
    stage.say("the owner leaves again")
    stage.fleet = stage.fleet.reporting("ana", state=HostState.ACCEPTING, since_ms=None, reasons=())
    stage.apply()
    return stage


def rollout_of_a_new_artifact() -> Stage:
    """Two replicas get new weights, one at a time; the second waits until the first answers."""
    old = profile("chat", 2, gib=18, configs=(config("q4", 18, weights="v1"),))
    new = profile("chat", 2, gib=18, configs=(config("q4", 18, weights="v2"),))
    stage = Stage(Fleet(hosts=racks(2), profiles=(old,)))
    stage.say("first commit")
    stage.apply()
    stage.say("new weights, no room for two on any host")
    stage.commit(new)
    stage.apply()
    return stage


def one_gpu_rollout() -> Stage:
    """One card, one model: a change is downtime, said with its seconds; where downtime is refused it waits for room."""
    stage = Stage(Fleet(hosts=(host("box"),), profiles=(profile("chat", gib=18),)))
    stage.say("first commit")
    stage.apply()
    stage.say("a longer context")
    stage.commit(profile("chat", configs=(config("chat-q4", 18, context=8192),)))
    stage.apply()
    stage.say("downtime: never, and another context")
    stage.commit(profile("chat", configs=(config("chat-q4", 18, context=16384),), downtime=Downtime.NEVER))
    stage.apply()
    stage.say("a second card arrives: now it can be made before it is broken")
    grown = host("box", (24, 24))
    stage.fleet = stage.fleet.but(hosts=(grown,)).reporting("box", devices=report(grown).devices)
    stage.apply()
    return stage


def mass_staleness() -> Stage:
    """Half the fleet goes quiet at once: nothing is taken away, and new work still finds a place."""
    stage = Stage(Fleet(hosts=racks(8, 12), profiles=(profile("chat", 6, gib=10),)))
    stage.say("six replicas on eight hosts")
    stage.apply()
    stage.say("four hosts fall silent together, a profile is removed and one is added")
    stage.silence("h0", "h1", "h2", "h3")
    stage.fleet = stage.fleet.but(profiles=(profile("draw", gib=10),))
    stage.apply()
    stage.say("they are back")
    for name in ("h0", "h1", "h2", "h3"):
        stage.fleet = stage.fleet.reporting(name, observed_ms=stage.fleet.now)
    stage.plan()
    return stage


def price_ceiling() -> Stage:
    """The ceiling bounds what is added and takes nothing that runs."""
    price = ScopeBudgets(scope=SCOPE, price=PriceCeiling(max_per_hour_micro=2_000_000))
    stage = Stage(
        Fleet(hosts=racks(4), profiles=(profile("chat", 4, gib=18),), more={"budgets": BudgetPolicy(scopes=(price,))})
    )
    stage.say("four replicas at 0.80 an hour each, 2.00 allowed")
    stage.apply()
    stage.say("the ceiling falls to 0.50")
    lower = replace(price, price=PriceCeiling(max_per_hour_micro=500_000))
    stage.fleet = stage.fleet.but(more={"budgets": BudgetPolicy(scopes=(lower,))})
    stage.plan()
    return stage


def drain_with_a_pin() -> Stage:
    """A drained host gives up what can go; what is pinned to it stays and says so; requests are waited for."""
    pinned = profile("asr", gib=5, placement=PlacementRules(pins=(HostId("h0"),)))
    stage = Stage(Fleet(hosts=racks(3), profiles=(pinned, profile("chat", gib=10))), busy=frozenset({"chat/1"}))
    stage.say("first commit")
    stage.apply()
    stage.say("h0 is drained while chat/1 answers a long request")
    stage.fleet = stage.fleet.but(drains=(Drain(host=HostId("h0"), reason="fan alarm"),))
    stage.apply()
    stage.say("the request ends")
    stage.busy = frozenset()
    stage.apply()
    return stage


def rename_and_removal() -> Stage:
    """A rename keeps its processes; a removal is the last replica and leaves a retirement behind."""
    stage = Stage(Fleet(hosts=racks(2), profiles=(profile("coder", gib=10), profile("old", gib=10))))
    stage.say("first commit")
    stage.apply()
    stage.say("`coder` is now `dev`, `old` is removed")
    dev = replace(profile("dev", configs=profile("coder").configs), renamed_from=ProfileName("coder"))
    stage.fleet = stage.fleet.but(profiles=(dev,))
    stage.apply()
    stage.say("`old` is declared again")
    stage.commit(profile("old", gib=10))
    stage.apply()
    return stage


def failed_and_unknown() -> Stage:
    """A replica that fails is started elsewhere; one that nobody can vouch for is left alone and keeps its memory."""
    stage = Stage(Fleet(hosts=racks(2), profiles=(profile("chat", gib=18),)))
    stage.say("first commit")
    stage.apply()
    stage.say("its engine fails on h0")
    seen = stage.fleet.snapshot().host(HostId("h0"))
    assert seen is not None
    broken = tuple(replace(r, state=ResidencyState.FAILED, detail="no kernel image") for r in seen.residencies)
    stage.fleet = stage.fleet.reporting("h0", residencies=broken)
    stage.apply()
    stage.say("on h1 its process can no longer be proved")
    seen = stage.fleet.snapshot().host(HostId("h1"))
    assert seen is not None
    lost = tuple(replace(r, state=ResidencyState.UNKNOWN) for r in seen.residencies)
    stage.fleet = stage.fleet.reporting("h1", residencies=lost)
    stage.apply()
    return stage


STORIES: tuple[Callable[[], Stage], ...] = (
    node_outage,
    laptop_user_returns,
    rollout_of_a_new_artifact,
    one_gpu_rollout,
    mass_staleness,
    price_ceiling,
    drain_with_a_pin,
    rename_and_removal,
    failed_and_unknown,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: Callable[[], Stage]) -> None:
    verify(story)
