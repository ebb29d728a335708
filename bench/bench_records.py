"""What canonical JSON and records cost: a snapshot is written and read, and the largest records are digested.

`literal` is the slow way that `canon.dumps(to_data(value))` is, beside `straight`, what `digest_of` does, and
`remembered`, what `Digests` answers for an object that it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from gridops.base import canon
from gridops.base.ids import DeviceId, Digest, HostId, PlanId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import Digests, digest_of, from_bytes, to_bytes, to_data
from gridops.model.fleet import DeviceKind
from gridops.model.intent import Desired
from gridops.model.plan import Assignment, IntentRef, Plan, PlannerRef, ReadSet, Seat, SnapshotRef
from gridops.model.snapshot import DeviceReport, HostReport, Residency, ResidencyState, Snapshot, SnapshotSource
from tests.planner.fleet import Fleet, host, profile

HOSTS = 64


def a_snapshot(count: int = HOSTS) -> Snapshot:
    """Hosts with four devices and eight residencies each."""
    hosts = []
    for number in range(count):
        devices = tuple(
            DeviceReport(id=DeviceId(f"gpu{n}"), kind=DeviceKind.GPU, total_bytes=48 << 30, generation=n)
            for n in range(4)
        )
        residencies = tuple(
            Residency(
                profile=ProfileName(f"model-{n}"),
                state=ResidencyState.READY,
                replica=ReplicaId(f"model-{n}/{number + 1}"),
                incarnation=Digest("sha256:" + f"{number:032x}{n:032x}"),
                devices=(DeviceId(f"gpu{n % 4}"),),
                device_bytes=20 << 30,
            )
            for n in range(8)
        )
        hosts.append(
            HostReport(host=HostId(f"host-{number:03d}"), observed_ms=1, devices=devices, residencies=residencies)
        )
    return Snapshot(source=SnapshotSource.LIVE, observed_ms=1, hosts=tuple(hosts))


def bench_record_to_canonical_bytes(benchmark: BenchmarkFixture) -> None:
    raw = benchmark(to_bytes, a_snapshot())
    benchmark.extra_info["bytes"] = len(raw)


def bench_record_from_bytes(benchmark: BenchmarkFixture) -> None:
    snapshot = a_snapshot()
    assert benchmark(from_bytes, Snapshot, to_bytes(snapshot)) == snapshot


def bench_record_digest(benchmark: BenchmarkFixture) -> None:
    assert benchmark(digest_of, a_snapshot()).startswith("sha256:")


def bench_canonical_dumps(benchmark: BenchmarkFixture) -> None:
    value: Any = canon.parse(to_bytes(a_snapshot()))
    benchmark(canon.dumps, value)


def bench_canonical_loads(benchmark: BenchmarkFixture) -> None:
    benchmark(canon.loads, to_bytes(a_snapshot()))


def a_plan() -> Plan:
    """Three thousand replicas on a thousand hosts."""
    digest = Digest("sha256:" + "0123456789abcdef" * 4)
    placement = tuple(
        Assignment(
            replica=ReplicaId(f"model-{n % 100}/{n // 100 + 1}"),
            profile=ProfileName(f"model-{n % 100}"),
            seat=Seat(host=HostId(f"host-{n % 1000:03d}"), devices=(DeviceId(f"gpu{n // 1000}"),)),
            launch=Digest(f"sha256:{n % 100:064x}"),
            device_bytes=20 << 30,
            host_bytes=1 << 30,
        )
        for n in range(3_000)
    )
    return Plan(
        id=PlanId("20261129T090712Z-7f3a2c19"),
        fleet=digest,
        scope=ScopeName("default"),
        created_ms=1,
        intent=IntentRef(digest=digest),
        snapshot=SnapshotRef(source=SnapshotSource.LIVE, observed_ms=1, digest=digest),
        planner=PlannerRef(version="1"),
        decisions_digest=digest,
        reads=ReadSet(),
        placement=placement,
    )


def a_desired() -> Desired:
    """A thousand hosts and a hundred profiles."""
    fleet = Fleet(
        hosts=tuple(host(f"h{n:04d}", (24, 24), rack=f"r{n % 8}") for n in range(1_000)),
        profiles=tuple(profile(f"p{n:03d}", 10, gib=9) for n in range(100)),
    )
    return fleet.inputs().intent.desired


LARGE: dict[str, Callable[[], Any]] = {
    "plan of 3000 replicas": cache(a_plan),
    "snapshot of 1000 hosts": cache(lambda: a_snapshot(1_000)),
    "desired of 1000 hosts": cache(a_desired),
}


def literal(value: Any) -> Digest:
    return canon.digest(to_data(value))


@pytest.mark.parametrize("large", LARGE)
@pytest.mark.parametrize("way", ["literal", "straight", "remembered"])
def bench_digest_of_large(benchmark: BenchmarkFixture, large: str, way: str) -> None:
    value = LARGE[large]()
    digest = {"literal": literal, "straight": digest_of, "remembered": Digests().of}[way]
    assert benchmark.pedantic(digest, (value,), rounds=15, warmup_rounds=1) == literal(value)
    benchmark.extra_info["bytes"] = len(to_bytes(value))
