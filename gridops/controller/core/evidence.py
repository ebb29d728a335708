"""What a command that takes something away rests on, and whether it will still hold when the host acts.

A pass queues an end because somebody else is seen to serve; a host may hear of it much later. So an end is queued, and
again delivered, only if the same steps follow from what was heard without the words that are about to grow old: whoever
serves instead must be good for `margin_ms` more (A-386 to A-389). Called by `reconcile` and, in the moment of delivery,
by `issue`. Must never make a step that the planner's `actions` does not make.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.ids import Digest
from gridops.controller.core.modes import desired_now
from gridops.controller.core.observe import seen
from gridops.controller.core.rights import Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import State
from gridops.model.action import Action, Drain, Unload
from gridops.model.plan import Terms
from gridops.model.snapshot import Snapshot
from gridops.planner.actions import Step, actions
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Ability

MARGIN_MS = 30_000
"""How much longer the word of whoever serves instead must hold: a poll, its answer and the start of the step. Double:
at the default of 90 s ends wait for hosts that were not heard for half a minute; half: an answer that is slow on its
way may end a replica whose replacement has been silent for longer than a host may be."""


def margin_ms(stale_after_ms: int) -> int:
    """A third of the patience with hosts where that is less: hosts that are heard often are judged often."""
    return min(MARGIN_MS, stale_after_ms // 3)


def steps_of(rights: Rights, soft: Soft, snapshot: Snapshot, idle: frozenset[Digest] = frozenset()) -> tuple[Step, ...]:
    """All that remains to be done, in order. Nothing without a target. `idle` are processes that nobody is led to: they
    vouch for nobody."""
    book, own = rights.book, soft.scope(rights.scope)
    if book.target is None:
        return ()
    return actions(
        book.target,
        snapshot,
        rights.now_ms,
        desired=desired_now(rights.state),
        applied_terms=_acted_by(rights, snapshot),
        retry=frozenset(book.retry),
        ending=ending(rights.state) | idle,
        advice=newest.report.advice if (newest := own.candidate) is not None else None,
    )


def ending(state: State) -> frozenset[Digest]:
    """Processes that were told to end and may have begun to, whatever their hosts reported last.

    A command that was granted may be carried out before its host says a further word, one that is taken back may have
    been, and what a receipt says has ended may still be shown as ready. None of these vouches for anybody else.
    """
    asked: list[Action] = []
    for book in state.hosts.values():
        asked += (entry.body.action for entry in ob.open_entries(book.outbox))
        asked += (known.action for known in book.uncertain.values())
        asked += (success.action for success in book.successes.values())
    return frozenset(action.incarnation for action in asked if isinstance(action, Drain | Unload))


def proven(rights: Rights, soft: Soft, roster: Roster) -> frozenset[str]:
    """Ends that may begin (`outbox.action_key`) even if nobody says a further word for `margin_ms`.

    Ready is not reached: where callers are led to fronts by the word of their hosts, whoever serves instead needs one.
    """
    early = margin_ms(roster.desired.planning.heartbeat.stale_after_ms)
    snapshot = seen(soft, roster, rights.scope, rights.now_ms)
    older = tuple(replace(report, observed_ms=report.observed_ms - early) for report in snapshot.hosts)
    ahead = replace(snapshot, hosts=older)
    steps = steps_of(rights, soft, ahead, unled(soft, ahead, rights.now_ms + early))
    ends = (s.action for s in steps if isinstance(s.action, Drain | Unload) and s.waits_for is None)
    return frozenset(map(ob.action_key, ends))


def unled(soft: Soft, snapshot: Snapshot, until_ms: int) -> frozenset[Digest]:
    """What runs on hosts that could vouch for their fronts and have said no word that holds until then. Where no host
    has said one, callers are led nowhere by such words and all are reached alike."""
    bound = {report.host: soft.hosts[report.host].binding for report in snapshot.hosts}
    led = {host for host, word in bound.items() if word is not None and word.holds(until_ms)}
    silent = [r for r in snapshot.hosts if r.host not in led and r.can(Ability.BINDING.value)] if led else []
    return frozenset(x.incarnation for report in silent for x in report.residencies if x.incarnation is not None)


def _acted_by(rights: Rights, snapshot: Snapshot) -> dict[Digest, Terms]:
    """By incarnation, what its host is known to act by; after a rebuild, what the plan said that was in force."""
    restored = {t.profile: t for t in rights.book.restored}
    found = {
        r.incarnation: restored[r.profile]
        for report in snapshot.hosts
        for r in report.residencies
        if r.incarnation is not None and r.profile in restored
    }
    for _, held in sorted(rights.state.hosts.items()):
        found.update(held.terms)
    return found
