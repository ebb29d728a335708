"""The checker notices: one tampering per rule, on a plan that was clean, told by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gridops.base import canon
from gridops.base.ids import DeviceId, EngineName, HostId, PlanId, ProfileName, ReplicaId
from gridops.model.fleet import Disk, Drain, Host, HostClass, HostKey, Runtime
from gridops.model.plan import CauseKind, Plan, Retirement, Seat
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Colocation, DeviceNeed, Downtime, Heads, PlacementRules, Spread
from gridops.model.snapshot import HostState, Ownership, Residency, ResidencyState, SnapshotSource
from gridops.planner.check import check
from gridops.planner.planner import plan
from tests.planner.fleet import GIB, NOW, Fleet, config, device, digest, host, laptop, profile, report, with_external

BASE = Fleet(hosts=(host("ant"), host("bee")), profiles=(profile("c"), profile("d")))


@dataclass(frozen=True)
class Lie:
    """A plan made for one fleet, checked against another, or changed by hand."""

    says: str
    tell: Callable[[Plan], Plan] = lambda made: made
    fleet: Fleet = BASE
    truth: Callable[[Fleet], Fleet] = lambda fleet: fleet


def assignment(made: Plan, replica: str, **more: Any) -> Plan:
    changed = tuple(replace(a, **more) if a.replica == replica else a for a in made.placement)
    return replace(made, placement=changed)


def decision(made: Plan, n: int, **more: Any) -> Plan:
    return replace(made, decisions=tuple(replace(d, **more) if d.n == n else d for d in made.decisions))


def hosts(*changed: Host) -> Callable[[Fleet], Fleet]:
    return lambda fleet: fleet.but(hosts=changed)


def ant(**more: Any) -> Callable[[Fleet], Fleet]:
    return lambda fleet: fleet.but(hosts=tuple(replace(h, **more) if h.id == "ant" else h for h in fleet.hosts))


def wants(**more: Any) -> Callable[[Fleet], Fleet]:
    """The profile `c` asks for something else than what was planned."""
    return lambda fleet: fleet.but(profiles=tuple(replace(p, **more) if p.name == "c" else p for p in fleet.profiles))


def after(*profiles: Any, start: Fleet = BASE) -> Fleet:
    return start.applied(start.plan()).but(profiles=profiles)


def seats(made: Plan, replica: str, host: str, *devices: str) -> Plan:
    return assignment(made, replica, seat=Seat(host=HostId(host), devices=devices))  # type: ignore[arg-type]


def foreign(name: str) -> Residency:
    return Residency(profile=ProfileName(name), state=ResidencyState.READY, ownership=Ownership.EXTERNAL)


STUCK = Residency(
    profile=ProfileName("old"),
    state=ResidencyState.UNKNOWN,
    replica=ReplicaId("old/1"),
    incarnation=digest("x"),
    devices=("gpu0",),  # type: ignore[arg-type]
    device_bytes=9 * GIB,
)
PAIR = Fleet(
    hosts=(host("ant", (24, 24)),), profiles=(profile("c", configs=(config("p", 10, devices=DeviceNeed(count=2)),)),)
)
LINK = Fleet(
    hosts=(host("ant", devices=(device("gpu0", 24, peers=("gpu1",)), device("gpu1", 24, peers=("gpu0",)))),),
    profiles=(profile("c", configs=(config("p", 10, devices=DeviceNeed(count=2, link="peer")),)),),
)
ON_NUMA = host("ant", devices=tuple(device(f"gpu{n}", 24, numa=0) for n in (0, 1)))


def with_rate(one: Host, rate: int) -> Host:
    return replace(one, devices=tuple(replace(d, pcie_bps=rate) for d in one.devices))


TOPOLOGY = Fleet(
    hosts=(with_rate(ON_NUMA, 100),),
    profiles=(profile("c", configs=(config("p", 10, devices=DeviceNeed(count=2, numa="same", pcie_bps=100)),)),),
)
VLLM = Fleet(
    hosts=(host("ant", (24, 24), runtimes=(Runtime(engine=EngineName("vllm"), backend="cuda"),)),),
    profiles=(
        profile("c", configs=(replace(config("p", 10, devices=DeviceNeed(count=2)), engine=EngineName("vllm")),)),
    ),
)
TENSOR = config("p", 10, devices=DeviceNeed(count=2, shard="tensor"), heads=Heads(attention=32))
GONE = after(profile("d"))
SCALED = after(profile("c"), profile("d", 0))
ROLLOUT = after(profile("c", configs=(config("c-q4", 10, context=9),)), profile("d"))
TIGHT = Fleet(hosts=(host("ant"),), profiles=(profile("c", gib=18),))
BROKEN = TIGHT.applied(TIGHT.plan()).but(profiles=(profile("c", configs=(config("c-q4", 18, context=9),)),))
MANY = Fleet(hosts=tuple(host(f"h{n}", (12,)) for n in range(8)), profiles=(profile("c", 5),))
MOVED = MANY.applied(MANY.plan()).but(drains=(Drain(host=HostId("h0"), reason="x"),))


def _silence(fleet: Fleet) -> Fleet:
    for n in (1, 2, 3):
        fleet = fleet.reporting(f"h{n}", observed_ms=NOW - 100_000)
    return fleet


LIES: dict[str, Lie] = {
    # The document
    "an id of another minute": Lie("does not follow", lambda p: replace(p, id=PlanId("20200101T0000Z-00000000"))),
    "another parent": Lie("the parent is not", lambda p: replace(p, parent=digest("x"))),
    "another digest": Lie("does not name", lambda p: replace(p, decisions_digest=digest("x"))),
    "placement out of order": Lie("not sorted", lambda p: replace(p, placement=p.placement[::-1])),
    "a replica twice": Lie("twice", lambda p: replace(p, placement=(*p.placement[:1], *p.placement))),
    "decisions out of order": Lie("not numbered in order", lambda p: replace(p, decisions=p.decisions[::-1])),
    "decisions not as shown": Lie(
        "order in which they are shown",
        lambda p: replace(p, decisions=tuple(replace(d, n=n) for n, d in enumerate(p.decisions[::-1], 1))),
    ),
    "a launch that is not there": Lie("does not hold", lambda p: assignment(p, "c/1", launch=digest("x"))),
    "a launch that nobody runs": Lie(
        "belongs to no replica", lambda p: replace(p, launches=(*p.launches, replace(p.launches[0], context=7)))
    ),
    "no terms": Lie("has no terms", lambda p: replace(p, terms=p.terms[1:])),
    "a replica of another profile": Lie(
        "is not a replica of", lambda p: assignment(p, "c/1", profile=ProfileName("d"))
    ),
    # Hosts
    "a host that is drained": Lie("is drained", truth=lambda f: f.but(drains=(Drain(host=HostId("ant"), reason="x"),))),
    "a host that nobody declares": Lie("not a host of the scope", truth=hosts(host("bee"))),
    "a host of another scope": Lie("not a host of the scope", truth=ant(scope="lab")),
    "an external host": Lie("not a host of the scope", truth=ant(host_class=HostClass.EXTERNAL)),
    "a host that is not admitted": Lie(
        "not admitted", truth=lambda f: f.but(keys=(HostKey(host=HostId("bee"), key="k"),))
    ),
    "a host that never reported": Lie("has not reported", truth=lambda f: f.but(reports={"ant": None})),
    "a stale host": Lie("heartbeat of age", truth=lambda f: f.reporting("ant", observed_ms=NOW - 90_001)),
    "a host from the future": Lie("heartbeat of age", truth=lambda f: f.reporting("ant", observed_ms=NOW + 30_001)),
    "a host that said goodbye": Lie("heartbeat of age", truth=lambda f: f.reporting("ant", goodbye=True)),
    "a paused host": Lie("is paused", truth=lambda f: f.reporting("ant", state=HostState.PAUSED)),
    "a runtime that is not reported": Lie("does not have", truth=lambda f: f.reporting("ant", runtimes=())),
    "a runtime that is not declared": Lie(
        "does not have",
        truth=lambda f: f.but(
            hosts=(host("ant", runtimes=(Runtime(engine="vllm", backend="cuda"),)), host("bee"))
        ).reporting(  # type: ignore[arg-type]
            "ant", runtimes=f.hosts[0].runtimes
        ),
    ),
    "a device that does not exist": Lie("does not exist", lambda p: seats(p, "c/1", "ant", "gpu7")),
    "a device that is not reported": Lie("does not exist", truth=lambda f: f.reporting("ant", devices=())),
    "a device of another kind": Lie("a cpu", lambda p: seats(p, "c/1", "ant", "cpu0")),
    "too few devices": Lie("takes 1 devices, 2 needed", lambda p: seats(p, "c/1", "ant", "gpu0"), PAIR),
    "a device twice": Lie("takes 2 devices, 2 needed", lambda p: seats(p, "c/1", "ant", "gpu0", "gpu0"), PAIR),
    "unequal devices": Lie("unequal devices", fleet=PAIR, truth=hosts(host("ant", (24, 23)))),
    "unequal models": Lie(
        "unequal devices",
        fleet=PAIR,
        truth=hosts(host("ant", devices=(device("gpu0", 24, model="a"), device("gpu1", 24, model="b")))),
    ),
    "devices that are no peers": Lie("not a peer", fleet=LINK, truth=hosts(host("ant", (24, 24)))),
    "a card of another maker": Lie(
        "only rocm can use", truth=hosts(host("ant", devices=(device("gpu0", 24, backend="rocm"),)), host("bee"))
    ),
    "a card that is cut up": Lie(
        "cut into instances",
        truth=hosts(host("ant", devices=(device("gpu0", 24), device("gpu0.0", 12, parent="gpu0"))), host("bee")),
    ),
    "parts of cards together": Lie(
        "over parts of cards",
        fleet=PAIR,
        truth=hosts(host("ant", devices=(device("gpu0", 24, parent="gpu2"), device("gpu1", 24), device("gpu2", 24)))),
    ),
    "parts of cards together, as reported": Lie(
        "over parts of cards",
        fleet=PAIR,
        truth=lambda f: f.reporting(
            "ant", devices=tuple(replace(d, parent=DeviceId("gpu2")) for d in report(f.hosts[0]).devices)
        ),
    ),
    "a PCIe rate that is not known": Lie("PCIe rate", fleet=TOPOLOGY, truth=hosts(ON_NUMA)),
    "a PCIe rate that is too low": Lie("PCIe rate", fleet=TOPOLOGY, truth=hosts(with_rate(ON_NUMA, 99))),
    "a NUMA domain that is not known": Lie(
        "one NUMA domain", fleet=TOPOLOGY, truth=hosts(with_rate(host("ant", (24, 24)), 100))
    ),
    "two NUMA domains": Lie(
        "one NUMA domain",
        fleet=TOPOLOGY,
        truth=hosts(host("ant", devices=tuple(device(f"gpu{n}", 24, numa=n, pcie_bps=100) for n in (0, 1)))),
    ),
    "KV heads that do not divide": Lie(
        "divides 3 KV heads by 2",
        fleet=PAIR.but(profiles=(profile("c", configs=(TENSOR,)),)),
        truth=wants(configs=(replace(TENSOR, heads=Heads(kv=3)),)),
    ),
    "heads that an engine divides by itself": Lie(
        "divides 25 by 2",
        fleet=VLLM,
        truth=wants(
            configs=(replace(VLLM.profiles[0].configs[0], heads=Heads(attention=25)),),
        ),
    ),
    "heads that do not divide": Lie(
        "divides 25 by 2",
        fleet=PAIR.but(profiles=(profile("c", configs=(TENSOR,)),)),
        truth=wants(configs=(replace(TENSOR, heads=Heads(attention=25)),)),
    ),
    "a full disk": Lie("no disk", truth=lambda f: f.reporting("ant", disk_free_bytes=GIB)),
    "a disk that must stay free": Lie("no disk", truth=ant(disk=Disk(artifacts_bytes=GIB, keep_free_bytes=4093 * GIB))),
    # Policy
    "a missing tag": Lie("against its tags", truth=wants(placement=PlacementRules(require_tags=("x",)))),
    "a forbidden tag": Lie(
        "against its tags",
        truth=lambda f: ant(tags=("g",))(wants(placement=PlacementRules(forbid_tags=("g",)))(f)),
    ),
    "a tier that is too low": Lie("tier is too low", truth=wants(placement=PlacementRules(tier="internal"))),
    "a host that is denied": Lie("deny_hosts", truth=wants(placement=PlacementRules(deny_hosts=(HostId("ant"),)))),
    "a host that is not allowed": Lie(
        "allow_hosts", truth=wants(placement=PlacementRules(allow_hosts=(HostId("bee"),)))
    ),
    "a command of no config": Lie("no config of c makes", truth=wants(configs=(config("c-q4", 10, context=7),))),
    "a profile that is gone": Lie("not declared", truth=lambda f: f.but(profiles=f.profiles[1:])),
    # Room
    "too much on a device": Lie("with something new there", lambda p: assignment(p, "c/1", device_bytes=23 * GIB)),
    "into the headroom": Lie("with something new there", lambda p: assignment(p, "c/1", device_bytes=13 * GIB)),
    "a reserve that was not seen": Lie(
        "with something new there",
        truth=ant(devices=(device("gpu0", 24, reserve_bytes=4 * GIB), device("cpu0", 64))),
    ),
    "external use that was not seen": Lie(
        "with something new there",
        truth=lambda f: f.but(reports={"ant": with_external(f.snapshot().hosts[0], "gpu0", 4)}),
    ),
    "a foreign engine's memory": Lie(
        "with something new there",
        truth=lambda f: f.reporting(
            "ant",
            residencies=(replace(foreign("x"), devices=("gpu0",), device_bytes=4 * GIB),),
        ),
    ),
    "a smaller device than declared": Lie(
        "with something new there",
        truth=lambda f: f.reporting(
            "ant", devices=tuple(replace(d, total_bytes=20 * GIB) for d in f.snapshot().hosts[0].devices)
        ),
    ),
    "half of a throttled host": Lie(
        "with something new there", truth=lambda f: f.reporting("ant", state=HostState.THROTTLED)
    ),
    "memory nobody can vouch for": Lie(
        "with something new there", truth=lambda f: f.reporting("ant", residencies=(STUCK,))
    ),
    "host memory": Lie("ant cpu0", lambda p: assignment(p, "c/1", host_bytes=62 * GIB)),
    "a gpu share": Lie(
        "unified0",
        fleet=Fleet(hosts=(laptop("mac"),), profiles=(profile("c", configs=(config("m", 20, backends=("metal",)),)),)),
        truth=hosts(laptop("mac", devices=(device("unified0", 32, gpu_share_ppm=500_000),))),
    ),
    "standing over its memory in silence": Lie(
        "the report does not say so",
        lambda p: replace(p, report=replace(p.report, shortfalls=())),
        TIGHT.applied(TIGHT.plan()).but(
            hosts=(host("ant", devices=(device("gpu0", 24, reserve_bytes=8 * GIB), device("cpu0", 64))),)
        ),
    ),
    "too many residencies": Lie("residencies of at most 1", truth=ant(max_replicas=1)),
    "too many with foreign ones": Lie(
        "residencies of at most 2", truth=lambda f: ant(max_replicas=2)(f.reporting("ant", residencies=(foreign("x"),)))
    ),
    "too many of one profile": Lie(
        "2 replicas of c",
        fleet=Fleet(hosts=(host("ant"),), profiles=(profile("c", 2, gib=5, max_per_host=2),)),
        truth=wants(max_per_host=1),
    ),
    "company that is excluded": Lie(
        "exclude each other", truth=wants(colocation=Colocation(exclude=(ProfileName("d"),)))
    ),
    "company that is too much": Lie("would share ant", truth=wants(colocation=Colocation(max=1))),
    # Decisions
    "a difference without a decision": Lie("no decision says so", lambda p: replace(p, decisions=p.decisions[1:])),
    "a decision without a difference": Lie(
        "no difference behind it", lambda p: decision(p, 1, replica=ReplicaId("c/9"))
    ),
    "a decision for another seat": Lie(
        "other seats",
        lambda p: decision(p, 1, target=Seat(host=HostId("bee"), devices=("gpu0",))),  # type: ignore[arg-type]
    ),
    "a decision that hides what runs": Lie("what will run", lambda p: decision(p, 1, launch=None)),
    "a last replica that is not called so": Lie(
        "does not say that it is the last", lambda p: decision(p, 1, last_replica=False), GONE
    ),
    "a last replica that is none": Lie(
        "says that it is the last",
        lambda p: decision(p, 1, last_replica=True),
        after(profile("c", 1), start=Fleet(hosts=BASE.hosts, profiles=(profile("c", 2),))),
    ),
    "a removal that is called routine": Lie("for good", lambda p: decision(p, 1, risk=Risk.ROUTINE), GONE),
    "a last replica that is called routine": Lie("for good", lambda p: decision(p, 1, risk=Risk.ROUTINE), SCALED),
    "an end that is called scale-down": Lie(
        "is called scale_down", lambda p: decision(p, 1, action_class=ActionClass.SCALE_DOWN), GONE
    ),
    "downtime where it is refused": Lie("refuses downtime", fleet=BROKEN, truth=wants(downtime=Downtime.NEVER)),
    "taking away after mass silence": Lie("fell silent at once", fleet=MOVED, truth=_silence),
    # Completeness
    "a wanted replica that is nowhere": Lie("c wants 2 replicas, 1 stand", truth=wants(replicas_min=2)),
    "more replicas than wanted": Lie("c wants 0 replicas, 1 stand", truth=wants(replicas_min=0)),
    "an unplaced replica that stands": Lie(
        "although it stands",
        lambda p: replace(
            p, report=replace(p.report, unplaced=(replace(p.report.unplaced[0], replica=ReplicaId("c/1")),))
        ),
        BASE.but(profiles=(profile("c", 3), profile("d"))),
    ),
    "a host without a line": Lie(
        "one line per declared host",
        lambda p: replace(p, report=replace(p.report, unplaced=(replace(p.report.unplaced[0], hosts=()),))),
        BASE.but(profiles=(profile("c", 3), profile("d"))),
    ),
    "no headline": Lie(
        "without a headline",
        lambda p: replace(p, report=replace(p.report, unplaced=(replace(p.report.unplaced[0], detail=""),))),
        BASE.but(profiles=(profile("c", 3), profile("d"))),
    ),
    "a removal without retirement": Lie("without a retirement", lambda p: replace(p, retirements=()), GONE),
    "a retirement of what is declared": Lie(
        "declared and retired",
        lambda p: replace(p, retirements=(Retirement(profile=ProfileName("c"), since_ms=0),)),
    ),
    "a pin in silence": Lie("is pinned to bee", truth=wants(placement=PlacementRules(pins=(HostId("bee"),)))),
    "too few domains in silence": Lie(
        "too few domains",
        fleet=Fleet(hosts=BASE.hosts, profiles=(profile("c", 2),)),
        truth=wants(spread=Spread(by="rack", min=2)),
    ),
    "a plan from declared hosts that hides it": Lie(
        "hypothetical",
        lambda p: replace(p, snapshot=replace(p.snapshot, source=SnapshotSource.LIVE)),
        BASE.but(source=SnapshotSource.DECLARED),
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_the_checker_notices(name: str) -> None:
    lie = LIES[name]
    inputs = lie.fleet.inputs()
    made = plan(inputs)
    assert check(made, inputs) == (), "clean before it is tampered with"
    truth = lie.truth(lie.fleet).inputs()
    notes = check(lie.tell(made), truth)
    assert any(lie.says in note for note in notes), notes


def test_notes_are_sorted_and_each_said_once() -> None:
    inputs = BASE.inputs()
    made = plan(inputs)
    broken = replace(made, id=PlanId("20200101T0000Z-00000000"), parent=digest("x"), launches=())
    notes = check(broken, inputs)
    assert list(notes) == sorted(set(notes))
    assert len(notes) >= 4


def test_the_digest_of_decisions_is_computed_independently() -> None:
    inputs = GONE.inputs()
    made = plan(inputs)
    assert made.decisions_digest != canon.digest([])
    assert check(made, inputs) == ()
    assert made.decisions[0].cause.kind is CauseKind.INTENT


def test_a_standing_seat_is_excused_from_what_running_on_excuses() -> None:
    """A tag that was taken away, a smaller slot count: what stands is not a new seat."""
    standing = BASE.applied(BASE.plan())
    tight = ant(max_replicas=1, tags=())(standing).inputs()
    kept = plan(standing.inputs())
    assert not [n for n in check(kept, tight) if "residencies" in n or "tags" in n]
