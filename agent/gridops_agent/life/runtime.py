"""The pinned llama.cpp runtime: one wheel by version and SHA-256, installed into the state folder of this host.

Called by `join` where no llama.cpp is found, and by `gridops-agent runtime`. The lock beside this module says what may
come; pip brings it from whatever index it is configured for, and takes nothing whose digest differs. The folder is
whole or not there. A failure changes nothing, and leaves the host joined.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from gridops.base.errors import Failed
from gridops.disk.atomic import write_atomic
from gridops_agent.config import Config
from gridops_agent.supervise import run as run_to_its_end

LOCK = Path(__file__).with_name("llamacpp.lock")
PATIENCE_S = 900.0
"""A hundred megabytes over a slow line."""
STAMP = "gridops.lock"
_CONFIGURED = ("PIP_", "SSL_CERT", "REQUESTS_CA", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy")
Run = Callable[[tuple[str, ...]], str]


def _pip(argv: tuple[str, ...]) -> str:
    answer = run_to_its_end(argv, PATIENCE_S, _CONFIGURED)
    return answer.out + answer.err


def pinned() -> str:
    """Name and version of what the lock allows."""
    return LOCK.read_text("utf-8").split(" ", 1)[0].strip()


def is_current(config: Config) -> bool:
    """The runtime in the state folder is the one of this agent's lock."""
    try:
        return (config.runtime / STAMP).read_bytes() == LOCK.read_bytes()
    except OSError:
        return False


def install_runtime(config: Config, run: Run = _pip) -> str:
    """Install what the lock says; in words. Raises Failed, with what to do; nothing was changed then."""
    if is_current(config):
        return f"{pinned()} is in {config.runtime} already"
    part = config.runtime.with_name("runtime.part")
    shutil.rmtree(part, ignore_errors=True)
    words = (sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-deps")
    told = run((*words, "--require-hashes", "--only-binary", ":all:", "--target", str(part), "-r", str(LOCK)))
    if not (part / "xllamacpp" / "__init__.py").is_file():
        shutil.rmtree(part, ignore_errors=True)
        raise Failed(f"{pinned()} was not installed: {_last(told)}", hints=_hints(config))
    write_atomic(part / STAMP, LOCK.read_bytes())
    _put(part, config.runtime)
    return f"{pinned()} was installed into {config.runtime}"


def _put(part: Path, runtime: Path) -> None:
    """Engines that run from the old folder have it mapped, and go on."""
    old = runtime.with_name("runtime.old")
    shutil.rmtree(old, ignore_errors=True)
    try:
        if runtime.exists():
            runtime.rename(old)
        part.rename(runtime)
    except OSError as error:
        raise Failed(f"cannot put the runtime into {runtime}: {error.strerror}") from error
    shutil.rmtree(old, ignore_errors=True)


def _last(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["pip said nothing"])[-1][:300]


def _hints(config: Config) -> tuple[str, ...]:
    return (
        f"try again when pip can reach its index: gridops-agent runtime --state {config.state}",
        "or put a llama-server on PATH, or name one in agent.toml",
    )
