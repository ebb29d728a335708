"""The controller of the lab: the real one, on a model of a disk; it crashes while it writes, and sleeps and wakes.

`gridops.controller.shell` does the same with sockets, git and threads. After a crash another one begins on what the
disk holds; what was only asleep wakes up beside its successor and must find that it may write no more.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gridops.base.errors import Bug, Failed, Refusal
from gridops.base.ids import CommitId, HostId, ProfileName, ScopeName
from gridops.base.record import from_bytes
from gridops.controller.core import rows as r
from gridops.controller.core.intend import Found
from gridops.controller.core.soft import ScopeSoft
from gridops.controller.lineage import Base
from gridops.controller.planning import Planning
from gridops.controller.project import Place
from gridops.controller.service import Controller, Opening
from gridops.controller.statedir import Kept, StateDir
from gridops.controller.writer import Lost, Stuck
from gridops.files.projection import PlanBranch
from gridops.lab.agenda import Agenda, MachineClock
from gridops.lab.broken import Broken
from gridops.lab.callers import ready_in, word_in
from gridops.lab.dice import Dice
from gridops.lab.disk import Authority, Journal, Platter
from gridops.lab.net import refusal
from gridops.lab.options import Options
from gridops.lab.strikes import Crashed, Strikes
from gridops.lab.trace import Trace
from gridops.protocol.messages import Beat, GatewayKey
from gridops.store.face import Right
from gridops.trust.keys import MachineSigner

T = TypeVar("T")
PASS_MS = 2_000
SOON_MS = 100
TURNS = 6
"""So often a pass plans again because something followed from the last plan."""
AWAY_MS = (1_000, 15_000)
ASLEEP_MS = (5_000, 60_000)


@dataclass(frozen=True, slots=True)
class Keys(StateDir):
    """A state folder that holds nothing but keys, and holds them in memory."""

    machine: MachineSigner
    platter: Platter

    def accepted(self) -> Kept | None:
        return self.platter.accepted

    def keep_accepted(self, kept: Kept) -> None:
        if self.platter.accepted != kept:
            self.platter.strikes.step(lambda: setattr(self.platter, "accepted", kept))

    def signer(self) -> MachineSigner:
        return self.machine

    def next_signer(self) -> MachineSigner | None:
        return None

    def gateway_keys(self) -> tuple[GatewayKey, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the controller shares with the world."""

    agenda: Agenda
    trace: Trace
    options: Options
    roots: Callable[[], tuple[str, ...]]
    """The root documents at the newest commit."""
    machine: MachineSigner
    down: Callable[[HostId, str], None]
    """Takes a directive, or a refusal, to a host."""
    tip: Callable[[], CommitId]
    """The newest commit."""
    read: Callable[[CommitId, Base], Found]
    """What it says, to whoever goes on from what is in force."""
    strikes: Strikes


class Head:
    """Whoever is the controller now, and whoever believes to be."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.platter = Platter(strikes=around.strikes)
        self.clock = MachineClock(around.agenda)
        self.current: Controller | None = None
        self.planning: Planning | None = None
        self.asleep: list[Controller] = []
        self.kind = False
        self.said: dict[HostId, frozenset[ProfileName]] = {}
        """Who said to serve what, in the newest heartbeat that was taken in."""
        self.twins: list[Controller] = []
        """Those awake that do not know yet that another has taken over."""
        self._twins = Dice(around.options.seed, "twins")
        self._dice = Dice(around.options.seed, "controller")
        self._soon = False
        self._read: object = None
        self.begin()
        self._tick()

    # --- coming and going -------------------------------------------------------------------------------------------

    def begin(self, *, look: bool = True) -> None:
        """A controller starts on what the disk holds, and reads the newest commit."""
        if self.current is not None:
            return

        def authority(_: Path, epoch: int) -> tuple[Right, str | None]:
            return self.authority(epoch), None

        around = self.around
        keys = Keys(Path("/lab"), around.machine, self.platter)
        try:
            controller = self.opened(Opening(keys, around.roots(), self.clock, authority))
        except (Crashed, Failed, Lost) as crash:
            self._gone(crash)
            return
        self.current = controller
        self.planning = Planning(controller, _no_git, _at_once)
        self._read = None
        self.said.clear()
        around.trace.add("controller", f"begins with term {controller.writer.term.counter}")
        if look:
            self.guarded(controller, self._look)

    def authority(self, epoch: int) -> Right:
        """The right to write, under a new term."""
        return Authority(Journal(self.platter, self._fate), epoch)

    def again(self) -> Controller:
        """The controller is gone and another begins, with nothing but the disk. Raises Broken when none does."""
        self.current = self.planning = None
        self.begin(look=False)
        begun: Controller | None = self.current
        if begun is None:
            raise Broken("S11", "no controller begins on this disk")
        return begun

    def _fate(self) -> bool | None:
        options = self.around.options
        if self.kind or not self._dice.happens(options.controller_crash_ppm):
            return None
        if self._dice.happens(options.zombie_ppm):
            self.around.agenda.after(0, self._sleep)
            return None
        return self._dice.happens(500_000)

    def _sleep(self) -> None:
        if self.current is None:
            return
        self.around.trace.add("controller", "falls asleep")
        self.asleep.append(self.current)
        self.current = self.planning = None
        self.around.agenda.after(self._dice.between(*AWAY_MS), self.begin)
        sleeper = self.asleep[-1]
        self.around.agenda.after(self._dice.between(*ASLEEP_MS), lambda: self._wake(sleeper))

    def _wake(self, sleeper: Controller) -> None:
        """It goes on as if nothing had been, and must find at its first write that another has taken over."""
        self.around.trace.add("controller", f"term {sleeper.writer.term.counter} wakes up")
        self.asleep.remove(sleeper)
        if self._twins.happens(self.around.options.twins_ppm):
            self.twins.append(sleeper)
            self.around.agenda.after(self._twins.between(*AWAY_MS), lambda: self._writes(sleeper))
        else:
            self._writes(sleeper)

    def _writes(self, sleeper: Controller) -> None:
        if sleeper in self.twins:
            self.twins.remove(sleeper)
        succeeded = self.platter.term != sleeper.writer.term
        try:
            sleeper.commit((r.Started(version="awake again"),), sleeper.now())
        except Lost:
            self.around.trace.saw("a woken controller found that it may write no more")
            return
        except Crashed as crash:
            if not succeeded:
                self._gone(crash)
            return
        if succeeded:
            raise Broken("S5", "a controller wrote beside its successor")
        if self.current is None:
            self.current, self.planning = sleeper, Planning(sleeper, _no_git, _at_once)

    def stop(self, why: Exception) -> None:
        """Its process is gone, and another one begins on what the disk holds by then."""
        self._gone(why)

    def _gone(self, why: Exception) -> None:
        self.around.trace.add("controller", f"is gone: {why}")
        self.around.trace.saw("controller crash")
        if isinstance(why, Crashed):
            self.around.trace.saw(f"a crash at a commit that was {why}")
        self.current = self.planning = None
        self.around.agenda.after(0 if self.kind else self._dice.between(*AWAY_MS), self.begin)

    def guarded(self, controller: Controller, do: Callable[[], T]) -> T | None:
        """Do something on a controller; None when it was its last."""
        try:
            return do()
        except (Crashed, Lost) as error:
            if isinstance(error, Stuck):
                raise
            if controller is self.current:
                self._gone(error)
            return None

    # --- work -------------------------------------------------------------------------------------------------------

    def receive(self, host: HostId, text: str) -> None:
        """A beat came up the wire."""
        for twin in tuple(self.twins):
            self._twin_hears(twin, host, text)
        controller = self.current
        if controller is None:
            return
        try:
            answered = self.guarded(controller, lambda: controller.beat(from_bytes(Beat, text.encode())))
        except Refusal as no:
            self.around.trace.add("controller", f"refuses a beat of {host}: {no.code}")
            self.around.trace.saw(no.code)
            self.around.down(host, refusal(word_in(text).nonce, no.code))
            return
        if answered is None:
            return
        heard = controller.soft.hosts.get(host)
        # An old word may be answered, and says nothing of now: who serves is asked of the one that was taken in.
        if self.around.options.ask_every_ms and heard is not None and heard.heartbeat == word_in(text):
            self.said[host] = ready_in(heard.heartbeat)
        self.around.down(host, answered.directive)
        if answered.news and not self._soon:
            self._soon = True
            self.around.agenda.after(SOON_MS, self._pass)

    def _twin_hears(self, twin: Controller, host: HostId, text: str) -> None:
        """Whoever does not know yet that another has taken over answers too; what it would write ends it."""
        try:
            answered = twin.beat(from_bytes(Beat, text.encode()))
        except Refusal as no:
            self.around.down(host, refusal(word_in(text).nonce, no.code))
            return
        except (Crashed, Lost):
            return  # it tries to write before long
        self.around.trace.saw("two controllers answered")
        self.around.down(host, answered.directive)

    def _tick(self) -> None:
        self._pass()
        self.around.agenda.after(PASS_MS, self._tick)

    def _pass(self) -> None:
        self._soon = False
        controller, planning = self.current, self.planning
        if controller is None or planning is None:
            return

        def work() -> None:
            self._look()
            if controller.state.accepted is not None:
                self.turn(controller, planning)

        self.guarded(controller, work)

    # --- what another head does otherwise ---------------------------------------------------------------------------

    def opened(self, opening: Opening) -> Controller:
        """The controller that begins."""
        return Controller(opening)

    def turn(self, controller: Controller, planning: Planning) -> None:
        """What it does at each pass."""
        for scope in self.around.options.scope_names:
            for _ in range(TURNS):
                if not drive(planning.consider(scope)):
                    break
            controller.reconcile(scope)
            self._met(controller.soft.scope(scope))

    def _met(self, soft: ScopeSoft) -> None:
        """What is held back, and by what."""
        if any("disruptions[" in why for why in soft.held):
            self.around.trace.saw("a budget held something back")
        if any(": drain on " in why and " to be ready" in why for why in soft.waits):
            self.around.trace.saw("the last one that serves was kept until another did")

    def _look(self) -> None:
        tip = self.around.tip()
        if tip != self._read and self.current is not None:
            try:
                self.current.found(self.around.read(tip, self.current.base()))
            except Failed as full:  # it is shown, and tried again at the next look
                self.around.trace.add("controller", f"cannot go by the newest commit: {full.message}")
                return
            self._read = tip


async def _at_once(work: Callable[..., Any], *given: Any) -> Any:
    return work(*given)


def _no_git() -> Place:
    return _NoGit()


class _NoGit(Place):
    """There is no repository: what is written to git is no part of what is proved here."""

    def __init__(self) -> None:
        """Nothing to hold."""

    def branch(self) -> PlanBranch:
        return _NoBranch()


class _NoBranch(PlanBranch):
    """No plan was ever written to it."""

    def __init__(self) -> None:
        """Nothing to hold."""

    def find(self, wanted: str, scope: ScopeName | None = None) -> NoReturn:
        raise Failed("there is no git in the lab")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise Bug("something in the lab waits for a real event loop")
