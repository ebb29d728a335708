"""A driver library for tests: built from C, loaded by the real pynvml in a fresh process, moved while that runs.

pynvml keeps its library and its functions in module globals, so each scenario has a process of its own. Without a C
compiler these tests fail and say so; only where GRIDOPS_WITHOUT_COMPILER=1 is set are they left out, and the run's
last lines name it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("fake_nvml.c")
SONAME = "libnvidia-ml.so.1"
STATE = "GRIDOPS_FAKE_NVML"
ALLOWED = "GRIDOPS_WITHOUT_COMPILER"
NO_COMPILER = (
    f"no C compiler (cc, gcc or clang): the tests of the NVIDIA driver cannot run. {ALLOWED}=1 leaves them out"
)


def compiler() -> str | None:
    """A C compiler on PATH."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build(folder: Path, *flags: str) -> Path:
    """The library in a folder of its own, under the name that pynvml asks for."""
    cc = compiler()
    if cc is None:
        raise AssertionError(NO_COMPILER)
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / SONAME
    options = ("-shared", "-fPIC", "-O1", "-w", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}", *flags)
    fresh = folder / "fresh"
    subprocess.run((cc, *options, "-o", str(fresh), str(SOURCE), "-pthread"), check=True)
    fresh.replace(made)
    return made


def gpu(uuid: str, total: int = 24_576, used: int = 1_024, **more: object) -> str:
    """One card's line, in MiB. `err_memory=999` is written `err.memory=999`."""
    words = {"uuid": uuid, "name": "NVIDIA_A10", "total": total, "used": used, "temp": 41, **more}
    return "gpu " + " ".join(f"{key.replace('_', '.')}={value}" for key, value in words.items())


@dataclass(frozen=True)
class Driver:
    """A built library and the file that says what its cards are."""

    library: Path
    state: Path

    def say(self, *lines: str) -> None:
        """What the driver answers from now on; never half of it."""
        fresh = self.state.with_suffix(".fresh")
        # A byte that is no text is written `\udcff`, as Python has it.
        fresh.write_text("\n".join(lines) + "\n", "utf-8", "surrogateescape")
        fresh.replace(self.state)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.library.parent), STATE: str(self.state)}

    def run(self, script: str, **names: object) -> Any:
        """Run a script in a fresh process with this driver; its `answer(...)` is what comes back.

        The script has `say(*lines)`, `gpu(...)` and the given names.
        """
        head = f"""
            import json, sys, time
            from pathlib import Path
            from tests.agent.driver import Driver, build, gpu
            DRIVER = Driver(Path({str(self.library)!r}), Path({str(self.state)!r}))
            say = DRIVER.say
            def answer(value): print("answer:" + json.dumps(value))
        """
        given = "".join(f"{name} = {value!r}\n" for name, value in sorted(names.items()))
        text = textwrap.dedent(head) + given + textwrap.dedent(script)
        done = subprocess.run(
            (sys.executable, "-c", text),
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
            cwd=SOURCE.parents[2],
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith("answer:")]
        assert lines, done.stdout
        return json.loads(lines[-1].removeprefix("answer:"))
