"""Hosts whose agent the root lets nobody drive: nothing new stands there, what stands counts, the checker knows too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.model.snapshot import SnapshotSource
from gridops.planner.check import check
from tests.planner.fleet import Fleet, codes_of, host, profile, seats

TWO = Fleet(hosts=(host("ant"), host("bee")), profiles=(profile("coder"),), agents_from="0.10.0")


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0rc1", "newest", None])
def test_an_agent_that_is_too_old_takes_nothing_new_and_the_plan_says_why(version: str | None) -> None:
    old = TWO.reporting("ant", agent_version=version).reporting("bee", agent_version="0.9.0")
    made = old.plan()
    assert codes_of(made, "coder/1") == dict.fromkeys(("ant", "bee"), codes.AGENT_TOO_OLD.code)
    (line, *_) = made.report.unplaced[0].hosts
    assert "0.10.0 or later is demanded: upgrade it" in (line.detail or "")
    able = old.reporting("bee", agent_version="0.10.0")
    assert seats(able.plan())["coder/1"].startswith("bee")


def test_what_runs_there_counts_as_serving_and_is_left_alone() -> None:
    new = TWO.reporting("ant", agent_version="1.0").reporting("bee", agent_version="1.0")
    stands = new.applied(new.plan())
    home = stands.plan().placement[0].seat.host
    assert stands.reporting(home, agent_version="0.9.0").plan().to_do == ()


def test_where_nothing_is_demanded_or_nobody_reported_no_version_is_asked_for() -> None:
    any_agent = TWO.but(agents_from=None).reporting("ant", agent_version=None)
    assert any_agent.plan().placement
    assert TWO.but(source=SnapshotSource.DECLARED).plan().placement


def test_the_checker_finds_a_start_on_an_agent_that_is_too_old() -> None:
    made = TWO.but(agents_from=None).plan()
    home = made.placement[0].seat.host
    for version in ("0.9.0", None):
        notes = check(made, TWO.reporting(home, agent_version=version).inputs())
        assert any("older than 0.10.0" in note for note in notes), notes
    able = TWO.reporting(home, agent_version="0.10.0").inputs()
    assert check(made, able) == ()
    assert any("older than newest" in note for note in check(made, replace(able, agents_from="newest")))
