"""The agent's service files as text: systemd units for the system and for a person, and launchd's property list.

`agent/gridops-agent.service` is the system's unit for the default state folder. Writes and starts nothing: `install`
does. Engines inherit what stands here, and have to run under it.
"""

from __future__ import annotations

import plistlib
from pathlib import Path, PurePosixPath

_HEAD = """\
# gridops host agent. Written by `gridops-agent join`; local changes belong into a drop-in (systemctl {user}edit).
[Unit]
Description=gridops host agent
Documentation=man:gridops-agent(1)
{after}
[Service]
Type=notify
NotifyAccess=main
ExecStart={program} run --state {state}
# Engines live on while the agent is restarted or upgraded; it proves and adopts them when it is back.
KillMode=process
# It keeps each engine in a control group of its own below this one.
Delegate=yes
# An engine that the kernel ends for want of memory is the agent's business, and no reason to end the agent too.
OOMPolicy=continue
TimeoutStartSec=180
TimeoutStopSec=30
Restart=on-failure
RestartSec=2
# A wrong call and a wrong configuration do not heal by trying again.
RestartPreventExitStatus=64 78
WatchdogSec=60
UMask=0077
# Model files are mapped and may be locked; an engine has hundreds of threads.
LimitMEMLOCK=infinity
TasksMax=infinity
"""
_SYSTEM = """
# Engines inherit all of this. They need their GPUs, loopback, the model files and the state folder, and nothing else.
# It runs as an account of its own, which owns the state folder and nothing else.
User={user}
Group={user}
{groups}{writable}
Environment=HOME={state}
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
# Cards by the names that their drivers have in /proc/devices, so that one that comes later is there too; of what else
# there is in /dev, what no program can do without. Which card is an engine's own is told to it by the agent.
DevicePolicy=closed
{devices}
PrivateTmp=yes
# A private /tmp ends with this unit, and engines do not: theirs lies in the state folder.
Environment=TMPDIR={state}/tmp
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
# Netlink is how a program asks which network interfaces there are.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
# A call that is not allowed fails; it does not kill an engine that only tried a faster way.
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
_USER = """
# A person's own units cannot shut themselves off from the file system; what needs no right to be given up is given up.
NoNewPrivileges=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""
_ONLINE = (
    "Wants=network-online.target\n"
    "After=network-online.target systemd-sysusers.service systemd-modules-load.service nvidia-persistenced.service\n"
)
ACCOUNT = "gridops-agent"
DRIVERS = ("char-nvidia*", "char-drm", "char-kfd", "char-accel")
"""NVIDIA's (also its memory, instances and links), those of AMD and Intel, AMD's computing, and accelerators."""
_MISCELLANEOUS = ("davinci*", "devmm_svm", "hisi_hdc")
_HOME = PurePosixPath("/var/lib")


def unit_text(
    program: str = "/usr/bin/gridops-agent",
    state: str = "/var/lib/gridops-agent/default",
    groups: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
) -> str:
    """The system's unit. Paths with blanks or percent signs are written the way systemd reads them.

    `groups`: what the account belongs to besides; systemd starts nothing for a group that is not there. `nodes`: cards
    whose driver has no name of its own in /proc/devices.
    """
    head = _HEAD.format(program=_argument(program), state=_argument(state), after=_ONLINE, user="")
    devices = "\n".join(f"DeviceAllow={what} rw" for what in (*DRIVERS, *map(_word, sorted(nodes))))
    more = f"SupplementaryGroups={' '.join(groups)}\n" if groups else ""
    return head + _SYSTEM.format(
        state=_word(state), writable=_writable(state), user=ACCOUNT, groups=more, devices=devices
    )


def card_nodes(folder: Path = Path("/dev")) -> tuple[str, ...]:
    """The cards of this machine that no driver's name stands for: those of Ascend are miscellaneous devices."""
    found = (path for form in _MISCELLANEOUS for path in folder.glob(form))
    return tuple(sorted(str(path) for path in found if path.is_char_device()))


def user_unit_text(program: str, state: str) -> str:
    """The unit of a person, for `systemctl --user`."""
    return _HEAD.format(program=_argument(program), state=_argument(state), after="", user="--user ") + _USER


def plist_bytes(label: str, program: tuple[str, ...], state: Path) -> bytes:
    """The property list of launchd: the agent's children are left alone, its own log is in the state folder."""
    return plistlib.dumps(
        {
            "Label": label,
            "ProgramArguments": [*program, "run", "--state", str(state)],
            "RunAtLoad": True,
            # Restarted when it fails. launchd knows no exit code that it would take for a last word, hence the pause.
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 30,
            # Without this launchd ends the engines together with the agent.
            "AbandonProcessGroup": True,
            "ExitTimeOut": 30,
            # Interactive: not slowed down as background work, since people wait for the engines.
            "ProcessType": "Interactive",
            "Umask": 0o077,
            "WorkingDirectory": str(state),
            "StandardOutPath": "/dev/null",
            "StandardErrorPath": "/dev/null",
        },
        sort_keys=True,
    )


def has_systemd() -> bool:
    """This machine was started by systemd."""
    return Path("/run/systemd/system").is_dir()


def _writable(state: str) -> str:
    """systemd makes the folder, with its mode, where it is under the place that is meant for that."""
    path = PurePosixPath(state)
    if path.is_relative_to(_HOME) and path != _HOME and _word(state) == state:
        return f"StateDirectory={path.relative_to(_HOME)}\nStateDirectoryMode=0700"
    return f"ReadWritePaths={_word(state)}"


def _argument(text: str) -> str:
    """In a command line a dollar sign would be a variable."""
    return _word(text).replace("$", "$$")


def _word(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "%%").replace(" ", "\\x20")
