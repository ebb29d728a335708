"""Two views of one branch: what this checkout has fetched, and what the controller has accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridops.cli.status import attention, lines
from gridops.cli.status_line import APART, BEHIND, UNKNOWN, compared

Git = Callable[..., str]


@pytest.fixture
def clone(fleet: Path, tmp_path: Path, git: Git) -> Path:
    """A person's clone, at what the forge showed them."""
    for number in range(3):
        git(fleet, "commit", "-q", "--allow-empty", "-m", f"change {number}")
    git(tmp_path, "clone", "-q", str(fleet), "mine")
    return tmp_path / "mine"


def intent(accepted: str, tip: str | None = None) -> dict[str, Any]:
    return {"branch": "main", "commit": accepted, "subject": "s", "accepted": "1970-01-01T00:00:00Z", "tip": tip}


def screen(view: dict[str, Any] | None, accepted: str) -> str:
    document = {"controller": {"trusted": True}, "scopes": [], "hosts": [], "intent": intent(accepted)}
    document["intent"]["view"] = view  # type: ignore[index, call-overload]
    return "\n".join(lines(document, 0, None, wide=False))


def test_who_sees_the_same_has_nothing_to_say(clone: Path, git: Git) -> None:
    tip = git(clone, "rev-parse", "HEAD")
    assert compared(clone, intent(tip, tip)) is None
    git(clone, "commit", "-q", "--allow-empty", "-m", "mine, and not pushed")
    assert compared(clone, intent(tip, tip)) is None
    assert compared(clone, {"branch": "main", "commit": None}) is None


def test_a_controller_that_is_shown_an_older_branch_is_behind(clone: Path, git: Git) -> None:
    old, tip = git(clone, "rev-parse", "HEAD~2"), git(clone, "rev-parse", "HEAD")
    view = compared(clone, intent(old, old))
    assert view is not None
    assert (view["relation"], view["commits"], view["ref"]) == (BEHIND, 2, "origin/main")
    shown = screen(view, old)
    assert f"origin/main was fetched here at {tip[:7]}, 2 commits ahead of the controller" in shown
    assert "Needs attention" not in shown, "it may not have looked yet"
    for checked, late in (("2020-01-01T00:00:00Z", False), ("2099-01-01T00:00:00Z", True)):
        view = compared(clone, intent(old, old) | {"checked": checked})
        assert ("Needs attention: the controller is behind" in screen(view, old)) is late


def test_a_controller_that_has_seen_and_refused_it_is_not_behind(clone: Path, git: Git) -> None:
    old, tip = git(clone, "rev-parse", "HEAD~1"), git(clone, "rev-parse", "HEAD")
    assert compared(clone, intent(old, tip)) is None


def test_a_controller_that_is_shown_another_branch_is_on_another_line(clone: Path, git: Git) -> None:
    git(clone, "switch", "-q", "--detach", "HEAD~1")
    git(clone, "commit", "-q", "--allow-empty", "-m", "another history")
    other = git(clone, "rev-parse", "HEAD")
    view = compared(clone, intent(other, other))
    assert view is not None
    assert view["relation"] == APART
    assert "is on another line: one view is not true" in screen(view, other)
    assert attention({"controller": {}, "scopes": [], "hosts": [], "intent": {"view": view}}) == [
        "the controller is on another line"
    ]


def test_a_checkout_that_was_not_fetched_lately_says_so_and_alarms_nobody(clone: Path, fleet: Path, git: Git) -> None:
    git(fleet, "commit", "-q", "--allow-empty", "-m", "newer")
    newer = git(fleet, "rev-parse", "HEAD")
    view = compared(clone, intent(newer, newer))
    assert view is not None
    assert view["relation"] == UNKNOWN
    shown = screen(view, newer)
    assert "is not in this checkout, which has origin/main at" in shown
    assert "Needs attention" not in shown
    git(clone, "fetch", "-q")
    assert compared(clone, intent(newer, newer)) is None
    git(clone, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert compared(clone, intent(newer, newer)) is None, "older than the controller's, and on its line"


def test_the_watched_repository_itself_has_no_second_view(fleet: Path, tmp_path: Path, git: Git) -> None:
    old = git(fleet, "rev-parse", "HEAD")
    git(fleet, "commit", "-q", "--allow-empty", "-m", "newer")
    assert compared(fleet, intent(old, old)) is None
    assert compared(tmp_path, intent(old, old)) is None, "no repository, no view"
