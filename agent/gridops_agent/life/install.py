"""Installs the agent's own service on this machine, says how it stands, and takes it away again.

Called by `join`, `leave` and `doctor`. Which way there is (the system's systemd, a person's, launchd, none) is found
out once, as a `Place`; what was done is believed when the service manager says so, not when it was asked to. It never
touches a service of another state folder.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gridops.base.canon import digest_bytes
from gridops.base.errors import Failed
from gridops.disk.atomic import write_atomic
from gridops_agent import account
from gridops_agent.config import Config, default_state
from gridops_agent.hearsay import count
from gridops_agent.service import card_nodes, has_systemd, plist_bytes, unit_text, user_unit_text
from gridops_agent.supervise import ask

PATIENCE_S = 60.0
"""A start is over when the agent has adopted its engines and says READY."""
Ask = Callable[[tuple[str, ...], float], str]


class Way(StrEnum):
    """Who keeps the agent running."""

    SYSTEM = "systemd"
    USER = "systemd-user"
    LAUNCHD = "launchd"
    NONE = "foreground"


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides which way there is; tests make their own."""

    root: bool = field(default_factory=account.began_as_root)
    system: str = sys.platform
    systemd: bool = field(default_factory=has_systemd)
    home: Path = field(default_factory=Path.home)
    user: str = field(default_factory=getpass.getuser)
    runtime_dir: str = field(default_factory=lambda: os.environ.get("XDG_RUNTIME_DIR", ""))
    units: Path = Path("/etc/systemd/system")
    daemons: Path = Path("/Library/LaunchDaemons")
    linger: Path = Path("/var/lib/systemd/linger")
    accounts: Path = Path("/etc/sysusers.d/gridops-agent.conf")
    account: Callable[[], account.Account | None] = account.known
    devices: Path = Path("/dev")
    ask: Ask = ask

    @property
    def lingers(self) -> bool:
        """The person's services run on when the person logs out."""
        return (self.linger / self.user).exists()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the service of one state folder is, or would be."""

    way: Way
    name: str
    file: Path | None = None
    why: str = ""
    """Why there is none, for people."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a service stands, as its manager says."""

    installed: bool
    enabled: bool
    running: bool
    words: str
    pid: int | None = None
    """The process that it says it keeps running; None where it does not say."""


def place(config: Config, machine: Machine) -> Place:
    """The way there is on this machine, for this state folder."""
    name = "gridops-agent" if config.state == default_state() else f"gridops-agent-{_plain(config.state)}"
    if machine.system == "darwin":
        label = f"org.gridops.{name}"
        folder = machine.daemons if machine.root else machine.home / "Library" / "LaunchAgents"
        return Place(Way.LAUNCHD, label, folder / f"{label}.plist")
    if not machine.systemd:
        return Place(Way.NONE, name, why="this machine was not started by systemd")
    if machine.root:
        return Place(Way.SYSTEM, name, machine.units / f"{name}.service")
    if not machine.runtime_dir:
        return Place(Way.NONE, name, why="there is no session of systemd for this person (XDG_RUNTIME_DIR is not set)")
    return Place(Way.USER, name, machine.home / ".config" / "systemd" / "user" / f"{name}.service")


def install(where: Place, config: Config, program: Path, machine: Machine) -> tuple[str, ...]:
    """Write the service, enable and start it; what was done, in lines. Raises Failed; then join still holds."""
    if where.file is None:
        return (f"No service: {where.why}.", "Run it in the foreground, or from whatever starts programs here:")
    config.state.joinpath("tmp").mkdir(mode=0o700, exist_ok=True)
    user = _given_away(config, program, machine) if where.way is Way.SYSTEM else None
    try:
        where.file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"cannot make {where.file.parent}: {error.strerror}") from error
    write_atomic(where.file, _content(where, config, program, user, machine))
    for argv in _start(where, machine):
        machine.ask(argv, PATIENCE_S)
    now = standing(where, machine)
    if not now.running:
        raise Failed(f"{where.file} is written, but the service does not run: {now.words}", hints=(log_of(where),))
    lines = [f"Wrote {where.file}; the service {where.name} is enabled and runs."]
    if user is not None:
        lines.append(f"It runs as {user.name}, whose the state folder is from now on.")
        closed = [f for f in config.artifact_folders if account.barred(f, user, last=stat.S_IROTH | stat.S_IXOTH)]
        lines += [f"{user.name} cannot read {one}: let it, or nothing is found there" for one in closed]
    if where.way is Way.USER and not machine.lingers:
        lines.append("It ends when you log out. To let it run on:")
        lines.append(f"  loginctl enable-linger {machine.user}")
    return tuple(lines)


def remove(where: Place, machine: Machine) -> str:
    """Stop the service, and let nobody start it again; in words. Engines are not touched. Raises Failed."""
    if where.file is None or not where.file.exists():
        return "no service of this state folder is installed"
    for argv in _stop(where, machine):
        # What was not loaded cannot be stopped, which is no trouble; what counts is how it stands afterwards.
        with contextlib.suppress(Failed):
            machine.ask(argv, PATIENCE_S)
    now = standing(where, machine)
    if now.running:
        raise Failed(f"the service {where.name} does not stop: {now.words}", hints=(log_of(where),))
    try:
        where.file.unlink(missing_ok=True)
    except OSError as error:
        raise Failed(f"cannot remove {where.file}: {error.strerror}") from error
    if where.way is not Way.LAUNCHD:
        machine.ask((*_systemctl(where), "daemon-reload"), PATIENCE_S)
    return f"the service {where.name} is stopped and removed"


def standing(where: Place, machine: Machine) -> Standing:
    """How it stands now. Asks the service manager and changes nothing."""
    if where.file is None or not where.file.exists():
        return Standing(False, False, False, where.why or "it is not installed")
    try:
        if where.way is Way.LAUNCHD:
            told = machine.ask(("launchctl", "print", f"{_domain(machine)}/{where.name}"), PATIENCE_S)
            running = re.search(r"^\s*state = running$", told, re.MULTILINE) is not None
            pid = re.search(r"^\s*pid = (\d+)$", told, re.MULTILINE)
            words = "running" if running else told.strip().splitlines()[0][:200]
            return Standing(True, running, running, words, int(pid[1]) if running and pid is not None else None)
        active = machine.ask((*_systemctl(where), "is-active", where.name), PATIENCE_S).strip()
        enabled = machine.ask((*_systemctl(where), "is-enabled", where.name), PATIENCE_S).strip()
        main = machine.ask(
            (*_systemctl(where), "show", "--property=MainPID", "--value", where.name), PATIENCE_S
        ).strip()
    except (Failed, IndexError) as error:
        return Standing(True, False, False, str(error) or "the service manager says nothing")
    words = f"{active.splitlines()[-1] if active else 'unknown'}, {enabled.splitlines()[-1] if enabled else 'unknown'}"
    kept = count(main) or None
    return Standing(True, enabled == "enabled", active == "active", words, kept)


def _given_away(config: Config, program: Path, machine: Machine) -> account.Account:
    """The account of the service, with the state folder. Raises Failed where it could not run there."""
    user = account.made(machine.ask, machine.accounts, machine.account)
    account.lay_open(config.state)
    read = ((path, "the program") for path in (program.parent, *account.runs_from()))
    for path, what in (*read, (config.state.parent, "the state folder")):
        bar = account.barred(path, user)
        if bar is not None:
            raise Failed(
                f"{user.name}, which the service runs as, cannot reach {what}: it may not pass {bar}",
                hints=("install into /opt and keep the state below /var/lib", "or run it by hand: --no-service"),
            )
    account.hand_over(config.state, user)
    return user


def _content(where: Place, config: Config, program: Path, user: account.Account | None, machine: Machine) -> bytes:
    match where.way:
        case Way.SYSTEM:
            groups = user.groups if user is not None else ()
            return unit_text(str(program), str(config.state), groups, card_nodes(machine.devices)).encode()
        case Way.USER:
            return user_unit_text(str(program), str(config.state)).encode()
        case _:
            return plist_bytes(where.name, (str(program),), config.state)


def _start(where: Place, machine: Machine) -> tuple[tuple[str, ...], ...]:
    if where.way is Way.LAUNCHD:
        return (("launchctl", "bootstrap", _domain(machine), str(where.file)),)
    control = _systemctl(where)
    return ((*control, "daemon-reload"), (*control, "enable", "--now", where.name))


def _stop(where: Place, machine: Machine) -> tuple[tuple[str, ...], ...]:
    if where.way is Way.LAUNCHD:
        return (("launchctl", "bootout", f"{_domain(machine)}/{where.name}"),)
    return ((*_systemctl(where), "disable", "--now", where.name),)


def _systemctl(where: Place) -> tuple[str, ...]:
    return ("systemctl", "--user") if where.way is Way.USER else ("systemctl",)


def _domain(machine: Machine) -> str:
    return "system" if machine.root else f"gui/{os.getuid()}"


def log_of(where: Place) -> str:
    """How a person reads what the service said."""
    if where.way is Way.LAUNCHD:
        return f"look: launchctl print gui/$(id -u)/{where.name}, and log/agent.log in the state folder"
    return f"look: journalctl {'--user ' if where.way is Way.USER else ''}-u {where.name} -n 50"


def _plain(state: Path) -> str:
    """A name that people know and that no other state folder has."""
    shown = re.sub(r"[^A-Za-z0-9-]", "-", state.name)[:40] or "host"
    return f"{shown}-{digest_bytes(str(state).encode())[-6:]}"
