"""Keys that count no more: whose they were, as what, until when; and that none of them counts for anything."""

from __future__ import annotations

import pytest

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import PersonName
from gridops.trust import amend, former
from gridops.trust.envelope import seal, split
from gridops.trust.found import renewed_root
from gridops.trust.root import RoleName, RootChain, genesis, seal_root, walk
from tests.trust.people import NOW, chain_of, machine, person, role, root, root_signers

MIRA, JON = PersonName("mira"), PersonName("jon")
LATER, LAST = NOW + 60_000, NOW + 120_000


def follows(chain: RootChain, made: object) -> RootChain:
    return chain.advance(seal_root(made, *root_signers("mira")))  # type: ignore[arg-type]


def left() -> RootChain:
    """Jon has gone, in every role."""
    chain = chain_of(root(role(RoleName.CHANGE, 1, "jon", "mira")))
    return follows(chain, amend.revoked(chain, JON, amend.PEOPLES, LATER))


def ends(chain: RootChain) -> dict[tuple[str, str], tuple[tuple[str, ...], int, int]]:
    return {(f.holder, f.key): (f.roles, f.accepted_until_ms, f.root) for f in chain.former}


def test_who_left_was_accepted_until_the_document_that_left_them_out() -> None:
    found = ends(left())
    assert found["jon", person("jon").public.text] == (("approver", "change"), LATER, 2)
    assert {holder for holder, _ in found} == {"jon"}
    assert chain_of().former == ()


def test_a_role_that_was_taken_and_a_key_that_was_replaced_are_ends_too() -> None:
    chain = chain_of()
    less = follows(chain, amend.revoked(chain, JON, (RoleName.APPROVER,), LATER))
    assert ends(less)["jon", person("jon").public.text] == (("approver",), LATER, 2)
    new = follows(less, amend.replaced(less, MIRA, person("new").public, (RoleName.APPROVER,), LAST))
    assert ends(new)["mira", person("mira").public.text] == (("approver",), LAST, 3)
    assert len(new.former) == 2
    assert follows(new, renewed_root(new, LAST + 1)).former == new.former, "a renewal ends nobody"


def test_every_chain_says_the_same_however_it_was_walked_and_no_document_says_more() -> None:
    chain = chain_of()
    second = seal_root(amend.revoked(chain, JON, (RoleName.APPROVER,), LATER), *root_signers("mira"))
    assert "former" not in str(split(second, kind="root").payload)
    assert walk(genesis(chain.text), (second,)) == chain.advance(second)


def test_a_stolen_controllers_key_is_told_from_one_that_went_by_the_book() -> None:
    chain = chain_of()
    both = follows(chain, amend.next_controller(chain, machine("next").public, stolen=False, now_ms=LATER))
    done = follows(both, amend.only_controller(both, LAST))
    assert [(f.roles, f.stolen) for f in done.former] == [(("controller",), False)]
    taken = follows(done, amend.next_controller(done, machine("third").public, stolen=True, now_ms=LAST + 1))
    assert [f.stolen for f in taken.former] == [False, True]
    assert "nothing that it ever signed is believed" in former.words(taken.former[-1])
    assert "believed" not in former.words(taken.former[0])


def signed(at_ms: int, name: str = "jon") -> str:
    return seal("approval", b'{"issued_ms":%d}' % at_ms, person(name))


@pytest.mark.parametrize(
    ("at_ms", "words"),
    [(LATER - 1, ", before that"), (LATER, ", not before that"), (LATER + 1, ", not before that")],
)
def test_a_document_of_a_former_key_is_held_against_its_end(at_ms: int, words: str) -> None:
    sealed = split(signed(at_ms), kind="approval")
    ((key, one),) = former.signers(left(), sealed, "approval", ("approver",))
    assert (key, one.holder) == (person("jon").public, "jon")
    assert former.words(one).startswith("approver, change until ")
    assert former.compared(one, sealed).endswith(words)


def test_who_counts_now_never_was_or_was_something_else_is_no_former_signer() -> None:
    chain = left()
    for name in ("mira", "eve"):
        sealed = split(signed(LATER, name), kind="approval")
        assert former.signers(chain, sealed, "approval", ("approver",)) == ()
    assert former.signers(chain, split(signed(LATER), kind="approval"), "approval", ("release",)) == ()
    back = follows(chain, amend.added(chain, JON, person("jon").public, (RoleName.APPROVER,), LAST))
    assert former.signers(back, split(signed(LATER), kind="approval"), "approval", ("approver",)) == ()
    assert len(back.former) == len(chain.former), "that there was an end stays known"


def test_a_document_that_says_no_time_is_said_to_say_none() -> None:
    sealed = split(seal("approval", b'{"issued_ms":"soon"}', person("jon")), kind="approval")
    ((_, one),) = former.signers(left(), sealed, "approval", ("approver",))
    assert former.compared(one, sealed) == "it does not say when it was issued"


def test_a_former_root_key_signs_no_root() -> None:
    chain = chain_of(root(role(RoleName.ROOT, 1, "mira", "jon")))
    after = chain.advance(seal_root(amend.revoked(chain, JON, (RoleName.ROOT,), LATER), *root_signers("mira")))
    assert after.former
    with pytest.raises(Refusal, match="signed by 0 of the 1 person"):
        after.advance(seal_root(renewed_root(after, LAST), *root_signers("jon")))


def test_the_newest_ends_are_remembered_and_not_more_than_is_named() -> None:
    one = left().former[0]
    many = [former.Former(one.holder, one.key, one.roles, n, n) for n in range(limits.FORMER_KEYS + 5)]
    assert [f.root for f in former.kept(many)] == list(range(5, limits.FORMER_KEYS + 5))
