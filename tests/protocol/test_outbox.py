"""The controller's side: one body for a number, one command for a wish, nothing given back without a final receipt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Bug, Refusal
from gridops.base.ids import HostId, ReplicaId
from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.model.action import Action
from gridops.model.profile import Restart
from gridops.protocol import outbox as ob
from gridops.protocol.alarm import Alarm
from gridops.protocol.messages import GrantMode, Head, Heartbeat, Outcome, Receipt, Term
from gridops.protocol.outbox import Outbox
from gridops.protocol.receipts import Receipts, new_receipts, state
from tests.protocol import build
from tests.protocol.build import FLEET, HOST, HOST_KEY, NOW, TERM

OTHER = digest_bytes(b"other")


def queued(*actions: Action, of: Outbox | None = None) -> Outbox:
    box = of or replace(build.outbox(), obeyed=TERM)
    for action in actions:
        box, _ = ob.enqueue(box, action, build.cause(), FLEET, NOW)
    return box


THREE = queued(build.load(1), build.load(2), build.load(3))


def receipts(
    box: Outbox, *outcomes: tuple[int, Outcome], of: Receipts | None = None
) -> tuple[Receipts, tuple[Receipt, ...]]:
    """A host's chain of receipts for entries of an outbox; `unknown` is not final."""
    chain = of or new_receipts(FLEET, HOST, HOST_KEY)
    made = []
    for seq, outcome in outcomes:
        head = Head(seq=seq, body=box.entries[seq - 1].digest)
        said = build.statement(head, outcome, final=outcome is not Outcome.UNKNOWN)
        chain, receipt = state(chain, "b1", said)
        made.append(receipt)
    return chain, tuple(made)


def beat(seq: int, body: str | None = None, **changes: object) -> Heartbeat:
    """A heartbeat of a host that obeys us, with its head at one of THREE's bodies or at another one."""
    known = {0: build.START, **{e.body.seq: e.digest for e in THREE.entries}}
    head = Head(seq=seq, body=body or known[seq])  # type: ignore[arg-type]
    return replace(build.heartbeat(replace(build.fence(), head=head, term=TERM)), **changes)


def settled(box: Outbox, *made: Receipt) -> Outbox:
    for receipt in made:
        box = ob.settle(box, receipt)
    return box


def codes(box: Outbox) -> list[str]:
    return [a.code for a in box.alarms]


# --- numbers and wishes ---------------------------------------------------------------------------------------------


def test_bodies_are_numbered_without_gaps_and_chained() -> None:
    assert [e.body.seq for e in THREE.entries] == [1, 2, 3]
    assert [e.body.prev for e in THREE.entries] == [build.START, *(e.digest for e in THREE.entries[:2])]
    assert THREE.head == Head(seq=3, body=digest_of(THREE.entries[2].body))


SAME = {
    "load": build.load(1),
    "load of other files": build.load(2),
    "warm": build.warm(1),
    "warm of another launch": build.warm(2),
    "warm on other devices": build.warm(1, ("gpu1",)),
    "drain": build.drain(1),
    "drain of another incarnation": build.drain(2),
    "unload": build.unload(1),
    "unload by force": build.unload(1, force=True),
    "operate": build.operate(1),
    "operate to serve more": build.operate(1, ("coder", "gpt")),
    "operate with another restart": replace(build.operate(1), restart=Restart(max=1)),
    "load for another replica": replace(build.load(1), replica=ReplicaId("coder/9")),
    "load on another host": replace(build.load(1), host=HostId("gpu-08")),
}


def test_each_wish_has_a_key_of_its_own() -> None:
    keys = {name: ob.action_key(action) for name, action in SAME.items()}
    assert len(set(keys.values())) == len(SAME)


def test_the_same_wish_has_the_same_key_whatever_it_costs_or_how_long_it_may_take() -> None:
    assert ob.action_key(build.warm(1, ("gpu0", "gpu1"))) == ob.action_key(build.warm(1, ("gpu1", "gpu0")))
    longer = replace(build.warm(1), warm_ms=99, device_bytes=1, serves=("a",))
    assert ob.action_key(longer) == ob.action_key(build.warm(1))
    assert ob.action_key(replace(build.drain(1), grace_ms=1)) == ob.action_key(build.drain(1))


def test_a_wish_under_way_is_not_issued_twice() -> None:
    key = ob.action_key(build.load(1))
    assert ob.pending(THREE, key) == THREE.entries[0]
    with pytest.raises(Bug, match="same wish"):
        queued(build.load(1), of=THREE)
    voiding = ob.void(THREE, 1)
    assert ob.pending(voiding, key) is not None, "until its receipt nobody knows which won"
    _, made = receipts(THREE, (1, Outcome.VOIDED))
    over = settled(voiding, *made)
    assert ob.pending(over, key) is None
    assert queued(build.load(1), of=over).head.seq == 4


def test_an_action_goes_only_into_its_own_hosts_outbox() -> None:
    with pytest.raises(Bug, match="gpu-08"):
        queued(replace(build.load(1), host=HostId("gpu-08")))


def test_a_host_gets_no_more_than_it_may_have_open() -> None:
    full = queued(*(build.load(n) for n in range(1, limits.OPEN_BODIES_PER_HOST)))
    forgotten = replace(full, unknown=(ob.Unknown(seq=99, body=OTHER),))
    with pytest.raises(Refusal, match="too_many_open"):
        queued(build.load(900), of=forgotten)
    assert queued(build.load(900), of=full).head.seq == limits.OPEN_BODIES_PER_HOST


def test_a_journalled_body_comes_back_as_the_same_entry() -> None:
    again = replace(build.outbox(), obeyed=TERM)
    for entry in THREE.entries:
        again = ob.adopt_body(again, entry.body, entry.authority, entry.created_ms)
    assert again == THREE
    with pytest.raises(Bug, match="does not follow"):
        ob.adopt_body(again, THREE.entries[0].body, build.APPROVED, NOW)


def test_an_outbox_comes_back_from_the_journal_as_it_was() -> None:
    for box in (THREE, settled(THREE, *receipts(THREE, (1, Outcome.FAILED))[1]), replace(THREE, receipt_prev=None)):
        assert from_bytes(Outbox, to_bytes(box)) == box


# --- grants ---------------------------------------------------------------------------------------------------------


def test_nothing_is_granted_until_the_host_obeys_this_controller() -> None:
    assert ob.grants_due(replace(THREE, obeyed=None), TERM, NOW) == ()
    assert ob.grants_due(THREE, Term(epoch=1, counter=6), NOW) == ()
    assert not ob.ready(THREE, Term(epoch=1, counter=6))
    assert len(ob.grants_due(THREE, TERM, NOW)) == 3


def test_an_unanswered_body_is_granted_again_with_fresh_validity_and_never_changes() -> None:
    first = ob.grants_due(THREE, TERM, NOW)
    hour = NOW + 3_600_000
    term = Term(epoch=1, counter=9)
    later = ob.grants_due(replace(THREE, obeyed=term), term, hour)
    assert [g.body for g in later] == [g.body for g in first]
    assert {(g.issued_ms, g.not_after_ms, g.term) for g in later} == {(hour, hour + limits.GRANT_VALID_MS, term)}


def test_grants_are_bounded_and_in_order() -> None:
    many = queued(*(build.load(n) for n in range(1, 41)))
    due = ob.grants_due(many, TERM, NOW)
    assert [g.body.seq for g in due] == list(range(1, limits.GRANTS_PER_DIRECTIVE + 1))
    due = ob.grants_due(ob.mark_delivered(many, 7), TERM, NOW)
    assert due[0].body.seq == 8


def test_what_the_host_has_decided_is_granted_no_more_but_a_void_still_is() -> None:
    delivered = ob.mark_delivered(ob.void(THREE, 1), 2)
    due = ob.grants_due(delivered, TERM, NOW)
    assert [(g.body.seq, g.mode) for g in due] == [(3, GrantMode.EXECUTE), (1, GrantMode.VOID)]


def test_a_void_is_never_taken_back_and_a_settled_body_cannot_be_voided() -> None:
    voided = ob.void(THREE, 2)
    assert voided.entries[1].wanted is GrantMode.VOID
    assert ob.void(voided, 2) is voided
    over = settled(THREE, *receipts(THREE, (1, Outcome.SUCCEEDED))[1])
    assert ob.void(over, 1) is over


# --- receipts -------------------------------------------------------------------------------------------------------


def test_only_a_final_receipt_gives_back_what_a_body_may_hold() -> None:
    voided = ob.mark_delivered(ob.void(THREE, 1), 3)
    assert len(ob.open_entries(voided)) == 3
    chain, made = receipts(THREE, (1, Outcome.UNKNOWN))
    unsure = settled(voided, *made)
    assert len(ob.open_entries(unsure)) == 3
    assert unsure.entries[0].receipt == made[0]
    _, final = receipts(THREE, (1, Outcome.FAILED), of=chain)
    assert [e.body.seq for e in ob.open_entries(settled(unsure, *final))] == [2, 3]


def test_receipts_read_twice_change_nothing() -> None:
    _, made = receipts(THREE, (1, Outcome.SUCCEEDED), (2, Outcome.FAILED))
    once = settled(THREE, *made)
    assert once.acked_rseq == 2
    for receipt in (*made, *reversed(made)):
        assert ob.settle(once, receipt) is once


def test_a_missing_receipt_is_an_alarm_and_stops_the_reading_there() -> None:
    _, made = receipts(THREE, (1, Outcome.SUCCEEDED), (2, Outcome.SUCCEEDED))
    jumped = ob.settle(THREE, made[1])
    assert codes(jumped) == ["receipt_gap"]
    assert (jumped.acked_rseq, len(ob.open_entries(jumped))) == (0, 3)
    assert ob.settle(jumped, made[1]) is jumped, "the same alarm is kept once"
    assert settled(jumped, *made).acked_rseq == 2


def test_a_rewritten_chain_is_an_alarm_and_is_not_read() -> None:
    _, made = receipts(THREE, (1, Outcome.SUCCEEDED), (2, Outcome.FAILED))
    _, other = receipts(THREE, (1, Outcome.FAILED), (2, Outcome.FAILED))
    box = settled(THREE, made[0], other[1])
    assert codes(box) == ["receipt_gap"]
    assert box.acked_rseq == 1


def test_the_first_final_receipt_stands_and_a_second_one_is_reported() -> None:
    _, made = receipts(THREE, (1, Outcome.FAILED), (1, Outcome.SUCCEEDED))
    box = settled(THREE, *made)
    assert box.entries[0].receipt == made[0]
    assert codes(box) == ["receipt_conflict"]
    assert box.acked_rseq == 2


def test_two_receipts_of_one_number_are_reported() -> None:
    _, made = receipts(THREE, (1, Outcome.FAILED))
    _, other = receipts(THREE, (1, Outcome.SUCCEEDED))
    box = settled(THREE, *made, *other)
    assert box.entries[0].receipt == made[0]
    assert codes(box) == ["receipt_conflict"]


@pytest.mark.parametrize("change", [{"host": HostId("gpu-08")}, {"fleet": OTHER}])
def test_a_receipt_that_names_somebody_else_is_not_read(change: dict[str, object]) -> None:
    _, made = receipts(THREE, (1, Outcome.SUCCEEDED))
    box = ob.settle(THREE, replace(made[0], **change))  # type: ignore[arg-type]
    assert codes(box) == ["wrong_host"]
    assert len(ob.open_entries(box)) == 3


def test_a_receipt_for_another_body_under_our_number_stops_everything() -> None:
    _, made = receipts(THREE, (1, Outcome.SUCCEEDED))
    box = ob.settle(THREE, replace(made[0], body=OTHER))
    assert (codes(box), box.held) == (["fork"], "fork")
    assert len(ob.open_entries(box)) == 3
    assert ob.grants_due(box, TERM, NOW) == ()
    with pytest.raises(Refusal, match="fork"):
        queued(build.load(9), of=box)


def test_a_receipt_for_a_number_never_issued_is_not_read() -> None:
    _, made = receipts(THREE, (1, Outcome.SUCCEEDED))
    box = ob.settle(THREE, replace(made[0], seq=9))
    assert codes(box) == ["fork"]
    assert box.acked_rseq == 0


def test_settled_entries_are_forgotten_beyond_the_bound_and_open_ones_never() -> None:
    box, chain = THREE, new_receipts(FLEET, HOST, HOST_KEY)
    for number in range(4, 4 + limits.SETTLED_KEPT + 3):
        box = queued(build.load(number), of=box)
        head = Head(seq=number, body=box.entries[-1].digest)
        chain, receipt = state(chain, "b1", build.statement(head))
        box = ob.settle(box, receipt)
    assert [e.body.seq for e in ob.open_entries(box)] == [1, 2, 3]
    assert len(box.entries) == 3 + limits.SETTLED_KEPT
    assert box.alarms == ()


def test_alarms_are_bounded() -> None:
    _, made = receipts(THREE, (1, Outcome.SUCCEEDED))
    box = THREE
    for number in range(2, 2 + 2 * limits.ALARMS):
        box = ob.settle(box, replace(made[0], rseq=number))
    assert len(box.alarms) == limits.ALARMS
    assert ob.clear_alarms(box).alarms == ()
    assert ob.clear_alarms(THREE) is THREE


# --- heads ----------------------------------------------------------------------------------------------------------


def test_a_host_behind_is_usual() -> None:
    learned = ob.relearn(THREE, beat(2), TERM)
    assert isinstance(learned, Outbox)
    assert [e.delivered for e in learned.entries] == [True, True, False]
    assert learned.heard_seq == 2
    assert ob.relearn(learned, beat(2, hseq=9), TERM) is learned


def test_a_heartbeat_under_another_term_says_nothing_yet() -> None:
    old = beat(9, OTHER, term=Term(epoch=1, counter=4))
    assert ob.relearn(THREE, old, TERM) is THREE


def test_a_controller_restored_from_an_old_journal_adopts_the_hosts_head() -> None:
    """Backup taken after body 1; bodies 2 and 3 were issued, 2 is done, 3 is under way, and nobody here knows."""
    restored = replace(queued(build.load(1)), obeyed=None)
    open_there = (THREE.head,)
    learned = ob.relearn(restored, beat(3, receipt_head=2, open=open_there), TERM)
    assert isinstance(learned, Outbox)
    assert learned.head == THREE.head
    assert learned.unknown == (ob.Unknown(seq=3, body=THREE.head.body),)
    chain, made = receipts(THREE, (1, Outcome.SUCCEEDED), (2, Outcome.SUCCEEDED))
    box = settled(learned, *made)
    assert (box.acked_rseq, box.alarms, ob.open_entries(box)) == (2, (), ())
    assert len(box.unknown) == 1, "body 3 may still hold memory"
    chain, unsure = receipts(THREE, (3, Outcome.UNKNOWN), of=chain)
    box = settled(box, *unsure)
    assert box.unknown[0].receipt == unsure[0]
    _, last = receipts(THREE, (3, Outcome.SUCCEEDED), of=chain)
    assert settled(box, *last).unknown == ()
    assert queued(build.load(7), of=box).entries[-1].body.prev == THREE.head.body


def test_a_rebuilt_controller_steps_over_receipts_that_no_longer_exist() -> None:
    chain, made = receipts(THREE, (1, Outcome.SUCCEEDED), (2, Outcome.SUCCEEDED), (3, Outcome.SUCCEEDED))
    learned = ob.relearn(build.outbox(), beat(3, receipt_head=chain.head, receipt_tail=3), TERM)
    assert isinstance(learned, Outbox)
    assert (learned.acked_rseq, codes(learned)) == (2, ["receipt_gap"])
    leaping = replace(made[2], rseq=4)
    assert ob.settle(learned, leaping).acked_rseq == 2, "only what was said to be lost may be missing"
    assert settled(learned, made[2]).acked_rseq == 3


FORKS = {
    "the head": beat(3, OTHER),
    "an older head": beat(2, OTHER),
    "the beginning": beat(0, OTHER),
    "an open body": beat(3, open=(Head(seq=1, body=OTHER),)),
}


@pytest.mark.parametrize("where", FORKS)
def test_two_bodies_for_one_number_are_a_fork(where: str) -> None:
    found = ob.relearn(THREE, FORKS[where], TERM)
    assert isinstance(found, Alarm)
    assert found.code == "fork"
    held = ob.hold(THREE, found)
    assert ob.hold(held, found) is held
    assert (held.held, held.alarms) == ("fork", (found,))
    assert ob.grants_due(held, TERM, NOW) == ()


def test_a_host_that_forgot_is_rewound() -> None:
    heard = ob.relearn(THREE, beat(3), TERM)
    assert isinstance(heard, Outbox)
    back = ob.relearn(heard, beat(2), TERM)
    assert isinstance(back, Alarm)
    assert back.code == "host_rewound"
    read = settled(THREE, *receipts(THREE, (1, Outcome.SUCCEEDED))[1])
    found = ob.relearn(read, beat(1, receipt_head=0), TERM)
    assert isinstance(found, Alarm)
    assert found.code == "host_rewound"


@pytest.mark.parametrize("change", [{"host": HostId("gpu-08")}, {"fleet": OTHER}])
def test_a_heartbeat_that_names_somebody_else_is_an_alarm(change: dict[str, object]) -> None:
    found = ob.relearn(THREE, beat(1, **change), TERM)
    assert isinstance(found, Alarm)
    assert found.code == "wrong_host"


def test_a_person_resolves_a_fork_by_the_hosts_account() -> None:
    mine, theirs = THREE.entries[0].digest, Head(seq=4, body=OTHER)
    said = beat(5, digest_bytes(b"five"), open=(Head(seq=1, body=mine), theirs), receipt_tail=7, receipt_head=8)
    found = Alarm(code="fork", host=HOST, detail="")
    box = ob.resolve(ob.hold(THREE, found), said)
    assert (box.held, box.alarms, box.head) == (None, (), said.head)
    assert [(e.digest, e.delivered) for e in box.entries] == [(mine, True)]
    assert box.unknown == (ob.Unknown(seq=4, body=OTHER),)
    assert (box.acked_rseq, ob.ready(box, TERM)) == (6, True)
    assert isinstance(ob.relearn(box, said, TERM), Outbox)
    assert queued(build.load(8), of=box).head.seq == 6
