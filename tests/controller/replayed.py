"""The journal of a running controller, read by a second program: the same state, or the story went wrong."""

from __future__ import annotations

import shutil

from gridops.controller.writer import Writer, open_authority
from tests.controller.fleet import Desk


def replayed(desk: Desk) -> Writer:
    """The same journal read by a second program, from a copy."""
    copy = desk.fleet.state.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in desk.fleet.state.glob("journal.sqlite*"):
        shutil.copy(file, copy / file.name)
    authority, damage = open_authority(copy, 1)
    assert damage is None
    writer = Writer(authority)
    writer.replay()
    writer.state.term = desk.state.term
    return writer


def same(desk: Desk) -> None:
    writer = replayed(desk)
    assert writer.state == desk.state
    writer.close()
