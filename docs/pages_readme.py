"""The README's picture of a plan: what `gridops plan --base` really prints for a change to examples/fleet-64."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

from gridops.cli.main import run

ROOT = Path(__file__).resolve().parent.parent
MOMENT_S = 1_796_029_200
"""Monday, 30 November 2026, nine o'clock UTC."""
BLOCK = re.compile(r"(<!-- plan: [^\n]* -->\n```console\n).*?(```\n)", re.DOTALL)
DRAIN = """\
apiVersion: gridops/v1
kind: Drain
host: {host}
reason: fan alarm
by: mira
"""


def readme_page() -> str:
    """README.md with its picture renewed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = f"$ gridops plan --base main~1\n{a_plan()}"
    return BLOCK.sub(lambda found: f"{found.group(1)}{picture}{found.group(2)}", text, count=1)


def a_plan() -> str:
    """The answer of the command on stdout, 80 columns wide, in a repository made for the purpose."""
    environment = {
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _MIRA.items()},
    }
    out = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch("time.time", return_value=float(MOMENT_S)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        fleet = Path(folder) / "fleet"
        shutil.copytree(ROOT / "examples" / "fleet-64", fleet)
        _commit(fleet, "The fleet")
        hot = _host_of(fleet, "image-xl/1", out)
        _change(fleet, hot)
        _commit(fleet, f"More coder, no translate, {hot} is too hot")
        run(["-C", str(fleet), "plan", "--base", "main~1"])
    return out.getvalue().strip() + "\n"


_MIRA = {"NAME": "mira", "EMAIL": "mira@example.invalid", "DATE": f"{MOMENT_S} +0000"}


def _host_of(fleet: Path, replica: str, out: io.StringIO) -> str:
    """Where the replica stands before the change. What was written to `out` meanwhile is taken away again."""
    run(["-C", str(fleet), "plan", "-o", "json"])
    plan = json.loads(out.getvalue())
    out.seek(0)
    out.truncate()
    return str(next(d["target"]["host"] for d in plan["decisions"] if d["replica"] == replica))


def _change(fleet: Path, hot: str) -> None:
    _edit(fleet / "profiles.d" / "coder-32b.yaml", "replicas: {min: 8, max: 16}", "replicas: {min: 9, max: 16}")
    _edit(fleet / "profiles.d" / "embed.yaml", "context: 8192", "context: 16384")
    (fleet / "profiles.d" / "translate.yaml").unlink()
    drains = fleet / "fleet.d" / "drains"
    drains.mkdir(exist_ok=True)
    (drains / f"{hot}.yaml").write_text(DRAIN.format(host=hot), encoding="utf-8")


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise ValueError(f"{path.name}: `{old}` is not there; choose another change for the README")
    path.write_text(text.replace(old, new), encoding="utf-8")


def _commit(fleet: Path, message: str) -> None:
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", message]):
        subprocess.run(["git", *words], cwd=fleet, check=True, capture_output=True)
