"""The host's chain of receipts: contiguous, repeated until acknowledged, never dropped before, bounded after."""

from __future__ import annotations

from dataclasses import replace

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.protocol import receipts as rc
from gridops.protocol.alarm import Alarm
from gridops.protocol.messages import Head, Outcome
from gridops.protocol.receipts import Receipts
from tests.protocol import build


def stated(count: int, of: Receipts | None = None) -> Receipts:
    chain = of or rc.new_receipts(build.FLEET, build.HOST, build.HOST_KEY)
    for number in range(chain.head + 1, chain.head + 1 + count):
        head = Head(seq=number, body=digest_bytes(b"%d" % number))
        chain, _ = rc.state(chain, "b1", build.statement(head))
    return chain


def acked(chain: Receipts, rseq: int) -> Receipts:
    answer = rc.acknowledge(chain, rseq)
    assert isinstance(answer, Receipts)
    return answer


def test_receipts_are_numbered_without_gaps_and_chained() -> None:
    chain = stated(3)
    assert [r.rseq for r in chain.kept] == [1, 2, 3]
    assert [r.prev for r in chain.kept] == [build.START, *(digest_of(r) for r in chain.kept[:2])]
    assert chain.prev == digest_of(chain.kept[-1])


def test_a_receipt_says_what_was_stated() -> None:
    head = Head(seq=4, body=digest_bytes(b"4"))
    said = build.statement(head, Outcome.FAILED, code="no_space", detail="3 GiB short")
    chain, receipt = rc.state(rc.new_receipts(build.FLEET, build.HOST, build.HOST_KEY), "b7", said)
    assert (receipt.seq, receipt.body, receipt.outcome, receipt.final) == (4, head.body, Outcome.FAILED, True)
    assert (receipt.code, receipt.detail, receipt.boot) == ("no_space", "3 GiB short", "b7")
    assert rc.stored(chain, head.body) == receipt
    assert rc.stored(chain, build.START) is None


def test_what_is_not_acknowledged_is_repeated_oldest_first_and_bounded() -> None:
    chain = stated(limits.RECEIPTS_PER_REQUEST + 9)
    assert [r.rseq for r in rc.owed(chain)] == list(range(1, limits.RECEIPTS_PER_REQUEST + 1))
    chain = acked(chain, 5)
    assert rc.owed(chain)[0].rseq == 6
    assert rc.owed_count(chain) == limits.RECEIPTS_PER_REQUEST + 4
    assert acked(chain, 5) is chain


def test_an_acknowledged_receipt_is_kept_for_a_controller_that_lost_its_memory() -> None:
    chain = acked(stated(9), 9)
    assert rc.owed(chain) == ()
    assert [r.rseq for r in rc.owed(acked(chain, 4))] == [5, 6, 7, 8, 9]
    assert len(rc.owed(acked(chain, -3))) == 9


def test_an_acknowledgement_of_what_was_never_made_means_a_rewound_ledger() -> None:
    chain = stated(2)
    answer = rc.acknowledge(chain, 3)
    assert isinstance(answer, Alarm)
    assert answer.code == "host_rewound"


def test_history_is_bounded_but_nothing_owed_is_ever_dropped() -> None:
    chain = stated(limits.DECIDED_KEPT + 50)
    assert len(chain.kept) == limits.DECIDED_KEPT + 50
    assert rc.tail(chain) == 1
    chain = acked(chain, 20)
    assert rc.tail(chain) == 21
    chain = acked(chain, chain.head)
    assert len(chain.kept) == limits.DECIDED_KEPT
    assert rc.tail(stated(1, chain)) == 52


def test_the_tail_of_no_receipts_is_the_next_one() -> None:
    assert rc.tail(rc.new_receipts(build.FLEET, build.HOST, build.HOST_KEY)) == 1
    assert rc.tail(replace(stated(4), kept=())) == 5


def test_a_chain_comes_back_from_disk_as_it_was() -> None:
    chain = acked(stated(3), 2)
    assert from_bytes(Receipts, to_bytes(chain)) == chain
