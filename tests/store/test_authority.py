"""The right to write: taken once, with a higher term each time, and let go of whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridops.base.errors import BadSetup, Busy, Failed
from gridops.protocol.messages import Term
from gridops.store.authority import JOURNAL, Authority
from gridops.store.errors import Damaged, StaleWriter
from tests.store.build import rows


def test_each_opening_has_a_higher_term(tmp_path: Path) -> None:
    terms = []
    for epoch in (1, 1, 2, 2):
        with Authority.open(tmp_path / "state", epoch) as authority:
            terms.append(authority.term)
    assert [t.rank for t in terms] == [(1, 1), (1, 2), (2, 3), (2, 4)]


def test_a_folder_has_one_writer_also_within_one_process(tmp_path: Path) -> None:
    with Authority.open(tmp_path, 1), pytest.raises(Busy):
        Authority.open(tmp_path, 1)
    Authority.open(tmp_path, 1).close()


def test_a_rebuilt_controller_rises_above_what_hosts_remember(tmp_path: Path) -> None:
    with Authority.open(tmp_path, 1) as authority:
        old = authority.term
        assert authority.raise_above(37) == authority.term == Term(epoch=1, counter=38)
        with pytest.raises(StaleWriter):
            authority.journal.append(rows(1, 1), old)
        authority.journal.append(rows(1, 1), authority.term)
    with Authority.open(tmp_path, 1) as authority:
        assert authority.term.counter == 39


def test_an_older_root_is_refused_and_the_lock_is_let_go(tmp_path: Path) -> None:
    Authority.open(tmp_path, 2).close()
    with pytest.raises(BadSetup, match="epoch"):
        Authority.open(tmp_path, 1)
    Authority.open(tmp_path, 2).close()


def test_a_damaged_journal_is_reported_once_and_the_lock_is_let_go(tmp_path: Path) -> None:
    with Authority.open(tmp_path, 1) as authority:
        authority.journal.append(rows(1, 5), authority.term)
    (tmp_path / JOURNAL).write_bytes(b"")
    with pytest.raises(Damaged) as caught:
        Authority.open(tmp_path, 1)
    assert caught.value.kept.exists()
    assert any(str(caught.value.kept) in hint for hint in caught.value.hints)
    with Authority.open(tmp_path, 1) as authority:
        assert authority.journal.head == 0


def test_a_lock_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="file"):
        Authority.open(tmp_path / "file" / "state", 1)


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Opening it would write our process id into whatever it points to."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "controller.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(Failed, match=r"controller\.lock"):
        Authority.open(tmp_path / "state", 1)
    assert (tmp_path / "victim").read_text() == "precious"
