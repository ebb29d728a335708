"""Waking: any way in which a branch can move wakes at once; our own branches never do; silence has an end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gridops.files.git import Checkout
from gridops.files.watch import wakes

LONG_MS = 60_000


async def _woken(place, act, *, interval_ms: int = LONG_MS, within_s: float = 5.0) -> bool:
    stream = wakes(Checkout(place), interval_ms=interval_ms)
    step = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.4)  # until the watchers stand
    try:
        await asyncio.to_thread(act)
        done, _ = await asyncio.wait({step}, timeout=within_s)
        return bool(done)
    finally:
        step.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await step
        await stream.aclose()


@pytest.mark.parametrize("how", ["commit", "checkout", "packed", "fetched elsewhere"])
async def test_every_way_a_branch_moves_wakes(how, repo, git) -> None:
    git(repo, "branch", "other")

    def act() -> None:
        match how:
            case "commit":
                git(repo, "commit", "-q", "--allow-empty", "-m", "x")
            case "checkout":
                git(repo, "checkout", "-q", "other")
            case "packed":
                git(repo, "pack-refs", "--all")
            case _:
                git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")

    assert await _woken(repo, act)


async def test_a_commit_in_a_linked_work_tree_wakes(repo, git, tmp_path) -> None:
    place = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "-b", "side", str(place))
    assert await _woken(place, lambda: git(place, "commit", "-q", "--allow-empty", "-m", "x"))


async def test_our_own_branches_and_edited_files_do_not_wake(repo, git) -> None:
    def act() -> None:
        git(repo, "update-ref", "refs/heads/gridops/plans", "HEAD")
        git(repo, "update-ref", "refs/gridops/fetched/main", "HEAD")
        (repo / "fleet.d/office.yaml").write_text("being edited\n")
        (repo / "fleet.d/.office.yaml.swp").write_text("x")

    assert not await _woken(repo, act, within_s=1.0)


async def test_silence_ends_after_the_interval(repo) -> None:
    assert await _woken(repo, lambda: None, interval_ms=200, within_s=2.0)


async def test_closing_leaves_no_watcher_behind(repo) -> None:
    before = len(asyncio.all_tasks())
    stream = wakes(Checkout(repo), interval_ms=50)
    await anext(stream)
    assert len(asyncio.all_tasks()) > before
    await stream.aclose()
    assert len(asyncio.all_tasks()) == before
