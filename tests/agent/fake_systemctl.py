"""`systemctl --user` for machines without systemd: copied onto PATH by tests, its state on disk beside it.

Reads real unit files and drop-ins, starts real processes, and answers `show` in systemctl's own form. What it does not
know it refuses. `daemon-reload` is what makes drop-ins count, as with the real one.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[0]).resolve().parent
STATE = HERE / "state.json"
UNITS = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def parse(name: str) -> dict[str, Any]:
    """The unit with its drop-ins, as they lie on disk now."""
    found: dict[str, Any] = {"Conflicts": [], "Environment": [], "KillMode": "control-group", "Restart": "no"}
    for path in (UNITS / name, *sorted((UNITS / f"{name}.d").glob("*.conf"))):
        for line in path.read_text().splitlines():
            key, eq, value = line.partition("=")
            if not eq or line.startswith(("#", "[")):
                continue
            if key in ("Conflicts", "Environment"):
                found[key].append(value)
            else:
                found[key] = value
    return found


def load() -> dict[str, Any]:
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def alive(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


class Systemctl:
    def __init__(self) -> None:
        self.state = load()

    def save(self) -> None:
        STATE.write_text(json.dumps(self.state))

    def unit(self, name: str) -> dict[str, Any]:
        known = self.state.setdefault(name, {})
        if (UNITS / name).exists() and "parsed" not in known:
            known["parsed"] = parse(name)
        return known

    def active(self, name: str) -> str:
        unit = self.unit(name)
        if not unit.get("pid"):
            return "inactive"
        if alive(unit["pid"]):
            return "deactivating" if unit.get("stopping") else "active"
        return "inactive" if unit.get("stopping") else "failed"

    def show(self, name: str, asked: list[str]) -> int:
        unit, active = self.unit(name), self.active(name)
        parsed = unit.get("parsed", {})
        lives = active in ("active", "deactivating")
        words = parsed.get("ExecStart", "")
        values = {
            "LoadState": "loaded" if parsed else "not-found",
            "ActiveState": active,
            "SubState": {"active": "running", "inactive": "dead"}.get(active, active),
            "MainPID": str(unit["pid"] if lives else 0),
            "InvocationID": unit.get("invocation", ""),
            "ControlGroup": "",
            "KillMode": parsed.get("KillMode", ""),
            "Restart": parsed.get("Restart", ""),
            "Result": "exit-code" if active == "failed" else "success",
            "ExecMainStatus": "1" if active == "failed" else "0",
            "ExecMainCode": "1" if active == "failed" else "0",
            "ExecStart": f"{{ path={words.split()[0]} ; argv[]={words} ; ignore_errors=no ; pid=0 }}" if words else "",
        }
        print("\n".join(f"{key}={values[key]}" for key in asked if key in values))
        return 0

    def start(self, name: str) -> int:
        unit = self.unit(name)
        if "parsed" not in unit:
            print(f"Failed to start {name}: Unit {name} not found.", file=sys.stderr)
            return 5
        if self.active(name) == "active":
            return 0
        for rival in unit["parsed"]["Conflicts"]:
            self.stop(rival)
        told = dict(entry.split("=", 1) for entry in unit["parsed"]["Environment"])
        with (HERE / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                shlex.split(unit["parsed"]["ExecStart"]),
                env={**os.environ, **told},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        unit.update(pid=process.pid, invocation=uuid.uuid4().hex, stopping=False)
        return 0

    def stop(self, name: str) -> int:
        unit = self.unit(name)
        if self.active(name) in ("active", "deactivating"):
            unit["stopping"] = True
            os.killpg(unit["pid"], signal.SIGTERM)
        return 0

    def kill(self, name: str) -> int:
        unit = self.unit(name)
        if self.active(name) not in ("active", "deactivating"):
            print(f"Failed to kill unit {name}: Unit {name} is not loaded.", file=sys.stderr)
            return 1
        os.killpg(unit["pid"], signal.SIGKILL)
        time.sleep(0.05)
        return 0

    def reload(self) -> int:
        for name in self.state:
            if (UNITS / name).exists():
                self.state[name]["parsed"] = parse(name)
        return 0


def main(words: list[str]) -> int:
    with (HERE / "calls").open("a") as calls:
        print(shlex.join(words), file=calls)
    if (HERE / "no-bus").exists():
        print("Failed to connect to bus: No medium found", file=sys.stderr)
        return 1
    assert words[:2] == ["--user", "--no-pager"], words
    verb, *rest = words[2:]
    name = rest[rest.index("--") + 1] if "--" in rest else ""
    flags = [word for word in rest if word not in ("--", name)]
    systemctl = Systemctl()
    if verb == "show":
        (asked,) = (flag.removeprefix("--property=").split(",") for flag in flags)
        code = systemctl.show(name, asked)
    elif verb == "kill":
        assert flags == ["--kill-who=all", "--signal=SIGKILL"], flags
        code = systemctl.kill(name)
    else:
        code = {"start": systemctl.start, "stop": systemctl.stop, "daemon-reload": lambda _: systemctl.reload()}[verb](
            name
        )
    systemctl.save()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
