"""What a person's systemd says of a unit, and what it is asked to do: `systemctl --user`, one call at a time.

Names are checked before each call, and stand after `--`, so that none is ever an option or a path. Signals nobody: what
is to end is ended by systemd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.errors import Failed
from gridops_agent.hearsay import count
from gridops_agent.keep.ways import check_unit
from gridops_agent.supervise import run

PATIENCE_S = 30.0
"""One call of systemctl. Its jobs are not waited for in it."""
_ASKED = (
    *("LoadState", "ActiveState", "SubState", "MainPID", "InvocationID", "ControlGroup", "KillMode", "Restart"),
    *("Result", "ExecMainStatus", "ExecMainCode", "ExecStart"),
)


class Silent(Failed):
    """systemd cannot be asked: what it would say is unknown."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A unit as systemd describes it now."""

    said: Mapping[str, str]

    @property
    def loaded(self) -> bool:
        return self.said.get("LoadState") == "loaded"

    @property
    def lives(self) -> bool:
        """Anything but proved to be at rest."""
        return self.said.get("ActiveState") not in ("inactive", "failed")

    @property
    def pid(self) -> int:
        return count(self.said.get("MainPID", "")) or 0

    @property
    def life(self) -> str:
        """Its invocation: another start has another."""
        return self.said.get("InvocationID", "")

    @property
    def group(self) -> str:
        return self.said.get("ControlGroup", "")

    @property
    def words(self) -> tuple[str, ...]:
        """The command line, as far as blanks divide it."""
        return tuple(self.said.get("ExecStart", "").partition("argv[]=")[2].partition(" ; ")[0].split())

    @property
    def ending(self) -> str:
        result, status = self.said.get("Result", "unknown"), self.said.get("ExecMainStatus", "?")
        return f"result {result}, status {status}"


def show(name: str) -> Seen:
    """What systemd knows of a unit. Raises Silent."""
    out = _call("show", f"--property={','.join(_ASKED)}", "--", check_unit(name))
    pairs = (line.partition("=") for line in out.splitlines() if "=" in line)
    said = {key: value for key, _, value in pairs}
    if "ActiveState" not in said:
        raise Silent(f"systemctl says nothing about {name}")
    return Seen(said)


def start(name: str) -> None:
    """Start a unit. Raises Failed with the words of systemd."""
    _call("start", "--", check_unit(name))


def stop(name: str) -> None:
    """Begin to stop a unit; how it goes on is seen by `show`."""
    _call("stop", "--no-block", "--", check_unit(name))


def kill(name: str) -> None:
    """Have systemd end every process of a unit now."""
    _call("kill", "--kill-who=all", "--signal=SIGKILL", "--", check_unit(name))


def reload() -> None:
    """Have systemd read drop-ins again."""
    _call("daemon-reload")


def _call(*words: str) -> str:
    argv = ("systemctl", "--user", "--no-pager", *words)
    try:
        answer = run(argv, PATIENCE_S)
    except Failed as error:
        raise Silent(error.message) from error
    if answer.code != 0:
        said = " ".join(answer.err.split())[:300] or f"exit code {answer.code}"
        if "Failed to connect to bus" in said or words[0] == "show":
            raise Silent(f"systemd cannot be asked: {said}")
        raise Failed(f"systemctl {words[0]} {words[-1]}: {said}")
    return answer.out
