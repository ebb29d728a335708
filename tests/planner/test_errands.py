"""Advice about disks becomes steps: only where the agent can, only while the newest report bears it out, and last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import ConfigName, HostId, ProfileName
from gridops.model.action import Evict, Load
from gridops.model.advice import Advice, EvictCause, Prefetch, Prefetched
from gridops.model.advice import Evict as ToEvict
from gridops.model.policy import ActionClass, Risk
from gridops.model.snapshot import HostState, Residency, ResidencyState
from gridops.planner.actions import Step, actions
from gridops.planner.authority import ERRANDS, errand
from gridops.planner.planner import plan
from gridops.planner.render_explain import explain_lines
from gridops.planner.render_markdown import render_markdown
from gridops.planner.render_text import Style, render_text
from gridops.planner.render_words import Context
from tests.planner.fleet import GIB, NOW, Fleet, digest, profile
from tests.planner.test_cache import HOUR, busy, files, free, guess, inferred, wanted

CAN = ("evict",)
C = ProfileName("c")
ANT = HostId("ant")


def ahead(**changes: Any) -> Prefetch:
    made = Prefetch(
        host=ANT,
        profile=C,
        config=ConfigName("c-q4"),
        files=(digest("c"),),
        size_bytes=4 * GIB,
        detail="demand is expected",
        fetch_ms=30_000,
        expires_ms=NOW + HOUR,
    )
    return replace(made, **changes)


def away(**changes: Any) -> ToEvict:
    made = ToEvict(
        host=ANT, profile=C, files=(digest("c"),), size_bytes=4 * GIB, cause=EvictCause.EXPIRED, detail="never used"
    )
    return replace(made, **changes)


def able(fleet: Fleet, *guesses: Prefetched, **changes: Any) -> Fleet:
    """A host whose agent deletes by command, and what it says it fetched on a guess."""
    cached = {f for g in guesses for f in g.files}
    old = fleet.snapshot().host(ANT)
    assert old is not None
    more = {"abilities": CAN, "prefetched": guesses or None, "cached": tuple(sorted({*old.cached, *cached}))}
    return fleet.reporting("ant", **{**more, **changes})


def steps(fleet: Fleet, advice: Advice, **more: Any) -> tuple[Step, ...]:
    assert fleet.parent is not None
    desired = fleet.inputs().intent.desired
    found = actions(fleet.parent, fleet.snapshot(), fleet.now, desired=desired, advice=advice, **more)
    return tuple(s for s in found if errand(s.action) is not None)


FETCH, GO = Advice(prefetch=(ahead(),)), Advice(evict=(away(),))


def test_a_prefetch_becomes_a_load_that_says_that_it_is_a_guess() -> None:
    (step,) = steps(able(busy(wanted("c"))), FETCH)
    assert isinstance(step.action, Load)
    assert (step.action.guess, step.replica, step.waits_for) == (True, "c/0", None)
    assert step.action.artifact == files("c").artifact
    assert step.action_class is ActionClass.SCALE_UP


NO_FETCH: dict[str, Callable[[], tuple[Fleet, Advice]]] = {
    "an older agent": lambda: (busy(wanted("c")), FETCH),
    "an agent that can something else": lambda: (able(busy(wanted("c")), abilities=("sing",)), FETCH),
    "it is there": lambda: (able(busy(wanted("c")), cached=(digest("c"), digest("full"))), FETCH),
    "its time is over": lambda: (able(busy(wanted("c"))), Advice(prefetch=(ahead(expires_ms=NOW),))),
    "the disk has filled since": lambda: (able(busy(wanted("c")), disk_free_bytes=4 * GIB - 1), FETCH),
    "nobody knows the disk": lambda: (able(busy(wanted("c")), disk_free_bytes=None), FETCH),
    "the host takes nothing new": lambda: (able(busy(wanted("c")), state=HostState.PAUSED), FETCH),
    "the host is silent": lambda: (able(busy(wanted("c")), observed_ms=NOW - HOUR), FETCH),
    "its replica is decided": lambda: (able(busy(wanted("c"))), Advice(prefetch=(ahead(replica="c/1"),))),
    "the profile names other files now": lambda: (
        able(busy(wanted("c"))),
        Advice(prefetch=(ahead(files=(digest("old"),)),)),
    ),
    "the profile is gone": lambda: (able(busy()), FETCH),
}


@pytest.mark.parametrize("name", NO_FETCH)
def test_nothing_is_fetched_that_the_newest_report_does_not_bear_out(name: str) -> None:
    fleet, advice = NO_FETCH[name]()
    assert steps(fleet, advice) == ()


def test_files_that_are_needed_come_before_a_guess() -> None:
    fleet = able(busy(wanted("c")), residencies=(), cached=())
    (step,) = steps(fleet, FETCH)
    assert step.waits_for == "the files of full/1, which is needed"
    desired = fleet.inputs().intent.desired
    assert fleet.parent is not None
    assert actions(fleet.parent, fleet.snapshot(), fleet.now, desired=desired, advice=FETCH)[-1] == step, "it is last"


def test_an_expired_guess_becomes_an_evict_of_exactly_its_files() -> None:
    (step,) = steps(able(busy(wanted("c")), guess("ant", "c")), GO)
    assert step.action == Evict(host=ANT, replica="c/0", profile=C, files=(digest("c"),))  # type: ignore[arg-type]
    assert (step.action_class, step.waits_for) == (ActionClass.SCALE_DOWN, None)


def there(**changes: Any) -> Residency:
    return replace(Residency(profile=C, state=ResidencyState.READY, replica="c/1"), **changes)  # type: ignore[arg-type]


def pinned() -> Fleet:
    made = wanted("c")
    return busy(replace(made, placement=replace(made.placement, pins=(ANT,))))


def shared() -> Fleet:
    """A replica of the plan is made of the very files."""
    shares = profile("full", configs=(replace(files("c", gib=20), name=ConfigName("full-q4")),))
    fleet = busy(wanted("c")).but(profiles=(shares, wanted("c")), parent=None)
    return fleet.applied(fleet.but(profiles=(shares,)).plan())


MINE = guess("ant", "c")
KEPT: dict[str, Callable[[], Fleet]] = {
    "an older agent": lambda: able(busy(wanted("c")), MINE, abilities=None),
    "the host says nothing of a guess": lambda: able(busy(wanted("c")), cached=(digest("c"),)),
    "it was used": lambda: able(busy(wanted("c")), replace(MINE, used=True)),
    "more files than were fetched": lambda: able(busy(wanted("c")), replace(MINE, files=(digest("b"), digest("c")))),
    "another profile's": lambda: able(busy(wanted("c")), replace(MINE, profile=ProfileName("d"))),
    "it is not there any more": lambda: able(busy(wanted("c")), MINE, cached=()),
    "the profile runs there": lambda: able(busy(wanted("c")), MINE, residencies=(there(),)),
    "a replica that gave its memory back": lambda: able(
        busy(wanted("c")), MINE, residencies=(there(state=ResidencyState.OFFLOADED),)
    ),
    "somebody else's process of the profile": lambda: able(
        busy(wanted("c")), MINE, residencies=(there(replica=None, state=ResidencyState.WARMING),)
    ),
    "a replica of the plan uses the files": lambda: able(shared(), MINE),
    "it is pinned there": lambda: able(pinned(), MINE),
    "the host is silent": lambda: able(busy(wanted("c")), MINE, observed_ms=NOW - HOUR),
}


@pytest.mark.parametrize("name", KEPT)
def test_nothing_goes_that_the_newest_report_does_not_call_an_unused_guess(name: str) -> None:
    assert steps(KEPT[name](), GO) == ()


def test_each_errand_has_a_line_in_the_table_and_nothing_else_is_one() -> None:
    assert ERRANDS == {
        "prefetch": (ActionClass.SCALE_UP, Risk.ROUTINE),
        "evict": (ActionClass.SCALE_DOWN, Risk.ROUTINE),
    }
    load = Load(host=ANT, replica="c/1", profile=C, artifact=files("c").artifact)  # type: ignore[arg-type]
    assert errand(load) is None
    assert errand(replace(load, guess=True)) is ActionClass.SCALE_UP


def test_without_a_forecast_only_what_was_fetched_for_a_profile_that_is_gone_expires() -> None:
    old, known = guess("ant", "gone", age=7 * HOUR), guess("ant", "c", age=7 * HOUR)
    fleet = free(busy(wanted("c")), 400, "c", "gone")
    advice = plan(replace(fleet.inputs(), prefetched=(old, known))).report.advice
    assert advice is not None
    assert [e.profile for e in advice.evict] == ["gone"]


def test_plan_and_explain_say_what_is_fetched_ahead_and_what_goes() -> None:
    fleet = busy(wanted("c"))
    made = plan(replace(fleet.inputs(), forecast=forecast_of("c")))
    made = replace(made, report=replace(made.report, advice=replace(made.report.advice or Advice(), evict=(away(),))))
    context = Context(now_ms=NOW)
    text = " ".join(" ".join(render_text(made, context)).split())
    assert "ahead c (c-q4): 4 GiB to ant: demand for c is expected" in text
    assert "evict c: 4 GiB on ant: never used" in text
    assert "💾 ahead `c (c-q4): 4 GiB to ant" in render_markdown(made, context)
    assert [line for line in explain_lines(made, "c/1", context, Style()) or () if "ahead" in line]  # type: ignore[arg-type]
    assert not [line for line in explain_lines(made, "full/1", context, Style()) or () if "ahead" in line]  # type: ignore[arg-type]


def forecast_of(name: str) -> Any:
    from tests.planner.test_targets_forecast import expect

    return expect(inferred(name))
