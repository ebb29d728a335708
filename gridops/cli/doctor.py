"""`gridops doctor`: check the set-up of this machine and this checkout, and print what to fix.

Each check is one function that yields findings. It repairs nothing: a key whose mode was wrong may have been read.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from gridops.base.errors import GridopsError
from gridops.base.units import counted, parse_instant, render_instant, render_ms
from gridops.cli import exits
from gridops.cli.client import connect, root_of
from gridops.cli.output import Context, context_of, dump_json
from gridops.cli.person import chain_of, key_folder
from gridops.cli.standing import holds_fleet, no_fleet
from gridops.controller.statedir import CREDENTIALS, SEED, TLS_CERT, StateDir, default_state
from gridops.disk.keyring import read_secret
from gridops.files.git import Checkout
from gridops.files.load import check
from gridops.files.tree import WorkingTree

CLOCK_APART_MS = 5_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer. `level` is ok, warn or fail."""

    level: str
    what: str
    hint: str = ""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(ctx: typer.Context) -> int:
    """Check the set-up and print what to fix. Exit 1 if something fails.

    \b
    Examples:
      gridops doctor
      gridops -C /srv/fleet doctor
      gridops doctor -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    # Several checks may fail for one and the same reason, such as a root that is missing: it is said once.
    found = list(dict.fromkeys(finding for one in CHECKS for finding in _guarded(one, context)))
    context.emit({"text": lambda: "\n".join(finding_lines(found)), "json": lambda: dump_json(findings_document(found))})
    return exits.FAILED if any(f.level == "fail" for f in found) else exits.OK


def _guarded(one: Callable[[Context], Iterator[Finding]], context: Context) -> Iterator[Finding]:
    try:
        yield from one(context)
    except GridopsError as error:
        yield Finding("fail", error.message, error.hints[0] if error.hints else "")


def _machine(context: Context) -> Iterator[Finding]:
    yield Finding("ok", f"Python {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}")
    git = shutil.which("git")
    yield Finding("ok", f"git: {git}") if git else Finding("fail", "git is not on PATH", "apt-get install git")
    if ctypes.util.find_library("gomp") is None:
        yield Finding("warn", "libgomp is missing: llama.cpp cannot run on this machine", "apt-get install libgomp1")


def _repository(context: Context) -> Iterator[Finding]:
    directory = root_of(context.directory)
    if not holds_fleet(directory):
        raise no_fleet(context.directory)
    found = check(WorkingTree(directory))
    errors = sum(p.severity == "error" for p in found.problems)
    if errors:
        yield Finding("fail", f"{counted(found.files, 'file')}, {counted(errors, 'error')}", "gridops validate")
    else:
        yield Finding("ok", f"{counted(found.files, 'file')} validated")
    checkout = Checkout(directory)
    branch = checkout.branch()
    yield Finding("ok", f"branch {branch} at {checkout.head(branch)[:7]}")
    if checkout.dirty():
        yield Finding("warn", "there are uncommitted changes; the reconciler sees commits only", "git status")


def _trust(context: Context) -> Iterator[Finding]:
    chain = chain_of(root_of(context.directory))
    now_ms = int(time.time() * 1000)
    root, left = chain.root, chain.root.expires_ms - now_ms
    if left <= 0:
        yield Finding("fail", f"root {root.version} expired at {render_instant(root.expires_ms)}: nothing may change")
    elif chain.ageing(now_ms):
        yield Finding("warn", f"root {root.version} expires in {render_ms(left)}", "sign the next root document")
    else:
        yield Finding("ok", f"root {root.version} is good for {render_ms(left)}")
    folder = key_folder()
    for path in sorted(folder.glob("*")) if folder.is_dir() else []:
        if path.suffix != ".pub":
            read_secret(path)
            yield Finding("ok", f"key {path} is private")
        if path.suffix == ".root":
            yield Finding("warn", f"the root key {path} lies on this machine", "move it to a medium you can lock away")


def _controller_keys(context: Context) -> Iterator[Finding]:
    given = os.environ.get("GRIDOPS_STATE")
    folder = Path(given) if given else default_state(chain_of(root_of(context.directory)).fleet)
    if not any((folder / name).exists() for name in (SEED, TLS_CERT)):
        yield Finding("ok", f"no controller's keys in {folder}: this is not the controller's machine")
        return
    state, named = StateDir(folder), [name for name in CREDENTIALS if (folder / name).exists()]
    for name in named:
        read_secret(folder / name)
    yield Finding("ok", f"the controller's keys in {folder} are private")
    elsewhere = [CREDENTIALS[name] for name in CREDENTIALS if name not in named]
    if elsewhere:
        yield Finding("ok", f"not in that folder, to be handed over by a service manager: {', '.join(elsewhere)}")
    for called in state.doubled():
        hint = "remove one of them: from the folder, or from what LoadCredential= of the unit names"
        yield Finding("warn", f"{called} is handed over and another one lies in {folder}, which counts", hint)
    free = shutil.disk_usage(folder).free
    if free < 1 << 30:
        yield Finding("warn", f"{folder}: {free >> 20} MiB free; a full disk freezes all change", "make room")


def _controller(context: Context) -> Iterator[Finding]:
    client = connect(context, timeout_s=3.0)
    document = client.get("/v1/status")
    yield Finding("ok", f"controller {client.url} answers, version {document['controller']['version']}")
    apart = abs(parse_instant(document["time"]) - int(time.time() * 1000))
    if apart > CLOCK_APART_MS:
        yield Finding("warn", f"its clock and this one are {render_ms(apart)} apart", "run a time service on both")
    for alarm in document.get("alarms", []):
        yield Finding("fail", f"alarm: {alarm['text']}", "gridops status")
    for host in document["hosts"]:
        if host["admitted"] and not host["heard"]:
            yield Finding("warn", f"host {host['host']} is {host['state']}", "gridops host list")
        if host.get("outdated"):
            yield Finding("fail", f"host {host['host']}: {host['outdated']}", "gridops rule agent_too_old")


CHECKS: tuple[Callable[[Context], Iterator[Finding]], ...] = (
    _machine,
    _repository,
    _trust,
    _controller_keys,
    _controller,
)


def finding_lines(found: list[Finding]) -> list[str]:
    """Findings as people read them, with what to do about each."""
    lines = []
    for finding in found:
        lines.append(f"{finding.level:<4}  {finding.what}")
        if finding.hint:
            lines.append(f"      hint: {finding.hint}")
    fails, warns = (sum(f.level == level for f in found) for level in ("fail", "warn"))
    return [*lines, "", f"{fails} to fix, {warns} to think about."]


def findings_document(found: list[Finding]) -> dict[str, object]:
    """The same for programs."""
    return {
        "schema": "gridops.doctor/1",
        "findings": [{"level": f.level, "what": f.what, "hint": f.hint} for f in found],
    }
