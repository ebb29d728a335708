"""The README's picture of a plan: what `gridops plan` really prints for examples/office, at a fixed moment."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from gridops.cli.main import run

ROOT = Path(__file__).resolve().parent.parent
MOMENT_S = 1_796_029_200.0
"""Monday, 30 November 2026, nine o'clock UTC: inside office hours, before the drain of the example ends."""
BLOCK = re.compile(r"(<!-- plan: [^\n]* -->\n```console\n).*?(```\n)", re.DOTALL)


def readme_page() -> str:
    """README.md with its picture renewed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = f"$ gridops plan\n{plan_of_the_office()}"
    return BLOCK.sub(lambda found: f"{found.group(1)}{picture}{found.group(2)}", text, count=1)


def plan_of_the_office() -> str:
    """The answer of the command on stdout, 80 columns wide, for a copy of the example outside any checkout."""
    out, environment = io.StringIO(), {"COLUMNS": "80", "NO_COLOR": "1", "PATH": os.environ.get("PATH", os.defpath)}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples" / "office", Path(folder) / "office")
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch("time.time", return_value=MOMENT_S),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            run(["-C", str(Path(folder) / "office"), "plan"])
    return out.getvalue().strip() + "\n"
