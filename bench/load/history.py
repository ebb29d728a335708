"""A long history for a journal that stands: a million rows behind a real state, by the journal's own appends.

The rows say what hosts say all day and what changes nothing any more, how far each has come, so the state after them is
the state before them; a snapshot is taken as the controller takes it, and some rows follow it. Every row is chained,
digested and written as always, in batches, because one transaction a row would take the disk two hours.
"""

from __future__ import annotations

import time
from pathlib import Path

from gridops.controller.core import rows as r
from gridops.controller.core.pack import pack
from gridops.controller.core.row_kinds import encode, kind_of
from gridops.controller.writer import SNAPSHOT_ROWS, Writer, open_authority
from gridops.store.authority import Authority
from gridops.store.journal import Entry

BATCH = 2_000


def lengthen(state: Path, epoch: int, rows: int) -> int:
    """Let a state folder that nobody holds have at least so many rows; how many it has."""
    authority, damage = open_authority(state, epoch)
    assert damage is None
    assert isinstance(authority, Authority)
    try:
        writer = Writer(authority)
        writer.replay()
        missing = rows - writer.length
        _say_again(authority, writer, missing - SNAPSHOT_ROWS + 1)
        authority.journal.save_snapshot(authority.journal.head, {"at_ms": writer.newest_ms, **pack(writer.state)})
        _say_again(authority, writer, SNAPSHOT_ROWS - 1)
        return authority.journal.head
    finally:
        authority.close()


def _say_again(authority: Authority, writer: Writer, count: int) -> None:
    """So many rows of hosts that have come no further."""
    said = [
        r.HeadSeen(host=host, seq=book.outbox.heard_seq, obeyed=book.outbox.obeyed)
        for host, book in sorted(writer.state.hosts.items())
        if book.outbox.obeyed is not None
    ]
    entries = [Entry(kind_of(row), max(writer.newest_ms, time.time_ns() // 1_000_000), encode(row)) for row in said]
    while count > 0:
        batch = (entries * (-(-BATCH // len(entries))))[: min(BATCH, count)]
        authority.journal.append(batch, authority.term)
        count -= len(batch)
