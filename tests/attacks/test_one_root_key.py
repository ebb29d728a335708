"""Somebody holds one root key of several: no document that it signs alone moves anybody.

A table in the style of root-rotation cases. Each row is the next root document as a thief would write it, handed to a
host with a true directive beside it; the host keeps its chain and its ledger, byte for byte, and says why. The rows
below it are the same documents signed by as many as the root demands, so that the table is seen to turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.ids import PersonName
from gridops.base.record import to_bytes
from gridops.trust import root as roots
from gridops.trust.envelope import seal
from gridops.trust.keys import PersonSigner
from gridops.trust.root import Role, RoleKey, RoleName, Root, RootChain
from tests.attacks.place import Place
from tests.protocol import build as b

ANN, BOB, CID = (PersonSigner.from_seed(bytes([n]) * 32) for n in (1, 2, 3))
ANN_AGAIN, STRANGER = (PersonSigner.from_seed(bytes([n]) * 32) for n in (4, 5))
NAMES = {ANN: "ann", ANN_AGAIN: "ann", BOB: "bob", CID: "cid", STRANGER: "eve"}


def role(name: RoleName, threshold: int, *signers: PersonSigner) -> Role:
    return Role(
        name=name,
        threshold=threshold,
        keys=tuple(RoleKey(holder=PersonName(NAMES[s]), key=s.public.text) for s in signers),
    )


def _first() -> RootChain:
    others = tuple(r for r in b.CHAIN.root.roles if r.name is not RoleName.ROOT)
    three = role(RoleName.ROOT, 2, ANN, ANN_AGAIN, BOB, CID)
    return roots.genesis(seal("root", to_bytes(replace(b.CHAIN.root, roles=(*others, three))), ANN, BOB))


CHAIN = _first()


def after(**changes: object) -> Root:
    """The next document."""
    return replace(CHAIN.root, version=2, fleet=CHAIN.fleet, **changes)  # type: ignore[arg-type]


def with_root(threshold: int, *signers: PersonSigner) -> Root:
    others = tuple(r for r in CHAIN.root.roles if r.name is not RoleName.ROOT)
    return after(roles=(*others, role(RoleName.ROOT, threshold, *signers)))


def with_controller(key: str) -> Root:
    entry = (RoleKey(holder=PersonName("controller"), key=key),)
    changed = {RoleName.CONTROLLER: Role(name=RoleName.CONTROLLER, threshold=1, keys=entry)}
    return after(roles=tuple(changed.get(r.name, r) for r in CHAIN.root.roles), controller_epoch=2)


Document = Callable[[], Root]
Row = tuple[str, Document, tuple[PersonSigner, ...], str, bool]
ATTACKS: tuple[Row, ...] = (
    ("the same again, later", after, (ANN,), "root_threshold", False),
    ("a later end", lambda: after(expires_ms=b.NOW + 9 * b.YEAR), (ANN,), "root_threshold", False),
    ("a threshold of one", lambda: with_root(1, ANN, BOB, CID), (ANN,), "root_threshold", False),
    ("itself alone", lambda: with_root(1, ANN), (ANN,), "root_threshold", False),
    ("itself twice, by two tokens", lambda: with_root(1, ANN, ANN_AGAIN), (ANN, ANN_AGAIN), "root_threshold", False),
    ("itself and a stranger", lambda: with_root(1, ANN, STRANGER), (ANN, STRANGER), "root_threshold", False),
    ("another controller", lambda: with_controller(b.NEXT_CONTROLLER.public.text), (ANN,), "root_threshold", False),
    ("no standing permission", lambda: after(standing=False), (ANN,), "root_threshold", False),
    ("the document of before", lambda: replace(CHAIN.root, issued_ms=b.NOW), (ANN, BOB), "root_version", False),
    ("one left out", lambda: replace(after(), version=3), (ANN, BOB), "root_version", False),
    ("another fleet's", lambda: replace(after(), fleet=b.FLEET), (ANN, BOB), "wrong_fleet", False),
)
"""The last three are signed by enough, and are not the next document of this fleet."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "host", CHAIN)
    assert made.poll(made.told()) == []
    yield made
    made.close()


@pytest.mark.parametrize(
    ("document", "signers", "code", "final"), [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS]
)
def test_one_root_key_of_several_moves_no_host(
    place: Place, document: Document, signers: tuple[PersonSigner, ...], code: str, final: bool
) -> None:
    text = seal("root", to_bytes(document()), *signers)
    before = place.durable()
    assert place.poll(place.told(roots=(text,))) == [code]
    assert place.host.chain == CHAIN
    assert place.durable() == before
    assert not final


FOLLOWED = [
    row for row in ATTACKS if row[3] == "root_threshold" and "stranger" not in row[0] and "itself" not in row[0]
]


@pytest.mark.parametrize("document", [row[1] for row in FOLLOWED], ids=[row[0] for row in FOLLOWED])
def test_the_same_document_signed_by_two_people_is_followed(place: Place, document: Document) -> None:
    assert place.poll(place.told(roots=(seal("root", to_bytes(document()), ANN, CID),))) in ([], ["stale_term"])
    assert place.host.chain.root.version == 2
