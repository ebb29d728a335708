"""Who counts as told to go: rules S7 and S8 rest on it, so no command that came to nothing may stay in the account."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import Digest, PersonName
from gridops.base.record import digest_of
from gridops.controller.core import rows as r
from gridops.controller.core.row_kinds import decode, encode
from gridops.lab.auditor import Auditor
from gridops.lab.broken import Broken
from gridops.lab.disruptions import Disruptions
from gridops.lab.options import Options
from gridops.lab.world import World
from gridops.model.action import Drain, Warm
from gridops.model.policy import ActionClass
from gridops.protocol.messages import AuthorityKind, Outcome, Receipt


class Story:
    """A fleet of one model on one host, which serves, and whose controller then says what no controller should."""

    def __init__(self) -> None:
        told = {"usurper_ppm": 1, "lose_every_ms": 1_000_000_000}  # never in this run, and the auditor reads their rows
        self.world = World(Options(seed=1, hosts=1, profiles=1, chaos_ms=90_000, commit_every_ms=0, **told))
        self.world.run()
        rows = [decode(kind, raw) for _, _, kind, raw in self.world.head.platter.rows]
        self.warm = next(row for row in rows if isinstance(row, r.BodyQueued) and isinstance(row.body.action, Warm))
        self.next = max(row.body.seq for row in rows if isinstance(row, r.BodyQueued))

    def drain(self) -> r.BodyQueued:
        """The next command: who serves shall go."""
        warm, self.next = self.warm.body, self.next + 1
        go = Drain(
            host=warm.host,
            replica=warm.action.replica,
            profile=warm.action.profile,
            incarnation=digest_of(warm),
            grace_ms=1_000,
        )
        return replace(self.warm, body=replace(warm, seq=self.next, action=go))

    def write(self, kind: str, row: r.Row) -> None:
        platter, now_ms = self.world.head.platter, self.world.agenda.now_ms
        platter.rows.append((now_ms, platter.term, kind, encode(row)))
        self.world.auditor.look(now_ms)

    def over(self, queued: r.BodyQueued, outcome: Outcome) -> None:
        """Its host says how it ended."""
        body, digest = queued.body, digest_of(queued.body)
        self.world.hosts[body.host].said.add(digest)
        receipt = Receipt(
            fleet=body.fleet,
            host=body.host,
            boot="boot",
            rseq=body.seq,
            prev=Digest(body.prev),
            body=digest,
            seq=body.seq,
            term=self.world.head.platter.term,
            outcome=outcome,
            final=True,
            began_ms=0,
            ended_ms=0,
        )
        self.write("receipt_taken", r.ReceiptTaken(receipt=receipt, envelope=""))


@pytest.mark.parametrize("forgotten", [False, True])
def test_who_was_told_in_vain_still_serves_also_where_the_journal_forgot_it(forgotten: bool) -> None:
    """The only one that serves is told to go, in vain; told once more, that is judged as if it were the first time."""
    story = Story()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auditor, "_leaves", lambda *_: None)  # whoever let it be told is not what this asks
        told = story.drain()
        story.write("body_queued", told)
    if forgotten:
        story.world.auditor.forget()
    story.over(told, Outcome.VOIDED)
    with pytest.raises(Broken, match="it is the only one that serves"):
        story.write("body_queued", story.drain())


def test_who_was_told_by_what_never_reached_its_host_still_serves() -> None:
    """The host's own account is taken over, and it does not know of that command: nobody is told by it any more."""
    story = Story()
    controller = story.world.head.current
    assert controller is not None
    known = controller.state.hosts[story.warm.body.host].outbox
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auditor, "_leaves", lambda *_: None)
        story.write("body_queued", story.drain())
    story.write("outbox_set", r.OutboxSet(outbox=known, why="people"))
    with pytest.raises(Broken, match="it is the only one that serves"):
        story.write("body_queued", story.drain())


def test_who_serves_where_a_written_off_host_speaks_again_counts_at_once() -> None:
    """Nothing changes on the host itself by it, and whoever is told to go next is not the only one that serves."""
    story = Story()
    warm = digest_of(story.warm.body)
    story.write("written_off", r.WrittenOff(host=story.warm.body.host, by=PersonName("mira"), reason="gone"))
    assert warm not in story.world.auditor._serving.lately()
    story.write("host_back", r.HostBack(host=story.warm.body.host))
    assert warm in story.world.auditor._serving.lately()


@pytest.mark.parametrize("dies", [False, True])
def test_the_end_of_what_died_by_itself_disrupts_nobody(dies: bool) -> None:
    story = Story()
    told = story.drain()
    gone = story.world.auditor._disruptions[told.body.scope] = Disruptions(1)
    if dies:
        processes = story.world.hosts[told.body.host].processes
        (pid,) = processes.living
        processes.end(pid)
    story.world.agenda.now_ms += 1_000
    story.world.auditor.look(story.world.agenda.now_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auditor, "_leaves", lambda *_: None)
        authority = replace(told.authority, kind=AuthorityKind.STANDING, action_class=ActionClass.REBALANCE)
        story.write("body_queued", replace(told, authority=authority))
    assert (told.body.action.incarnation in gone._gone) is not dies  # type: ignore[union-attr]
