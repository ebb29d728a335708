"""Fixtures of the controller's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.desk import SignedDesk
from tests.controller.fleet import Desk, Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A repository with keys and no commit yet."""
    return Fleet(tmp_path)


@pytest.fixture
def desk(fleet: Fleet) -> Iterator[Desk]:
    """A controller on a fleet of two admitted hosts and one profile, in mode recommend."""
    fleet.begin()
    made = Desk(fleet)
    yield made
    made.controller.close()


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[SignedDesk]:
    """A controller on a fleet whose commits are signed."""
    made = SignedDesk.opened(tmp_path)
    yield made
    made.controller.close()
