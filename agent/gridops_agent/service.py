"""The systemd unit of the agent for a state folder; `agent/gridops-agent.service` is the one for the default."""

from __future__ import annotations

from pathlib import Path

UNIT_FILE = Path("/etc/systemd/system/gridops-agent.service")
_UNIT = """\
# gridops host agent. Written by `gridops-agent join`; local changes belong into a drop-in (systemctl edit).
[Unit]
Description=gridops host agent
Documentation=man:gridops-agent(1)
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart={program} run --state {state}
# Engines live on while the agent is restarted or upgraded; it proves and adopts them when it is back.
KillMode=process
TimeoutStopSec=30
Restart=on-failure
RestartSec=2
# A wrong call and a wrong configuration do not heal by trying again.
RestartPreventExitStatus=64 78
WatchdogSec=180
UMask=0077

# Engines inherit all of this. They need their GPUs, loopback, the model files and the state folder, and nothing else.
ReadWritePaths={state}
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""


def unit_text(program: str = "/usr/bin/gridops-agent", state: str = "/var/lib/gridops-agent/default") -> str:
    """The unit. Paths with blanks or percent signs are written the way systemd reads them."""
    return _UNIT.format(program=_word(program), state=_word(state))


def has_systemd() -> bool:
    """This machine was started by systemd."""
    return Path("/run/systemd/system").is_dir()


def _word(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace(" ", "\\x20")
    return escaped.replace("$", "$$")
