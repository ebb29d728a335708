"""Fixtures of the attack tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.desk import SignedDesk


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedDesk]:
    """A controller on a fleet whose commits must be signed; every test leaves it with the branch put right."""
    made = SignedDesk.opened(tmp_path_factory.mktemp("signed"))
    yield made
    made.controller.close()
