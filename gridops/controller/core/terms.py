"""Terms that hosts say they have obeyed, and how far a controller without memory follows such a word.

A controller that was rebuilt has to rise above what its hosts obey, and only they know how high that is. One of them
may lie: it would drag the term so far up that every other host, which believes no jump of more than `TERM_JUMP`, obeyed
nobody any more. So one word lifts no further than every host follows, and more is believed of more than half of them.
Where there are dedicated hosts, these are asked: people's laptops are away for days, and nobody would wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridops.base import limits
from gridops.base.codes.protocol import TERM_JUMP
from gridops.base.ids import HostId
from gridops.controller.core import rows as r
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import State
from gridops.model.fleet import HostClass
from gridops.protocol.messages import Heartbeat


def seen(state: State, soft: Soft, roster: Roster, heartbeat: Heartbeat) -> tuple[r.Row, ...]:
    """Rows for the term of one heartbeat: a higher one that is believed, or that somebody claims one that is not."""
    host, said, epoch = heartbeat.host, heartbeat.term, soft.chain.root.controller_epoch
    if said.epoch != epoch or state.term is None:
        return ()
    known = max(state.floor, state.term.counter)
    before = soft.terms.get(host)
    first = before is None or before.epoch != epoch
    if first or (state.rebuilt_ms is None and said.counter > known):
        soft.terms[host] = said
    if state.rebuilt_ms is None:
        # With its memory a controller follows nobody: a higher term stops it until people have made that memory anew.
        return (r.TermSeen(counter=said.counter),) if said.counter > known else ()
    if said.counter <= known and not first:
        return _believed(state, host)
    asked = _asked(state, roster)
    firsts = [t.counter for h, t in soft.terms.items() if t.epoch == epoch and h in asked]
    most = most_believed(firsts, len(asked))
    higher = max((c for c in (*firsts, said.counter) if c <= most), default=0)
    rows = (r.TermSeen(counter=higher),) if higher > known else ()
    told = _believed(state, host) if said.counter <= max(most, known) else _doubted(state, host, said.counter, most)
    return (*rows, *told)


def most_believed(firsts: Sequence[int], hosts: int) -> int:
    """The highest counter that a word is believed for, by what each host said first and how many there are.

    Their first words only: later ones follow ours, and would carry a liar up step by step.
    """
    said = sorted(firsts, reverse=True)
    by_most = said[hosts // 2] if len(said) > hosts // 2 else 0
    return min(max(limits.TERM_BY_ONE, by_most + limits.TERM_ABOVE_MOST), limits.TERM_MOST)


def _asked(state: State, roster: Roster) -> frozenset[HostId]:
    """Hosts that have a word in it: admitted, and not written off; the dedicated ones of them, if there are any."""
    gone = {h for h, book in state.hosts.items() if book.written_off_ms is not None}
    admitted = frozenset(h for h in roster.keys if h not in gone and roster.admitted(h) is not None)
    dedicated = frozenset(h for h in admitted if roster.hosts[h].host_class is HostClass.DEDICATED)
    return dedicated or admitted


def _believed(state: State, host: HostId) -> tuple[r.Row, ...]:
    key = f"{TERM_JUMP.code}:{host}"
    return (r.AlarmCleared(key=key),) if key in state.alarms else ()


def _doubted(state: State, host: HostId, counter: int, most: int) -> tuple[r.Row, ...]:
    key = f"{TERM_JUMP.code}:{host}"
    text = (
        f"{host}: it says that it has obeyed a controller with term {counter}; no more than {most} is believed before "
        "more than half of the dedicated hosts (of all, where none is) say so; if it lies, expunge its key; "
        "if they are gone, write them off; if the controller's key was stolen, rotate that"
    )
    return (r.AlarmRaised(key=key, text=text),) if key not in state.alarms else ()
