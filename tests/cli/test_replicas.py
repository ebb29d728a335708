"""What `gridops explain PROFILE` says of each replica: its observed state, and one reason from the plan."""

from __future__ import annotations

from gridops.cli.replicas import Line, lines_of, replicas_of
from gridops.model.snapshot import HostReport, Ownership, Residency, ResidencyState, Snapshot, SnapshotSource
from tests.render.plans import NOW, story


def residency(replica: str, state: ResidencyState, **more: object) -> Residency:
    return Residency(profile=replica.partition("/")[0], replica=replica, state=state, **more)


def observed(**hosts: tuple[Residency, ...]) -> Snapshot:
    reports = tuple(
        HostReport(host=name.replace("_", "-"), observed_ms=NOW, residencies=found) for name, found in hosts.items()
    )
    return Snapshot(source=SnapshotSource.LIVE, observed_ms=NOW, hosts=reports)


def line(replica: str, snapshot: Snapshot | None) -> Line:
    return next(made for made in lines_of(story(), replica.partition("/")[0], snapshot) if made.replica == replica)


def where(replica: str) -> str:
    return next(a.seat.host for a in story().placement if a.replica == replica)


def test_a_replica_that_stays_shows_the_state_that_its_host_reported() -> None:
    host = where("mixtral/1").replace("-", "_")
    found = line("mixtral/1", observed(**{host: (residency("mixtral/1", ResidencyState.WARMING),)}))
    assert (found.state, found.reason) == ("warming", "stays as it is")


def test_what_nobody_observed_is_unknown_and_what_a_heard_host_lacks_is_absent() -> None:
    host = where("mixtral/1").replace("-", "_")
    assert line("mixtral/1", None).state == "unknown"
    assert line("mixtral/1", observed(other=())).state == "unknown"
    assert line("mixtral/1", observed(**{host: ()})).state == "absent"


def test_a_replica_that_failed_says_why_and_one_on_its_way_where_it_runs() -> None:
    host = where("mixtral/1").replace("-", "_")
    broken = residency("mixtral/1", ResidencyState.FAILED, detail="given up after 5 restarts")
    assert line("mixtral/1", observed(**{host: (broken,)})).reason == "stays as it is; given up after 5 restarts"
    moved = next(d for d in story().decisions if d.source and d.target and d.source.host != d.target.host)
    copy = residency(moved.replica, ResidencyState.READY)
    found = line(moved.replica, observed(**{moved.source.host.replace("-", "_"): (copy,), "x": ()}))
    assert found.where.startswith(moved.target.host)
    assert (found.state, found.reason.endswith(f"runs on {moved.source.host} now")) == ("ready", True)


def test_a_process_that_is_not_ours_is_no_copy_of_a_replica() -> None:
    host = where("mixtral/1").replace("-", "_")
    theirs = residency("mixtral/1", ResidencyState.READY, ownership=Ownership.EXTERNAL)
    assert line("mixtral/1", observed(**{host: (theirs,)})).state == "absent"


def test_replicas_are_listed_by_number_whatever_becomes_of_them() -> None:
    assert replicas_of(story(), "mixtral") == ["mixtral/1", "mixtral/2"]
    assert [made.interest for made in lines_of(story(), "mixtral", None)] == [2, 0]
