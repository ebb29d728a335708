"""The measuring loop's one turn: devices to the heart, what engines hold to `release`, trouble to people.

Called every few seconds by the shell, and by effects before a start. It decides nothing: `gauge` knows what is true
of memory, the heart what follows from it.
"""

from __future__ import annotations

import asyncio

from gridops.base.codes import devices as codes
from gridops.base.codes.host import RELEASE_STUCK
from gridops.base.ids import DeviceId
from gridops_agent.alarms import Alarms
from gridops_agent.effects import Effects
from gridops_agent.facts import Ours
from gridops_agent.gauge import Alarm, Gauge
from gridops_agent.keep.keepers import Keepers
from gridops_agent.memory import Memory
from gridops_agent.releases import Releases

_CODES = (codes.DEVICE_LOST.code, codes.DEVICE_AILING.code, codes.SENSOR_SILENT.code, RELEASE_STUCK.code)


class Measuring:
    """One agent's measuring. `why` is what the newest look at devices could not read."""

    def __init__(self, gauge: Gauge, memory: Memory, keepers: Keepers, releases: Releases, alarms: Alarms) -> None:
        self._gauge = gauge
        self._memory = memory
        self._keepers = keepers
        self._releases = releases
        self._alarms = alarms
        self.why: tuple[str, ...] = ()
        self.ours: tuple[int, ...] = ()
        """The processes that were proved to be our engines' at the newest look."""

    async def turn(self, effects: Effects) -> None:
        """One look. Raises Unwritable; then nothing was learned."""
        held = self._memory.host.held
        handles = {body: h.handle for body, h in held.items() if h.handle is not None}
        planned: dict[DeviceId, int] = {}
        for body in handles:
            for device in held[body].warm.devices:
                planned[device] = planned.get(device, 0) + held[body].warm.device_bytes
        await self._keepers.refresh()
        ours = await self._keepers.processes_of(handles)
        self.ours = ours
        known = Ours(frozenset((*ours, *self._releases.owing())), planned, self._releases.owed())
        seen = await asyncio.to_thread(self._gauge.measure, ours, known)
        await self._releases.note(seen.cards, effects.tell_once)
        self.why = seen.why
        await effects.tell_once(seen.measured)
        await effects.settle_releases()
        self._say([*seen.alarms, *self._stuck()])

    def _stuck(self) -> list[Alarm]:
        held = sorted(self._memory.host.held.values(), key=lambda h: h.body)
        stuck = [h for h in held if h.code == RELEASE_STUCK.code]
        return [Alarm(RELEASE_STUCK.code, f"{h.replica}: {h.detail}", h.replica) for h in stuck]

    def _say(self, alarms: list[Alarm]) -> None:
        """What stands now; what stood before and is over goes at once."""
        standing = {alarm.code for alarm in alarms}
        for code in _CODES:
            if code not in standing:
                self._alarms.over(code)
        for alarm in alarms:
            self._alarms.warn(alarm.code, alarm.text, about=alarm.device)
