"""Who gives a turn up when all are taken: lower classes that no host has heard of, and nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import HostId, ProfileName, ReplicaId
from gridops.base.record import digest_of
from gridops.controller.core.precedence import Queue
from gridops.model.policy import ActionClass
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Authority, AuthorityKind
from gridops.protocol.outbox import Entry
from tests.controller.fleet import POLICIES, SHA, Desk, Fleet, profile
from tests.controller.test_reconcile import WIDE, held, slow, started
from tests.protocol import build as b


def of_class(name: str, priority: int, sha: str = SHA) -> str:
    return profile(name, sha=sha) + f"priority: {priority}\n"


def one_turn(fleet: Fleet, **files: str) -> Desk:
    """A controller that gives one command at a time."""
    budgets = POLICIES["policies/budgets.yaml"].replace("concurrent: 4", "concurrent: 1")
    return started(fleet, **{"policies/budgets.yaml": budgets, "policies/mode.yaml": WIDE, **files})


def asked_for(desk: Desk) -> list[str]:
    """What the open commands are for, and whether they are being taken back."""
    entries = (e for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox))
    return sorted(f"{e.wanted.value} {e.body.action.kind} {e.body.action.replica}" for e in entries)


def test_what_serves_a_lower_class_and_was_not_heard_of_gives_its_turn_up(fleet: Fleet) -> None:
    desk = one_turn(fleet, **{"profiles.d/coder.yaml": of_class("coder", 10)})
    desk.pass_()
    assert asked_for(desk) == ["execute load coder/1"]
    desk.commit({"profiles.d/urgent.yaml": of_class("urgent", 500)})
    desk.pass_()
    assert asked_for(desk) == ["void load coder/1"]
    assert "urgent/1: load on alpha waits: 1 of 1 command under way, and one that no host has heard of" in held(desk)
    desk.settle(14)
    assert desk.ready() == ["coder/1", "urgent/1"]
    order = [(kind, replica) for _, kind, replica in desk.executed() if kind in ("load", "warm")]
    assert order == [("load", "urgent/1"), ("warm", "urgent/1"), ("warm", "coder/1")]
    desk.controller.close()


@pytest.mark.parametrize("why", ["it was delivered", "it serves the same class"])
def test_what_may_run_or_is_as_important_keeps_its_turn(fleet: Fleet, why: str) -> None:
    desk = one_turn(fleet, **{"profiles.d/coder.yaml": of_class("coder", 10)})
    if why == "it was delivered":
        slow(desk, "load")
    desk.pass_()
    if why == "it was delivered":
        desk.settle(2)
    priority = 500 if why == "it was delivered" else 10
    desk.commit({"profiles.d/urgent.yaml": of_class("urgent", priority, "b" * 64)})
    desk.pass_()
    assert asked_for(desk) == ["execute load coder/1"]
    desk.controller.close()


def entry(profile_name: str, seq: int, kind: str = "load", of: ActionClass = ActionClass.SCALE_UP) -> Entry:
    replica, name = ReplicaId(f"{profile_name}/1"), ProfileName(profile_name)
    action = replace(b.load() if kind == "load" else b.warm(), replica=replica, profile=name)
    body = b.body(seq=seq, action=action)
    authority = Authority(kind=AuthorityKind.STANDING, action_class=of)
    return Entry(body=body, digest=digest_of(body), key=str(seq), authority=authority, created_ms=0)


HOST = HostId("alpha")


def test_the_lowest_class_goes_first_and_of_it_a_start_before_a_fetch() -> None:
    waiting = [
        (HOST, entry(name, seq, kind))
        for seq, (name, kind) in enumerate([("mid", "warm"), ("low", "load"), ("low", "warm"), ("high", "load")], 1)
    ]
    queue = Queue({ProfileName("low"): 1, ProfileName("mid"): 2, ProfileName("high"): 3}, list(waiting))
    taken = [queue.first_to_yield(ProfileName("high"), repair=False) for _ in range(4)]
    assert [t and t[1].body.seq for t in taken] == [3, 2, 1, None]


def test_repair_and_what_is_optional_take_no_turns_from_each_other() -> None:
    prios = {ProfileName("low"): 1, ProfileName("high"): 3}
    mends = Queue(prios, [(HOST, entry("low", 1, of=ActionClass.REPAIR))])
    assert mends.first_to_yield(ProfileName("high"), repair=False) is None
    assert mends.first_to_yield(ProfileName("high"), repair=True) is not None
    optional = Queue(prios, [(HOST, entry("low", 1))])
    assert optional.first_to_yield(ProfileName("high"), repair=True) is None


def test_a_turn_that_comes_anyhow_is_taken_once() -> None:
    queue = Queue({}, [], coming=2)
    assert [queue.takes_what_comes() for _ in range(3)] == [True, True, False]
