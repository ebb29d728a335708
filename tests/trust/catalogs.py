"""Catalogs for tests: an entry that admits one launch and no more, people who sign releases, roots that say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gridops.base.ids import Digest
from gridops.model.catalog import Catalog, Entry, Files, Slot
from gridops.model.plan import Launch
from gridops.trust.catalog import content
from gridops.trust.release import seal_catalog
from gridops.trust.root import RoleName, RootChain, seal_root
from tests.trust.people import NOW, YEAR, chain_of, person, role, root, root_signers


def released(threshold: int = 1, *people: str, **fields: Any) -> RootChain:
    """A fleet in which these people sign releases; ann and bob where nobody is named."""
    return chain_of(root(role(RoleName.RELEASE, threshold, *(people or ("ann", "bob"))), **fields))


def then(chain: RootChain, threshold: int = 1, *people: str, **fields: Any) -> RootChain:
    """The next root, with these release people."""
    roles = {r.name: r for r in chain.root.roles} | {
        r.name: r for r in (role(RoleName.RELEASE, threshold, *people),) if people
    }
    following = replace(
        chain.root,
        version=chain.root.version + 1,
        fleet=chain.fleet,
        expires_ms=NOW + YEAR,
        roles=tuple(roles[name] for name in sorted(roles)),
    )
    return chain.advance(seal_root(replace(following, **fields), *root_signers("mira")))


def entry(launch: Launch, name: str = "coder/q4", **changes: Any) -> Entry:
    """What admits this launch, with these bytes, and nothing beyond."""
    made = Entry(
        name=name,
        engine=launch.engine,
        backends=(launch.backend,),
        artifacts=(Files(name=launch.profile, content=content(launch.artifact)),),
        context=launch.context,
        lanes=launch.lanes,
        devices=launch.devices.count,
        device_bytes=1_000,
        host_bytes=10,
        args=tuple(Slot(name=a.name, values=(a.value,)) for a in sorted(launch.args, key=lambda a: a.name)),
    )
    return replace(made, **changes)


def catalog(fleet: Digest, *entries: Entry, version: int = 1) -> Catalog:
    return Catalog(fleet=fleet, version=version, issued_ms=NOW, entries=tuple(sorted(entries, key=lambda e: e.name)))


def signed(of: Catalog, *names: str) -> str:
    return seal_catalog(of, *(person(name) for name in (names or ("ann",))))
