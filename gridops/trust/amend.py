"""The next root document: who is added, who goes, which key takes another's place, how many must sign.

Each function takes the chain and gives root N+1 with one thing changed and another year to live; nothing is signed
here, and what contradicts itself is refused by `root.seal_root`. The CLI calls this. Must never decide who may make
such a document: that is the threshold of the current root and of the new one, which `root.RootChain.advance` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from gridops.base.codes import trust as codes
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId, PersonName
from gridops.base.versions import ranked
from gridops.trust.found import renewed_root
from gridops.trust.keys import PublicKey
from gridops.trust.root import Role, RoleKey, RoleName, Root, RootChain

CONTROLLER = PersonName("controller")
_Change = Callable[[tuple[RoleKey, ...]], tuple[RoleKey, ...]]
PEOPLES = (RoleName.ROOT, RoleName.CHANGE, RoleName.RELEASE, RoleName.APPROVER)
"""Roles that people hold."""


def added(chain: RootChain, person: PersonName, key: PublicKey, roles: Iterable[RoleName], now_ms: int) -> Root:
    """A person's key in these roles. A second key of somebody who is there already counts as the same person.

    Raises Refusal where the key is somebody else's, or is there already.
    """
    wanted = frozenset(roles)
    holder = chain.holder(key)
    if holder not in (None, person):
        raise Refusal(codes.ROOT_AMENDMENT.code, f"this key is the one of {holder}, and one key has one holder")
    for role in chain.root.roles:
        if role.name in wanted and any(e.key == key.text for e in role.keys):
            raise Refusal(codes.ROOT_AMENDMENT.code, f"{person} holds this key as {role.name} already")
    entry = RoleKey(holder=person, key=key.text)
    there = {role.name for role in chain.root.roles}
    kept = [replace(r, keys=(*r.keys, entry)) if r.name in wanted else r for r in chain.root.roles]
    fresh = [Role(name=name, threshold=1, keys=(entry,)) for name in wanted if name not in there]
    return _next(chain, (*kept, *fresh), now_ms)


def confined(root: Root, key: PublicKey, paths: Iterable[str]) -> Root:
    """A document in which commits signed by this change key may touch these paths alone. Raises Refusal."""
    limit = tuple(sorted(set(paths)))
    change = root.role(RoleName.CHANGE)
    if change is None or all(entry.key != key.text for entry in change.keys):
        raise Refusal(codes.ROOT_AMENDMENT.code, "paths limit a key that may change intent, and this one may not")
    keys = tuple(replace(entry, paths=limit) if entry.key == key.text else entry for entry in change.keys)
    return replace(root, roles=tuple(replace(r, keys=keys) if r.name == change.name else r for r in root.roles))


def revoked(chain: RootChain, person: PersonName, roles: Iterable[RoleName], now_ms: int) -> Root:
    """Nobody believes this person any more in these roles. Raises Refusal where nobody, or too few, would be left."""
    wanted = frozenset(roles)
    if not any(_holds(role, person) for role in chain.root.roles if role.name in wanted):
        where = ", ".join(sorted(wanted))
        raise Refusal(codes.ROOT_AMENDMENT.code, f"{person} holds no key as {where} in root {chain.root.version}")
    kept = []
    for role in chain.root.roles:
        left = tuple(e for e in role.keys if role.name not in wanted or e.holder != person)
        if not left and role.name not in (RoleName.ROOT, RoleName.CONTROLLER):
            continue  # without a holder there is no such role
        people = len({e.holder for e in left})
        if people < role.threshold:
            raise Refusal(
                codes.ROOT_AMENDMENT.code,
                f"{role.name} needs {role.threshold} people, and {people or 'nobody'} would be left without {person}",
                hints=("first add somebody: gridops trust add NAME --key FILE.pub --role " + role.name,)
                if people < 1
                else (f"first let fewer suffice: gridops trust demand {role.name} {people}",),
            )
        kept.append(replace(role, keys=left))
    return _next(chain, kept, now_ms)


def replaced(chain: RootChain, person: PersonName, new: PublicKey, roles: Iterable[RoleName], now_ms: int) -> Root:
    """A person's new key in place of all earlier ones, in those of these roles that the person holds."""
    wanted = frozenset(roles)
    if not any(_holds(role, person) for role in chain.root.roles if role.name in wanted):
        where = ", ".join(sorted(wanted))
        raise Refusal(codes.ROOT_AMENDMENT.code, f"{person} holds no key as {where} in root {chain.root.version}")

    def change(role: Role) -> Role:
        if role.name not in wanted or not _holds(role, person):
            return role
        # A limit is the person's and not the key's: another key must not lift it.
        limits = [e.paths for e in role.keys if e.holder == person]
        paths = None if None in limits else tuple(sorted({path for some in limits for path in some or ()}))
        entry = RoleKey(holder=person, key=new.text, paths=paths)
        return replace(role, keys=(*(e for e in role.keys if e.holder != person), entry))

    return _next(chain, [change(role) for role in chain.root.roles], now_ms)


def demanding(chain: RootChain, name: RoleName, threshold: int, now_ms: int) -> Root:
    """So many people must sign as this role from now on."""
    role = chain.root.role(name)
    people = len({e.holder for e in role.keys}) if role is not None else 0
    if not 1 <= threshold <= people:
        raise Refusal(
            codes.ROOT_AMENDMENT.code,
            f"{threshold} people cannot be asked to sign as {name}: root {chain.root.version} lists {people}",
            hints=(f"first add somebody: gridops trust add NAME --key FILE.pub --role {name}",),
        )
    kept = [replace(r, threshold=threshold) if r.name == name else r for r in chain.root.roles]
    return _next(chain, kept, now_ms)


def asking(chain: RootChain, version: int, now_ms: int) -> Root:
    """Every host asks for a catalog of this version or later, also one that joins later; 0: none asks for any more."""
    if chain.root.catalog == version:
        said = "asks for none already" if version == 0 else f"asks for catalog {version} already"
        raise Refusal(codes.ROOT_AMENDMENT.code, f"root {chain.root.version} {said}")
    return replace(renewed_root(chain, now_ms), catalog=version)


def driving(chain: RootChain, version: str, now_ms: int) -> Root:
    """Only agents of this version or a later one are driven from now on. Raises Refusal for what is no version, and
    where it is so already."""
    if ranked(version) is None:
        raise Refusal(
            codes.ROOT_AMENDMENT.code,
            f"{version[:64]!r} is no version of an agent",
            hints=("numbers with dots between them, such as 0.2.0",),
        )
    if chain.root.agent_min_version == version:
        raise Refusal(codes.ROOT_AMENDMENT.code, f"root {chain.root.version} demands agents from {version} on already")
    return replace(renewed_root(chain, now_ms), agent_min_version=version)


def next_controller(chain: RootChain, key: PublicKey, *, stolen: bool, now_ms: int) -> Root:
    """The controller's next key. Beside the present one; or, when that was stolen, in its place and in a new epoch.

    A new epoch voids every grant, counter and moment that the old key ever signed, at each host that sees this root.
    """
    entry = RoleKey(holder=CONTROLLER, key=key.text)
    root = _with_controller(chain, lambda keys: (entry,) if stolen else (*keys, entry), now_ms)
    return replace(root, controller_epoch=root.controller_epoch + 1) if stolen else root


def only_controller(chain: RootChain, now_ms: int) -> Root:
    """The end of a rotation: of the controller's keys only the newest is believed from now on. Raises Refusal."""
    role = chain.root.role(RoleName.CONTROLLER)
    if role is None or len(role.keys) < 2:
        raise Refusal(
            codes.ROOT_AMENDMENT.code,
            f"root {chain.root.version} names one key of the controller: no rotation is under way",
            hints=("begin one: gridops trust rotate controller",),
        )
    return _with_controller(chain, lambda keys: keys[-1:], now_ms)


def next_certificate(chain: RootChain, pem: str, *, stolen: bool, now_ms: int) -> Root:
    """The controller's next certificate: pinned beside the present one, or, when its key was stolen, alone."""
    pins = chain.root.controller_tls
    if pem in pins or (len(pins) > 1 and not stolen):
        raise Refusal(
            codes.ROOT_AMENDMENT.code,
            f"root {chain.root.version} pins {len(pins)} certificates of the controller: a rotation is under way",
            hints=("end it: gridops trust rotate tls --finish",),
        )
    return replace(renewed_root(chain, now_ms), controller_tls=(pem,) if stolen else (*pins, pem))


def only_certificate(chain: RootChain, now_ms: int) -> Root:
    """The end of that rotation: only the newest certificate is pinned from now on. Raises Refusal."""
    pins = chain.root.controller_tls
    if len(pins) < 2:
        raise Refusal(
            codes.ROOT_AMENDMENT.code,
            f"root {chain.root.version} pins one certificate of the controller: no rotation is under way",
            hints=("begin one: gridops trust rotate tls",),
        )
    return replace(renewed_root(chain, now_ms), controller_tls=pins[-1:])


def mirrored(chain: RootChain, addresses: Iterable[str], now_ms: int) -> Root:
    """Hosts look for root documents at these addresses too; at none, where there are none."""
    return replace(renewed_root(chain, now_ms), mirrors=tuple(sorted(set(addresses))) or None)


def signing_commits(chain: RootChain, on: bool, now_ms: int) -> Root:
    """From now on every commit is signed, or not any more. Raises Refusal where it is so already."""
    if bool(chain.root.signed_commits) == on:
        word = "must be signed already" if on else "need no signature as it is"
        raise Refusal(codes.ROOT_AMENDMENT.code, f"root {chain.root.version}: commits {word}")
    return replace(renewed_root(chain, now_ms), signed_commits=True if on else None)


def beginning_anew(chain: RootChain, commit: CommitId, now_ms: int) -> Root:
    """The line of signed commits begins anew at this commit of a branch that people have rewritten. Raises Refusal."""
    if not chain.root.signed_commits:
        what = f"root {chain.root.version}: commits need no signature, so a rewritten branch is accepted as it is"
        raise Refusal(codes.ROOT_AMENDMENT.code, what)
    return replace(renewed_root(chain, now_ms), from_commit=commit)


def _with_controller(chain: RootChain, change: _Change, now_ms: int) -> Root:
    kept = [replace(r, keys=change(r.keys)) if r.name == RoleName.CONTROLLER else r for r in chain.root.roles]
    return _next(chain, kept, now_ms)


def _holds(role: Role, person: PersonName) -> bool:
    return any(e.holder == person for e in role.keys)


def _next(chain: RootChain, roles: Iterable[Role], now_ms: int) -> Root:
    return replace(renewed_root(chain, now_ms), roles=tuple(sorted(roles, key=lambda r: r.name)))
