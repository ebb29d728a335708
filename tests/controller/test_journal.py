"""A journal that cannot be written, read or believed: nothing is issued, nothing is lost, and it is said by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gridops.base import limits
from gridops.base.errors import BadSetup, Busy, Failed, Refusal
from gridops.base.ids import HostId
from gridops.controller import views, writer
from gridops.controller.core import rows as r
from gridops.controller.core.row_kinds import encode
from gridops.controller.service import Controller, Opening, state_dir
from gridops.controller.writer import Lost, Stuck, open_authority
from gridops.protocol.messages import Term
from gridops.protocol.outbox import new_outbox
from gridops.store.journal import Entry, Journal
from tests.controller.fleet import AUTOMATIC, NOW, Desk, FakeClock, Fleet, profile


def test_a_second_controller_on_the_same_folder_is_refused(desk: Desk) -> None:
    roots = (desk.fleet.root_text,)
    with pytest.raises(Busy, match="another controller"):
        Controller(Opening(state_dir(desk.fleet.state), roots, FakeClock()))


def test_when_the_journal_cannot_be_written_nothing_more_is_issued(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.settle(2)
    desk.apply()

    append = Journal.append

    def full(self: Journal, rows: Sequence[Entry], term: Term) -> int:
        if any(row.kind == "frozen" for row in rows):
            raise Failed("cannot write journal.sqlite: no space left on its file system")
        return append(self, rows, term)

    events = desk.controller.events
    told = events.bounds
    heard: list[str] = []
    events.listener = lambda event: heard.append(event.text)
    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(Lost, match="no space left"):
        desk.ask("freeze", reason="x")
    assert (events.bounds, heard) == (told, []), "the log speaks of no row that did not come to be"
    monkeypatch.undo()
    with pytest.raises(Lost):
        desk.ask("freeze", reason="x")


def test_a_row_that_cannot_be_taken_in_ends_the_process_and_a_restart_is_whole(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.settle(2)
    length = desk.controller.view().rows

    def broken(state: object, row: object, at_ms: int, term: object) -> None:
        raise KeyError("alpha")

    monkeypatch.setattr(writer, "fold", broken)
    with pytest.raises(Stuck, match=rf"journal\.sqlite row {length + 1}: .*cannot be taken in") as ended:
        desk.ask("freeze", reason="x")
    assert ended.value.exit_code == 78, "a service manager that restarts at once would come here again"
    assert any("gridops controller rebuild" in hint for hint in ended.value.hints)
    monkeypatch.undo()
    with pytest.raises(Lost):
        desk.ask("freeze", reason="x")
    desk.restart()
    assert desk.state.freezes == {}
    assert desk.controller.view().rows >= length
    desk.ask("freeze", reason="x")


def test_a_row_that_is_too_large_ends_the_process_by_name(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.settle(2)
    length = desk.controller.view().rows
    monkeypatch.setattr(limits, "JOURNAL_VALUE_BYTES", 150)
    with pytest.raises(
        Stuck, match=rf"journal\.sqlite row {length + 2}: a `frozen` of .* bytes is more than the 150 "
    ) as ended:
        desk.ask("freeze", reason="x" * 200)
    assert ended.value.exit_code == 78
    assert any("gridops controller rebuild" in hint for hint in ended.value.hints)
    with pytest.raises(Stuck):
        desk.controller.writer.flush()
    monkeypatch.undo()
    desk.restart()
    assert desk.state.freezes == {}


@pytest.mark.parametrize("how", ["no form of its kind", "no sense after what was before it"])
def test_a_journal_with_a_row_that_cannot_be_taken_in_starts_nothing_and_can_be_made_anew(desk: Desk, how: str) -> None:
    """It verifies, so it is not damaged: a restart would come to the same row each time."""
    desk.settle(2)
    desk.apply()
    desk.settle()
    engines = desk.ready()
    desk.project()
    controller, value = desk.controller, {"word": "nonsense"}
    if how.startswith("no sense"):
        value = encode(r.OutboxSet(outbox=new_outbox(desk.fleet.chain.fleet, HostId("nobody"), "key"), why="x"))
    bad = controller.writer._authority.journal.append([Entry("outbox_set", desk.now, value)], controller.writer.term)
    with pytest.raises(BadSetup, match=rf"journal\.sqlite row {bad}: a `outbox_set` cannot be taken in") as no:
        desk.restart()
    assert no.value.exit_code == 78
    assert any("gridops controller rebuild" in hint for hint in no.value.hints)
    desk.rebuild()
    desk.settle()
    assert desk.ready() == engines
    assert [k for _, k, _ in desk.executed()] == ["load", "warm"], "no engine was restarted"


def test_a_damaged_journal_is_set_aside_and_the_controller_only_recommends(fleet: Fleet) -> None:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    desk.settle()
    done = desk.executed()
    desk.controller.close()
    journal = fleet.state / "journal.sqlite"
    raw = bytearray(journal.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 64] = b"\xff" * 64
    journal.write_bytes(bytes(raw))
    for extra in fleet.state.glob("journal.sqlite-*"):
        extra.unlink()
    desk.start()
    assert desk.state.distrust is not None
    kept = min(fleet.state.glob("journal.sqlite.damaged-*"), key=lambda path: len(path.name))
    said = views.status(desk.controller.view())
    assert said.scopes[0].mode.effective == "recommend", "whatever the files say"
    assert kept.name in "; ".join(alarm.text for alarm in said.alarms), "for as long as nobody has rebuilt it"
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.executed() == done, "no command while the journal cannot be trusted"
    with pytest.raises(Refusal) as no:
        desk.apply(desk.controller.soft.scope("default").candidate)  # type: ignore[arg-type]
    assert no.value.code == "GO429"
    desk.controller.close()


def test_a_row_of_a_newer_program_stops_the_start_and_names_it(desk: Desk) -> None:
    desk.controller.close()
    authority, _ = open_authority(desk.fleet.state, 1)
    authority.journal.append([Entry("from_the_future", NOW, {})], authority.term)
    authority.close()
    with pytest.raises(BadSetup, match="from_the_future"):
        desk.start()
    for file in desk.fleet.state.glob("journal.sqlite*"):
        file.unlink()
    desk.start()
