"""The journal in good weather: order, chain, terms, snapshots, bounds and what it refuses."""

from __future__ import annotations

import sqlite3
import stat
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.base.canon import NotCanonical
from gridops.base.errors import BadSetup, Bug, Busy, Failed
from gridops.protocol.messages import Term
from gridops.store import database, journal
from gridops.store.errors import StaleWriter
from gridops.store.journal import START, Entry, Journal
from tests.store.build import filled, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_what_was_appended_comes_back_in_order_and_chained(path: Path) -> None:
    before = filled(path, 25)
    again = Journal.open(path)
    found = tuple(again.replay())
    again.close()
    assert found == before
    assert [r.n for r in found] == list(range(1, 26))
    assert [(r.kind, r.at_ms, r.value["n"]) for r in found] == [("noted", 1_000 + n, n) for n in range(1, 26)]
    assert found[0].prev == START
    assert all(b.prev == a.digest for a, b in pairwise(found))


def test_a_new_journal_is_empty_and_says_so(path: Path) -> None:
    fresh = Journal.open(path)
    assert (fresh.head, list(fresh.replay()), fresh.latest_snapshot()) == (0, [], None)
    fresh.close()


def test_only_its_owner_may_read_it(path: Path) -> None:
    opened = Journal.open(path)
    opened.append(rows(1, 1), opened.take_term(1))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    opened.close()


def test_a_group_is_written_whole_or_not_at_all(path: Path) -> None:
    opened = Journal.open(path)
    term = opened.take_term(1)
    assert opened.append(rows(1, 3), term) == 3
    with pytest.raises(NotCanonical):
        opened.append([*rows(4, 2), Entry("noted", 1, {"half": 0.5})], term)
    with pytest.raises(Bug, match="kind"):
        opened.append([*rows(4, 2), Entry('no"ted', 1, {})], term)
    assert opened.append([], term) == 3
    assert opened.head == 3
    opened.close()


def test_a_group_whose_third_row_the_disk_does_not_take_leaves_nothing(path: Path) -> None:
    opened = Journal.open(path)
    term = opened.take_term(1)
    assert opened.append(rows(1, 3), term) == 3
    fails = "CREATE TRIGGER fails BEFORE INSERT ON rows WHEN NEW.n = 6 BEGIN SELECT RAISE(FAIL, 'disk I/O error'); END"
    opened._connection.execute(fails)
    with pytest.raises(Failed, match="disk I/O error"):
        opened.append(rows(4, 4), term)
    opened._connection.execute("DROP TRIGGER fails")
    assert opened.head == 3
    opened.close()
    again = Journal.open(path)
    assert [row.n for row in again.replay()] == [1, 2, 3]
    again.close()


def test_replay_begins_where_it_is_asked_to(path: Path) -> None:
    filled(path, 1_203)
    opened = Journal.open(path)
    assert [r.n for r in opened.replay(after=1_200)] == [1_201, 1_202, 1_203]
    assert [r.n for r in opened.replay(after=5)] == list(range(6, 1_204))
    assert list(opened.replay(after=1_203)) == []
    assert list(opened.replay(after=9_999)) == []
    opened.close()


def test_rows_appended_by_several_threads_make_one_chain(path: Path) -> None:
    opened = Journal.open(path)
    term = opened.take_term(1)
    threads = [threading.Thread(target=lambda: [opened.append(rows(1, 3), term) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened.head == 60
    opened.close()
    again = Journal.open(path)
    assert len(list(again.replay())) == 60
    again.close()


# --- terms ----------------------------------------------------------------------------------------------------------


def test_the_term_rises_each_time_it_is_taken_and_is_durable(path: Path) -> None:
    opened = Journal.open(path)
    assert [opened.take_term(1).counter for _ in range(3)] == [1, 2, 3]
    opened.close()
    again = Journal.open(path)
    assert again.take_term(1) == Term(epoch=1, counter=4)
    assert again.take_term(1, above=40) == Term(epoch=1, counter=41)
    assert again.take_term(1, above=7) == Term(epoch=1, counter=42)
    assert again.take_term(2) == Term(epoch=2, counter=43)
    with pytest.raises(BadSetup, match="epoch 2"):
        again.take_term(1)
    assert again.take_term(2).counter == 44, "the refusal changed nothing"
    again.close()


def test_a_writer_that_was_replaced_can_write_no_more(path: Path) -> None:
    old, new = Journal.open(path), Journal.open(path)
    first = old.take_term(1)
    old.append(rows(1, 2), first)
    second = new.take_term(1)
    with pytest.raises(StaleWriter, match=r"term 1\.2 now, this writer holds 1\.1"):
        old.append(rows(3, 1), first)
    with pytest.raises(StaleWriter):
        old.save_snapshot(1, {})
    assert new.append(rows(3, 1), second) == 3
    with pytest.raises(StaleWriter):
        old.append(rows(3, 1), first)
    assert [r.term.counter for r in new.replay()] == [1, 1, 2]
    old.close()
    new.close()


def test_nobody_writes_without_a_term(path: Path) -> None:
    opened = Journal.open(path)
    with pytest.raises(StaleWriter):
        opened.append(rows(1, 1), Term(epoch=1, counter=1))
    with pytest.raises(Bug, match="term"):
        opened.save_snapshot(1, {})
    opened.close()


def test_a_file_that_is_locked_is_busy_and_can_be_written_afterwards(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    opened = Journal.open(path)
    term = opened.take_term(1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy, match=r"journal\.sqlite: another process"):
        opened.append(rows(1, 1), term)
    other.execute("ROLLBACK")
    other.close()
    assert opened.append(rows(1, 1), term) == 1
    opened.close()


def test_after_a_failed_write_nothing_more_is_written(path: Path) -> None:
    opened = Journal.open(path)
    term = opened.take_term(1)
    opened.append(rows(1, 1), term)
    opened._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(Failed, match=r"journal\.sqlite"):
        opened.append(rows(2, 1), term)
    opened._connection.execute("PRAGMA query_only = OFF")
    for attempt in (
        lambda: opened.append(rows(2, 1), term),
        lambda: opened.take_term(1),
        lambda: opened.save_snapshot(1, {}),
    ):
        with pytest.raises(Failed, match="nothing more is written"):
            attempt()
    assert opened.head == 1
    opened.close()


def test_a_closed_journal_fails_and_does_not_fall(path: Path) -> None:
    opened = Journal.open(path)
    term = opened.take_term(1)
    opened.close()
    with pytest.raises(Failed):
        opened.append(rows(1, 1), term)
    with pytest.raises(Failed):
        list(opened.replay())


# --- snapshots and bounds -------------------------------------------------------------------------------------------


def test_replay_begins_behind_the_newest_snapshot(path: Path) -> None:
    filled(path, 30, snapshot=20)
    opened = Journal.open(path)
    saved = opened.latest_snapshot()
    assert saved is not None
    assert (saved.n, saved.value) == (20, {"sum": 20})
    assert [r.n for r in opened.replay(saved.n)] == list(range(21, 31))
    opened.close()


def test_a_snapshot_is_of_a_row_that_exists(path: Path) -> None:
    opened = Journal.open(path)
    opened.append(rows(1, 3), opened.take_term(1))
    with pytest.raises(Bug, match="row 4"):
        opened.save_snapshot(4, {})
    assert opened.latest_snapshot() is None
    assert opened.append(rows(4, 1), opened.take_term(1)) == 4
    opened.close()


def test_snapshots_and_rows_are_bounded_and_the_chain_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOURNAL_ROWS_KEPT", 15)
    opened = Journal.open(path)
    term = opened.take_term(1)
    for first in range(1, 101, 10):
        opened.append(rows(first, 10), term)
        opened.save_snapshot(opened.head, {"at": opened.head})
    (count,) = opened._connection.execute("SELECT count(*) FROM snapshots").fetchone()
    assert count == limits.SNAPSHOTS_KEPT
    assert [r.n for r in opened.replay()] == list(range(86, 101))
    opened.close()
    again = Journal.open(path)
    assert [r.n for r in again.replay()] == list(range(86, 101))
    assert again.append(rows(101, 1), again.take_term(1)) == 101
    again.close()


def test_rows_behind_the_older_snapshot_are_never_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOURNAL_ROWS_KEPT", 0)
    opened = Journal.open(path)
    term = opened.take_term(1)
    opened.append(rows(1, 30), term)
    opened.save_snapshot(10, {})
    opened.save_snapshot(20, {})
    assert next(r.n for r in opened.replay()) == 10
    opened.close()


def test_a_long_journal_is_checked_from_its_snapshot_and_old_rows_when_they_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path, 60, snapshot=50)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE rows SET at_ms = at_ms + 1 WHERE n = 3")
    raw.commit()
    raw.close()
    monkeypatch.setattr(limits, "JOURNAL_ROWS_CHECKED", 20)
    opened = Journal.open(path)
    assert len(list(opened.replay(50))) == 10
    with pytest.raises(Failed, match="row 3 does not follow row 2"):
        list(opened.replay())
    opened.close()


# --- formats --------------------------------------------------------------------------------------------------------


def test_migrations_go_forward_and_only_forward(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = filled(path, 12)
    newer = (*journal.MIGRATIONS, "ALTER TABLE rows ADD COLUMN note TEXT; CREATE TABLE more (n INTEGER PRIMARY KEY)")
    monkeypatch.setattr(journal, "MIGRATIONS", newer)
    opened = Journal.open(path)
    assert tuple(opened.replay()) == before
    opened._connection.execute("SELECT * FROM more")
    opened.close()
    monkeypatch.setattr(journal, "MIGRATIONS", newer[:1])
    with pytest.raises(BadSetup, match="format 2, this version of gridops reads up to 1"):
        Journal.open(path)
    monkeypatch.setattr(journal, "MIGRATIONS", newer)
    Journal.open(path).close()


def test_a_migration_that_fails_leaves_the_older_format_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = filled(path, 12)
    good = journal.MIGRATIONS
    monkeypatch.setattr(journal, "MIGRATIONS", (*good, "CREATE TABLE more (n INTEGER); INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(Failed):
        Journal.open(path)
    monkeypatch.setattr(journal, "MIGRATIONS", good)
    opened = Journal.open(path)
    assert tuple(opened.replay()) == before
    opened.close()


def test_a_database_of_somebody_else_is_refused_and_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (n INTEGER)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(BadSetup, match="not a journal of gridops"):
        Journal.open(path)
    assert path.read_bytes()[100:] == before[100:]
    assert [f.name for f in path.parent.iterdir() if "damaged" in f.name] == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="nowhere"):
        Journal.open(tmp_path / "nowhere" / "journal.sqlite")


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_is_no_longer_at_its_name_is_written_no_more(path: Path, suffix: str, how: str) -> None:
    """It would take everything, and lose it when the process ends."""
    opened = Journal.open(path)
    term = opened.take_term(1)
    opened.append(rows(1, 2), term)
    file = path.with_name(path.name + suffix)
    if how == "replaced":
        copy = path.with_name("copy")
        copy.write_bytes(file.read_bytes())
        copy.rename(file)
    else:
        file.unlink()
    for write in (lambda: opened.append(rows(3, 1), term), lambda: opened.take_term(1)):
        with pytest.raises(Failed, match=f"{file.name} was deleted or replaced") as no:
            write()
    assert no.value.exit_code == 1
    opened.close()
