"""What the screen says of the documents of trust: nothing at the basic level, and never too late."""

from __future__ import annotations

from typing import Any

import pytest

from gridops.base.record import to_data
from gridops.cli.status import attention, lines
from gridops.controller.documents import TrustDoc


def document(trust: dict[str, Any] | None) -> dict[str, Any]:
    intent = {"branch": "main", "commit": None}
    found: dict[str, Any] = {"controller": {"trusted": True}, "scopes": [], "hosts": [], "intent": intent}
    return found if trust is None else found | {"trust": trust}


def trust(**more: Any) -> dict[str, Any]:
    """As the controller writes it, which leaves out what is not there."""
    made: dict[str, Any] = to_data(TrustDoc(root=3, expires="2027-11-30T00:00:00Z", **more))
    return made


def test_the_basic_level_and_a_controller_of_before_are_no_news() -> None:
    for basic in (None, trust()):
        assert "trust" not in "\n".join(lines(document(basic), 0, None, wide=False))
        assert attention(document(basic)) == []


@pytest.mark.parametrize(
    ("on", "line"),
    [
        ({"signed_commits": True}, "trust: commits are signed"),
        ({"catalog": 4}, "trust: nothing runs that catalog 4 does not name"),
        (
            {"signed_commits": True, "catalog": 4},
            "trust: commits are signed; nothing runs that catalog 4 does not name",
        ),
    ],
)
def test_each_level_that_is_on_is_said(on: dict[str, Any], line: str) -> None:
    assert line in list(lines(document(trust(**on)), 0, None, wide=False))


def test_a_root_that_ends_is_said_before_and_after() -> None:
    assert attention(document(trust(soon=True))) == ["root 3 expires at 2027-11-30T00:00:00Z (gridops trust renew)"]
    words = "root 3 expired at 2027-11-30T00:00:00Z: nothing may change (gridops trust renew)"
    assert attention(document(trust(soon=True, expired=True))) == [words]
