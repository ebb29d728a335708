"""A controller comes back on an old journal: a backup, a snapshot of its disk, a machine that was thought dead.

What hosts did meanwhile stands. The restored controller learns it from their heads, says aloud that its memory is older
than the fleet, and sends nothing until people rebuild. What it would say otherwise no host carries out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.record import digest_of
from gridops.protocol.messages import genesis
from gridops.trust.keys import MachineSigner
from tests.attacks.line import Line
from tests.attacks.place import Place
from tests.protocol import build as b

SIGNER = MachineSigner.from_seed(b"c" * 32)
"""The controller's key."""


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    """Both hosts are heard, one model runs, and a backup of the journal was made before."""
    made = Line(tmp_path)
    made.at("both have spoken")
    backed_up(made)
    made.at("all is acknowledged")
    yield made
    made.close()


def backed_up(line: Line) -> None:
    """A copy of the state folder, made while the controller stands still."""
    line.desk.controller.close()
    shutil.rmtree(line.fleet.path.parent / "backup", ignore_errors=True)
    shutil.copytree(line.fleet.state, line.fleet.path.parent / "backup")
    line.desk.start()


def restored(line: Line) -> None:
    """The backup is put in the journal's place, and a controller starts on it."""
    line.desk.controller.close()
    for file in line.fleet.state.glob("journal.sqlite*"):
        file.unlink()
    for file in (line.fleet.path.parent / "backup").glob("journal.sqlite*"):
        shutil.copy(file, line.fleet.state / file.name)
    line.desk.start()


def test_a_restored_controller_says_that_it_is_older_than_the_fleet_and_sends_nothing(line: Line) -> None:
    started = {name: list(place.started) for name, place in line.places.items()}
    restored(line)
    for _ in range(4):
        line.desk.clock.pass_by(1_000)
        for place in line.places.values():
            place.poll(line.post)
        line.desk.pass_()
    assert line.desk.state.distrust is not None
    assert "rebuild" in str(line.desk.state.distrust)
    assert {name: place.started for name, place in line.places.items()} == started
    assert line.running() == ["coder/1"], "what runs goes on"


def test_after_a_rebuild_it_knows_what_hosts_did_and_goes_on_from_their_heads(line: Line) -> None:
    heads = {name: place.host.fence.head for name, place in line.places.items()}
    restored(line)
    line.desk.rebuild()
    for _ in range(6):
        line.desk.clock.pass_by(1_000)
        for place in line.places.values():
            place.poll(line.post)
        line.desk.pass_()
    assert line.desk.state.distrust is None
    for name, place in line.places.items():
        assert line.desk.state.hosts[name].outbox.head == place.host.fence.head
        assert place.host.fence.head.seq >= heads[name].seq
    assert line.running() == ["coder/1"]
    assert [len(p.started) == len(set(p.started)) for p in line.places.values()] == [True, True]


Attack = Callable[[Place], str]


def _again(place: Place) -> str:
    """The old journal's next command: a number that this host has decided as something else."""
    body = replace(place.body(b.load(3)), seq=1, prev=place.host.fence.decided[0].body)
    return place.granted(body, signer=SIGNER)


def _first(place: Place) -> str:
    """From the very beginning, as a journal would that was lost altogether."""
    start = genesis(place.identity.fleet, place.identity.host_key)
    return place.granted(replace(place.body(b.load(3)), seq=1, prev=start), signer=SIGNER)


def _under_the_old_term(place: Place) -> str:
    term = replace(place.host.fence.term, counter=place.host.fence.term.counter - 1)
    return place.granted(place.body(b.load(3)), signer=SIGNER, term=term)


ATTACKS: tuple[tuple[str, Attack, str, bool], ...] = (
    ("another command for a number that was decided", _again, "fork", False),
    ("a chain that begins again", _first, "fork", False),
    ("a command under the term of before", _under_the_old_term, "stale_term", False),
)


@pytest.mark.parametrize(("attack", "code", "final"), [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS])
def test_what_an_old_journal_would_say_is_not_done(line: Line, attack: Attack, code: str, final: bool) -> None:
    place = next(p for p in line.places.values() if p.started)
    grant = attack(place)
    place.poll(place.told(signer=SIGNER, term=place.host.fence.term))
    before, started = place.durable(), list(place.started)
    assert place.poll(place.told(grant, signer=SIGNER, term=place.host.fence.term)) == [code]
    assert (place.durable(), place.started) == (before, started)
    assert not final


def test_a_command_of_the_old_journals_term_is_not_carried_out_beside_the_true_controller(line: Line) -> None:
    """The backup speaks while the true one does: its next number fits, and its term does not."""
    place = next(p for p in line.places.values() if p.started)
    body = place.body(b.load(3))
    old = place.granted(body, signer=SIGNER, term=replace(place.host.fence.term, counter=1))
    assert place.host.fence.term.counter > 1
    assert place.poll(place.told(old, signer=SIGNER, term=place.host.fence.term)) == ["stale_term"]
    line.turn(3)
    assert digest_of(body) not in place.started
    assert len(place.started) == len(set(place.started))
    assert line.desk.state.distrust is None
