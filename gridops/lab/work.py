"""What commands do on a host of the lab, step by step, as `gridops_agent.effects` and `starts` do it.

Each step that waits is a `yield` of milliseconds; a crash of the agent may come at any word to the heart, before or
after it was kept. Processes go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING

from gridops.base.codes import host as codes
from gridops.base.errors import Failed
from gridops.base.ids import Digest
from gridops.lab.broken import Broken
from gridops.lab.lines import Lines, Names, names_of, residency
from gridops.lab.procs import Process
from gridops.model.action import Drain, Evict, Load, Unload, Warm
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core import keepalive, local
from gridops_agent.core.events import (
    Began,
    Died,
    Ended,
    Listed,
    Placed,
    Recall,
    RetryDue,
    Spawned,
    StartFailed,
    Stopping,
    Stuck,
)
from gridops_agent.core.state import Handle, Held, drop

if TYPE_CHECKING:
    from gridops.lab.host import LabHost

Steps = Generator[int, None, None]
PATIENCE_MS = 30_000
PORTS = 40_000
FETCH_MS = (100, 5_000)
STOP_MS = (50, 1_500)
POLL_MS = 100


class Work:
    """The hands of one run of an agent."""

    def __init__(self, at: LabHost) -> None:
        self._at = at
        self.cancelled: set[Digest] = set()
        self.handled: set[Digest] = set()
        """Residencies whose process is being started or stopped now."""

    # --- commands ---------------------------------------------------------------------------------------------------

    def command(self, body: Digest) -> Steps:
        """One accepted command, from its lines to its outcome."""
        command = self._at.host.commands.get(body)
        if command is None:
            return
        action = command.body.action
        names = names_of(self._at.host, body, action)
        lines, ticket = self._at.lines, self._at.lines.join(names)
        yield from self._first(lines, ticket, names)
        self._at.say(f"begins {action.kind} {action.replica}")
        if self._at.tell(Began(body)):
            match action:
                case Load():
                    yield from self._load(body, action)
                case Evict():
                    self._at.cached -= set(action.files)
                    self._end(body, Outcome.SUCCEEDED)
                case Warm():
                    yield from self._holding(body, self.start(body))
                case Drain():
                    yield from self._drain(body, action)
                case Unload():
                    yield from self._holding(action.incarnation, self._unload(body, action))
        lines.leave(ticket, names)

    def again(self, body: Digest, work: Callable[[Digest], Steps]) -> Steps:
        """Keep-alive and adoption, in the lines of the residency."""
        if body not in self._at.host.held:
            return
        names = residency(self._at.host, body)
        lines, ticket = self._at.lines, self._at.lines.join(names)
        self.handled.add(body)
        yield from self._first(lines, ticket, names)
        yield from work(body)
        lines.leave(ticket, names)
        self.handled.discard(body)

    def _first(self, lines: Lines, ticket: int, names: Names) -> Steps:
        while not lines.turn(ticket, names):
            yield POLL_MS

    def _holding(self, body: Digest, work: Steps) -> Steps:
        self.handled.add(body)
        yield from work
        self.handled.discard(body)

    def _end(self, body: Digest, outcome: Outcome, code: str | None = None, fetched: int | None = None) -> None:
        self._at.say(f"ends {body[7:15]}: {outcome.value} {code or ''}")
        self._at.tell(Ended(body, outcome, code, fetched_bytes=fetched))

    def _load(self, body: Digest, load: Load) -> Steps:
        dice, files = self._at.dice, {f.sha256 for f in load.artifact.files}
        there = files <= self._at.cached
        yield dice.between(*FETCH_MS) if not there else 20
        if body in self.cancelled:
            self._at.around.trace.saw("a running load was taken back")
            self._end(body, Outcome.VOIDED)
        elif not there and not self._at.processes.kind and dice.happens(self._at.around.options.fetch_fails_ppm):
            self._end(body, Outcome.FAILED, codes.NO_ARTIFACT.code)
        else:
            self._at.cached |= files
            size = sum(f.size_bytes for f in load.artifact.files)
            self._end(body, Outcome.SUCCEEDED, fetched=None if there else size)

    def _drain(self, body: Digest, drain: Drain) -> Steps:
        self._at.ending.add(drain.incarnation)
        agenda, process = self._at.around.agenda, self._at.processes.of(drain.incarnation)
        if process is not None and self._at.dice.happens(300_000):
            process.busy_ms = agenda.now_ms + self._at.dice.between(100, 8_000)
        over_ms = agenda.now_ms + drain.grace_ms
        while self._busy(drain.incarnation):
            if agenda.now_ms >= over_ms:
                self._at.around.trace.saw(codes.DRAIN_TIMEOUT.code)
                self._end(body, Outcome.FAILED, codes.DRAIN_TIMEOUT.code)
                return
            yield POLL_MS
        self._end(body, Outcome.SUCCEEDED)

    def _busy(self, body: Digest) -> bool:
        process = self._at.processes.of(body)
        if process is not None and self._at.front.in_flight(body):
            return True
        return process is not None and process.busy_ms > self._at.around.agenda.now_ms

    def _unload(self, body: Digest, unload: Unload) -> Steps:
        held = self._at.host.held.get(unload.incarnation)
        if held is not None and not unload.force and held.state is not ResidencyState.FAILED:
            if self._busy(unload.incarnation):
                self._end(body, Outcome.FAILED, codes.WORK_IN_FLIGHT.code)
                return
            self._at.tell(Stopping(unload.incarnation, ()))
        self._at.ending.add(unload.incarnation)
        yield self._at.dice.between(*STOP_MS)
        if held is not None and not unload.force and held.state is not ResidencyState.FAILED:
            self._cuts_nobody_off(unload)
        if not self._gone(unload.incarnation):
            if held is not None:
                self._at.tell(Stuck(unload.incarnation, codes.RELEASE_STUCK.code, "it does not end"))
            self._end(body, Outcome.FAILED, codes.RELEASE_STUCK.code)
            return
        self._end(body, Outcome.SUCCEEDED)

    def _cuts_nobody_off(self, unload: Unload) -> None:
        process, front = self._at.processes.of(unload.incarnation), self._at.front
        if process is not None and front.in_flight(unload.incarnation):
            raise Broken("S14", f"{self._at.name} ends {unload.replica} and cuts callers off")

    def _gone(self, body: Digest) -> bool:
        process = self._at.processes.of(body)
        return process is None or self._at.processes.stop(process.pid)

    # --- starts -----------------------------------------------------------------------------------------------------

    def start(self, body: Digest) -> Steps:
        """Start the residency's process and wait until it is ready, or until nothing of it is left."""
        held = self._at.host.held.get(body)
        if held is None or held.handle is not None or held.state is not ResidencyState.WARMING:
            return
        if not self._gone(body):
            self._at.tell(Stuck(body, codes.RELEASE_STUCK.code, "what carries its mark does not end"))
            return
        host = self._at.host
        no = local.room(replace(host, held=drop(host.held, body)), held.warm) if body in host.commands else None
        if no is not None:
            self._at.tell(StartFailed(body, *no))
            return
        port = self._port(held)
        try:
            self._at.tell_once(Placed(body, port))
        except Failed as full:  # nothing starts that could not be found again
            self._at.tell(StartFailed(body, codes.START_FAILED.code, full.message))
            return
        process = self._at.processes.spawn(body, held.warm.device_bytes)
        self._at.say(f"process {process.pid} of {held.replica}")
        self._at.around.watched(self._at)
        yield 1
        handle = self.handle(process, port)
        self._at.tell(Spawned(body, handle))
        yield from self._until_listed(body, handle)

    def go_on(self, body: Digest) -> Steps:
        """Wait for a process that an earlier run of the agent started."""
        held = self._at.host.held.get(body)
        if held is not None and held.handle is not None:
            yield from self._until_listed(body, held.handle)

    def _until_listed(self, body: Digest, handle: Handle) -> Steps:
        agenda = self._at.around.agenda
        over_ms = agenda.now_ms + PATIENCE_MS
        while True:
            process = self._at.processes.living.get(handle.pid)
            if process is None:
                self._at.tell(StartFailed(body, codes.START_FAILED.code, "it ended"))
                return
            if process.listed_ms <= agenda.now_ms:
                self._at.tell(Listed(body, replace(handle, settled=True)))
                return
            if agenda.now_ms >= over_ms:
                self._at.tell(Stopping(body, ()))
                if self._gone(body):
                    self._at.tell(StartFailed(body, codes.START_FAILED.code, "not ready in time"))
                else:
                    self._at.tell(Stuck(body, codes.RELEASE_STUCK.code, "not ready in time, and it does not end"))
                return
            yield POLL_MS

    def handle(self, process: Process, port: int) -> Handle:
        """What tells this process from every other."""
        return Handle(pid=process.pid, birth=str(process.born_ms), port=port, key_file="key")

    def _port(self, held: Held) -> int:
        taken = {h.port for h in self._at.host.held.values() if h.body != held.body}
        return next(port for port in range(PORTS, PORTS + 1_000) if port not in taken)

    # --- keep-alive -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """One look at every residency that nobody is working on."""
        for body in sorted(self._at.host.held):
            held = self._at.host.held.get(body)
            if held is None or body in self.handled:
                continue
            if held.handle is not None:
                if held.handle.pid not in self._at.processes.living:
                    self._at.say(f"finds {held.replica} dead")
                    self._at.tell(Died(body, "it ended"))
            elif held.state is ResidencyState.OFFLOADED and self._at.host.verdict.admits:
                self._at.tell(Recall(body))
            elif keepalive.due(held, self._at.now()):
                self._at.tell(RetryDue(body))
