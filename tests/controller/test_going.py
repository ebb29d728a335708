"""What is counted before a step that wants to go: repair waits for repair, and only a guess waits for guesses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import ScopeName
from gridops.controller.core.going import Going, artifact
from gridops.model.policy import ActionClass
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Authority, AuthorityKind
from tests.protocol import build


def entry(n: int, action_class: ActionClass = ActionClass.SCALE_UP, *, guess: bool = False) -> ob.Entry:
    """A load under way."""
    authority = Authority(kind=AuthorityKind.STANDING, action_class=action_class)
    action = replace(build.load(n), guess=guess)
    grown, _ = ob.enqueue(build.outbox(), action, build.cause(authority), build.outbox().fleet, 1)
    return grown.entries[-1]


def going(*entries: ob.Entry, silent: bool = False) -> Going:
    made = Going(entries[0].body.scope, lambda host: not silent)
    made.add(entries[0].body.host, entries)
    return made


def test_what_was_decided_does_not_wait_for_guesses_and_a_guess_waits_for_both() -> None:
    made = going(entry(1), entry(2, guess=True))
    assert made.beside(build.load(3), repair=False).in_scope == 1
    assert made.beside(replace(build.load(3), guess=True), repair=False).in_scope == 2


def test_repair_waits_for_repair_alone_and_the_rest_for_both() -> None:
    made = going(entry(1), entry(2, ActionClass.REPAIR))
    assert made.beside(build.load(3), repair=True).in_scope == 1
    assert made.beside(build.load(3), repair=False).in_scope == 2


def test_transfers_are_counted_by_host_and_by_artifact() -> None:
    first = entry(1)
    counts = going(first, entry(2)).beside(build.load(1), repair=False)
    assert counts.fetching[first.body.host] == 2
    assert counts.artifacts[artifact(build.load(1))] == 1


def test_the_same_files_under_other_names_are_the_same_artifact() -> None:
    load = build.load(1)
    renamed = tuple(replace(f, path=f"other/{f.path}") for f in load.artifact.files)
    twin = replace(load, artifact=replace(load.artifact, files=tuple(reversed(renamed))))
    assert going(entry(1)).beside(twin, repair=False).artifacts[artifact(twin)] == 1
    assert artifact(build.load(2)) != artifact(load)


def test_another_scope_is_counted_by_host_and_not_in_the_scope() -> None:
    first = entry(1)
    made = Going(ScopeName("elsewhere"), lambda host: True)
    made.add(first.body.host, [first])
    counts = made.beside(build.load(2), repair=False)
    assert (counts.in_scope, counts.fetching[first.body.host]) == (0, 1)


@pytest.mark.parametrize("silent", [True, False])
def test_a_silent_host_takes_nobodys_turn(silent: bool) -> None:
    assert going(entry(1), silent=silent).beside(build.load(2), repair=False).in_scope == (0 if silent else 1)
