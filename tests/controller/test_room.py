"""Room that others give back is a reading, and no reading is a trigger: it is found all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId
from gridops.controller.core.propose import ROOM_STEP_MS
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from tests.controller.fleet import AUTOMATIC, DEFAULT, HOSTS, Desk, Fleet, profile

FULL = 3 << 30


def others_use(desk: Desk, size: int, *hosts: str) -> None:
    """What other programs hold on these hosts; without names: on all."""
    for name in hosts or tuple(desk.fleet.agents):
        room = desk.fleet.agents[name].room
        room.devices = tuple(replace(d, external_bytes=size) for d in room.devices)


def test_a_replica_that_stood_nowhere_is_placed_once_others_give_room_back(desk: Desk) -> None:
    others_use(desk, FULL)
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    desk.settle(3)
    assert desk.ready() == []
    others_use(desk, 0)
    desk.settle(ROOM_STEP_MS // 1_000 + 12)
    assert desk.ready() == ["coder/1"]


def test_who_still_stands_nowhere_is_looked_at_seldom_and_nothing_is_written(desk: Desk) -> None:
    others_use(desk, FULL)
    desk.settle(3)
    soft, rows = desk.controller.soft.scope(DEFAULT), desk.controller.writer.length
    before = soft.plans
    desk.settle(120)
    assert soft.plans - before == 2
    assert desk.controller.writer.length == rows


def test_what_an_apply_found_out_of_date_is_proposed_as_it_is_now(desk: Desk) -> None:
    others_use(desk, FULL, "beta")
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(1)
    others_use(desk, 0)
    desk.beat()
    with pytest.raises(Refusal, match="out of date"):
        desk.apply()
    desk.pass_()
    assert [d.replica for d in desk.proposal().to_do] == ["coder/1", "coder/2"]
    assert desk.apply()["applied"]


def test_a_proposal_whose_room_others_took_is_withdrawn_with_that_reason_and_comes_back_with_the_room(
    desk: Desk,
) -> None:
    desk.settle(2)
    assert [d.replica for d in desk.proposal().to_do] == ["coder/1"]
    others_use(desk, FULL)
    desk.settle(2)
    assert desk.state.scope(DEFAULT).proposal is None
    (closed,) = desk.events("proposal_closed")
    assert "others took the memory that it counted on: " in closed
    assert desk.book().again == {}, "room that comes and goes with others is no sign of a quarrel among our own"
    others_use(desk, 0)
    desk.settle(ROOM_STEP_MS // 1_000 + 12)
    assert [d.replica for d in desk.proposal().to_do] == ["coder/1"]


def test_readings_that_leave_a_proposal_its_room_are_no_reason_to_plan(desk: Desk) -> None:
    desk.settle(2)
    plans = desk.controller.soft.scope(DEFAULT).plans
    for size in (1 << 20, 1 << 28, 0):
        others_use(desk, size)
        desk.settle(3)
    assert desk.controller.soft.scope(DEFAULT).plans == plans


def test_the_ram_that_an_engine_takes_beside_its_card_counts_for_a_proposal_too(fleet: Fleet) -> None:
    card = DeviceReport(id=DeviceId("gpu0"), kind=DeviceKind.GPU, total_bytes=8 << 30, generation=1)
    hosts = HOSTS.replace("backend: cpu", "backend: cuda")
    hosts = hosts.replace("devices: {", "devices: {gpu0: {kind: gpu, memory: 8GiB}, ")
    for agent in fleet.agents.values():
        agent.room.devices, agent.room.backend = (*agent.room.devices, card), "cuda"
    beside = profile().replace("[cpu]", "[cuda]").replace("device: 400MiB", "device: 400MiB, host: 2GiB")
    fleet.begin(hosts=hosts, **{"profiles.d/coder.yaml": beside})
    desk = Desk(fleet)
    desk.settle(2)
    assert [d.replica for d in desk.proposal().to_do] == ["coder/1"]
    for agent in fleet.agents.values():
        ram, *cards = agent.room.devices
        agent.room.devices = (replace(ram, external_bytes=1 << 30), *cards)
    desk.settle(2)
    assert desk.state.scope(DEFAULT).proposal is None
    desk.controller.close()
