"""What a host measured comes with its heartbeats and is planned with: there, and on the very same card elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import DeviceId, Digest, HostId
from gridops.controller.core import propose
from gridops.controller.core.propose import ROOM_STEP_MS
from gridops.model.fleet import DeviceKind
from gridops.model.measured import Measured, revision, settings
from gridops.model.snapshot import DeviceReport
from gridops.planner.planner import Inputs
from tests.controller.fleet import AUTOMATIC, DEFAULT, Desk, Fleet, profile

MIB, GIB = 1 << 20, 1 << 30
DECLARED, FOUND = 400 * MIB, 300 * MIB
CARD = "NVIDIA L4"
CARDS = {
    "alpha": (CARD, 3 * GIB),
    "beta": (CARD, 3 * GIB),
    "gamma": ("NVIDIA T4", 3 * GIB),
    "delta": (CARD, 3 * GIB - 64 * MIB),
}
"""alpha measures; beta has its card, gamma another model, delta one of another size."""
HOSTS = """
apiVersion: gridops/v1
kind: Hosts
defaults: {runtimes: {llama.cpp: {backend: cuda}}, disk: {artifacts: 100GiB}}
hosts:
""" + "".join(
    f"  {name}: {{domains: {{rack: {name}}}, devices: {{gpu0: {{kind: gpu, memory: 3GiB}}}}}}\n" for name in CARDS
)
CODER = profile(replicas=4).replace("[cpu]", "[cuda]")


@pytest.fixture
def cards(tmp_path: Path) -> Desk:
    """Four hosts with a card each, and a profile with a replica for each that declares too much."""
    fleet = Fleet(tmp_path)
    fleet.agents = {name: fleet._agent(name) for name in CARDS}
    for name, (model, total) in CARDS.items():
        room = fleet.agents[name].room
        room.backend = "cuda"
        room.devices = (
            DeviceReport(id=DeviceId("gpu0"), kind=DeviceKind.GPU, total_bytes=total, model=model, generation=1),
        )
    fleet.begin(hosts=HOSTS, **{"profiles.d/coder.yaml": CODER})
    return Desk(fleet)


def asked(desk: Desk) -> Inputs:
    """What the next plan would be made from."""
    controller = desk.controller
    made = propose.inputs(desk.state, controller.soft, controller.roster, DEFAULT, desk.now, "test")
    assert made is not None
    return made


def measured(desk: Desk, size: int = FOUND, word: bytes = b"one") -> Measured:
    (coder,) = (p for p in asked(desk).intent.desired.profiles if p.name == "coder")
    (config,) = coder.configs
    return Measured(
        engine=config.engine,
        backend="cuda",
        revision=revision(config.artifact),
        settings=settings(config.args, config.devices),
        context=config.context,
        lanes=config.lanes,
        kind=DeviceKind.GPU,
        total_bytes=3 * GIB,
        device_bytes=size,
        host_bytes=0,
        at_ms=desk.now,
        evidence=Digest(digest_bytes(word)),
        device=CARD,
    )


def needs(desk: Desk) -> dict[HostId, int]:
    """What the newest plan takes on each host."""
    plan = desk.controller.soft.scope(DEFAULT).candidate
    assert plan is not None
    return {a.seat.host: a.device_bytes for a in plan.placement}


def test_a_measurement_in_a_heartbeat_is_planned_with_on_the_same_hardware_and_nowhere_else(cards: Desk) -> None:
    cards.settle(2)
    assert needs(cards) == dict.fromkeys(("alpha", "beta", "gamma", "delta"), DECLARED)
    one, far = measured(cards), replace(measured(cards, 900 * MIB, b"far"), context=1_000_000)
    room = cards.fleet.agents["alpha"].room
    room.measured = tuple(sorted((one, far), key=lambda m: m.evidence, reverse=True))
    room.bump()
    cards.settle(2)
    seen = {report.host: report.measured for report in asked(cards).snapshot.hosts}
    assert seen.pop(HostId("alpha")) == tuple(sorted((one, far), key=lambda m: m.evidence)), "in one order, always"
    assert set(seen.values()) == {None}
    assert needs(cards) == {"alpha": FOUND, "beta": FOUND, "gamma": DECLARED, "delta": DECLARED}
    room.measured = None
    room.bump()
    cards.settle(2)
    assert needs(cards) == dict.fromkeys(("alpha", "beta", "gamma", "delta"), DECLARED), "what is taken back is gone"
    cards.controller.close()


def test_who_was_declared_too_large_finds_room_once_a_host_says_that_it_measured_less(cards: Desk) -> None:
    too_large = CODER.replace("replicas: 4", "replicas: 1").replace("device: 400MiB", "device: 5GiB")
    cards.commit({"profiles.d/coder.yaml": too_large, "policies/mode.yaml": AUTOMATIC})
    cards.settle(3)
    assert cards.ready() == []
    cards.fleet.agents["alpha"].room.measured = (measured(cards),)
    cards.settle(ROOM_STEP_MS // 1_000 + 12)
    assert cards.ready() == ["coder/1"]
    cards.controller.close()


def test_a_measurement_alone_is_a_trigger_once_and_so_is_its_end(cards: Desk) -> None:
    cards.settle(2)
    scope = cards.controller.soft.scope(DEFAULT)
    made, room = scope.plans, cards.fleet.agents["alpha"].room
    room.measured = (measured(cards),)  # no generation moves: nothing of the machine has changed
    cards.settle(3)
    assert (scope.plans, needs(cards)["alpha"]) == (made + 1, FOUND)
    cards.settle(5)
    assert scope.plans == made + 1, "the same evidence, heard again, is no news"
    room.measured = tuple(sorted((*room.measured, measured(cards, FOUND, b"two")), key=lambda m: m.evidence))
    cards.settle(3)
    assert scope.plans == made + 2
    room.measured = None
    cards.settle(3)
    assert (scope.plans, needs(cards)["alpha"]) == (made + 3, DECLARED)
    cards.controller.close()
