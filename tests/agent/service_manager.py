"""A service manager that remembers what it was asked, and a machine of tests with it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from gridops_agent.account import Account
from gridops_agent.life.install import Machine

PROGRAM = "/bin/true"


@dataclass
class ServiceManager:
    """systemctl and launchctl as far as they are used: what is enabled and active is decided by files and calls."""

    calls: list[tuple[str, ...]] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    starts: bool = True
    stops: bool = True
    pid: int = 4_711
    """Of whatever it runs."""

    def __call__(self, argv: tuple[str, ...], patience: float) -> str:
        self.calls.append(argv)
        words = tuple(word for word in argv if word != "--user")
        match words:
            case ("systemctl", "enable", "--now", name):
                self.loaded |= {name} if self.starts else set()
                return f"Created symlink for {name}.\n"
            case ("systemctl", "disable", "--now", name):
                self.loaded -= {name} if self.stops else set()
                return ""
            case ("systemctl", "is-active", name):
                return "active\n" if name in self.loaded else "failed\n"
            case ("systemctl", "show", "--property=MainPID", "--value", name):
                return f"{self.pid if name in self.loaded else 0}\n"
            case ("systemctl", "is-enabled", name):
                return "enabled\n" if name in self.loaded else "disabled\n"
            case ("launchctl", "bootstrap", _, file):
                self.loaded |= {Path(file).stem} if self.starts else set()
                return ""
            case ("launchctl", "bootout", target):
                self.loaded -= {target.rpartition("/")[2]}
                return ""
            case ("launchctl", "print", target):
                name = target.rpartition("/")[2]
                return (
                    f"{target} = {{\n\tstate = running\n\tpid = {self.pid}\n}}"
                    if name in self.loaded
                    else "Could not find service"
                )
        return ""


def machine(tmp_path: Path, manager: ServiceManager, **changes: object) -> Machine:
    made = Machine(
        root=True,
        system="linux",
        systemd=True,
        home=tmp_path / "home",
        user="ana",
        runtime_dir="/run/user/1000",
        units=tmp_path / "units",
        daemons=tmp_path / "daemons",
        linger=tmp_path / "linger",
        accounts=tmp_path / "sysusers.d" / "gridops-agent.conf",
        account=lambda: Account("gridops-agent", os.geteuid(), os.getegid()),
        devices=tmp_path / "dev",
        ask=manager,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
