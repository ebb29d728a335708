"""The one rule by which trust changes, as named histories that a reviewer can read aloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from gridops.base import canon, limits
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, PersonName
from gridops.base.record import to_bytes, to_data
from gridops.trust import envelope
from gridops.trust.root import Role, RoleKey, RoleName, Root, RootChain, genesis, seal_root, walk
from tests.trust.people import NOW, YEAR, chain_of, machine, person, role, root, root_signers

FLEET_OTHER = Digest("sha256:" + "0" * 64)


@dataclass(frozen=True)
class Step:
    """Who may change the root (holders), how many must, and who signed."""

    holders: str
    threshold: int
    signed: str


def history(*steps: Step) -> list[str]:
    """Root documents of these steps, each claiming the fleet of the first."""
    texts: list[str] = []
    fleet: Digest | None = None
    for version, step in enumerate(steps, 1):
        document = root(
            role(RoleName.ROOT, step.threshold, *step.holders.split()),
            version=version,
            fleet=fleet if version > 1 else None,
        )
        texts.append(seal_root(document, *root_signers(*step.signed.split())))
        fleet = fleet or canon.digest_bytes(to_bytes(document))
    return texts


A, B, C = "ann", "bob", "cid"

GOOD: dict[str, tuple[Step, ...]] = {
    "one person begins": (Step(A, 1, A),),
    "the same person goes on": (Step(A, 1, A), Step(A, 1, A)),
    "two of three begin": (Step(f"{A} {B} {C}", 2, f"{A} {C}"),),
    "a person is added": (Step(A, 1, A), Step(f"{A} {B}", 1, A)),
    "handed over, signed by both sides": (Step(A, 1, A), Step(B, 1, f"{A} {B}")),
    "the threshold rises with enough people": (Step(f"{A} {B}", 1, A), Step(f"{A} {B}", 2, f"{A} {B}")),
    "the threshold falls, by as many as before": (Step(f"{A} {B}", 2, f"{A} {B}"), Step(f"{A} {B}", 1, f"{A} {B}")),
    "one of two thirds is replaced": (Step(f"{A} {B} {C}", 2, f"{A} {B}"), Step(f"{A} {B} dan", 2, f"{A} {B}")),
    "one signs for old and new": (Step(f"{A} {B}", 1, B), Step(f"{B} {C}", 1, B)),
    "three in a row": (Step(A, 1, A), Step(B, 1, f"{A} {B}"), Step(C, 1, f"{B} {C}")),
    "a stranger signs as well": (Step(A, 1, f"{A} zoe"), Step(A, 1, f"zoe {A}")),
    "a second token of one holder": (Step(f"{A} {A}+2", 1, f"{A}+2"),),
}

BAD: dict[str, tuple[Step, ...]] = {
    "nobody known begins": (Step(A, 1, B),),
    "one of two begins": (Step(f"{A} {B}", 2, A),),
    "one person with two tokens begins for two": (Step(f"{A} {A}+2 {B}", 2, f"{A} {A}+2"),),
    "signed by the new side only": (Step(A, 1, A), Step(B, 1, B)),
    "signed by the old side only": (Step(A, 1, A), Step(B, 1, A)),
    "too few of the old": (Step(f"{A} {B}", 2, f"{A} {B}"), Step(f"{A} {C}", 1, f"{A} {C}")),
    "too few of the new": (Step(A, 1, A), Step(f"{A} {B} {C}", 2, A)),
    "one token twice for old and new": (Step(f"{A} {A}+2 {B}", 2, f"{A} {B}"), Step(f"{A} {B}", 1, f"{A} {A}+2")),
    "by somebody removed before": (Step(A, 1, A), Step(B, 1, f"{A} {B}"), Step(A, 1, A)),
    "strangers only": (Step(A, 1, A), Step(A, 1, "zoe dan")),
}


@pytest.mark.parametrize("steps", GOOD.values(), ids=GOOD.keys())
def test_a_good_history_is_walked_to_its_end(steps: tuple[Step, ...]) -> None:
    texts = history(*steps)
    chain = walk(genesis(texts[0]), texts[1:])
    assert chain.root.version == len(steps)
    assert chain.text == texts[-1]
    assert chain.fleet == canon.digest_bytes(to_bytes(genesis(texts[0]).root))


@pytest.mark.parametrize("steps", BAD.values(), ids=BAD.keys())
def test_a_bad_history_ends_before_its_last_root(steps: tuple[Step, ...]) -> None:
    texts = history(*steps)
    *good, last = texts
    with pytest.raises(Refusal) as caught:
        if good:
            walk(genesis(good[0]), good[1:]).advance(last)
        else:
            genesis(last)
    assert caught.value.code == "root_threshold"
    assert caught.value.evidence, "it says who signed"


def successor(chain: RootChain, **fields: object) -> Root:
    return replace(chain.root, **{"version": chain.root.version + 1, "fleet": chain.fleet, **fields})  # type: ignore[arg-type]


def refused(text: str, chain: RootChain) -> str:
    with pytest.raises(Refusal) as caught:
        chain.advance(text)
    return caught.value.code


@pytest.mark.parametrize(
    ("version", "word"), [(1, "older"), (2, "equal"), (4, "too new"), (1_000, "too new")], ids=lambda v: str(v)
)
def test_the_next_root_is_exactly_one_higher(version: int, word: str) -> None:
    texts = history(Step(A, 1, A), Step(A, 1, A))
    chain = walk(genesis(texts[0]), texts[1:])
    fleet = None if version == 1 else chain.fleet
    bent = seal_root(replace(chain.root, version=version, fleet=fleet, issued_ms=NOW + 1), *root_signers(A))
    with pytest.raises(Refusal, match=rf"\({word}\): expected root 3") as caught:
        chain.advance(bent)
    assert caught.value.code == "root_version"


def test_the_root_one_already_has_may_be_given_again() -> None:
    texts = history(Step(A, 1, A), Step(A, 1, A))
    chain = walk(genesis(texts[0]), texts)
    assert walk(chain, [texts[1]]) == chain
    assert refused(texts[0], chain) == "root_version"


def test_a_root_of_another_fleet_is_refused() -> None:
    chain = chain_of()
    assert refused(seal_root(successor(chain, fleet=FLEET_OTHER), *root_signers("mira")), chain) == "wrong_fleet"
    assert genesis(chain.text, chain.fleet) == chain
    with pytest.raises(Refusal, match="not of sha256:0000") as caught:
        genesis(chain.text, FLEET_OTHER)
    assert caught.value.code == "wrong_fleet"


def test_a_chain_begins_with_root_one() -> None:
    later = seal_root(successor(chain_of()), *root_signers("mira"))
    with pytest.raises(Refusal) as caught:
        genesis(later)
    assert caught.value.code == "root_version"


def test_the_controller_epoch_never_falls() -> None:
    chain = chain_of(root(controller_epoch=3))
    assert refused(seal_root(successor(chain, controller_epoch=2), *root_signers("mira")), chain) == "root_epoch"
    for epoch in (3, 4):
        assert chain.advance(seal_root(successor(chain, controller_epoch=epoch), *root_signers("mira")))


def test_an_expired_root_in_the_middle_is_walked_over() -> None:
    chain = chain_of(root(expires_ms=NOW + 1))
    assert chain.expired(NOW + YEAR)
    fresh = chain.advance(seal_root(successor(chain, expires_ms=NOW + 2 * YEAR), *root_signers("mira")))
    assert not fresh.expired(NOW + YEAR)


def test_expiry_is_the_first_moment_at_which_it_no_longer_holds() -> None:
    chain = chain_of()
    assert not chain.expired(NOW + YEAR - 1)
    chain.require_fresh(NOW + YEAR - 1)
    assert chain.expired(NOW + YEAR)
    with pytest.raises(Refusal, match="root 1 expired at 2028-01-15T08:00:00Z") as caught:
        chain.require_fresh(NOW + YEAR)
    assert caught.value.code == "root_expired"


def test_standing_authority_must_be_said() -> None:
    assert not root().standing


def test_refusal_changes_nothing() -> None:
    chain = chain_of()
    before = (chain.fleet, chain.root, chain.text)
    assert refused("{}", chain) == "bad_envelope"
    assert (chain.fleet, chain.root, chain.text) == before


def test_a_walk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOTS_IN_CHAIN", 2)
    texts = history(*[Step(A, 1, A)] * 4)
    assert walk(genesis(texts[0]), texts[1:3]).root.version == 3
    with pytest.raises(Refusal, match="more than 2 root documents"):
        walk(genesis(texts[0]), texts[1:])


def test_keys_holders_and_thresholds_are_those_of_the_newest_root() -> None:
    chain = chain_of(root(role(RoleName.APPROVER, 2, "mira", "jon", "jon+2")))
    assert chain.keys(RoleName.APPROVER) == (person("mira").public, person("jon").public, person("jon+2").public)
    assert chain.keys("controller") == (machine("controller").public,)
    assert chain.keys(RoleName.RELEASE) == ()
    assert chain.holder(person("jon+2").public) == "jon"
    assert chain.holder(person("mira.root").public) == "mira"
    assert chain.holder(machine("controller").public) == "controller"
    assert chain.holder(person("zoe").public) is None
    assert (chain.threshold("approver"), chain.threshold("release")) == (2, 0)


def with_role(name: RoleName, threshold: int, *entries: tuple[str, str]) -> Root:
    keys = tuple(RoleKey(holder=PersonName(holder), key=key) for holder, key in entries)
    return root(Role(name=name, threshold=threshold, keys=keys))


MIRA, JON = person("mira").public.text, person("jon").public.text
CONTRADICTIONS: dict[str, Callable[[], Root]] = {
    "roles out of order": lambda: replace(root(), roles=root().roles[::-1]),
    "a role twice": lambda: replace(root(), roles=(root().roles[0], *root().roles)),
    "no role root": lambda: replace(root(), roles=root().roles[:2]),
    "no role controller": lambda: replace(root(), roles=(root().roles[0], root().roles[2])),
    "a role that nobody holds": lambda: replace(
        root(), roles=(Role(name=RoleName.APPROVER, threshold=1, keys=()), *root().roles[1:])
    ),
    "a threshold of zero": lambda: with_role(RoleName.APPROVER, 0, ("mira", MIRA)),
    "a threshold below zero": lambda: with_role(RoleName.ROOT, -1, ("mira", MIRA)),
    "a threshold above the people": lambda: with_role(RoleName.APPROVER, 2, ("mira", MIRA)),
    "a threshold above the people, counting tokens": lambda: root(role(RoleName.APPROVER, 2, "mira", "mira+2")),
    "one key twice in a role": lambda: with_role(RoleName.APPROVER, 1, ("mira", MIRA), ("mira", MIRA)),
    "one key with two holders in a role": lambda: with_role(RoleName.APPROVER, 1, ("mira", MIRA), ("jon", MIRA)),
    "one key with two holders in two roles": lambda: with_role(
        RoleName.APPROVER, 1, ("jon", person("mira.root").public.text)
    ),
    "a machine key for a person": lambda: with_role(RoleName.APPROVER, 1, ("mira", machine("m").public.text)),
    "a person's key for the controller": lambda: with_role(RoleName.CONTROLLER, 1, ("controller", MIRA)),
    "a key with a comment": lambda: with_role(RoleName.APPROVER, 1, ("mira", MIRA + " mira")),
    "no key at all": lambda: with_role(RoleName.APPROVER, 1, ("mira", "hello")),
    "a holder that is no name": lambda: with_role(RoleName.APPROVER, 1, ("Mira\x1b[2J", MIRA)),
    "version zero": lambda: root(version=0),
    "version zero with a fleet": lambda: root(version=0, fleet=FLEET_OTHER),
    "epoch zero": lambda: root(controller_epoch=0),
    "an unknown form": lambda: root(v=2),
    "root 1 with a fleet": lambda: root(fleet=FLEET_OTHER),
    "root 2 without a fleet": lambda: root(version=2),
    "expired when issued": lambda: root(expires_ms=NOW),
}


@pytest.mark.parametrize("made", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_root_that_contradicts_itself_is_neither_signed_nor_believed(made: Callable[[], Root]) -> None:
    document = made()
    with pytest.raises(Refusal) as caught:
        seal_root(document, *root_signers("mira"))
    assert caught.value.code == "bad_schema"
    assert "\x1b" not in str(caught.value)
    # Somebody else's software may have signed it all the same.
    text = envelope.seal("root", to_bytes(document), *root_signers("mira", "jon"))
    for read in (genesis, chain_of().advance):
        with pytest.raises(Refusal) as caught:
            read(text)
        assert caught.value.code == "bad_schema"


def test_more_signatures_than_are_ever_read_are_never_asked_for_and_a_root_that_does_stays_readable() -> None:
    people = [f"p{number}" for number in range(limits.SIGNATURES + 1)]
    most = root(role(RoleName.APPROVER, limits.SIGNATURES, *people))
    assert genesis(seal_root(most, *root_signers("mira"))).threshold("approver") == limits.SIGNATURES
    more = root(role(RoleName.APPROVER, limits.SIGNATURES + 1, *people))
    with pytest.raises(Refusal, match="demands 9 signatures, and at most 8 are ever read") as caught:
        seal_root(more, *root_signers("mira"))
    assert caught.value.code == "bad_schema"
    assert genesis(envelope.seal("root", to_bytes(more), *root_signers("mira"))).root == more


def test_a_root_with_a_field_nobody_knows_is_refused_by_name() -> None:
    payload = canon.dumps({**to_data(root()), "backdoor": True})
    with pytest.raises(Refusal, match="backdoor") as caught:
        genesis(envelope.seal("root", payload, *root_signers("mira")))
    assert caught.value.code == "bad_schema"


def test_a_root_that_is_not_canonical_is_refused() -> None:
    payload = to_bytes(root()) + b"\n"
    signature = person("mira.root").sign("root", envelope.pae("root", payload))
    text = envelope._render("root", payload, [("", signature)])
    for read in (genesis, chain_of().advance):
        with pytest.raises(Refusal) as caught:
            read(text)
        assert caught.value.code == "not_canonical"


def test_the_new_root_is_not_even_parsed_before_the_old_one_vouches_for_it() -> None:
    """Bytes of a stranger reach the parser of records only at the first root, which is pinned by its digest."""
    stranger = envelope.seal("root", b'{"not":"a root"}', person("stranger"))
    assert refused(stranger, chain_of()) == "root_threshold"


def test_an_approver_key_cannot_change_the_root() -> None:
    chain = chain_of()
    text = envelope.seal("root", to_bytes(successor(chain)), person("mira"), person("jon"))
    assert refused(text, chain) == "root_threshold"


def test_signatures_may_be_collected_one_after_the_other() -> None:
    document = root(role(RoleName.ROOT, 2, "mira", "jon"))
    one = seal_root(document, *root_signers("mira"))
    with pytest.raises(Refusal, match="signed by 1 of the 2 people"):
        genesis(one)
    both = envelope.countersign(one, kind="root", signer=person("jon.root"))
    assert genesis(both).root == document
