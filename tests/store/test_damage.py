"""Damaged files: what was known comes back, or the file is set aside by name. Never less, never something else."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from gridops.base.errors import BadSetup, Failed
from gridops.store.errors import Damaged
from gridops.store.journal import Journal, Row
from tests.store.build import filled, rows

COUNT = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, tuple[Row, ...]]:
    path = tmp_path_factory.mktemp("whole") / "journal.sqlite"
    found = filled(path, COUNT, snapshot=40)
    return path.read_bytes(), found


def _open(path: Path) -> tuple[Row, ...] | None:
    """The rows, or None if the journal said by name that it is no good. Then the next one begins empty."""
    before = path.read_bytes()
    error: Failed | BadSetup
    try:
        opened = Journal.open(path)
    except (Damaged, BadSetup) as caught:
        error = caught
    else:
        found = tuple(opened.replay())
        opened.close()
        return found
    assert str(path) in error.message
    if isinstance(error, Damaged):
        assert error.kept.read_bytes() == before
        assert not path.exists()
    return None


def test_after_damage_the_next_journal_begins_empty(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    filled(path, 10)
    path.write_bytes(path.read_bytes()[:5_000])
    assert _open(path) is None
    again = Journal.open(path)
    assert again.head == 0
    again.close()


def test_a_truncated_journal_is_never_taken_for_a_shorter_one(
    whole: tuple[bytes, tuple[Row, ...]], tmp_path: Path
) -> None:
    raw, _ = whole
    dice = random.Random(1)
    chosen = [0, 1, 15, 16, 100, 4_095, 4_096, len(raw) - 4_096, len(raw) - 1]
    for cut in sorted({*chosen, *(dice.randrange(len(raw)) for _ in range(12))}):
        path = tmp_path / f"cut-{cut}" / "journal.sqlite"
        path.parent.mkdir()
        path.write_bytes(raw[:cut])
        assert _open(path) is None, f"{cut} of {len(raw)} bytes were taken for a journal"


def test_a_flipped_bit_is_found_or_touches_nothing(whole: tuple[bytes, tuple[Row, ...]], tmp_path: Path) -> None:
    raw, rows_before = whole
    dice = random.Random(2)
    found = 0
    for number, at in enumerate([*range(16, 100, 7), *sorted(dice.randrange(100, len(raw)) for _ in range(50))]):
        path = tmp_path / str(number) / "journal.sqlite"
        path.parent.mkdir()
        flipped = bytearray(raw)
        flipped[at] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        kept = _open(path)
        assert kept is None or kept == rows_before, f"bit at {at} changed what the journal says"
        found += kept is None
    assert found > 20, "the sample has to hit something that matters"


def test_a_log_that_was_cut_or_flipped_loses_only_the_newest_rows(tmp_path: Path) -> None:
    """The rows of this opening live in the log until a checkpoint; those of earlier openings are safe in the file."""
    live = tmp_path / "live" / "journal.sqlite"
    live.parent.mkdir()
    filled(live, 20)
    opened = Journal.open(live)
    term = opened.take_term(1)
    for first in range(21, 61, 10):
        opened.append(rows(first, 10), term)
    before = tuple(opened.replay())
    log = live.with_name("journal.sqlite-wal").read_bytes()
    database = live.read_bytes()
    opened.close()
    dice = random.Random(3)
    lengths = set()
    for number in range(24):
        path = tmp_path / str(number) / "journal.sqlite"
        path.parent.mkdir()
        path.write_bytes(database)
        at = dice.randrange(len(log))
        torn = log[:at] if number % 2 else log[:at] + bytes([log[at] ^ 4]) + log[at + 1 :]
        path.with_name("journal.sqlite-wal").write_bytes(torn)
        opened = Journal.open(path)
        found = tuple(opened.replay())
        opened.close()
        assert found == before[: len(found)]
        assert len(found) >= 20
        lengths.add(len(found))
    assert len(lengths) > 2


def test_an_opening_after_a_crash_makes_the_file_whole_by_itself(tmp_path: Path) -> None:
    """So that losing the log later loses the newest rows and never everything."""
    live, after = tmp_path / "live" / "journal.sqlite", tmp_path / "after" / "journal.sqlite"
    for path in (live, after):
        path.parent.mkdir()
    running = Journal.open(live)
    running.append(rows(1, 30), running.take_term(1))
    for suffix in ("", "-wal"):
        shutil.copy(f"{live}{suffix}", f"{after}{suffix}")
    running.close()
    opened = Journal.open(after)
    alone = tmp_path / "alone.sqlite"
    shutil.copy(after, alone)
    opened.close()
    found = Journal.open(alone)
    assert found.head == 30
    found.close()


EDITS = {
    "a value": "UPDATE rows SET value = CAST(replace(value, 'x', 'y') AS BLOB) WHERE n = 30",
    "a time": "UPDATE rows SET at_ms = at_ms + 1 WHERE n = 30",
    "a term": "UPDATE rows SET counter = counter + 1 WHERE n = 30",
    "a kind": "UPDATE rows SET kind = 'other' WHERE n = 30",
    "a row is gone": "DELETE FROM rows WHERE n = 30",
    "the first row is gone": "DELETE FROM rows WHERE n = 1",
    "all rows are gone": "DELETE FROM rows",
    "the newest row is gone": "DELETE FROM rows WHERE n = 60",
    "the newest rows are gone": "DELETE FROM rows WHERE n > 40",
    "two rows changed places": "UPDATE rows SET n = CASE n WHEN 30 THEN -1 ELSE n END; "
    "UPDATE rows SET n = 30 WHERE n = 31; UPDATE rows SET n = 31 WHERE n = -1",
    "the guard's counter": "UPDATE guard SET counter = counter + 1",
    "the guard's beginning": "UPDATE guard SET first = first + 1",
    "a snapshot": "UPDATE snapshots SET value = CAST(replace(value, '40', '41') AS BLOB)",
    "the snapshot's row": "UPDATE snapshots SET n = n - 1",
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_by_hand_is_found(what: str, whole: tuple[bytes, tuple[Row, ...]], tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(whole[0])
    raw = sqlite3.connect(path)
    raw.executescript(EDITS[what])
    raw.commit()
    raw.close()
    assert _open(path) is None


def test_rows_that_are_gone_are_missed_also_without_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    filled(path, 10)
    raw = sqlite3.connect(path)
    raw.execute("DELETE FROM rows")
    raw.commit()
    raw.close()
    assert _open(path) is None


def test_a_structure_that_sqlite_itself_finds_wrong_is_damage(
    whole: tuple[bytes, tuple[Row, ...]], tmp_path: Path
) -> None:
    """Every row reads well, but the list of free pages begins at a page that is in use: the next write would hurt."""
    path = tmp_path / "journal.sqlite"
    raw = bytearray(whole[0])
    raw[32:40] = (2).to_bytes(4, "big") + (1).to_bytes(4, "big")
    path.write_bytes(raw)
    assert _open(path) is None


def test_a_log_without_its_database_is_set_aside_too(tmp_path: Path) -> None:
    """Read into a new database it would mix two histories; also what a crash in the middle of setting aside leaves."""
    path = tmp_path / "journal.sqlite"
    opened = Journal.open(path)
    opened.append(rows(1, 5), opened.take_term(1))
    for suffix in ("-wal", "-shm"):
        shutil.copy(f"{path}{suffix}", tmp_path / f"kept{suffix}")
    opened.close()
    path.unlink()
    for suffix in ("-wal", "-shm"):
        shutil.move(tmp_path / f"kept{suffix}", f"{path}{suffix}")
    with pytest.raises(Damaged, match="only its write-ahead log") as caught:
        Journal.open(path)
    assert caught.value.kept.exists()
    again = Journal.open(path)
    assert again.head == 0
    again.close()


def test_a_folder_in_its_place_is_a_failure_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.mkdir()
    with pytest.raises(Failed, match=r"journal\.sqlite"):
        Journal.open(path)
    assert path.is_dir()
