"""Hosts that people have parted with: nobody waits for what such a host was asked, and nobody is led to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.ids import HostId
from gridops.controller import views
from gridops.controller.core import attempts, given_up
from gridops.controller.core.parted import parted
from gridops.controller.core.rights import Rights
from gridops.model.snapshot import ResidencyState
from gridops.protocol import outbox as ob
from gridops.protocol.messages import GrantMode, Outcome
from tests.controller.fleet import DEFAULT, HOSTS, Desk, Fleet, profile
from tests.controller.test_reconcile import WIDE, started

DRAIN = "apiVersion: gridops/v1\nkind: Drain\nhost: {host}\nreason: new fans\nby: mira\nuntil: 2030-01-01T00:00:00Z\n"


def falls_silent(desk: Desk, host: HostId) -> None:
    silent = desk.fleet.agents.pop(host)
    for _ in range(4):
        desk.clock.pass_by(5_000)
        desk.beat()
        desk.pass_()
    desk.fleet.agents[host] = silent


def under_way(desk: Desk) -> HostId:
    """A model is applied, and the host that is to have it has fallen silent with a command that never ended."""
    desk.settle(2)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("load")
    desk.apply()
    desk.settle(2)
    host = next(a.host for a in desk.fleet.agents.values() if a.open)
    falls_silent(desk, host)
    assert desk.book().under_way is not None
    return host


def rights(desk: Desk) -> Rights:
    return desk.controller.rights(DEFAULT, desk.now)


def expunged(desk: Desk, host: HostId) -> None:
    desk.commit({f"fleet.d/keys/{host}.yaml": desk.fleet.key_file(host) + "expunged: true\n"})


def taken_out(desk: Desk, host: HostId) -> None:
    desk.commit({"fleet.d/hosts.yaml": "".join(x for x in HOSTS.splitlines(True) if not x.startswith(f"  {host}:"))})


def written_off(desk: Desk, host: HostId) -> None:
    desk.ask("write_off", host=host, reason="burnt down")


PARTINGS: tuple[Callable[[Desk, HostId], None], ...] = (expunged, taken_out, written_off)


@pytest.mark.parametrize("part", PARTINGS)
def test_an_apply_does_not_wait_for_a_host_that_is_gone(desk: Desk, part: Callable[[Desk, HostId], None]) -> None:
    host = under_way(desk)
    assert not parted(desk.state, host)
    assert attempts.under_way(rights(desk)) == given_up._under_way(rights(desk)) == {"coder/1"}
    part(desk, host)
    assert parted(desk.state, host)
    assert attempts.under_way(rights(desk)) == given_up._under_way(rights(desk)) == set()
    del desk.fleet.agents[host]
    desk.settle(2)
    book = desk.book()
    assert book.under_way is None, "its lock would hold everybody up for a quarter of an hour"
    (other,) = desk.fleet.agents.values()
    other.room.slow.clear()
    desk.settle(3)
    if book.proposal is not None:
        desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]


def test_what_a_host_never_heard_is_taken_back_when_it_is_written_off(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    host = next(h for h, book in desk.state.hosts.items() if ob.open_entries(book.outbox))
    silent = desk.fleet.agents.pop(host)
    for _ in range(4):
        desk.clock.pass_by(5_000)
        desk.beat()
        desk.pass_()
    (entry,) = ob.open_entries(desk.state.hosts[host].outbox)
    assert entry.wanted is GrantMode.EXECUTE, "it is only silent: the command waits for it"
    written_off(desk, host)
    desk.settle(2)
    (entry,) = ob.open_entries(desk.state.hosts[host].outbox)
    assert entry.wanted is GrantMode.VOID
    desk.fleet.agents[host] = silent
    desk.settle(4)
    assert not parted(desk.state, host)
    first = desk.state.hosts[host].outbox.entries[0]
    assert first.receipt is not None
    assert first.receipt.outcome is Outcome.VOIDED, "it came back, and is told that nobody wants it any more"


def test_nobody_is_led_to_a_host_from_the_moment_in_which_it_is_expunged(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle()
    host = next(a.host for a in desk.fleet.agents.values() if a.replicas())

    def led() -> tuple[HostId, ...]:
        (scope,) = views.status(desk.controller.view()).scopes
        return next(m for m in scope.models if m.profile == "coder").hosts

    assert led() == (host,)
    expunged(desk, host)
    assert led() == ()


@pytest.mark.parametrize("part", PARTINGS)
def test_no_end_waits_for_an_end_that_was_asked_of_a_host_that_is_gone(
    fleet: Fleet, part: Callable[[Desk, HostId], None]
) -> None:
    """What may still be carried out keeps the other replicas of its profile, and there nobody counts on it any more."""
    ending = WIDE.replace("remove]", "remove], last_replica: [coder]")
    desk = started(fleet, **{"policies/mode.yaml": ending, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("drain")
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
    desk.settle(3)
    host = next(a.host for a in desk.fleet.agents.values() if a.open)
    gone = desk.fleet.agents.pop(host)
    (other,) = desk.fleet.agents.values()
    desk.settle(4, step_ms=5_000)
    other.room.slow.clear()
    other.finish("drain")
    desk.settle()
    assert other.replicas(), "an end there may still be carried out, for all that is known"
    desk.fleet.agents[host] = gone
    part(desk, host)
    del desk.fleet.agents[host]
    desk.settle()
    assert not other.replicas()
    desk.controller.close()


@pytest.mark.parametrize("part", PARTINGS)
def test_an_apply_ends_where_the_seat_of_a_move_is_gone_and_its_source_waits_for_it(
    desk: Desk, part: Callable[[Desk, HostId], None]
) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle()
    source, target = sorted(desk.fleet.agents, key=lambda h: not desk.fleet.agents[h].replicas())
    desk.commit({f"fleet.d/drains/{source}.yaml": DRAIN.format(host=source)})
    desk.settle(2)
    desk.fleet.agents[target].room.slow.add("warm")
    desk.apply()
    desk.settle(3)
    falls_silent(desk, target)
    assert desk.book().under_way is not None
    part(desk, target)
    del desk.fleet.agents[target]
    desk.settle(2)
    assert desk.book().under_way is None, "nothing will ever stand there, and the end of the old one waits for it"
    assert desk.book().applies[-1].outcome == "failed"
    assert desk.ready() == ["coder/1"]


@pytest.mark.parametrize("part", PARTINGS, ids=lambda part: part.__name__)
def test_an_apply_ends_where_the_one_that_an_end_waits_for_stood_on_a_host_that_is_gone(
    desk: Desk, part: Callable[[Desk, HostId], None]
) -> None:
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2) + "max_per_host: 1\n"})
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    stays = next(h for h, a in desk.fleet.agents.items() if list(a.replicas()) == ["coder/1"])
    desk.commit({"profiles.d/coder.yaml": profile() + "max_per_host: 1\n"})
    desk.settle(2)
    desk.apply()
    room = desk.fleet.agents[stays].room
    room.residencies = {k: replace(r, state=ResidencyState.WARMING, restarts=1) for k, r in room.residencies.items()}
    desk.beat(stays)
    desk.settle(3)
    assert any("coder/1 to be ready" in line for line in desk.controller.soft.scope(DEFAULT).waits)
    falls_silent(desk, stays)
    assert desk.book().under_way is not None
    part(desk, stays)
    del desk.fleet.agents[stays]
    desk.settle(2)
    assert desk.book().under_way is None, "nobody will ever serve there, and the lock keeps people from what would"
    assert desk.book().applies[-1].outcome == "failed"
    assert desk.ready() == ["coder/2"]
