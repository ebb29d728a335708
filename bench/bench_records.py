"""What canonical JSON and records cost: a plan of a few hundred replicas is digested, written and read again."""

from __future__ import annotations

from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

from gridops.base import canon
from gridops.base.ids import DeviceId, Digest, HostId, ProfileName, ReplicaId
from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport, HostReport, Residency, ResidencyState, Snapshot, SnapshotSource

HOSTS = 64


def a_snapshot() -> Snapshot:
    """Sixty-four hosts with four devices and eight residencies each."""
    hosts = []
    for number in range(HOSTS):
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
