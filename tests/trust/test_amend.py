"""The next root document: one change each, what it may not be, and who still has to sign it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import PersonName
from gridops.base.record import to_bytes
from gridops.trust import amend, envelope
from gridops.trust.draft import read_draft
from gridops.trust.envelope import countersign
from gridops.trust.root import RoleName, Root, RootChain, seal_root
from tests.trust.people import NOW, YEAR, chain_of, machine, person, role, root, root_signers

MIRA, JON, EVE = PersonName("mira"), PersonName("jon"), PersonName("eve")
LATER = NOW + 1_000
BOTH = role(RoleName.ROOT, 2, "mira", "jon")


def holders(made: Root, name: RoleName) -> list[tuple[str, str]]:
    found = made.role(name)
    return [] if found is None else [(e.holder, e.key) for e in found.keys]


def follows(chain: RootChain, made: Root, *names: str) -> RootChain:
    return chain.advance(seal_root(made, *root_signers(*(names or ("mira",)))))


def test_somebody_is_added_to_a_role_and_a_role_that_nobody_held_begins_with_one() -> None:
    chain = chain_of()
    made = amend.added(chain, EVE, person("eve").public, (RoleName.APPROVER, RoleName.RELEASE), LATER)
    assert [h for h, _ in holders(made, RoleName.APPROVER)] == ["mira", "jon", "eve"]
    assert holders(made, RoleName.RELEASE) == [("eve", person("eve").public.text)]
    assert (made.version, made.fleet, made.expires_ms) == (2, chain.fleet, LATER + YEAR)
    assert follows(chain, made).holder(person("eve").public) == "eve"


def test_somebody_is_revoked_in_every_role_or_in_one() -> None:
    chain = chain_of()
    everywhere = amend.revoked(chain, JON, amend.PEOPLES, LATER)
    assert all("jon" not in dict(holders(everywhere, name)) for name in RoleName)
    assert follows(chain, everywhere).keys(RoleName.APPROVER) == (person("mira").public,)
    one = amend.revoked(chain, JON, (RoleName.APPROVER,), LATER)
    assert [h for h, _ in holders(one, RoleName.ROOT)] == ["mira", "jon"]


def test_the_last_holder_of_a_role_goes_with_the_role_and_the_root_never_does() -> None:
    chain = chain_of(root(role(RoleName.CHANGE, 1, "jon")))
    assert amend.revoked(chain, JON, (RoleName.CHANGE,), LATER).role(RoleName.CHANGE) is None


REFUSED: dict[str, tuple[Callable[[RootChain], Root], str]] = {
    "nobody of that name": (lambda c: amend.revoked(c, EVE, amend.PEOPLES, LATER), "eve holds no key"),
    "fewer than must sign": (lambda c: amend.revoked(c, JON, amend.PEOPLES, LATER), "root needs 2 people, and 1 would"),
    "a new key for a stranger": (
        lambda c: amend.replaced(c, EVE, person("eve").public, amend.PEOPLES, LATER),
        "eve holds no key",
    ),
    "more than there are": (lambda c: amend.demanding(c, RoleName.APPROVER, 3, LATER), "lists 2"),
    "of a role that nobody holds": (lambda c: amend.demanding(c, RoleName.RELEASE, 1, LATER), "lists 0"),
    "agents of no version": (lambda c: amend.driving(c, "newest", LATER), "'newest' is no version of an agent"),
    "agents as they are driven": (lambda c: amend.driving(c, "0.1.0", LATER), "demands agents from 0.1.0 on already"),
    "an end without a beginning": (lambda c: amend.only_controller(c, LATER), "no rotation is under way"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_do(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(Refusal, match=words) as caught:
        make(chain_of(root(BOTH), "mira", "jon"))
    assert caught.value.code == "root_amendment"


def test_older_agents_are_not_driven_any_more_and_are_again_when_the_demand_is_taken_back() -> None:
    chain = chain_of()
    assert (chain.agents_from, chain.outdated(None)) == (None, None), "nothing is asked where nobody meant anything"
    raised = follows(chain, amend.driving(chain, "0.10.0", LATER))
    assert raised.agents_from == "0.10.0"
    assert raised.outdated("0.9.9") == "agent 0.9.9, and root 2 demands 0.10.0 or later: upgrade it"
    assert "no readable version" in (raised.outdated("newest") or "")
    assert (raised.outdated("0.10.0"), raised.outdated("1.0")) == (None, None)
    assert follows(raised, amend.driving(raised, "0.1.0", LATER)).outdated("0.1.0") is None


def test_a_demand_that_cannot_be_read_is_not_signed_and_met_by_none() -> None:
    chain = chain_of()
    unreadable = replace(amend.driving(chain, "0.2.0", LATER), agent_min_version="newest")
    with pytest.raises(Refusal, match="is no version of an agent"):
        seal_root(unreadable, *root_signers("mira"))
    other = envelope.seal("root", to_bytes(unreadable), *root_signers("mira"))
    assert chain.advance(other).outdated("99.0") is not None


def test_a_new_key_takes_the_place_of_every_old_one_of_its_person() -> None:
    chain = chain_of(root(role(RoleName.APPROVER, 1, "mira", "mira+2", "jon")))
    made = amend.replaced(chain, MIRA, person("new").public, (RoleName.APPROVER,), LATER)
    assert holders(made, RoleName.APPROVER) == [
        ("jon", person("jon").public.text),
        ("mira", person("new").public.text),
    ]
    after = follows(chain, made)
    assert after.holder(person("mira").public) is None


def test_a_controllers_key_is_rotated_without_a_gap_and_what_it_wrote_stays_readable() -> None:
    old, new = machine("controller").public, machine("next").public
    chain = chain_of()
    both = follows(chain, amend.next_controller(chain, new, stolen=False, now_ms=LATER))
    assert (both.keys(RoleName.CONTROLLER), both.root.controller_epoch) == ((old, new), 1)
    done = follows(both, amend.only_controller(both, LATER))
    assert done.keys(RoleName.CONTROLLER) == (new,)
    assert done.plan_keys() == (new, old)
    again = follows(done, amend.next_controller(done, machine("third").public, stolen=False, now_ms=LATER))
    assert again.plan_keys() == (new, machine("third").public, old)


def test_a_stolen_controllers_key_counts_no_more_for_anything_ever_signed() -> None:
    new = machine("next").public
    chain = chain_of()
    both = follows(chain, amend.next_controller(chain, machine("second").public, stolen=False, now_ms=LATER))
    after = follows(both, amend.next_controller(both, new, stolen=True, now_ms=LATER))
    assert after.root.controller_epoch == 2
    assert after.keys(RoleName.CONTROLLER) == after.plan_keys() == (new,)


def test_a_draft_says_who_signed_it_and_who_may_still() -> None:
    chain = chain_of(root(BOTH), "mira", "jon")
    made = amend.added(chain, EVE, person("eve.root").public, (RoleName.ROOT,), LATER)
    draft = read_draft(chain, seal_root(made, *root_signers("mira")))
    assert (draft.old.signed, draft.old.need, draft.old.missing) == (("mira",), 2, ("jon",))
    assert (draft.new.signed, draft.new.missing) == (("mira",), ("eve", "jon"))
    assert (draft.complete, draft.may_sign) == (False, ("eve", "jon"))
    eve = read_draft(chain, countersign(draft.text, kind="root", signer=person("eve.root")))
    assert (eve.new.enough, eve.old.enough, eve.may_sign) == (True, False, ("jon",))
    with pytest.raises(Refusal):
        chain.advance(eve.text)
    jon = read_draft(chain, countersign(eve.text, kind="root", signer=person("jon.root")))
    assert jon.complete
    assert chain.advance(jon.text).root.version == 2


def test_a_draft_that_could_never_follow_is_none() -> None:
    chain = chain_of()
    second = follows(chain, amend.added(chain, EVE, person("eve").public, (RoleName.APPROVER,), LATER))
    with pytest.raises(Refusal, match="cannot follow root 1"):
        read_draft(chain, seal_root(amend.revoked(second, EVE, amend.PEOPLES, LATER), *root_signers("mira")))


def test_commits_are_signed_or_not_by_the_roots_word_and_never_without_one_key_that_may() -> None:
    chain = chain_of(root(role(RoleName.CHANGE, 1, "mira")))
    on = follows(chain, amend.signing_commits(chain, True, NOW), "mira")
    assert on.root.signed_commits is True
    off = follows(on, amend.signing_commits(on, False, NOW), "mira")
    assert off.root.signed_commits is None, "as it was before there was such a level"
    for known, said in ((on, True), (off, False)):
        with pytest.raises(Refusal) as refusal:
            amend.signing_commits(known, said, NOW)
        assert refusal.value.code == "root_amendment"
    nobody = chain_of(root())
    with pytest.raises(Refusal, match="one signature"):
        follows(nobody, amend.signing_commits(nobody, True, NOW), "mira")
    two = chain_of(root(role(RoleName.CHANGE, 2, "mira", "jon")))
    with pytest.raises(Refusal, match="one signature"):
        follows(two, amend.signing_commits(two, True, NOW), "mira")


def test_a_limit_of_paths_stays_with_the_person_when_the_key_changes() -> None:
    chain = chain_of(root(role(RoleName.CHANGE, 1, "mira")))
    bot = person("bot").public
    made = amend.added(chain, PersonName("bot"), bot, (RoleName.CHANGE,), NOW)
    limited = follows(chain, amend.confined(made, bot, ["profiles.d/", "fleet.d/hosts.yaml"]), "mira")
    assert change(limited)["bot"] == ("fleet.d/hosts.yaml", "profiles.d/")
    moved = amend.replaced(limited, PersonName("bot"), person("bot new").public, (RoleName.CHANGE,), NOW)
    after = follows(limited, moved, "mira")
    assert change(after) == {"mira": None, "bot": ("fleet.d/hosts.yaml", "profiles.d/")}
    with pytest.raises(Refusal, match="this one may not"):
        amend.confined(made, person("stranger").public, ["profiles.d/"])


BAD_PATHS = [
    "",
    "/",
    "/etc/",
    "../x",
    "a/../b",
    "a//b",
    "./a",
    "policies/trust/",
    "policies/trust/root/",
    "policies/",
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_limit_that_means_nothing_or_reaches_the_trust_is_refused(path: str) -> None:
    chain = chain_of(root(role(RoleName.CHANGE, 1, "mira")))
    bot = person("bot").public
    made = amend.confined(amend.added(chain, PersonName("bot"), bot, (RoleName.CHANGE,), NOW), bot, [path])
    with pytest.raises(Refusal, match="no path that a key may be limited to"):
        follows(chain, made, "mira")


def change(chain: RootChain) -> dict[str, tuple[str, ...] | None]:
    found = chain.root.role(RoleName.CHANGE)
    assert found is not None
    return {str(entry.holder): entry.paths for entry in found.keys}


def test_a_certificate_is_pinned_beside_the_present_one_and_then_alone() -> None:
    chain = chain_of(root(controller_tls=("one",)))
    both = follows(chain, amend.next_certificate(chain, "two", stolen=False, now_ms=NOW), "mira")
    assert both.root.controller_tls == ("one", "two")
    with pytest.raises(Refusal, match="under way"):
        amend.next_certificate(both, "three", stolen=False, now_ms=NOW)
    alone = follows(both, amend.only_certificate(both, NOW), "mira")
    assert alone.root.controller_tls == ("two",)
    with pytest.raises(Refusal, match="no rotation"):
        amend.only_certificate(alone, NOW)
    assert amend.next_certificate(both, "three", stolen=True, now_ms=NOW).controller_tls == ("three",)
