"""Model files on a disk that is really full: nothing is lost, nothing half of it stays, and with room it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.origin import Origin, Trick
from tests.agent.shelf import Desk
from tests.agent.test_room import MIB, model, no_space
from tests.e2e.test_disk import as_root, mount


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as made:
        yield made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Sixteen mebibytes of a file system of its own."""
    folder = tmp_path / "small"
    mount(folder, "16m")
    try:
        yield folder
    finally:
        as_root("umount", "-l", str(folder))


def test_a_disk_at_99_percent_takes_nothing_and_loses_nothing(small: Path, origin: Origin) -> None:
    desk = Desk(small / "host")
    kept = desk.fetch(model(origin, "kept"))
    (small / "ballast").write_bytes(bytes(16 * MIB * 99 // 100 - 2 * MIB))
    no_space(desk, model(origin, "new", 4 * MIB))
    assert kept.exists()
    assert desk.left() == [kept.parent.name]


def test_a_disk_that_fills_while_a_file_arrives_gives_the_room_back(small: Path, origin: Origin) -> None:
    desk = Desk(small / "host")
    wanted = model(origin, "new", 8 * MIB)
    origin.answer = lambda asked: fill(small)
    refusal = no_space(desk, wanted)
    assert "full" in refusal.message
    assert desk.left() == []
    (small / "ballast").unlink()
    origin.answer = None
    assert desk.fetch(wanted).stat().st_size == 8 * MIB


def fill(folder: Path) -> Trick:
    """Somebody else takes the disk between admission and the first byte."""
    (folder / "ballast").write_bytes(bytes(12 * MIB))
    return Trick()
