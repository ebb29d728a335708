"""Waits for memory to come back: reads cards before a stop, after it, and before the next start on them.

Called by whoever stops or starts engines, with the lanes of the devices held, and every few seconds for what is
still owed. What to expect and whether it came is decided in `core.release`; here are the readings, the bounded wait and
the words for people, which name the processes that hold what did not come back. Signals nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from gridops.base import limits
from gridops.base.codes.host import RELEASE_STUCK
from gridops.base.ids import DeviceId, Digest
from gridops.base.units import render_bytes
from gridops_agent.core import release
from gridops_agent.core.events import Event, Holding, Released, Stopping
from gridops_agent.core.release import Owed, Reading, Verdict
from gridops_agent.core.state import Handle, Held
from gridops_agent.memory import Memory
from gridops_agent.platform.base import Platform
from gridops_agent.sensors.cards import Cards, Condition

POLL_S = 0.25
STUCK = RELEASE_STUCK.code

Tell = Callable[[Event], Awaitable[bool]]
PidsOf = Callable[[Mapping[Digest, Handle]], Awaitable[tuple[int, ...]]]


class Releases:
    """What stopped engines still owe. Holds nothing that the ledger does not: only the newest reading of who lives."""

    def __init__(self, memory: Memory, look: Callable[[], Cards], platform: Platform, pids_of: PidsOf) -> None:
        self._memory = memory
        self._look = look
        self._platform = platform
        self._pids_of = pids_of
        self._seen: dict[Digest, tuple[Owed, ...]] = {}
        self._stopping: dict[Digest, tuple[int, str]] = {}
        """Lives that are being ended: what they must give back was read before the first signal, and stands."""

    async def note(self, cards: Cards, tell: Tell) -> None:
        """Remember what each living engine holds, for those that will die without being stopped; durably where it has
        changed, for those that will die while no agent looks."""
        names = {card.id for card in cards.cards}
        living: dict[Digest, tuple[Owed, ...]] = {}
        for body, held in self._memory.host.held.items():
            if held.handle is not None and names.intersection(held.warm.devices):
                pids = await self._pids_of({body: held.handle})
                living[body] = _owed(held, readings(cards), pids) if pids else self._seen.get(body, ())
        self._seen = living
        for body in sorted(living):
            now = self._memory.host.held.get(body)
            if now is None or now.handle is None or self._stopping.get(body) == (now.handle.pid, now.handle.birth):
                continue
            if living[body] and release.moved(now.owed, living[body]):
                await tell(Holding(body, living[body]))

    def seen(self, body: Digest) -> tuple[Owed, ...]:
        """What an engine was last seen to hold on cards."""
        return self._seen.get(body, ())

    def owing(self) -> tuple[int, ...]:
        """Processes that are gone and that a driver may still list: what they hold is the owing residency's, which is
        planned for here, and nobody else's."""
        pids = {pid for held in self._memory.host.held.values() for owed in held.owed for pid in owed.pids}
        return tuple(pid for pid in sorted(pids) if self._is_over(pid))

    def _is_over(self, pid: int) -> bool:
        process = self._platform.process(pid)
        return process is None or process.zombie

    def owed(self) -> tuple[tuple[Owed, int], ...]:
        """What engines that are gone have not been seen to give back, each with what is planned for them there. Also of
        those whose end nobody has told yet: it would stand as others' use for as long as the window of that."""
        held = sorted(self._memory.host.held.values(), key=lambda h: h.body)
        owed = ((o, h.warm.device_bytes * h.warm.devices.count(o.device)) for h in held for o in h.owed)
        return tuple((o, planned) for o, planned in owed if o.pids and all(map(self._is_over, o.pids)))

    async def before(self, held: Held, tell: Tell) -> None:
        """Before the first signal: what must come back is read and recorded."""
        cards = await asyncio.to_thread(self._look)
        if held.handle is None or not _on_cards(held, cards):
            return
        self._stopping[held.body] = (held.handle.pid, held.handle.birth)
        pids = await self._pids_of({held.body: held.handle})
        owed = _owed(held, readings(cards), pids) if pids else self.seen(held.body) or held.owed
        if owed:
            await tell(Stopping(held.body, owed))

    async def after(self, body: Digest) -> tuple[bool, str]:
        """After the last process is gone: True when its memory is back, and what is to be said about it."""
        held = self._memory.host.held.get(body)
        return await self._wait(held.owed) if held is not None else (True, "")

    async def gate(self, held: Held) -> str:
        """Before a start: wait for what is owed on its devices. Words when it does not come, else empty."""
        for body in sorted(self._memory.host.held):
            other = self._memory.host.held.get(body)
            if other is None or (other.handle is not None and body != held.body):
                continue
            owed = tuple(o for o in other.owed if o.device in held.warm.devices)
            back, words = await self._wait(owed)
            if not back:
                return words
        return ""

    async def settle(self, busy: set[Digest], tell: Tell) -> None:
        """Look once at everything that is owed and that nobody is working on; what came back is open again."""
        waiting = [h for h in self._memory.host.held.values() if h.handle is None and h.body not in busy]
        waiting = [h for h in waiting if h.owed or h.code == STUCK]
        if not waiting:
            return
        cards = await asyncio.to_thread(self._look)
        now = readings(cards, (owed for held in waiting for owed in held.owed))
        for held in sorted(waiting, key=lambda h: h.body):
            if release.verdict(held.owed, now).back and self._open(held):
                await tell(Released(held.body))

    def _open(self, held: Held) -> bool:
        """Nobody else keeps one of its devices closed."""
        others = (h for h in self._memory.host.held.values() if h.body != held.body and h.code == STUCK)
        return not any(owed.device in held.warm.devices for other in others for owed in other.owed)

    async def _wait(self, owed: tuple[Owed, ...]) -> tuple[bool, str]:
        if not owed:
            return True, ""
        loop = asyncio.get_running_loop()
        end = loop.time() + limits.RELEASE_MS / 1000
        while True:
            cards = await asyncio.to_thread(self._look)
            now = readings(cards, owed)
            found = release.verdict(owed, now)
            if found.back:
                return True, found.remark
            if loop.time() >= end:
                return False, self._words(found, now, owed)
            await asyncio.sleep(POLL_S)

    def _words(self, found: Verdict, now: Mapping[DeviceId, Reading], owed: tuple[Owed, ...]) -> str:
        """What did not come back, from which device, and which processes hold it by the driver's own list."""
        words = [f"no device could be read: {found.remark}"] if not found.missing else []
        for one in found.missing:
            held = (
                f"{render_bytes(one.held_bytes)} were held there" if one.held_bytes is not None else "it is still used"
            )
            words.append(f"{one.device} did not give its memory back ({held}); {self._holders(one, now[one.device])}")
        return "; ".join(words)

    def _holders(self, owed: Owed, now: Reading) -> str:
        by_pid = now.by_pid or {}
        mine = sorted((pid for pid in by_pid if pid in owed.pids), key=lambda pid: -(by_pid[pid] or 0))
        others = sorted((pid for pid in by_pid if pid not in owed.pids), key=lambda pid: -(by_pid[pid] or 0))
        if not by_pid:
            return "no process is listed on it: the driver itself holds it, and a reset frees it"
        named = [self._holder(pid, by_pid[pid], "of this engine") for pid in mine]
        named += [self._holder(pid, by_pid[pid], "not of this engine") for pid in others]
        more = f" and {len(named) - limits.HOLDERS_NAMED} more" if len(named) > limits.HOLDERS_NAMED else ""
        return f"held by {', '.join(named[: limits.HOLDERS_NAMED])}{more}"

    def _holder(self, pid: int, used: int | None, whose: str) -> str:
        process = self._platform.process(pid)
        what = "gone from the process table" if process is None else "a zombie" if process.zombie else "alive"
        held = render_bytes(used) if used is not None else "an unknown amount"
        return f"pid {pid} ({held}, {whose}, {what})"


def readings(cards: Cards, wanted: Iterable[Owed] = ()) -> dict[DeviceId, Reading]:
    """The cards as the pure rules see them. What is wanted and not listed is gone, where the driver knows its cards."""
    found = {
        card.id: Reading(card.used_bytes, card.by_pid, gone=card.condition is Condition.LOST) for card in cards.cards
    }
    silent = {card.id for card in cards.cards if card.condition is Condition.SILENT}
    for owed in wanted:
        card, _, _ = owed.device.partition(".")
        if cards.known and owed.device not in found and card not in silent:
            found[owed.device] = Reading(gone=True)
    return found


def _on_cards(held: Held, cards: Cards) -> bool:
    return bool({card.id for card in cards.cards}.intersection(held.warm.devices))


def _owed(held: Held, now: Mapping[DeviceId, Reading], pids: tuple[int, ...]) -> tuple[Owed, ...]:
    devices = sorted(set(held.warm.devices) & now.keys())
    return tuple(release.owe(device, now[device], pids) for device in devices)
