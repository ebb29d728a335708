"""Control groups for engines: one for each below the agent's own, where that was delegated to us (Linux, v1 and v2).

Membership is kept by the kernel: a process that leaves its session and cleans its environment is still found. Where
nothing was delegated nothing is made, and the cookie is all there is. No limit is ever set.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gridops_agent.hearsay import count

SYSTEMD = Path("/run/systemd/system")
DELEGATED = ("user.delegate", "trusted.delegate")


class Groups:
    """The groups of one agent. Roots are arguments so that tests can prepare trees."""

    def __init__(
        self, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup"), systemd: Path = SYSTEMD
    ) -> None:
        self._proc = proc
        self._root = root
        self._systemd = systemd

    def enter(self, name: str, pid: int) -> bool:
        """Make the group and put a process into it; its children follow by themselves. False where we may not."""
        home = self.home()
        if home is None:
            return False
        try:
            (home / name).mkdir(exist_ok=True)
            (home / name / "cgroup.procs").write_text(str(pid), "ascii")
        except OSError:
            self.leave(name)
            return False
        return True

    def pids(self, name: str) -> tuple[int, ...]:
        """Every process of a group, those that have ended and were not reaped among them."""
        home = self.home()
        if home is None:
            return ()
        try:
            lines = (home / name / "cgroup.procs").read_text("ascii").split()
        except OSError:
            return ()
        return tuple(sorted(pid for pid in map(count, lines) if pid))

    def leave(self, name: str) -> None:
        """Remove a group that is empty; one that is not stays, as the kernel sees to."""
        home = self.home()
        if home is not None:
            with contextlib.suppress(OSError):
                (home / name).rmdir()

    def home(self) -> Path | None:
        """The agent's own group, if groups may be made in it; never the root, which nobody has delegated."""
        try:
            lines = (self._proc / "self/cgroup").read_text("utf-8", "replace").splitlines()
        except OSError:
            return None
        for line in lines:
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            roots: tuple[Path, ...] = ()
            if number == "0" and not controllers:
                roots = (self._root, self._root / "unified")
            elif controllers == "name=systemd":
                roots = (self._root / "systemd",)
            for root in roots:
                folder = root / path.strip("/")
                if path.strip("/") and self._ours(root, folder):
                    return folder
        return None

    def _ours(self, root: Path, folder: Path) -> bool:
        procs = folder / "cgroup.procs"
        if not (os.access(folder, os.W_OK) and os.access(procs, os.W_OK)):
            return False
        if not self._systemd.exists():
            return True
        # systemd owns every group that it has not handed on: at or above ours one must say so.
        above = (folder, *(p for p in folder.parents if p != root and root in p.parents))
        return any(_delegated(group) for group in above)


def _delegated(folder: Path) -> bool:
    for name in DELEGATED:
        with contextlib.suppress(OSError, AttributeError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False
