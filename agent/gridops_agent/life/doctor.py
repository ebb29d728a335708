"""The doctor: looks at everything that can be wrong with an agent on a host, and says what to do. Changes nothing.

Called by `gridops-agent doctor`, with an agent running or not. Each check stands alone: one that fails to look is
itself a finding, and never keeps the others from looking. What belongs to the machine is in `doctor_machine`.
"""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gridops.base import limits
from gridops.base.errors import BadSetup, EdgeError, GridopsError, Refusal
from gridops.base.units import parse_instant, render_instant, render_ms
from gridops.disk.keyring import read_secret
from gridops.model.snapshot import ResidencyState
from gridops.trust.keys import MachineSigner
from gridops_agent.client import Controller
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config, read_config
from gridops_agent.core.state import Host
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity
from gridops_agent.life import doctor_engines, doctor_machine
from gridops_agent.life.finding import Finding, bad, ok, warn
from gridops_agent.life.install import Machine
from gridops_agent.life.left import has_left
from gridops_agent.statefolder import is_running
from gridops_agent.status import status

CLOCK_WARN_MS = 30_000
ROOT_WARN_MS = 30 * 86_400_000


@dataclass
class Patient:
    """One host under examination. What several checks need is read once."""

    config: Config
    machine: Machine
    clock: SystemClock = field(default_factory=SystemClock)

    @cached_property
    def running(self) -> bool:
        return is_running(self.config)

    @cached_property
    def host_key(self) -> str:
        return MachineSigner.from_seed(read_secret(self.config.seed)).public.text

    @cached_property
    def remembered(self) -> Host:
        """What the ledger says. Raises GridopsError."""
        ledger = Ledger.look(self.config.ledger)
        try:
            return ledger.load("")
        finally:
            ledger.close()

    @property
    def pid(self) -> int | None:
        """Of the running agent, by its own note."""
        found = self.seen.get("pid")
        return found if isinstance(found, int) else None

    @cached_property
    def seen(self) -> dict[str, Any]:
        """What `status` says. Raises GridopsError."""
        return status(self.config, self.running)


async def examine(state: Path, machine: Machine) -> tuple[str, tuple[Finding, ...]]:
    """The host's name and every finding, in the order in which they are best mended."""
    try:
        config = read_config(state)
    except BadSetup as error:
        return "", (bad("agent.toml", error.message, _hint(error)),)
    patient = Patient(config, machine)
    found = [ok("agent.toml", f"{config.file}: {config.host} of {config.controller}")]
    for subject, check in CHECKS:
        try:
            found += [finding async for finding in check(patient)]
        except GridopsError as error:
            found.append(bad(subject, error.message, _hint(error)))
        except OSError as error:
            found.append(bad(subject, f"cannot be looked at: {error}"))
    return config.host, tuple(found)


def _hint(error: GridopsError) -> str:
    """Every way out that the error knows: which one it is, the person at the host sees."""
    return "; ".join(error.hints)


async def _keys(patient: Patient) -> AsyncIterator[Finding]:
    config = patient.config
    mode = stat.S_IMODE(config.state.stat().st_mode)
    if mode & 0o077:
        yield warn("state", f"{config.state} can be entered by others (mode {mode:o})", f"chmod 700 {config.state}")
    for name, path in (("host key", config.seed), ("front key", config.front_key)):
        read_secret(path)
        yield ok(name, f"{path} is private")
    if not config.front_cert.is_file():
        yield bad("front key", f"{config.front_cert} is missing", "join again, or bring it back from a copy")


async def _ledger(patient: Patient) -> AsyncIterator[Finding]:
    config = patient.config
    ledger = Ledger.look(config.ledger)
    try:
        identity = Identity(fleet=config.fleet, host=config.host, host_key=patient.host_key)
        problem = ledger.problem(identity)
    finally:
        ledger.close()
    if problem is not None:
        yield bad("ledger", f"{config.ledger}: {problem}", "enrol this host anew; the damaged file is kept beside it")
        return
    host = patient.remembered
    yield ok("ledger", f"{len(host.held)} residencies, {len(host.commands)} open commands, every row as written")
    left = host.chain.root.expires_ms - patient.clock.wall_ms()
    said = f"root document {host.chain.root.version}"
    if left <= 0:
        yield bad(
            "trust", f"{said} expired: no new command is obeyed; what runs goes on", "sign the next root document"
        )
    elif left < ROOT_WARN_MS:
        yield warn("trust", f"{said} expires in {render_ms(left)}", "sign the next root document")
    else:
        yield ok("trust", f"{said} is good until {render_instant(host.chain.root.expires_ms)}")


async def _controller(patient: Patient) -> AsyncIterator[Finding]:
    config = patient.config
    if has_left(config) is not None:
        yield warn("controller", "this host has left its fleet", "join again with a new token and another --state")
        return
    controller = Controller.pinned(config.controller, patient.remembered.chain.root.controller_tls)
    try:
        told = await controller.status()
    except (EdgeError, Refusal) as error:
        yield bad("controller", error.message, "what runs goes on; look at the network, the URL and the controller")
        return
    finally:
        await controller.close()
    yield ok("controller", f"{config.controller} answers with the pinned certificate")
    yield _clock(patient, told)
    row = next((row for row in told.get("hosts", ()) if row.get("host") == config.host), None)
    if row is None or not row.get("admitted"):
        yield warn("admission", "the key of this host is not committed", f"gridops host admit {config.host}")
    elif patient.running and not row.get("heard"):
        yield bad("admission", "admitted, and the controller does not hear it", "gridops-agent status")
    else:
        yield ok("admission", "admitted")


def _clock(patient: Patient, told: dict[str, Any]) -> Finding:
    try:
        apart = abs(parse_instant(str(told.get("time"))) - patient.clock.wall_ms())
    except ValueError:
        return warn("clock", "the controller does not say what time it has")
    hint = "run a time service (NTP) on both machines"
    if apart > limits.CLOCK_DISAGREE_MS:
        return bad("clock", f"{render_ms(apart)} away from the controller's: nothing it says is believed", hint)
    if apart > CLOCK_WARN_MS:
        return warn("clock", f"{render_ms(apart)} away from the controller's", hint)
    return ok("clock", f"within {render_ms(max(apart, 1_000))} of the controller's")


async def _protection(patient: Patient) -> AsyncIterator[Finding]:
    seen = patient.seen
    if (said := seen.get("override")) is not None:
        left = f", {render_ms(said['left_ms'])} left" if said["left_ms"] is not None else ""
        yield warn("protection", f"{said['kind']} by a person: {said['reason']}{left}", "gridops-agent resume")
    if not patient.running:
        yield ok("protection", "judged by a running agent only")
        return
    reasons = "; ".join(seen["reasons"])
    words = f"{seen['state']}{': ' + reasons if reasons else ''}"
    yield ok("protection", words) if seen["state"] == "accepting" else warn("protection", words)


async def _engines(patient: Patient) -> AsyncIterator[Finding]:
    """Residencies that have no life, and lives that have no residency."""
    for row in patient.seen["residencies"]:
        words = f"{row['replica']} is {row['state']}{': ' + row['detail'] if row['detail'] else ''}"
        if row["state"] in (ResidencyState.FAILED, "not proved"):
            yield bad("engine", words, "gridops explain " + row["replica"])
        elif row["state"] == "gone":
            hint = "" if patient.running else "it is started again when an agent runs"
            yield warn("engine", f"{row['replica']}: its process is gone", hint)
        else:
            yield ok("engine", words)
    keepers = keepers_of(patient.config)
    try:
        for what, body in await keepers.strangers(frozenset(patient.remembered.held)):
            words = f"{what} was started here for the command {body}, which nobody remembers"
            yield bad("stray", words, "end it by hand when you know what it is; gridops never does")
    finally:
        await keepers.close()


async def _agent(patient: Patient) -> AsyncIterator[Finding]:
    if not patient.running:
        yield warn("agent", "no agent runs on this state folder", f"gridops-agent run --state {patient.config.state}")
        return
    seen = patient.seen
    if seen["talk"] == "fresh":
        yield ok("agent", f"runs as pid {seen['pid']}, and talks with its controller")
    else:
        yield warn("agent", f"runs as pid {seen['pid']}; controller: {seen['talk']}")
    for alarm in seen["alarms"]:
        yield bad("alarm", json.dumps(alarm)[1:-1])


Check = Callable[[Patient], AsyncIterator[Finding]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("keys", _keys),
    ("ledger", _ledger),
    ("controller", _controller),
    ("runtime", doctor_machine.runtimes),
    ("disk", doctor_machine.disks),
    ("ports", doctor_machine.ports),
    ("cards", doctor_machine.cards),
    ("sensor", doctor_machine.sensors),
    ("service", doctor_machine.service),
    ("agent", _agent),
    ("protection", _protection),
    ("engine", _engines),
    ("doors", doctor_engines.doors),
    ("router", doctor_engines.routers),
    ("evidence", doctor_engines.doubts),
)
