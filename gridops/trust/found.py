"""Founding a fleet: the first root document of one person, and in words what each key can do.

`gridops trust init` and the tests call this. One person holds every role with a threshold of one; nothing that is
added later (a second person, hardware tokens, a catalog) changes the form. Must never read a key file: public keys
and the moment are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gridops.base.ids import PersonName
from gridops.trust.keys import PublicKey
from gridops.trust.root import Role, RoleKey, RoleName, Root, RootChain

YEAR_MS = 365 * 86_400_000
"""Life of a root document (trust.md ruling 4). Its expiry freezes change and nothing else."""


@dataclass(frozen=True, slots=True)
class Founders:
    """The keys that a first root names."""

    person: PersonName
    root_key: PublicKey
    person_key: PublicKey
    controller_key: PublicKey
    controller_tls: str
    """PEM certificate that agents pin."""


def first_root(founders: Founders, now_ms: int) -> Root:
    """Root 1 of a fleet of one person. Standing authority is permitted, so that automatic mode can work at all."""
    person = founders.person

    def role(name: RoleName, holder: PersonName, key: PublicKey) -> Role:
        return Role(name=name, threshold=1, keys=(RoleKey(holder=holder, key=key.text),))

    return Root(
        version=1,
        issued_ms=now_ms,
        expires_ms=now_ms + YEAR_MS,
        roles=(
            role(RoleName.APPROVER, person, founders.person_key),
            role(RoleName.CHANGE, person, founders.person_key),
            role(RoleName.CONTROLLER, PersonName("controller"), founders.controller_key),
            role(RoleName.RELEASE, person, founders.person_key),
            role(RoleName.ROOT, person, founders.root_key),
        ),
        controller_epoch=1,
        controller_tls=(founders.controller_tls,),
        standing=True,
    )


def renewed_root(chain: RootChain, now_ms: int) -> Root:
    """Root N+1: the same keys, good for another year. It counts once enough root holders have signed it."""
    return replace(
        chain.root,
        version=chain.root.version + 1,
        fleet=chain.fleet,
        issued_ms=now_ms,
        expires_ms=now_ms + YEAR_MS,
        from_commit=None,
    )


CAN = {
    RoleName.ROOT: "decides who holds every other key; use it a few times a year and keep it off this machine",
    RoleName.CHANGE: "freezes; signs commits where they must be signed (else the accepted branch speaks for intent)",
    RoleName.RELEASE: "signs the catalog, which says what may run at all; until there is one any profile may",
    RoleName.APPROVER: "approves, rejects and applies plans; freezes, thaws; invites, writes off; reconciles outcomes",
    RoleName.CONTROLLER: "sends commands to hosts, inside what was approved or allowed",
}
"""What each role's key can do, for `gridops trust show`."""
CANNOT = {
    RoleName.ROOT: "cannot itself approve, commit or command: it can only name a key for that, in a document all see",
    RoleName.CHANGE: "cannot approve, reject, thaw or write off, say whose keys count, or sign what may run",
    RoleName.RELEASE: "cannot start or stop anything, approve it, or say whose keys count",
    RoleName.APPROVER: "cannot change what is wanted, what may run, or whose keys count",
    RoleName.CONTROLLER: "cannot approve, admit a host, speak for one, or run what a signed catalog does not hold",
}
"""And what it cannot. A key in two roles can what either can."""
