"""The machine of `test_machine`, while people change who commands and what may run, and memory is lost on purpose.

Beside every fault there: people rotate the controller's key (whoever has the old one goes on talking), sign a newer
catalog that the host sees sooner or later, and pull the kill switch; a controller loses its journal and is rebuilt from
nothing but what the host says; commands carry an approval of their own, none, or one that was given for another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from gridops.base.errors import Refusal
from gridops.base.ids import Digest, PersonName
from gridops.base.record import digest_of
from gridops.model.action import Action, Load, Warm
from gridops.protocol import fence as fences
from gridops.protocol import outbox as outboxes
from gridops.protocol import receipts as statements
from gridops.protocol.messages import Authority, Grant, Term
from gridops.protocol.pulse import Pulse
from gridops.trust.keys import MachineSigner
from gridops.trust.release import NONE_KNOWN, KnownCatalog, seal_catalog, take
from gridops.trust.root import Role, RoleKey, RoleName, RootChain, seal_root
from tests.protocol import build
from tests.protocol.test_machine import SOMETIMES, Spine
from tests.trust import catalogs

KEYS = (build.CONTROLLER, build.NEXT_CONTROLLER, MachineSigner.from_seed(b"3" * 32))
"""The controller's, by epoch."""
FILES = range(4)


def rotated(chain: RootChain) -> RootChain:
    """The next root: another key for the controller, and a new epoch, because the old one was stolen."""
    epoch = chain.root.controller_epoch + 1
    key = RoleKey(holder=PersonName("controller"), key=KEYS[epoch - 1].public.text)
    roles = {role.name: role for role in chain.root.roles}
    roles[RoleName.CONTROLLER] = Role(name=RoleName.CONTROLLER, threshold=1, keys=(key,))
    return following(chain, controller_epoch=epoch, roles=tuple(roles[name] for name in sorted(roles)))


def following(chain: RootChain, **changes: Any) -> RootChain:
    root = replace(chain.root, version=chain.root.version + 1, fleet=chain.fleet, **changes)
    return chain.advance(seal_root(root, build.ADA))


class Trust(Spine):
    FINAL = Spine.FINAL | {"old_catalog", "not_in_catalog"}
    PASSING = Spine.PASSING | {"bad_signature"}

    def __init__(self) -> None:
        super().__init__()
        self.signed: list[frozenset[int]] = []
        """Which files each catalog holds, by version."""
        self.catalogs: list[str] = []
        self.known: KnownCatalog = NONE_KNOWN
        self.covered: set[Digest] = set()
        """Commands that people let, each by an approval of its own or by what they let stand."""
        self.given: list[Authority] = []

    @initialize(standing=st.booleans())
    def root(self, standing: bool) -> None:
        first = build.released(build.CHAIN, 1, 1, build.ANN)
        self.chain = self.host_chain = first if standing else following(first, standing=False)
        self.standing = standing
        self.people_sign_a_catalog(frozenset(FILES))
        self.a_round_goes_well(act=False, lost=False)

    # --- people

    @precondition(lambda self: len(self.signed) < 6)
    @rule(files=st.frozensets(st.sampled_from(FILES), min_size=1))
    def people_sign_a_catalog(self, files: frozenset[int]) -> None:
        self.signed.append(files)
        entries = [catalogs.entry(build.warm(n).launch, f"coder/q{n}") for n in sorted(files)]
        made = catalogs.catalog(build.FLEET, *entries, version=len(self.signed))
        self.catalogs.append(seal_catalog(made, build.ANN))
        SOMETIMES["a catalog took files away"] += len(self.signed) > 1 and bool(self.signed[-2] - files)

    @precondition(lambda self: self.chain.root.controller_epoch < len(KEYS))
    @rule(really=st.integers(0, 3))
    def people_rotate_the_key(self, really: int) -> None:
        if really == 0:
            self.chain = rotated(self.chain)
            self.deposed.append((self.outbox, self.term))
            self.term = Term(epoch=self.chain.root.controller_epoch, counter=1)
            self.pulse = Pulse(host=build.HOST)
            self.up.clear()
            SOMETIMES["rotated"] += 1

    @rule()
    def people_pull_the_kill_switch(self) -> None:
        for entry in outboxes.open_entries(self.outbox):
            self.outbox = outboxes.void(self.outbox, entry.body.seq)
            SOMETIMES["killed"] += 1

    # --- the controller

    @precondition(lambda self: len(self.deposed) < 5)
    @rule(really=st.integers(0, 3))
    def the_controller_is_rebuilt(self, really: int) -> None:
        """No journal, no body, no receipt: what the host says is all there is."""
        if really == 0:
            self.forgotten |= {e.digest for e in self.outbox.entries}
            self.backup = self.outbox = build.outbox()
            self.fail_over()
            SOMETIMES["rebuilt"] += 1

    def _wish(self, kind: Callable[[int], Action], *, authorised: bool) -> None:
        self.wishes += 1
        files, action = self.wishes % len(FILES), kind(self.wishes)
        if isinstance(action, Load):
            action = replace(action, artifact=build.artifact(files))
        elif isinstance(action, Warm):
            action = replace(action, launch=replace(action.launch, artifact=build.artifact(files)))
        own = build.STANDING if self.standing else build.approved(action)
        other = self.given[self.wishes % len(self.given)] if self.given else build.APPROVED
        authority = own if authorised else replace(other, approvals=other.approvals or ("{}",))
        self.given += [] if self.standing else [own]
        cause = replace(build.cause(authority), catalog=len(self.signed))
        self.outbox, body = outboxes.enqueue(self.outbox, action, cause, build.FLEET, self.now)
        self.issued.setdefault(body.seq, set()).add(digest_of(body))
        if authorised or self.standing:
            self.covered.add(digest_of(body))

    def signer(self, term: Term) -> MachineSigner:
        return KEYS[term.epoch - 1]

    # --- the host

    @rule()
    def the_host_sees_the_newest_catalog(self) -> None:
        self.known = take(self.known, self.host_chain, self.catalogs[-1])

    def stands(self, fresh: bool) -> fences.Standing:
        owed = statements.owed_count(self.host.receipts)
        return fences.Standing(self.now, fresh, self.host_chain, owed, self.known)

    def accepted(self, grant: Grant) -> None:
        assert grant.term.epoch == self.host_chain.root.controller_epoch, "the key of before commands nothing"
        assert digest_of(grant.body) in self.covered, "nobody let this"
        action = grant.body.action
        if isinstance(action, Load | Warm):
            files = action.artifact if isinstance(action, Load) else action.launch.artifact
            version = self.known.catalog.version if self.known.catalog is not None else 0
            assert version >= 1, "nothing is brought before a catalog has come"
            assert (grant.body.catalog or 0) >= version
            assert files in [build.artifact(n) for n in self.signed[version - 1]], "people did not sign these files"

    def _obey(self, term: Term, acked: int) -> None:
        if term == self.term:  # who really commands shows the newest root, and what may run
            self.host_chain = self.chain
            self.the_host_sees_the_newest_catalog()
        elif term.epoch > self.host_chain.root.controller_epoch:  # of between two rotations, both unseen here
            with pytest.raises(Refusal, match="term_jump"):
                fences.raise_term(self.host.fence, term, self.host_chain)
            return
        super()._obey(term, acked)


TestTrust = Trust.TestCase
TestTrust.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def _walk(seed: int) -> None:
    dice = Random(seed)
    spine = Trust()
    spine.root(standing=dice.random() < 0.5)
    kinds = [build.load, build.load, build.warm, build.drain]
    for _ in range(60):
        pick = dice.randrange(400)
        match dice.randrange(14):
            case 0 | 1 if outboxes.ready(spine.outbox, spine.term) and len(outboxes.open_entries(spine.outbox)) < 20:
                spine.wish(dice.choices(kinds, k=dice.randint(1, 3)), dice.randrange(5))
            case 2:
                spine.send_grants()
            case 3 if spine.deposed:
                spine.a_deposed_controller_goes_on(pick)
            case 4 if spine.up:
                spine.a_beat_arrives(pick, dice.random() < 0.5, dice.random() < 0.3)
            case 5:
                spine.the_host_beats()
            case 6:
                spine.a_round_goes_well(dice.random() < 0.3, dice.random() < 0.3)
            case 7 if spine.down:
                spine.a_grant_arrives(-dice.randint(1, 20), dice.randrange(3), dice.randrange(10))
            case 8 if spine.down:
                spine.the_newest_grants_arrive(dice.randrange(4))
            case 9 if spine.host.intents:
                spine.an_effect_happens(pick, dice.random() < 0.5)
            case 10:
                spine.something_goes_wrong(dice.choice(["back up", "restore", "fail over", "crash", "wait"]))
            case 11 if len(spine.signed) < 6:
                spine.people_sign_a_catalog(frozenset(dice.sample(FILES, dice.randint(1, 4))))
            case 12 if spine.chain.root.controller_epoch < len(KEYS) and dice.random() < 0.3:
                spine.people_rotate_the_key(0)
            case 13 if dice.random() < 0.4:
                spine.people_pull_the_kill_switch()
            case 13 if len(spine.deposed) < 5:
                spine.the_controller_is_rebuilt(dice.randrange(2))
        for holds in (
            spine.a_body_is_executed_at_most_once,
            spine.what_was_not_accepted_has_no_effect,
            spine.nothing_is_given_back_without_a_final_receipt,
            spine.both_sides_know_one_body_for_a_number,
        ):
            holds()
    spine.teardown()


def test_every_change_of_trust_and_every_answer_to_it_happens_sometimes() -> None:
    SOMETIMES.clear()
    for seed in range(40):
        _walk(seed)
    wanted = {"execute", "voided", "repeat", "cancel", "stale_term", "bad_signature", "unapproved", "old_catalog",
              "not_in_catalog", "a body was adopted", "void lost", "interrupted", "rotated", "rebuilt", "killed",
              "a catalog took files away"}  # fmt: skip
    assert sorted(name for name in wanted if SOMETIMES[name] < 3) == [], SOMETIMES
