"""A machine that sleeps: says goodbye before it where it is told in time, and finds out after it in any case.

What sleeps is seen by the clocks: one goes on in sleep, one stands still. Where logind is, a delay lock holds the sleep
back until the goodbye is said, for three seconds at most; the lock and the ears are one program of the system. Only a
host of class opportunistic says goodbye: it is disconnected then, and not lost. Decides nothing about residencies.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from gridops.base.errors import Failed
from gridops.base.units import render_ms
from gridops.model.fleet import HostClass
from gridops_agent.clock import SystemClock
from gridops_agent.core.state import Host
from gridops_agent.service import has_systemd
from gridops_agent.supervise import listen

LOG = logging.getLogger("gridops_agent")
LOOK_S = 1.0
SLEPT_MS = 2_000
"""Less is a machine that was busy between two readings."""
GOODBYE_S = 3.0
"""logind waits five seconds for whoever holds a delay lock."""
ABORTED_S = 30.0
"""A sleep that was announced and has not come by then does not come."""
AGAIN_S = 60.0
_INHIBIT = (
    *("systemd-inhibit", "--what=sleep", "--mode=delay", "--who=gridops-agent"),
    "--why=says goodbye to its controller",
)
_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1")
_GDBUS = ("gdbus", "monitor", "--system", "--dest", _LOGIN[0], "--object-path", _LOGIN[1])
_RULE = f"type='signal',interface='{_LOGIN[0]}.Manager',member='PrepareForSleep'"
_DBUS = ("dbus-monitor", "--system", _RULE)
_SIGNAL = re.compile(r"\bPrepareForSleep\b(?:\s*\((true|false),?\))?")
_VALUE = re.compile(r"^\s*boolean (true|false)\s*$")


@dataclass(frozen=True, slots=True)
class Habits:
    """What the shell gives: whether this host says goodbye, how, and what happens when it has slept."""

    says_goodbye: Callable[[], bool]
    say: Callable[[], Awaitable[None]]
    """One heartbeat with the newest word about `away`."""
    woke: Callable[[int], Awaitable[None]]
    ears: Callable[[], AsyncIterator[str]]
    """Lines of a program that hears what logind says; it holds sleep back until it is closed."""


def is_guest(host: Host) -> bool:
    """This host is a person's machine: its absence is normal, and it says so."""
    rules = host.last_word.protection
    return rules is not None and rules.host_class == HostClass.OPPORTUNISTIC


class Sleep:
    """One agent's sleep. `away` is what its heartbeats say."""

    def __init__(self, clock: SystemClock, habits: Habits) -> None:
        self._clock = clock
        self._habits = habits
        self._lag_ms = self._lag()
        self._woken = asyncio.Event()
        self.away = False
        self.for_good = False
        """It is away because this host leaves its fleet."""

    async def run(self) -> None:
        """Look and listen for ever."""
        await asyncio.gather(self._look_on(), self._listen_on())

    async def goodbye(self) -> None:
        """Say it, when this host does; whether somebody heard it or not."""
        if not self._habits.says_goodbye():
            return
        self.away = True
        try:
            await asyncio.wait_for(self._habits.say(), GOODBYE_S)
        except TimeoutError:
            LOG.info("the goodbye was not answered in %s s", GOODBYE_S)

    async def look(self) -> int:
        """How long the machine has slept since the last look; what follows has happened then."""
        lag = self._lag()
        slept, self._lag_ms = lag - self._lag_ms, lag
        if slept < SLEPT_MS:
            return 0
        LOG.info("this machine slept for %s", render_ms(slept))
        self.away = False
        self._woken.set()
        await self._habits.woke(slept)
        return slept

    def _lag(self) -> int:
        return self._clock.boottime_ms() - self._clock.awake_ms()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def _listen_on(self) -> None:
        while True:
            if not self._habits.says_goodbye():
                await asyncio.sleep(AGAIN_S)
                continue
            if not await self._announced():
                await asyncio.sleep(AGAIN_S)  # nobody to listen to, or not any more
                continue
            try:
                await asyncio.wait_for(self._woken.wait(), ABORTED_S)
            except TimeoutError:
                self.away = False
                await self._habits.say()

    async def _announced(self) -> bool:
        """A sleep was announced and the goodbye said, with sleep held back meanwhile; False when nobody tells."""
        told = Announcements()
        lines = self._habits.ears()
        try:
            async for line in lines:
                if told.read(line):
                    self._woken.clear()
                    await self.goodbye()
                    return True
        except Failed as error:
            LOG.debug("nobody tells of sleep: %s", error.message)
        finally:
            close = getattr(lines, "aclose", None)
            if close is not None:
                await close()  # this lets the machine sleep
        return False


class Announcements:
    """Reads what gdbus or dbus-monitor print, line by line."""

    def __init__(self) -> None:
        self._value_follows = False

    def read(self, line: str) -> bool:
        """True when this line completes the word that the machine is about to sleep."""
        found = _SIGNAL.search(line)
        if found is not None:
            self._value_follows = found.group(1) is None
            return found.group(1) == "true"
        value = _VALUE.match(line)
        told = self._value_follows and value is not None and value.group(1) == "true"
        self._value_follows = self._value_follows and value is None
        return told


async def logind_ears() -> AsyncIterator[str]:
    """The lines of whatever program this system has for listening to logind. Raises Failed when there is none."""
    heard = next((argv for argv in (_GDBUS, _DBUS) if shutil.which(argv[0]) is not None), None)
    if not has_systemd() or heard is None or shutil.which(_INHIBIT[0]) is None:
        raise Failed("this system has no logind, or none of gdbus, dbus-monitor and systemd-inhibit to hear it with")
    lines = listen((*_INHIBIT, *heard))
    try:
        async for line in lines:
            yield line
    finally:
        await lines.aclose()
