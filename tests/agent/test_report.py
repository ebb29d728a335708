"""What a host says about itself is never more than its controller reads, and what is left out is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.ids import ConfigName, DeviceId, Digest, ProfileName, ReplicaId
from gridops.base.record import to_bytes
from gridops.controller.endpoints import BEAT_BYTES
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport, HostState, ResidencyState
from gridops.protocol.fence import new_fence
from gridops.protocol.fresh import begin
from gridops.protocol.messages import Beat, Heartbeat
from gridops.protocol.open import open_heartbeat, sealed_bytes
from gridops.protocol.receipts import new_receipts
from gridops.trust.envelope import seal
from gridops.trust.join import Token
from gridops.trust.secret import Secret
from gridops_agent import joining
from gridops_agent.config import Config
from gridops_agent.core import local
from gridops_agent.core.protection import Verdict
from gridops_agent.core.report import Readings, heartbeat
from gridops_agent.core.state import Command, Held, Host
from tests.protocol import build as b

LONG = "n" * 63
CACHED = tuple(digest_bytes(b"artifact %d" % n) for n in range(limits.CACHED_ARTIFACTS_PER_HOST))
ALARMS = ("agent_fault: " + "\x01" * 300,) * limits.ALARMS


def device(number: int) -> DeviceReport:
    return DeviceReport(
        id=DeviceId(f"gpu{number}"),
        kind=DeviceKind.GPU,
        total_bytes=1 << 40,
        external_bytes=1 << 40,
        uuid="GPU-01234567-89ab-cdef-0123-456789abcdef",
        model="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    )


def residency(number: int, detail: str, devices: int = 8) -> Held:
    warm = b.warm()
    launch = replace(warm.launch, profile=ProfileName(LONG), config=ConfigName(LONG))
    warm = replace(
        warm,
        replica=ReplicaId(f"{LONG}/{number + 1}"),
        profile=ProfileName(LONG),
        launch=launch,
        devices=tuple(DeviceId(f"gpu{n}") for n in range(devices)),
        device_bytes=1 << 40,
        host_bytes=1 << 40,
    )
    return Held(
        body=digest_bytes(b"body %d" % number),
        warm=warm,
        state=ResidencyState.DRAINING,
        since_ms=b.NOW,
        serves=warm.serves,
        restart=warm.restart,
        drain_ms=1,
        port=65_535,
        restarts=100_000,
        code="release_stuck",
        detail=detail,
    )


def full(count: int, detail: str = "x" * 2_000, devices: int = 8) -> Host:
    """A host whose every list is as long as it may be, with `count` residencies."""
    held = {h.body: h for h in (residency(n, detail, devices) for n in range(count))}
    return Host(
        boot="b" * 16,
        chain=b.CHAIN,
        roots=(),
        fence=new_fence(b.FLEET, b.HOST, b.HOST_KEY),
        receipts=new_receipts(b.FLEET, b.HOST, b.HOST_KEY),
        held=MappingProxyType(held),
        measured=tuple(device(n) for n in range(limits.DEVICES_PER_HOST)),
        verdict=Verdict(HostState.UNHEALTHY, ("ledger_damaged: " + "r" * 500,)),
    )


def said(host: Host, cached: tuple[Digest, ...] = CACHED) -> Heartbeat:
    """The heartbeat as its controller reads it; a longer one would be refused here."""
    readings = Readings(cached=cached, alarms=ALARMS, endpoint="https://" + "h" * 250 + ":65535")
    word = heartbeat(host, begin(b.FLEET, b.HOST, "b1"), "n" * 32, b.NOW, "0.1.0", readings)
    sealed = seal("heartbeat", to_bytes(word), b.HOST_SIGNER)
    assert len(sealed) <= sealed_bytes(limits.HEARTBEAT_BYTES)
    receipts = tuple("r" * 16_000 for _ in range(limits.RECEIPTS_PER_REQUEST))
    assert len(to_bytes(Beat(heartbeat=sealed, receipts=receipts))) <= BEAT_BYTES
    return open_heartbeat(sealed, b.HOST_SIGNER.public)


@pytest.mark.parametrize("detail", ["x" * 2_000, "\u732b" * 2_000, "\U0001f600" * 2_000, "\x01" * 2_000])
def test_a_full_host_is_heard_whole(detail: str) -> None:
    word = said(full(limits.RESIDENCIES_PER_HOST, detail))
    assert len(word.inventory.residencies) == limits.RESIDENCIES_PER_HOST
    assert all(r.detail and r.detail.startswith("release_stuck: ") for r in word.inventory.residencies)
    assert len(word.inventory.devices) == limits.DEVICES_PER_HOST
    assert len(word.inventory.cached) == limits.CACHED_PER_HEARTBEAT
    assert not any("leaves out" in alarm for alarm in word.alarms)
    assert max(len(to_bytes(r)) for r in word.inventory.residencies) < limits.RESIDENCY_BYTES
    assert max(len(to_bytes(d)) for d in word.inventory.devices) < limits.DEVICE_BYTES


def test_a_host_with_more_than_the_counts_says_which_and_how_many() -> None:
    host = full(limits.RESIDENCIES_PER_HOST + 3)
    word = said(replace(host, measured=tuple(device(n) for n in range(limits.DEVICES_PER_HOST + 1))))
    assert word.alarms[:2] == (
        "over_ceiling: the heartbeat leaves out 1 of 65 devices, 64 are shown",
        "over_ceiling: the heartbeat leaves out 3 of 131 residencies, 128 are shown",
    )


def test_what_is_too_long_goes_in_order_and_residencies_last() -> None:
    middle = said(full(100, devices=120))
    assert middle.inventory.cached == ()
    assert len(middle.inventory.residencies) == 100
    assert all(r.detail is None for r in middle.inventory.residencies)
    details = "the details of the residencies, and all reasons of its state but the first"
    assert [a for a in middle.alarms if "leaves out" in a] == [
        "over_ceiling: the heartbeat leaves out all 128 cached artifacts",
        f"over_ceiling: the heartbeat leaves out {details}",
    ]
    endless = said(full(100, devices=2_000), cached=())
    shown = len(endless.inventory.residencies)
    assert 0 < shown < 100
    assert endless.alarms[1] == f"over_ceiling: the heartbeat leaves out {100 - shown} of 100 residencies"


def test_a_host_takes_in_no_residency_that_it_could_not_show() -> None:
    command = Command(body=b.body(action=b.warm()), term=b.TERM, accepted_ms=b.NOW)
    roomy = (DeviceReport(id=DeviceId("gpu0"), kind=DeviceKind.GPU, total_bytes=1 << 60),)
    for count, refused in ((limits.RESIDENCIES_PER_HOST - 1, False), (limits.RESIDENCIES_PER_HOST, True)):
        host = replace(full(count), verdict=Verdict(), measured=roomy)
        no = local.objection(host, command, b.NOW)
        assert (no is not None) is refused, no
        if no is not None:
            assert no[0] == "over_ceiling"
            assert "128 are the most that one host may hold" in no[1]


def test_a_machine_with_more_devices_than_a_host_may_show_can_join(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(state=Path("/nowhere"), controller="https://example.invalid", host=b.HOST, fleet=b.FLEET)
    token = Token(fleet=b.FLEET, host=b.HOST, secret=Secret(b"s" * 32))
    many = tuple(device(n) for n in range(limits.DEVICES_PER_HOST + 30))
    monkeypatch.setattr(joining, "_devices", lambda _: many)
    request = joining._request(config, token, b.HOST_SIGNER, "0.1.0")
    assert request.facts.devices == many[: limits.DEVICES_PER_HOST]
    assert len(seal("join", to_bytes(request), b.HOST_SIGNER)) <= sealed_bytes(limits.JOIN_BYTES)
