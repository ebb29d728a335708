"""How long nobody has touched this machine, by logind's sessions and the X server: the shortest time that is known.

A Wayland desktop tells logind when it goes idle and nobody else; an X server counts by itself and is believed over the
hint of its own session, which many window managers never give. Terminals count by their last key. Nobody logged in is
idle since the machine started. What no source tells is unknown.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from gridops_agent.hearsay import count
from gridops_agent.sensors.said import Ask, Said, words

_SESSION = re.compile(r"[a-z]{0,2}\d{1,9}")
_LOGGED_IN = ("user", "user-early", "user-light", "user-early-light")
PROPERTIES = ("Class", "State", "Type", "IdleHint", "IdleSinceHintMonotonic")
X_SCRIPT = "x_idle.py"


def linux(ask: Ask, mono_ms: int) -> Said[int]:
    """Idle time in ms. `mono_ms` is CLOCK_MONOTONIC, in which logind speaks."""
    x_ms = _x_server(ask)
    logind = _logind(ask, mono_ms, x_known=x_ms is not None)
    known = [ms for ms in (x_ms, logind.value) if ms is not None]
    return Said(min(known)) if known else logind


def _logind(ask: Ask, mono_ms: int, x_known: bool) -> Said[int]:
    listed, why = words(ask, ("loginctl", "list-sessions", "--no-legend", "--no-pager"))
    if listed is None:
        return Said(why=why)
    names = sessions(listed)
    if names is None:
        return Said(why=f"loginctl: {listed.strip().splitlines()[0][:120]}")
    if not names:
        return Said(mono_ms)
    asked = ("loginctl", "show-session", *names, *(f"--property={name}" for name in PROPERTIES))
    shown, why = words(ask, asked)
    if shown is None:
        return Said(why=why)
    times = [t for t in (session_idle(s, mono_ms, x_known) for s in blocks(shown)) if t is not None]
    if times:
        return Said(min(times))
    # Sessions of a display that counts by itself say nothing more; without it nobody is there to be idle.
    return Said(why="the desktop is asked itself") if x_known else Said(mono_ms)


def sessions(text: str) -> tuple[str, ...] | None:
    """Names of sessions from `loginctl list-sessions --no-legend`; None when that is no list (no logind here)."""
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    return tuple(names) if all(_SESSION.fullmatch(name) for name in names) else None


def blocks(text: str) -> tuple[Mapping[str, str], ...]:
    """`loginctl show-session A B`: one block of `Name=value` lines for each, with an empty line between."""
    found = []
    for block in re.split(r"\n\s*\n", text.strip()):
        found.append(dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line))
    return tuple(found)


def session_idle(session: Mapping[str, str], mono_ms: int, x_known: bool) -> int | None:
    """Idle time of one session in ms; None for one that is no person's, or that the X server knows better."""
    if session.get("Class", "user") not in _LOGGED_IN or session.get("State") == "closing":
        return None
    kind = session.get("Type", "unspecified")
    if kind == "x11" and x_known:
        return None
    since = session.get("IdleSinceHintMonotonic", "")
    since_ms = (count(since) or 0) // 1_000
    idle_ms = max(0, mono_ms - since_ms) if since_ms else None
    if session.get("IdleHint") == "yes":
        return idle_ms if idle_ms is not None else 0
    # A terminal's time is that of its last key whatever the hint; a desktop that is not idle is in use now.
    return idle_ms if kind in ("tty", "unspecified") and idle_ms is not None else 0


def _x_server(ask: Ask) -> int | None:
    """Idle time by the X server of this display; None where there is none or it does not tell."""
    if not os.environ.get("DISPLAY"):
        return None
    script = str(Path(__file__).with_name(X_SCRIPT))
    for argv in (("xprintidle",), ("xssstate", "-i"), (sys.executable, "-I", script)):
        text, _ = words(ask, argv)
        idle_ms = count(text.strip()) if text is not None else None
        if idle_ms is not None:
            return idle_ms
    return None
