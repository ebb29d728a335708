"""The loop: wakes, looks at git, plans, reconciles, writes to git, listens, and ends cleanly. The only asyncio here.

One thread owns the controller; git and planning run beside it on values that cannot change, and what they bring is
judged again when they return. Hints only wake. When the journal cannot be written the loop ends at once with that
error, because what is in memory is then more than may be claimed. Any other fault in a piece of work is kept and
shown, and the loop goes on with the rest: what was in force stays in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from gridops.base.errors import GridopsError
from gridops.base.ids import CommitId, ScopeName
from gridops.controller import intake
from gridops.controller.api import RunningApi
from gridops.controller.core import rows as r
from gridops.controller.core.projecting import due
from gridops.controller.http import Listen, Listener, listener
from gridops.controller.planning import Planning
from gridops.controller.project import Place, carry_out
from gridops.controller.service import Controller
from gridops.controller.writer import Lost
from gridops.files.git import Checkout
from gridops.files.watch import hints
from gridops.model.fleet import FleetSettings

log = logging.getLogger("gridops.watch")

TICK_S = 0.5
SPACING_S = 0.05
"""At least so long between two passes: what many hosts say at once is looked at once."""
LOCAL_EVERY_S = 2.0
"""How often a local branch is looked at without a hint: one `rev-parse`, a few milliseconds."""
IDLE_PASS_S = 2.0
"""A pass runs at least so often, because time alone may end a wait, a window or a freeze."""
REST = 3.0
"""After a pass heartbeats have the thread for so many times as long as it took: in a large fleet there is always news,
and passes that follow each other at once would leave hosts unanswered. Double: a command waits twice as long behind the
one before it; half: passes take half of the thread."""
IDLE_REST = 20.0
"""The same while there is no news: then passes take a twentieth."""
SWITCH_S = 0.001
"""So long a plan that is being made in its thread may keep the interpreter from answering a heartbeat. Python's own is
five times that, and an answer needs the interpreter several times. Shorter: the plan takes noticeably longer."""
PROJECT_AGAIN_S = 10.0
STATE_EVERY_S = 5.0
"""The material snapshot is looked at for changes this often; it is written only when it differs."""
QUIET_EVERY_S = 3_600.0
LOOKING = "looking at the repository"
READING = "reading the newest commit"
WRITING = "writing plans to git"


@dataclass(frozen=True, slots=True)
class Options:
    listen: Listen | None
    """None: no listener (`--once`)."""
    interval_s: float | None = None
    once: bool = False


class Shell:
    """Runs one controller until it is told to stop."""

    def __init__(self, controller: Controller, checkout: Checkout, options: Options) -> None:
        self.controller = controller
        self.checkout = checkout
        self.options = options
        self.planning = Planning(controller, self._plans_place)
        self.stop = asyncio.Event()
        self.wake = asyncio.Event()
        self.git_hint = asyncio.Event()
        self.exit_code = 0
        self._fault: BaseException | None = None
        self._seen: CommitId | None = None
        """The newest commit there is; `_read` is the newest that was taken in."""
        self._read: CommitId | None = None
        self._last_pass_s = 0.0
        self._pass_took_s = 0.0
        """What the newest pass took of this thread."""
        self._unpushed = False

    async def run(self) -> int:
        """Until a signal, or until the journal is lost. Returns the exit code; raises what ended it otherwise."""
        self.controller.events.listener = lambda e: log.info("%s", e.text, extra={"event": e.kind})
        await self._look(first=True)
        await self._outlived("reading the plans in git", self._remember)
        if self.options.once:
            return await self._once()
        sys.setswitchinterval(SWITCH_S)
        loop = asyncio.get_running_loop()
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            loop.add_signal_handler(number, self.end, code)
        try:
            await self._serve()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            self.controller.close()
        if self._fault is not None:
            raise self._fault
        return self.exit_code

    def end(self, code: int) -> None:
        """Stop everything; the state on disk is complete at every moment, so there is nothing to wait for."""
        self.exit_code = code
        self.stop.set()
        self.wake.set()
        self.git_hint.set()

    def fail(self, error: BaseException) -> None:
        """Something that must end the process happened, perhaps inside a request."""
        if self._fault is None:
            self._fault = error
        self.end(getattr(error, "exit_code", 70))

    def changed(self) -> None:
        """Something was heard or decided: a pass is due."""
        self.wake.set()

    async def _serve(self) -> None:
        assert self.options.listen is not None
        api = RunningApi(self.controller, self.planning, self.changed, self.fail)
        door = listener(api, self.options.listen, self.controller.dir)
        self.controller.renewed = door.renew
        serving = asyncio.create_task(self._until_stopped(door.run_until_stopped()), name="listener")
        await asyncio.wait(
            [serving, asyncio.create_task(door.ready.wait())], return_when=asyncio.FIRST_COMPLETED, timeout=10.0
        )
        self._say_hello(door)
        tasks = [
            asyncio.create_task(self._guarded(coroutine), name=name)
            for name, coroutine in (
                ("git", self._git()),
                ("hints", self._hints()),
                ("passes", self._passes()),
                ("projection", self._projection()),
                ("quiet", self._quiet()),
            )
        ]
        await self.stop.wait()
        door.should_exit = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(serving, 5.0)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of ours that ends by an exception ends the process: a loop that lacks a part is worse than none."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again where the loop ends
            self.fail(error)

    async def _outlived(self, name: str, work: Callable[[], Awaitable[None]], *, patient: bool = True) -> bool:
        """Do a piece of work; whether it was done. A fault of ours in it is kept and shown, and the loop goes on.

        Not what leaves the journal behind the memory: then only a start from the journal is whole again. `patient`:
        what met a fault is left alone for a while, unless a new commit came.
        """
        faults, accepted = self.controller.faults, self.controller.state.accepted
        about = (self._seen, accepted.commit if accepted is not None else None)
        if patient and faults.waits(name, about, _mono_ms()):
            return False
        try:
            await work()
        except Lost:
            raise
        except Exception as fault:
            if not self.controller.writer.whole:
                raise
            faults.met(name, fault, about, (self.controller.now(), _mono_ms()))
            return False
        faults.over(name)
        return True

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._guarded(work)
        finally:
            self.stop.set()

    # --- git

    async def _git(self) -> None:
        while not self.stop.is_set():
            self.git_hint.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.git_hint.wait(), self._every_s())
            if not self.stop.is_set():
                await self._look()

    def _every_s(self) -> float:
        if self.options.interval_s is not None:
            return self.options.interval_s
        settings = self._settings_or_default()
        return LOCAL_EVERY_S if settings.remote_url is None else settings.fetch_every_ms / 1000

    async def _look(self, first: bool = False) -> None:
        """Find the newest commit and judge it, if it is one we have not read. Never ends the loop."""
        found = await self._outlived(LOOKING, partial(self._find, first), patient=False)
        if found and self._seen != self._read:
            await self._outlived(READING, self._take)

    async def _find(self, first: bool) -> None:
        """The newest commit there is."""
        soft = self.controller.soft.git
        with self._told():
            source = intake.source_of(self.checkout, self._settings())
            soft.branch = source.branch
            self._seen = soft.tip = await asyncio.to_thread(intake.tip, self.checkout, source, not first)
            soft.checked_ms = self.controller.now()
            if self._seen == self._read:
                soft.error = None

    async def _take(self) -> None:
        """Judge the newest commit: it becomes the intent, or is refused."""
        tip = self._seen
        assert tip is not None
        with self._told():
            try:
                found = await asyncio.to_thread(intake.look, self.checkout, tip, self.controller.base())
            except intake.Unread as unread:
                if self.controller.tightened(unread.found):
                    self.changed()
                raise unread.__cause__ or unread from None
            if self.controller.found(found):
                self.changed()
            self._read = tip
            self.controller.soft.git.error = None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What the world says no to is shown, and tried again at the next look; a fault of ours is shown too."""
        soft = self.controller.soft.git
        try:
            yield
        except Lost:
            raise
        except GridopsError as error:
            if soft.error != error.message:
                log.warning("git: %s", error.message)
            soft.error, soft.checked_ms = error.message, self.controller.now()
        except Exception as fault:
            soft.error = f"a fault of gridops ({type(fault).__name__})"
            raise

    def _settings(self) -> FleetSettings | None:
        accepted = self.controller.state.accepted
        return accepted.desired.fleet if accepted is not None else None

    def _settings_or_default(self) -> FleetSettings:
        return self._settings() or FleetSettings()

    # --- passes

    async def _passes(self) -> None:
        while not self.stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), TICK_S)
            await asyncio.sleep(max(SPACING_S, REST * self._pass_took_s))
            idle_s = max(IDLE_PASS_S, IDLE_REST * self._pass_took_s)
            if self.wake.is_set() or time.monotonic() - self._last_pass_s >= idle_s:
                self.wake.clear()
                began_s = time.thread_time()
                await self._pass()
                self._pass_took_s = time.thread_time() - began_s

    async def _pass(self) -> None:
        self._last_pass_s = time.monotonic()
        if self.controller.state.accepted is None:
            return
        for scope in self._scopes():
            await self._outlived(f"planning scope {scope}", partial(self._plan, scope))
            # What was planned before goes on being carried out, whatever became of the newest plan.
            await self._outlived(f"carrying out scope {scope}", partial(self._reconcile, scope))

    async def _plan(self, scope: ScopeName) -> None:
        if await self.planning.consider(scope):
            self.wake.set()

    async def _reconcile(self, scope: ScopeName) -> None:
        self.controller.reconcile(scope)

    def _scopes(self) -> tuple[ScopeName, ...]:
        """Scopes that the intent names, and those that still have something in force."""
        declared = self.controller.roster.desired.scopes
        return tuple(sorted({*declared, *self.controller.state.scopes}))

    # --- git, outwards

    async def _projection(self) -> None:
        last_state_s = 0.0
        while not self.stop.is_set():
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            with_state = now_s - last_state_s >= STATE_EVERY_S
            if with_state:
                last_state_s = now_s
            if not await self._project(with_state):
                await asyncio.sleep(PROJECT_AGAIN_S)

    async def _project(self, with_state: bool) -> bool:
        """Write what is due; False after a failure, which is shown and tried again later."""
        await self._outlived(WRITING, lambda: self._write(with_state))
        return self.controller.soft.project_error is None and WRITING not in dict(self.controller.faults.standing())

    async def _write(self, with_state: bool) -> None:
        controller = self.controller
        if controller.state.accepted is None:
            return
        work = due(controller.state, controller.soft, controller.roster, controller.now(), with_state=with_state)
        if not work and not self._unpushed:
            return
        written = await asyncio.to_thread(carry_out, self._place(), work, owed=self._unpushed)
        self._unpushed = written.unpushed
        controller.commit(written.rows, controller.now())
        for row in written.rows:
            if isinstance(row, r.PlanWritten):
                controller.counters.add(
                    "gridops_plans_written_total", scope=row.scope, cause="batch" if row.batch else "plan"
                )
        if written.error is not None and written.error != controller.soft.project_error:
            log.warning("writing plans to git failed, it will be tried again: %s", written.error)
        controller.soft.project_error = written.error

    def _place(self) -> Place:
        settings = self._settings_or_default()
        source = intake.source_of(self.checkout, settings)
        return Place(self.checkout, settings, source.branch, self.controller.signer)

    def _plans_place(self) -> Place:
        return self._place()

    def _finished_plans(self) -> bool:
        try:
            return any(place.finished for place in self._place().branch().places())
        except GridopsError:
            return False

    async def _remember(self) -> None:
        """A new journal under a fleet that has applied plans before is a loss, not a beginning."""
        if self.controller.journal_was_empty and await asyncio.to_thread(self._finished_plans):
            self.controller.distrust(
                "the journal is new although this fleet has applied plans before; run: gridops controller rebuild"
            )

    async def _once(self) -> int:
        """One look and one pass, written to git; for tests and for cron."""
        try:
            await self._pass()
            await self._project(True)
            return 0 if self.controller.state.accepted is not None else 3
        finally:
            self.controller.close()

    # --- talk

    def _say_hello(self, door: Listener) -> None:
        host, port = door.door.getsockname()[:2]
        source = intake.source_of(self.checkout, self._settings())
        term = self.controller.writer.term
        words = "watching %s; listening on https://%s:%d; term %d.%d"
        log.info(words, source.shown, host, port, term.epoch, term.counter, extra={"event": "start"})

    async def _hints(self) -> None:
        """Without hints there is still the interval, so a fault here ends the hints and nothing else."""
        await self._outlived("watching the repository", lambda: hints(self.checkout, self.stop, self.git_hint.set))
        await self.stop.wait()

    async def _quiet(self) -> None:
        while not self.stop.is_set():
            await asyncio.sleep(QUIET_EVERY_S)
            plans = sum(s.plans for s in self.controller.soft.scopes.values())
            quiet = sum(s.quiet for s in self.controller.soft.scopes.values())
            log.info("quiet: %d plans made, %d of them with no new decisions", plans, quiet, extra={"event": "quiet"})


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000
