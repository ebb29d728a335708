"""A small fleet of people and machines whose keys follow from their names, so that every run signs the same bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

from gridops.base.ids import PersonName
from gridops.trust.keys import MachineSigner, PersonSigner, PublicKey
from gridops.trust.root import Role, RoleKey, RoleName, Root, RootChain, genesis, seal_root

NOW = 1_800_000_000_000
YEAR = 365 * 86_400_000


def seed(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def person(name: str) -> PersonSigner:
    return PersonSigner.from_seed(seed(f"person {name}"))


def machine(name: str) -> MachineSigner:
    return MachineSigner.from_seed(seed(f"machine {name}"))


def role(name: RoleName, threshold: int, *holders: str, key: str = "") -> Role:
    """A role whose people hold their key of that name; `mira+2` is mira's second token."""
    keys = tuple(RoleKey(holder=PersonName(h.split("+")[0]), key=_written(name, h + key)) for h in holders)
    return Role(name=name, threshold=threshold, keys=keys)


def _written(name: RoleName, holder: str) -> str:
    if name is RoleName.CONTROLLER:
        return machine(holder).public.text
    return person(f"{holder}.root" if name is RoleName.ROOT else holder).public.text


def root(*roles: Role, **fields: Any) -> Root:
    """Root 1: mira and jon approve, either may change the root, one controller. Given roles replace them by name."""
    standard = (
        role(RoleName.APPROVER, 1, "mira", "jon"),
        role(RoleName.CONTROLLER, 1, "controller"),
        role(RoleName.ROOT, 1, "mira", "jon"),
    )
    chosen = {r.name: r for r in (*standard, *roles)}
    basic = Root(
        version=1,
        issued_ms=NOW,
        expires_ms=NOW + YEAR,
        roles=tuple(chosen[n] for n in sorted(chosen) if chosen[n].keys),
        controller_epoch=1,
    )
    return replace(basic, **fields)


def root_signers(*names: str) -> list[PersonSigner]:
    return [person(f"{name}.root") for name in names]


def chain_of(first: Root | None = None, *signers: str) -> RootChain:
    return genesis(seal_root(first or root(), *root_signers(*(signers or ("mira",)))))


def envelope_of(payload: bytes, kind: str, *signatures: tuple[str, bytes]) -> dict[str, Any]:
    """An envelope as a plain document, for tests that bend it."""
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": f"application/vnd.gridops.{kind}.v1+json",
        "signatures": [{"keyid": k, "sig": base64.b64encode(s).decode()} for k, s in signatures],
    }


def text_of(document: Any) -> str:
    return json.dumps(document)


def keys_of(*signers: PersonSigner | MachineSigner) -> tuple[PublicKey, ...]:
    return tuple(s.public for s in signers)
