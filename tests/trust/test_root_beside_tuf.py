"""Chains of root documents beside python-tuf's own: the same people, thresholds, versions and signatures, two verdicts.

Each of our root documents has a twin in TUF's form: the same keys in the role `root`, the same threshold and version,
signed by the same people over its own bytes. Both chains walk step by step, and a step that is refused changes
neither. Where the verdicts may differ ours is the stricter one, for one of the reasons in STRICTER, and for no other.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import TOP_LEVEL_ROLE_NAMES, Metadata
from tuf.api.metadata import Role as TheirRole
from tuf.api.metadata import Root as TheirRoot
from tuf.ngclient._internal.trusted_metadata_set import TrustedMetadataSet
from tuf.ngclient.config import EnvelopeType

from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.base.record import to_bytes
from gridops.trust import envelope
from gridops.trust.keys import PersonSigner
from gridops.trust.root import RoleName, Root, RootChain, genesis
from tests.trust.people import NOW, YEAR, person, role, root, seed
from tests.trust.test_root import BAD, GOOD, Step

STRICTER = {
    "root_threshold": "one person with two tokens is one person here, and two keys there",
    "wrong_fleet": "a document there belongs to no fleet",
    "root_epoch": "there are no epochs of a controller's key there",
    "root_version": "a chain there may begin at any version",
}
PEOPLE = ("ann", "bob", "cid", "dan", "ann+2", "bob+2")
OTHER_FLEET = Digest("sha256:" + "0" * 64)


@dataclass(frozen=True)
class Signed:
    """One root document and who signed it. `holders` names tokens: `ann+2` is ann's second one."""

    version: int
    holders: tuple[str, ...]
    threshold: int
    signers: tuple[str, ...]
    spoilt: frozenset[str] = frozenset()
    """Whose signature is over other bytes."""
    fleet: Digest | None = None
    epoch: int = 1

    def ours(self) -> tuple[Root, str]:
        document = root(role(RoleName.ROOT, self.threshold, *self.holders), version=self.version, fleet=self.fleet)
        document = replace(document, controller_epoch=self.epoch)
        payload = to_bytes(document)
        signatures = []
        for name in self.signers:
            said = envelope.pae("root", b"something else" if name in self.spoilt else payload)
            signatures.append((_key(name).public.key_id, _key(name).sign("root", said)))
        return document, envelope._render("root", payload, signatures)

    def theirs(self) -> bytes:
        keys = {name: _their_signer(name).public_key for name in self.holders}
        roles = {name: TheirRole([], 1) for name in TOP_LEVEL_ROLE_NAMES}
        roles["root"] = TheirRole([key.keyid for key in keys.values()], self.threshold)
        signed = TheirRoot(
            version=self.version,
            expires=datetime.fromtimestamp((NOW + YEAR) // 1000, UTC),
            keys={key.keyid: key for key in keys.values()},
            roles=roles,
            unrecognized_fields={"x-gridops": [str(self.fleet), self.epoch]},
        )
        made = Metadata(signed)
        for name in self.signers:
            if name in self.spoilt:
                signature = _their_signer(name).sign(b"something else")
                made.signatures[signature.keyid] = signature
            else:
                made.sign(_their_signer(name), append=True)
        return made.to_bytes()


def _key(name: str) -> PersonSigner:
    return person(f"{name}.root")


_THEIR_SIGNERS: dict[str, CryptoSigner] = {}


def _their_signer(name: str) -> CryptoSigner:
    """The very key, as their library holds it."""
    if name not in _THEIR_SIGNERS:
        _THEIR_SIGNERS[name] = CryptoSigner(Ed25519PrivateKey.from_private_bytes(seed(f"person {name}.root")))
    return _THEIR_SIGNERS[name]


class Both:
    """Two clients that trust what they have walked to."""

    def __init__(self) -> None:
        self.chain: RootChain | None = None
        self.set: TrustedMetadataSet | None = None

    def take(self, made: Signed) -> tuple[str, bool]:
        """Our verdict (a code, or nothing) and whether they took it."""
        return self._ours(made), self._theirs(made)

    def _ours(self, made: Signed) -> str:
        text = made.ours()[1]
        try:
            self.chain = genesis(text) if self.chain is None else self.chain.advance(text)
        except Refusal as refusal:
            return refusal.code
        return ""

    def _theirs(self, made: Signed) -> bool:
        try:
            data = made.theirs()
            if self.set is None:
                self.set = TrustedMetadataSet(data, EnvelopeType.METADATA)
            else:
                self.set.update_root(data)
        except (RepositoryError, ValueError):
            return False
        return True

    @property
    def at(self) -> tuple[int, int]:
        return (self.chain.root.version if self.chain else 0), (self.set.root.version if self.set else 0)


def agree(made: Signed, ours: str, theirs: bool, at_epoch: int = 1) -> bool:
    """The verdicts are the same, or ours is stricter for a reason that holds of this very document."""
    if (not ours) == theirs:
        return True
    people = {name.partition("+")[0] for name in made.signers}
    reasons = {
        "root_threshold": len(people) < len(set(made.signers)),
        "wrong_fleet": made.fleet == OTHER_FLEET,
        "root_epoch": made.epoch < at_epoch,
    }
    return ours in STRICTER and reasons.get(ours, False)


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_the_histories_that_people_can_read_end_there_as_they_end_here(name: str) -> None:
    both, steps = Both(), (GOOD | BAD)[name]
    fleet = None
    for version, step in enumerate(steps, 1):
        made = _of(version, step, fleet)
        ours, theirs = both.take(made)
        assert agree(made, ours, theirs), (version, ours, theirs)
        fleet = fleet or digest_bytes(to_bytes(made.ours()[0]))
    assert (both.at[0] == len(steps)) == (name in GOOD)


def _of(version: int, step: Step, fleet: Digest | None) -> Signed:
    return Signed(version, tuple(step.holders.split()), step.threshold, tuple(step.signed.split()), fleet=fleet)


def test_a_chain_there_may_begin_anywhere_and_here_at_root_one_alone() -> None:
    assert Both().take(Signed(3, ("ann",), 1, ("ann",), fleet=OTHER_FLEET)) == ("root_version", True)


def drawn(rng: random.Random, chain: RootChain | None, before: Signed | None) -> Signed:
    """The next document somebody shows: mostly one that might hold, with one thing or another wrong."""
    people = PEOPLE if rng.random() < 0.3 else PEOPLE[:4]
    holders = tuple(sorted(rng.sample(people, rng.randint(1, len(people)))))
    at_least = len({h.partition("+")[0] for h in holders})
    threshold = rng.randint(1, at_least) if rng.random() < 0.95 else rng.choice([0, at_least + 1, len(holders)])
    version = 1 if chain is None else chain.root.version + 1
    if chain is not None and rng.random() < 0.15:
        version = max(1, version + rng.choice([-2, -1, 1, 2]))
    likely = [*holders, *(before.holders if before else ())]
    signers = {name for name in likely if rng.random() < 0.75} | {n for n in people if rng.random() < 0.1}
    spoilt = frozenset(name for name in sorted(signers) if rng.random() < 0.1)
    fleet = None if version == 1 else chain.fleet if chain else OTHER_FLEET
    epoch = chain.root.controller_epoch if chain else 2
    if rng.random() < 0.1:
        epoch = max(1, epoch + rng.choice([-1, 1]))
    if version > 1 and rng.random() < 0.05:
        fleet = OTHER_FLEET
    return Signed(version, holders, threshold, tuple(sorted(signers)), spoilt, fleet, epoch)


def test_whatever_is_shown_both_believe_the_same() -> None:
    seen: Counter[str] = Counter()
    for number in range(120):
        rng = random.Random(number)
        both = Both()
        before = None
        for _ in range(8):
            made = drawn(rng, both.chain, before)
            at, epoch = both.at, both.chain.root.controller_epoch if both.chain else 1
            ours, theirs = both.take(made)
            assert agree(made, ours, theirs, epoch), (number, made, ours, theirs)
            if ours and theirs:
                seen[f"stricter: {ours}"] += 1
                break  # from here on they trust another document than we do
            seen[ours or "taken"] += 1
            if ours:
                assert both.at == at, "a refusal changes nothing"
            else:
                before = made
        if not (ours and theirs):
            assert both.at[0] == both.at[1]
    assert seen["taken"] > 200, seen
    assert seen["root_threshold"] > 100, seen
    assert seen["root_version"] > 20, seen
    assert {"stricter: root_threshold", "stricter: wrong_fleet", "stricter: root_epoch", "bad_schema"} <= set(seen), (
        seen
    )
