"""Runs git, and nothing else does: hardened arguments and environment, bounded time, errors with the path or URL.

Called by `files.git` and `files.projection`. It must never run a hook, a filter, a prompt or a pager, and never
trust variables such as GIT_DIR that a calling hook may have left in the environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Without this the library looks for git at import and raises where there is none; we name what is missing ourselves.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import git

from gridops.base.errors import Bug, Failed, Unreachable

Process = subprocess.Popen[bytes]
LOCAL_TIMEOUT_S = 60.0
"""For commands that touch only this machine's disk."""

# protocol.allow=never closes `ext::` and whatever a future git adds; three transports are opened again by name.
_HARDENED = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.quotePath=false",
    "-c", "core.useReplaceRefs=false",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "commit.gpgSign=false",
    "-c", "fetch.fsckObjects=true",
    "-c", "protocol.allow=never",
    "-c", "protocol.https.allow=always",
    "-c", "protocol.ssh.allow=always",
    "-c", "protocol.file.allow=always",
    "-c", "submodule.recurse=false",
)  # fmt: skip
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": "", "GIT_OPTIONAL_LOCKS": "0"}
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Ran:
    """What a git command answered."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class GitDir:
    """Where a repository lies: its own git folder, the folder shared by all its worktrees, and its work tree if any."""

    own: Path
    common: Path
    root: Path | None

    @property
    def shown(self) -> str:
        """The path a person would recognise."""
        return str(self.root or self.own)


def open_dir(path: Path) -> GitDir:
    """The repository at or above `path`. Raises Failed when there is none."""
    if not path.is_dir():
        raise Failed(f"{path}: no such folder")
    hints = ("make it a repository: git init", "or name another folder: gridops -C DIR ...")
    try:
        repo = git.Repo(path, search_parent_directories=True, expand_vars=False)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError) as error:
        raise Failed(f"{path}: not a git repository", hints=hints) from error
    except (git.GitError, OSError, ValueError) as error:
        raise Failed(f"{path}: cannot open the git repository: {error}") from error
    try:
        root = repo.working_tree_dir
        return GitDir(
            own=Path(repo.git_dir).resolve(),
            common=Path(repo.common_dir).resolve(),
            root=None if root is None else Path(root).resolve(),
        )
    finally:
        repo.close()


def run(
    where: GitDir,
    *args: str,
    stdin: bytes | None = None,
    timeout_s: float = LOCAL_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Ran:
    """Run one git command in a repository. Any exit status is an answer; only a missing git or a timeout raises.

    `most`: no file that it writes, or that its own helpers write, becomes larger.
    """
    process = _start(where, _command(where, args), env or {})
    try:
        if most is not None:
            _bound(process, most)
        out, err = process.communicate(stdin, timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise Unreachable(f"{where.shown}: git {args[0]} did not finish within {timeout_s:g} s") from None
    except BaseException:
        _kill(process)
        raise
    return Ran(process.returncode, out, clean(err.decode("utf-8", "replace")))


def ask(
    where: GitDir,
    *args: str,
    stdin: bytes | None = None,
    timeout_s: float = LOCAL_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """Like `run`, for commands that must succeed. Raises Failed with git's own first line."""
    ran = run(where, *args, stdin=stdin, timeout_s=timeout_s, env=env)
    if ran.status != 0:
        raise failed(where, args, ran)
    return ran


def head_of(where: GitDir, *args: str, size: int) -> bytes:
    """The first bytes of what a command prints; the rest is never read."""
    process = _start(where, _command(where, args), {})
    try:
        if process.stdout is None:
            raise Bug("git was started without a pipe")
        return process.stdout.read(size)
    finally:
        _kill(process)


def start(where: GitDir, *args: str) -> Process:
    """A git command that goes on listening; whoever starts it calls `end`."""
    return _start(where, _command(where, args), {})


def end(process: Process) -> None:
    """Be done with a command, whatever it is doing."""
    _kill(process)


def failed(where: GitDir, args: Sequence[str], ran: Ran) -> Failed:
    return Failed(f"{where.shown}: git {args[0]} failed: {first_line(ran.err) or f'status {ran.status}'}")


def first_line(err: str) -> str:
    """The line of git's stderr that says what is wrong, without its prefix."""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    found = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[0] if lines else "")
    return found.removeprefix("fatal: ").removeprefix("error: ")


def clean(text: str) -> str:
    """Text without credentials: what stands before `@` in a URL is dropped."""
    return _SECRET_IN_URL.sub("", text)


def _command(where: GitDir, args: Sequence[str]) -> list[str]:
    place = ["--git-dir", str(where.own)]
    if where.root is not None:
        place += ["--work-tree", str(where.root)]
    return ["git", "--no-pager", *_HARDENED, *place, *args]


def _start(where: GitDir, command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A session of its own: git's helpers (ssh, remote-https) cannot prompt on our terminal, and die with it.
    runner = git.Git(str(where.root or where.own))
    try:
        started = runner.execute(
            command,
            istream=subprocess.PIPE,
            as_process=True,
            env={**_neutral(), **_ENVIRONMENT, **env},
            start_new_session=True,
        )
    except git.GitCommandNotFound as error:
        raise Failed("git is not on PATH", hints=("install it: apt-get install git",)) from error
    process = started.proc
    if process is None:
        raise Bug("GitPython handed over a process that is already gone")
    # GitPython's wrapper kills the process when it is collected; from here on this function's caller owns it.
    started.proc = None
    return process


def _bound(process: Process, most: int) -> None:
    """What git starts from here on inherits it. Where a system cannot say so, time alone bounds a fetch."""
    if sys.platform == "linux":
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))


def _neutral() -> dict[str, str]:
    """Variables of a calling hook that would redirect git, made harmless (GitPython can add but not remove)."""
    common = {"GIT_CONFIG_COUNT": "0"} if "GIT_CONFIG_COUNT" in os.environ else {}
    if "GIT_NAMESPACE" in os.environ:
        common["GIT_NAMESPACE"] = ""
    return common


def _kill(process: subprocess.Popen[bytes]) -> None:
    if _uncollected(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _uncollected(process: subprocess.Popen[bytes]) -> bool:
    """Whether its number is still its own: it lives, or it ended and nobody has asked how. A zombie keeps it as well.

    Once somebody did, whoever got the number since would be signalled in its place.
    """
    if process.returncode is not None:
        return False
    if not hasattr(os, "waitid"):
        return True  # macOS: nobody else here asks about our children
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
