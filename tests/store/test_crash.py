"""Real processes: killed in the middle, on a full disk, and two at once. What was acknowledged is there afterwards."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.base.errors import Busy, Failed
from gridops.store.authority import JOURNAL, LOCK, Authority
from gridops.store.errors import Damaged
from gridops.store.journal import Journal
from tests.store.build import Child, fork, rows

GROUP = 7


def _append_for_ever(directory: Path) -> Callable[[Callable[[bytes], None]], None]:
    def work(say: Callable[[bytes], None]) -> None:
        with Authority.open(directory, 1) as authority:
            while True:
                n = authority.journal.append(rows(authority.journal.head + 1, GROUP, 300), authority.term)
                say(b"%d" % n)
                if n % (GROUP * 5) == 0:
                    authority.journal.save_snapshot(n, {"n": n})

    return work


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    dice, acknowledged = random.Random(4), 0
    for _ in range(10):
        child = fork(_append_for_ever(tmp_path))
        time.sleep(dice.uniform(0.01, 0.15))
        heard = child.kill().split()
        acknowledged = max(acknowledged, *(int(n) for n in heard), 0) if heard else acknowledged
        opened = Journal.open(tmp_path / JOURNAL)
        found = list(opened.replay())
        saved = opened.latest_snapshot()
        opened.close()
        assert len(found) >= acknowledged
        assert len(found) % GROUP == 0, "a group is whole or not there"
        assert [r.value["n"] for r in found] == list(range(1, len(found) + 1))
        assert saved is None or saved.value == {"n": saved.n}
    assert acknowledged > 50


def test_a_folder_opens_after_a_kill_at_any_moment_of_its_first_opening(tmp_path: Path) -> None:
    dice, whole = random.Random(5), 0
    for number in range(12):
        directory = tmp_path / str(number)

        def work(say: Callable[[bytes], None], directory: Path = directory) -> None:
            say(b"begun")
            Authority.open(directory, 1).close()

        child = fork(work)
        os.read(child.pipe, 16)
        time.sleep(dice.uniform(0, 0.02))
        child.kill()
        try:
            with Authority.open(directory, 1) as authority:
                whole += authority.term.counter == 2
                assert authority.journal.append(rows(1, 1), authority.term) == 1
        except Damaged as damaged:  # pragma: no cover - would be a beginning taken for damage
            pytest.fail(f"a beginning was taken for damage: {damaged}")
        assert {f.name for f in directory.iterdir() if not f.name.startswith(".")} <= {JOURNAL, LOCK}
    assert whole < 12


def test_a_full_disk_stops_the_writer_and_loses_nothing(tmp_path: Path) -> None:
    def work(say: Callable[[bytes], None]) -> None:
        with Authority.open(tmp_path, 1) as authority:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            with pytest.raises(Failed) as caught:
                while True:
                    say(b"%d" % authority.journal.append(rows(authority.journal.head + 1, GROUP, 900), authority.term))
            assert JOURNAL in caught.value.message
            with pytest.raises(Failed, match="nothing more is written"):
                authority.journal.append(rows(1, 1, 1), authority.term)
            assert authority.journal.head > 0, "reading goes on"

    child = fork(work)
    heard = child.said().split()
    assert child.wait() == 0
    opened = Journal.open(tmp_path / JOURNAL)
    found = list(opened.replay())
    assert len(found) == int(heard[-1])
    assert opened.append(rows(len(found) + 1, 1), opened.take_term(1)) == len(found) + 1
    opened.close()


def test_a_disk_that_is_full_from_the_beginning_fails_by_name(tmp_path: Path) -> None:
    def work(say: Callable[[bytes], None]) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        with pytest.raises(Failed, match=JOURNAL):
            Authority.open(tmp_path, 1)

    child = fork(work)
    child.said()
    assert child.wait() == 0
    with Authority.open(tmp_path, 1) as authority:
        assert authority.journal.head == 0


# --- one writer -----------------------------------------------------------------------------------------------------


def _holder(directory: Path) -> Child:
    """A child that holds the folder until it is killed; it has said so when this returns."""

    def work(say: Callable[[bytes], None]) -> None:
        authority = Authority.open(directory, 1)
        say(b"%d" % authority.term.counter)
        time.sleep(60)

    child = fork(work)
    assert os.read(child.pipe, 16)
    return child


def test_a_second_controller_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    child = _holder(tmp_path)
    try:
        with pytest.raises(Busy, match=f"process {child.pid}") as caught:
            Authority.open(tmp_path, 1)
        assert caught.value.exit_code == 75
    finally:
        child.kill()
    with Authority.open(tmp_path, 1) as authority:
        assert authority.term.counter == 2, "the refused one took no term"
    assert (tmp_path / LOCK).read_text().strip() == str(os.getpid())
