"""Fleets whose first plan has been carried out, and what may become of their hosts: drained, silent, undeclared."""

from __future__ import annotations

from gridops.base.ids import HostId
from gridops.model.fleet import Drain, HostKey
from gridops.model.intent import Where
from tests.planner.fleet import (
    Fleet,
    host,
)

STALE = 90_000
HOSTS = (host("ant"), host("bee"), host("cat"))


def converged(*profiles: object, hosts: tuple[object, ...] = HOSTS, **more: object) -> Fleet:
    """A fleet whose first plan has been carried out."""
    fleet = Fleet(hosts=hosts, profiles=profiles, **more)  # type: ignore[arg-type]
    return fleet.applied(fleet.plan())


def drained(fleet: Fleet, name: str) -> Fleet:
    return fleet.but(
        drains=(Drain(host=HostId(name), reason="fan alarm"),),
        marks={f"drains/{name}": Where(f"fleet.d/drains/{name}.yaml", 3, 1)},
    )


def silent(fleet: Fleet, name: str, age_ms: int) -> Fleet:
    return fleet.reporting(name, observed_ms=fleet.now - age_ms)


def undeclared(fleet: Fleet, name: str) -> Fleet:
    """The host's file is gone; its agent still reports."""
    keys = tuple(HostKey(host=h.id, key="k") for h in fleet.hosts)
    kept = tuple(h for h in fleet.hosts if h.id != name)
    seen = fleet.snapshot().host(HostId(name))
    return fleet.but(hosts=kept, keys=keys, strangers=(seen,) if seen is not None else ())
