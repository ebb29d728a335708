"""Outbox, fence and receipts as one machine, against a network that drops, repeats, reorders and replays anything.

The host is a model with a durable part (fence, receipts, intents) and a world in which effects happen; it may crash
between any two of: record, act, state the outcome, send. The controller may be replaced (new term, the old one goes on
talking) or restored from an old copy of its journal. Signatures are real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.model.action import Action, Load
from gridops.protocol import fence as fences
from gridops.protocol import outbox as outboxes
from gridops.protocol import receipts as statements
from gridops.protocol.alarm import Alarm
from gridops.protocol.fence import Cancel, Execute, Reject, Repeat, Voided
from gridops.protocol.messages import Body, Grant, GrantMode, Outcome, Receipt, Term
from gridops.protocol.open import open_heartbeat, open_receipt
from gridops.protocol.pulse import Pulse, beat
from gridops.trust.keys import MachineSigner
from tests.protocol import build

SOMETIMES: Counter[str] = Counter()
"""What happened in this run of the machine: a fault that never occurs proves nothing."""
KEY = build.HOST_SIGNER.public
NEARLY = st.integers(0, 9)
"""Zero is the rare case."""


@dataclass
class Host:
    """`fence`, `receipts`, `intents` survive a crash; `acted` is the world; `hseq` and `boot` are of this run."""

    fence: fences.Fence = field(default_factory=build.fence)
    receipts: statements.Receipts = field(
        default_factory=lambda: statements.new_receipts(build.FLEET, build.HOST, build.HOST_KEY)
    )
    intents: dict[Digest, tuple[Body, Term]] = field(default_factory=dict)
    acted: list[Digest] = field(default_factory=list)
    boot: int = 1
    hseq: int = 0
    heard: int = 0

    def finish(self, body: Digest, outcome: Outcome, code: str | None = None) -> None:
        of, term = self.intents.pop(body)
        said = statements.Statement(
            body=body, seq=of.seq, term=term, outcome=outcome, code=code, began_ms=build.NOW, ended_ms=build.NOW
        )
        self.receipts, receipt = statements.state(self.receipts, f"boot-{self.boot}", said)
        self.fence = fences.settle(self.fence, body, receipt.rseq)


class Spine(RuleBasedStateMachine):
    FINAL = frozenset({"unapproved"})
    """Codes with which a command is refused for good."""
    PASSING = frozenset({"stale_term", "gap", "expired", "not_yet", "stale_session"})

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.outbox = build.outbox()
        self.pulse = Pulse(host=build.HOST)
        self.term = Term(epoch=1, counter=1)
        self.now = build.NOW
        self.backup = self.outbox
        self.deposed: list[tuple[outboxes.Outbox, Term]] = []
        self.down: list[str] = []
        self.up: list[tuple[str, tuple[str, ...]]] = []
        self.obeyed = (0, 0)
        self.issued: dict[int, set[Digest]] = {}
        self.forgotten: set[Digest] = set()
        self.wishes = 0

    @initialize(standing=st.booleans())
    def root(self, standing: bool) -> None:
        self.chain = build.CHAIN if standing else build.NO_STANDING
        self.host_chain = self.chain
        self.standing = standing
        self.a_round_goes_well(act=False, lost=False)

    # --- the controller

    @precondition(lambda self: outboxes.ready(self.outbox, self.term) and len(outboxes.open_entries(self.outbox)) < 20)
    @rule(kinds=st.lists(st.sampled_from([build.load, build.warm, build.drain]), min_size=1, max_size=4), bad=NEARLY)
    def wish(self, kinds: list[Callable[[int], Action]], bad: int) -> None:
        for kind in kinds:
            self._wish(kind, authorised=bad > 0)

    def _wish(self, kind: Callable[[int], Action], *, authorised: bool) -> None:
        self.wishes += 1
        action = kind(self.wishes)
        assert outboxes.pending(self.outbox, outboxes.action_key(action)) is None
        authority = build.STANDING if self.standing else build.approved(action)
        authority = authority if authorised else replace(build.APPROVED, approvals=())
        self.outbox, body = outboxes.enqueue(self.outbox, action, build.cause(authority), build.FLEET, self.now)
        self.issued.setdefault(body.seq, set()).add(digest_of(body))

    @precondition(lambda self: outboxes.open_entries(self.outbox))
    @rule(pick=st.integers(0, 19))
    def take_back(self, pick: int) -> None:
        entries = outboxes.open_entries(self.outbox)
        self.outbox = outboxes.void(self.outbox, entries[pick % len(entries)].body.seq)

    @rule()
    def send_grants(self) -> None:
        self._send(self.outbox, self.term)

    @precondition(lambda self: self.deposed)
    @rule(pick=st.integers(0, 3))
    def a_deposed_controller_goes_on(self, pick: int) -> None:
        old, term = self.deposed[pick % len(self.deposed)]
        self._send(old, term)

    def fail_over(self) -> None:
        self.deposed.append((self.outbox, self.term))
        self.term = replace(self.term, counter=self.term.counter + 1)
        self.pulse = Pulse(host=build.HOST)
        self.up.clear()

    def restore_the_backup(self) -> None:
        known = {e.digest for e in self.backup.entries}
        self.forgotten |= {e.digest for e in self.outbox.entries} - known
        self.outbox = self.backup
        self.fail_over()

    @rule(what=st.sampled_from(["back up", "back up", "restore", "fail over", "crash", "wait", "wait long"]))
    def something_goes_wrong(self, what: str) -> None:
        match what:
            case "back up":
                self.backup = self.outbox
            case "restore" if len(self.deposed) < 3:
                self.restore_the_backup()
            case "fail over" if len(self.deposed) < 3:
                self.fail_over()
            case "crash":
                self.the_agent_crashes()
            case "wait":
                self.now += build.MINUTE
            case "wait long":
                self.now += 11 * build.MINUTE

    @precondition(lambda self: self.up)
    @rule(pick=st.integers(0, 200), newest=st.booleans(), lost=st.booleans())
    def a_beat_arrives(self, pick: int, newest: bool, lost: bool) -> None:
        text, receipts = self.up[-1] if newest else self.up[pick % len(self.up)]
        self._take(text, () if lost else receipts)

    # --- the host

    @rule()
    def the_host_beats(self) -> None:
        self.host.hseq += 1
        said = build.heartbeat(
            self.host.fence,
            self.host.receipts.head,
            boot=f"boot-{self.host.boot}",
            hseq=self.host.hseq,
            heard_ms=self.host.heard,
            receipt_tail=statements.tail(self.host.receipts),
            nonce=f"n-{self.host.boot}-{self.host.hseq}",
        )
        owed = tuple(build.sealed(r, build.HOST_SIGNER) for r in statements.owed(self.host.receipts))
        self.up.append((build.sealed(said, build.HOST_SIGNER), owed))

    @precondition(lambda self: self.down)
    @rule(pick=st.integers(0, 400), fresh=NEARLY, crash=NEARLY)
    def a_grant_arrives(self, pick: int, fresh: int, crash: int) -> None:
        self._examine(self.down[pick % len(self.down)], fresh=fresh > 0)
        if crash == 0:
            self.the_agent_crashes()

    @precondition(lambda self: self.down)
    @rule(fresh=NEARLY)
    def the_newest_grants_arrive(self, fresh: int) -> None:
        for text in self.down[-16:]:
            self._examine(text, fresh=fresh > 0)

    @rule(act=st.booleans(), lost=st.booleans())
    def a_round_goes_well(self, act: bool, lost: bool) -> None:
        """What happens nearly always in life, so that the rest happens to a history worth the name."""
        self._obey(self.term, self.outbox.acked_rseq)
        self.the_host_beats()
        self._take(*self.up[-1])
        before = len(self.down)
        self._send(self.outbox, self.term)
        for text in self.down[before:]:
            if not lost:
                self._examine(text, fresh=True)
        for body in sorted(self.host.intents) if act else ():
            if body not in self.host.acted:
                self.host.acted.append(body)
            self.host.finish(body, Outcome.SUCCEEDED)

    @rule(old=NEARLY)
    def a_fresh_directive_arrives(self, old: int) -> None:
        for outbox, term in self.deposed if old == 0 else [(self.outbox, self.term)]:
            self._obey(term, outbox.acked_rseq)

    @precondition(lambda self: self.host.intents)
    @rule(pick=st.integers(0, 19), told=st.booleans())
    def an_effect_happens(self, pick: int, told: bool) -> None:
        bodies = sorted(set(self.host.intents) - set(self.host.acted))
        if bodies:
            body = bodies[pick % len(bodies)]
            self.host.acted.append(body)
            if told:
                self.host.finish(body, Outcome.SUCCEEDED)

    def the_agent_crashes(self) -> None:
        self.host.boot, self.host.hseq = self.host.boot + 1, 0
        for open_head in fences.open_heads(self.host.fence):
            if open_head.body in self.host.acted:  # the process with the body's cookie is there
                self.host.finish(open_head.body, Outcome.SUCCEEDED)
            else:  # never run again
                SOMETIMES["interrupted"] += 1
                self.host.finish(open_head.body, Outcome.FAILED, "interrupted")

    # --- what must always hold

    @invariant()
    def a_body_is_executed_at_most_once(self) -> None:
        assert len(self.host.acted) == len(set(self.host.acted))

    @invariant()
    def what_was_not_accepted_has_no_effect(self) -> None:
        for receipt in self.host.receipts.kept:
            if receipt.outcome in (Outcome.VOIDED, Outcome.REFUSED) or receipt.code == "interrupted":
                assert receipt.body not in self.host.acted

    @invariant()
    def nothing_is_given_back_without_a_final_receipt(self) -> None:
        stated = {r.body: r for r in self.host.receipts.kept if r.final}
        for entry in self.outbox.entries:
            assert entry.open or stated[entry.digest] == entry.receipt
        kept = {e.digest for e in self.outbox.entries if e.open} | {u.body for u in self.outbox.unknown}
        if outboxes.ready(self.outbox, self.term):
            for seq, bodies in self.issued.items():
                if seq > self.outbox.heard_seq:
                    assert bodies - self.forgotten <= kept, f"command {seq} was forgotten while it may still happen"

    @invariant()
    def both_sides_know_one_body_for_a_number(self) -> None:
        assert self.outbox.held is None
        assert self.outbox.alarms == ()
        for item in self.host.fence.decided:
            assert item.body in self.issued[item.seq]

    def teardown(self) -> None:
        """The network heals: within a few rounds both sides agree on everything."""
        if not hasattr(self, "chain"):
            return
        for _ in range(12):
            self.a_round_goes_well(act=True, lost=False)
        self._agree()

    def _agree(self) -> None:
        assert outboxes.open_entries(self.outbox) == ()
        assert self.outbox.unknown == ()
        assert self.host.fence.head == self.outbox.head
        assert fences.open_heads(self.host.fence) == ()
        assert statements.owed_count(self.host.receipts) == 0
        stated = {r.body: r for r in self.host.receipts.kept}
        for entry in self.outbox.entries:
            assert entry.receipt == stated[entry.digest]
        for body, receipt in stated.items():
            assert (receipt.outcome is Outcome.SUCCEEDED) == (body in self.host.acted)
        self.nothing_is_given_back_without_a_final_receipt()
        self.both_sides_know_one_body_for_a_number()

    # --- the wire

    def _send(self, outbox: outboxes.Outbox, term: Term) -> None:
        for grant in outboxes.grants_due(outbox, term, self.now):
            self.down.append(build.sealed(grant, self.signer(term)))

    def signer(self, term: Term) -> MachineSigner:
        return build.CONTROLLER

    def _obey(self, term: Term, acked: int) -> None:
        """A directive that is no replay: the nonce sees to that, so only who sends it is in question."""
        self.host.heard += 1
        if term.rank < self.obeyed:
            with pytest.raises(Refusal, match="stale_term"):
                fences.raise_term(self.host.fence, term, self.host_chain)
            return
        self.host.fence = fences.raise_term(self.host.fence, term, self.host_chain)
        self.obeyed = self.host.fence.term.rank
        answer = statements.acknowledge(self.host.receipts, acked)
        assert not isinstance(answer, Alarm)
        self.host.receipts = answer

    def _take(self, text: str, receipts: tuple[str, ...]) -> None:
        said = open_heartbeat(text, KEY)
        judged = beat(self.pulse, said)
        if isinstance(judged, Alarm) or not judged[1]:
            return
        self.pulse = judged[0]
        learned = outboxes.relearn(self.outbox, said, self.term)
        assert not isinstance(learned, Alarm), learned
        SOMETIMES["a body was adopted"] += len(learned.unknown) > len(self.outbox.unknown)
        SOMETIMES["void lost"] += any(
            e.wanted is GrantMode.VOID and e.receipt and e.receipt.outcome is Outcome.SUCCEEDED for e in learned.entries
        )
        self.outbox = learned
        for receipt in receipts if said.term == self.term else ():
            self.outbox = outboxes.settle(self.outbox, open_receipt(receipt, KEY))

    def stands(self, fresh: bool) -> fences.Standing:
        return fences.Standing(self.now, fresh, self.host_chain, statements.owed_count(self.host.receipts))

    def accepted(self, grant: Grant) -> None:
        """What must be true of a command when it is accepted."""

    def _examine(self, text: str, *, fresh: bool) -> None:
        host, before = self.host, self.host.fence
        host.heard += fresh  # grants come inside of directives
        ruling = fences.examine(before, text, self.stands(fresh))
        SOMETIMES[ruling.code if isinstance(ruling, Reject) else type(ruling).__name__.lower()] += 1
        match ruling:
            case Execute(grant, after):
                assert grant.mode is GrantMode.EXECUTE
                assert fresh
                assert grant.term.rank >= self.obeyed
                self.accepted(grant)
                host.fence = after
                host.intents[digest_of(grant.body)] = (grant.body, grant.term)
            case Voided(grant, after):
                host.fence = after
                host.intents[digest_of(grant.body)] = (grant.body, grant.term)
                host.finish(digest_of(grant.body), Outcome.VOIDED)
            case Reject(code, _, True, grant, after):
                assert grant is not None
                assert code in self.FINAL
                host.fence = after
                host.intents[digest_of(grant.body)] = (grant.body, grant.term)
                host.finish(digest_of(grant.body), Outcome.REFUSED, code)
            case Reject(code, _, False, _, after):
                assert after is before
                assert code in self.PASSING
            case Cancel(body, _):
                if isinstance(host.intents[body][0].action, Load) and body not in host.acted:
                    host.finish(body, Outcome.VOIDED)
                    SOMETIMES["a transfer was stopped"] += 1
            case Repeat(body, _):
                assert body in host.intents or statements.stored(host.receipts, body) is not None
        assert host.fence.term.rank >= self.obeyed
        self.obeyed = host.fence.term.rank


TestSpine = Spine.TestCase
TestSpine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def _walk(seed: int) -> None:
    """The same machine with plain dice, which are fairer than a search for failures."""
    dice = Random(seed)
    spine = Spine()
    spine.root(standing=dice.random() < 0.8)
    kinds = [build.load, build.load, build.warm, build.drain]
    wrongs = ["back up", "restore", "fail over", "crash", "crash", "wait", "wait long"]
    for _ in range(50):
        pick = dice.randrange(400)
        match dice.randrange(12):
            case 0 | 1 if outboxes.ready(spine.outbox, spine.term) and len(outboxes.open_entries(spine.outbox)) < 20:
                spine.wish(dice.choices(kinds, k=dice.randint(1, 3)), dice.randrange(10))
            case 2 if outboxes.open_entries(spine.outbox):
                spine.take_back(pick)
            case 3:
                spine.send_grants()
            case 4 if spine.deposed:
                spine.a_deposed_controller_goes_on(pick)
            case 5 if spine.up:
                spine.a_beat_arrives(pick, dice.random() < 0.5, dice.random() < 0.3)
            case 6:
                spine.the_host_beats()
            case 7:
                spine.a_round_goes_well(dice.random() < 0.3, dice.random() < 0.3)
            case 8 if spine.down:
                spine.a_grant_arrives(-dice.randint(1, 12), dice.randrange(3), dice.randrange(10))
            case 9 if spine.down:
                spine.the_newest_grants_arrive(dice.randrange(4))
            case 10 if spine.host.intents:
                spine.an_effect_happens(pick, dice.random() < 0.5)
            case 11:
                spine.something_goes_wrong(dice.choice(wrongs))
        spine.a_body_is_executed_at_most_once()
        spine.what_was_not_accepted_has_no_effect()
        spine.nothing_is_given_back_without_a_final_receipt()
        spine.both_sides_know_one_body_for_a_number()
    spine.teardown()


def test_every_fault_and_every_answer_happens_sometimes() -> None:
    """A mix of faults in which something never occurs proves nothing about it. The same runs every time."""
    SOMETIMES.clear()
    for seed in range(40):
        _walk(seed)
    rulings = {"execute", "voided", "repeat", "cancel"}
    refusals = {"stale_term", "gap", "expired", "stale_session", "unapproved"}
    stories = {"a transfer was stopped", "a body was adopted", "void lost", "interrupted"}
    assert sorted(name for name in rulings | refusals | stories if SOMETIMES[name] < 3) == []


def test_a_receipt_reads_the_same_on_both_sides() -> None:
    host = Host()
    host.intents[build.START] = (build.body(), build.TERM)
    host.fence = replace(host.fence, decided=(fences.Decided(seq=1, body=build.START),))
    host.finish(build.START, Outcome.SUCCEEDED)
    receipt: Receipt = host.receipts.kept[0]
    assert open_receipt(build.sealed(receipt, build.HOST_SIGNER), KEY) == receipt
