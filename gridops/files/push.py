"""Pushing the branches that gridops writes. A failure is a value: the caller notes it and goes on.

Called by the controller from a thread (`asyncio.to_thread`). Plans only ever fast-forward: where a person committed
on the remote's branch, the push is refused there and said so. The state branch is replaced, by a push that names the
tip it replaces, so that it never runs over what it has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gridops.base.errors import GridopsError
from gridops.files.git import Checkout
from gridops.files.git_run import Ran, clean, first_line, run
from gridops.files.projection import STATE_BRANCH

PUSH_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of one branch: pushed, or why not."""

    branch: str
    ok: bool
    detail: str


def push(
    checkout: Checkout, remote: str, branches: Sequence[str], *, timeout_s: float = PUSH_TIMEOUT_S
) -> tuple[Pushed, ...]:
    """Push each branch that exists here. Never raises for anything that a remote or the network does."""
    return tuple(_one(checkout, remote, branch, timeout_s) for branch in dict.fromkeys(branches))


def _one(checkout: Checkout, remote: str, branch: str, timeout_s: float) -> Pushed:
    ref = f"refs/heads/{branch}"
    if checkout.resolve(ref) is None:
        return Pushed(branch, True, "nothing to push yet")
    try:
        lease: tuple[str, ...] = ()
        if branch == STATE_BRANCH:
            seen = run(checkout.where, "ls-remote", "--end-of-options", remote, ref, timeout_s=timeout_s)
            if seen.status != 0:
                return _refused(branch, remote, seen)
            lease = (f"--force-with-lease={ref}:{seen.text.split()[0] if seen.text else ''}",)
        args = ("push", "--quiet", "--no-verify", "--recurse-submodules=no", *lease, "--end-of-options", remote)
        ran = run(checkout.where, *args, f"{ref}:{ref}", timeout_s=timeout_s)
    except GridopsError as error:
        return Pushed(branch, False, clean(error.message))
    return Pushed(branch, True, "pushed") if ran.status == 0 else _refused(branch, remote, ran)


def _refused(branch: str, remote: str, ran: Ran) -> Pushed:
    shown = clean(remote)
    if "non-fast-forward" in ran.err or "fetch first" in ran.err:
        return Pushed(branch, False, f"{shown}: {branch} has commits there that are not here; somebody else writes it")
    if "stale info" in ran.err:
        return Pushed(branch, False, f"{shown}: {branch} was moved by somebody else at the same moment")
    return Pushed(branch, False, f"{shown}: cannot push {branch}: {first_line(ran.err)}")
