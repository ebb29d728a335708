"""Root documents: which keys may say what, and the one rule by which that changes.

Root 1 gives the fleet its identity (the digest of its payload). Root N+1 counts only if it is exactly one version
higher and signed by enough distinct people of both N and N+1. Controller, agents and the CLI walk the same chain.
An expired root in the middle may be walked over; whether the last one is fresh is asked when something shall change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gridops.base import canon, limits
from gridops.base.codes import trust as codes
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId, Digest, PersonName, is_name
from gridops.base.record import record, to_bytes
from gridops.base.units import counted, render_instant
from gridops.base.versions import agent_words, precedes, ranked
from gridops.trust import envelope
from gridops.trust.former import Former, gone, kept
from gridops.trust.keys import PublicKey, Signer, parse_key

FIRST_AGENT = "0.1.0"
"""What every root says until people mean something by it: there is no release before it, so it demands nothing."""
TRUST = "policies/trust/"
"""Where documents of trust lie in a repository."""


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class RoleName(StrEnum):
    """What a key may be trusted for."""

    ROOT = "root"
    CHANGE = "change"
    RELEASE = "release"
    APPROVER = "approver"
    CONTROLLER = "controller"


@record
class RoleKey:
    """A key and who holds it. A person with two tokens has two entries with one holder."""

    holder: PersonName
    key: str
    """Written form of `trust.keys`: as OpenSSH writes it for people, `ed25519:<hex>` for the controller."""
    paths: tuple[str, ...] | None = None
    """A change key with a limit: the files, and the folders that end with `/`, that its commits may touch."""


@record
class Role:
    name: RoleName
    threshold: int
    """How many distinct people, with distinct keys, must sign."""
    keys: tuple[RoleKey, ...]


@record
class Root:
    """The payload of `policies/trust/root/<version>.json`."""

    v: int = 1
    version: int
    fleet: Digest | None = None
    """Digest of root 1's payload; root 1 itself has none."""
    issued_ms: int
    expires_ms: int
    roles: tuple[Role, ...]
    """Sorted by name; `root` and `controller` are always there."""
    controller_epoch: int
    """Rises when a controller key was stolen: voids every older grant and counter."""
    controller_tls: tuple[str, ...] = ()
    """PEM certificates that agents pin: current and next."""
    standing: bool = False
    """Hosts may accept commands of allowed classes without an approval in the grant."""
    agent_min_version: str = FIRST_AGENT
    """Agents before this version are not driven: they serve on, accept nothing new and are sent nothing new."""
    signed_commits: bool | None = None
    """True: every commit is signed by a change key of its parent's documents. Left out: the accepted branch speaks.

    None and not False, so that documents of fleets without this level are what programs before it can read.
    """
    mirrors: tuple[str, ...] | None = None
    """Addresses below which hosts find the next root documents too, as `<address><version>.json`."""
    catalog: int | None = None
    """The least version of the catalog that every host asks for, also one that has never seen any. 0: none is asked
    for any more, and what was seen is forgotten. None: whoever has seen one goes on asking for it (`release`)."""

    from_commit: CommitId | None = None
    """People rewrote the branch: its line begins anew at this commit, whatever was accepted before. It is of this very
    document, and of none after it: whoever has seen it goes on from there like from any other commit."""

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True)
class RootChain:
    """The newest root that was reached, and the fleet that root 1 defined. Only `genesis` and `advance` make one."""

    fleet: Digest
    root: Root
    text: str
    retired: tuple[PublicKey, ...] = ()
    """Controller keys that went in the present epoch: by the book, not because one was stolen."""
    former: tuple[Former, ...] = ()
    """Keys that were believed once, for people who look back: none of them counts."""

    def advance(self, text: str) -> RootChain:
        """The chain with root N+1. Raises Refusal and changes nothing if the rule does not hold."""
        sealed = envelope.split(text, kind="root")
        old = envelope.verified(sealed, "root", self.keys(RoleName.ROOT))
        _threshold(self.root, old, "the current root")
        new = read_root(sealed)
        _threshold(new, envelope.verified(sealed, "root", keys_of(new, RoleName.ROOT)), "the new root")
        _successor(self, new)
        went = (*self.retired, *self.keys(RoleName.CONTROLLER)) if _same_epoch(self.root, new) else ()
        stay = keys_of(new, RoleName.CONTROLLER)
        retired = tuple(dict.fromkeys(key for key in went if key not in stay))
        return RootChain(self.fleet, new, text, retired, kept((*self.former, *gone(self.root, new))))

    def require_next(self, new: Root) -> None:
        """Raise Refusal where a document could never follow this one, whoever signed it."""
        _successor(self, new)

    def keys(self, role: str) -> tuple[PublicKey, ...]:
        """The public keys of a role; none if the root has no such role."""
        return keys_of(self.root, role)

    def plan_keys(self) -> tuple[PublicKey, ...]:
        """Keys by which plan documents are believed: what a controller wrote before a rotation stays readable.

        What was signed by a key that was stolen is worth nothing, whenever it was signed: an epoch ends them all.
        """
        return (*self.keys(RoleName.CONTROLLER), *self.retired)

    def threshold(self, role: str) -> int:
        """How many people of a role must sign; 0 if the root has no such role."""
        found = self.root.role(role)
        return found.threshold if found is not None else 0

    def holder(self, key: PublicKey) -> PersonName | None:
        """Who holds a key, by any role. One key has one holder."""
        for role in self.root.roles:
            for entry in role.keys:
                if parse_key(entry.key) == key:
                    return entry.holder
        return None

    @property
    def agents_from(self) -> str | None:
        """The oldest agent that may be driven; None: any."""
        return self.root.agent_min_version if self.root.agent_min_version != FIRST_AGENT else None

    def outdated(self, version: str | None) -> str | None:
        """Why an agent of this version is not to be driven, in words; None: it may be."""
        if not precedes(version, self.agents_from):
            return None
        return f"{agent_words(version)}, and root {self.root.version} demands {self.agents_from} or later: upgrade it"

    def expired(self, now_ms: int) -> bool:
        return now_ms >= self.root.expires_ms

    def ageing(self, now_ms: int) -> bool:
        """Whether two thirds of its life are over: time to sign the next one."""
        return now_ms > self.root.expires_ms - (self.root.expires_ms - self.root.issued_ms) // 3

    def require_fresh(self, now_ms: int) -> None:
        """Raise Refusal `root_expired` if the root has expired: change is frozen, serving is not."""
        if self.expired(now_ms):
            raise Refusal(
                codes.ROOT_EXPIRED.code,
                f"root {self.root.version} expired at {render_instant(self.root.expires_ms)}: nothing may change",
                subject=f"root {self.root.version}",
                hints=("sign and commit the next root document; what runs keeps running",),
            )


def genesis(text: str, fleet: Digest | None = None) -> RootChain:
    """The chain that begins with root 1; with a pin from a token or a configuration, only with that fleet's."""
    sealed = envelope.split(text, kind="root")
    found = canon.digest_bytes(sealed.payload)
    if fleet is not None and found != fleet:
        raise Refusal(codes.WRONG_FLEET.code, f"this is the first root of fleet {found}, not of {fleet}")
    root = read_root(sealed)
    if root.version != 1 or root.fleet is not None:
        raise Refusal(codes.ROOT_VERSION.code, f"a chain begins with root 1, not with root {root.version}")
    _threshold(root, envelope.verified(sealed, "root", keys_of(root, RoleName.ROOT)), "it")
    return RootChain(found, root, text)


def walk(chain: RootChain, texts: Iterable[str], *, added: bool = False) -> RootChain:
    """Advance over root documents in order. The document the chain already stands on may be given again, but not where
    they are `added` to a tree: a copy in the place of the next one would leave that no place, for ever."""
    for count, text in enumerate(texts):
        if count >= limits.ROOTS_IN_CHAIN:
            raise Refusal(codes.ROOT_VERSION.code, f"more than {limits.ROOTS_IN_CHAIN} root documents at once")
        if added or text != chain.text:
            chain = chain.advance(text)
    return chain


def seal_root(root: Root, *signers: Signer) -> str:
    """Sign a root document. A document that could never hold is refused (`bad_schema`); thresholds are not asked
    here, because people sign one after the other (`envelope.countersign`)."""
    _check(root)
    _reachable(root)
    return envelope.seal("root", to_bytes(root), *signers)


def read_root(sealed: envelope.Sealed) -> Root:
    """What an envelope says, whoever signed it. Raises Refusal where it says nothing that could hold."""
    try:
        canon.loads(sealed.payload)
    except canon.NotCanonical as error:
        raise Refusal(codes.NOT_CANONICAL.code, f"the payload of the signed root is not canonical: {error}") from error
    root = envelope.read_record(Root, sealed.payload, "root")
    _check(root)
    return root


def _successor(chain: RootChain, new: Root) -> None:
    current = chain.root.version
    if new.version != current + 1:
        what = "older" if new.version < current else "equal" if new.version == current else "too new"
        raise Refusal(
            codes.ROOT_VERSION.code,
            f"root {new.version} cannot follow root {current} ({what}): expected root {current + 1}",
        )
    if new.fleet != chain.fleet:
        raise Refusal(codes.WRONG_FLEET.code, f"root {new.version} belongs to fleet {new.fleet}, not to {chain.fleet}")
    if new.controller_epoch < chain.root.controller_epoch:
        raise Refusal(
            codes.ROOT_EPOCH.code,
            f"root {new.version} has controller epoch {new.controller_epoch}, below {chain.root.controller_epoch}",
        )


def _same_epoch(old: Root, new: Root) -> bool:
    return old.controller_epoch == new.controller_epoch


def _threshold(root: Root, signers: Sequence[PublicKey], whose: str) -> None:
    role = root.role(RoleName.ROOT)
    assert role is not None  # _check refuses a root without it
    holders = sorted({entry.holder for entry in role.keys if parse_key(entry.key) in signers})
    # Both are counted: one person with two keys is one, and one key in two hands would be one.
    count = min(len(holders), len({key.raw for key in signers}))
    if count < role.threshold:
        people = counted(role.threshold, "person", "people")
        raise Refusal(
            codes.ROOT_THRESHOLD.code,
            f"the root document is signed by {count} of the {people} that {whose} demands",
            evidence=(f"signed by {', '.join(holders) if holders else 'nobody it trusts'}",),
        )


def _check(root: Root) -> None:
    """Refuse a root that contradicts itself."""
    where = f"root {root.version}"
    names = [role.name for role in root.roles]
    if names != sorted(set(names)):
        raise _contradiction(where, "its roles are not sorted by name, each once")
    for wanted in (RoleName.ROOT, RoleName.CONTROLLER):
        if wanted not in names:
            raise _contradiction(where, f"it has no role `{wanted}`")
    if root.v != 1 or root.version < 1 or root.controller_epoch < 1:
        raise _contradiction(where, "its version and controller epoch begin at 1, and its form `v` is 1")
    if (root.version == 1) != (root.fleet is None):
        raise _contradiction(where, "root 1 has no `fleet`, and every later one has the digest of root 1")
    if root.catalog is not None and root.catalog < 0:
        raise _contradiction(where, "its `catalog` is a version, or 0 for none")
    if root.mirrors is not None and not (1 <= len(root.mirrors) <= limits.MIRRORS and all(map(_plain, root.mirrors))):
        raise _contradiction(where, f"its mirrors are one to {limits.MIRRORS} addresses http(s)://... that end with /")
    if not root.issued_ms < root.expires_ms:
        raise _contradiction(where, "it expires before it is issued")
    _check_commits(root, where)
    holders: dict[bytes, str] = {}
    for role in root.roles:
        _check_role(role, where, holders)


def _check_commits(root: Root, where: str) -> None:
    if root.signed_commits:
        change = root.role(RoleName.CHANGE)
        if change is None or change.threshold != 1:
            raise _contradiction(where, "commits must be signed, and a commit has one signature: one `change` key")
    if root.from_commit is not None and not (root.signed_commits and _COMMIT.fullmatch(root.from_commit)):
        raise _contradiction(where, "a line of commits begins anew at a whole commit id, and where commits are signed")


def _reachable(root: Root) -> None:
    """Refuse to sign a need that nothing could ever meet. Asked of new documents alone: what stands stays readable."""
    if ranked(root.agent_min_version) is None:
        raise _contradiction(f"root {root.version}", f"{root.agent_min_version[:32]!r} is no version of an agent")
    for role in root.roles:
        if role.threshold > limits.SIGNATURES:
            why = f"role {role.name} demands {role.threshold} signatures, and at most {limits.SIGNATURES} are ever read"
            raise _contradiction(f"root {root.version}", why)


def _check_role(role: Role, where: str, holders: dict[bytes, str]) -> None:
    of_person = role.name is not RoleName.CONTROLLER
    wanted = "an ssh-ed25519 or sk-ssh-ed25519@openssh.com" if of_person else "an ed25519"
    seen: set[bytes] = set()
    for entry in role.keys:
        try:
            key = parse_key(entry.key)
        except ValueError as error:
            raise _contradiction(where, f"role {role.name}: {error}") from error
        if key.of_person != of_person or key.text != entry.key:
            raise _contradiction(where, f"role {role.name}: expected {wanted} key without comment for {entry.holder}")
        if not is_name(entry.holder):
            raise _contradiction(where, f"role {role.name}: {entry.holder[:80]!r} is not a name")
        if entry.paths is not None:
            _check_paths(role, entry, where)
        if key.raw in seen:
            raise _contradiction(where, f"role {role.name} lists one key twice ({entry.holder})")
        if holders.setdefault(key.raw, entry.holder) != entry.holder:
            raise _contradiction(where, f"one key has two holders: {holders[key.raw]} and {entry.holder}")
        seen.add(key.raw)
    people = len({entry.holder for entry in role.keys})
    if not 1 <= role.threshold <= people:
        wanted, listed = counted(role.threshold, "signature"), counted(people, "person", "people")
        raise _contradiction(where, f"role {role.name} demands {wanted} and lists {listed}")


def _plain(url: str) -> bool:
    return re.fullmatch(r"https?://[!-~]{1,500}/", url) is not None and "@" not in url


def _check_paths(role: Role, entry: RoleKey, where: str) -> None:
    """A limit of paths that means anything: on a change key, some, sorted, in the tree, and not the trust itself."""
    paths = entry.paths or ()
    if role.name is not RoleName.CHANGE or not paths or list(paths) != sorted(set(paths)):
        raise _contradiction(where, f"role {role.name}: paths limit a change key, and are sorted ({entry.holder})")
    for path in paths:
        parts = path.rstrip("/").split("/")
        holds_trust = path.startswith(TRUST) or (path.endswith("/") and TRUST.startswith(path))
        if not all(parts) or ".." in parts or "." in parts or holds_trust:
            raise _contradiction(where, f"role change: {path[:80]!r} is no path that a key may be limited to")


def keys_of(root: Root, name: str) -> tuple[PublicKey, ...]:
    """The public keys of a role; none if the root has no such role."""
    role = root.role(name)
    return () if role is None else tuple(parse_key(entry.key) for entry in role.keys)


def _contradiction(where: str, why: str) -> Refusal:
    return Refusal(codes.BAD_SCHEMA.code, f"{where} cannot hold: {why}", subject=where)
