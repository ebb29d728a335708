"""Keep-alive's watch: looks at every residency's process twice a second, and tells the heart what has changed.

Run by the shell as a loop. It leaves alone what somebody is starting or stopping in this moment, and decides nothing:
the heart says whether what died comes back, whether a retry is due and whether memory is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gridops.base.codes import host as codes
from gridops.base.errors import GridopsError
from gridops.model.snapshot import ResidencyState
from gridops_agent.core import keepalive, yielding
from gridops_agent.core.events import Died, Proved, Recall, RetryDue, Stuck
from gridops_agent.core.state import Held
from gridops_agent.effects import Effects
from gridops_agent.keep.base import Proof
from gridops_agent.ledger import Unwritable
from gridops_agent.memory import Memory
from gridops_agent.supervise import tail, trim_log
from gridops_agent.tools import Tools

WATCH_S = 0.5
FAULT_S = 2.0
"""More between looks while they fail, or the ledger cannot be written."""


class Watch:
    """The watch of one agent."""

    def __init__(self, memory: Memory, tools: Tools, effects: Effects, warn: Callable[[str, str], None]) -> None:
        self._memory = memory
        self._tools = tools
        self._effects = effects
        self._warn = warn

    async def run(self, went_round: Callable[[], None] = lambda: None) -> None:
        """Look for ever."""
        while True:
            went_round()
            try:
                await self.look()
            except GridopsError as error:
                code = codes.LEDGER_UNWRITABLE if isinstance(error, Unwritable) else codes.AGENT_FAULT
                self._warn(code.code, error.message)
                await asyncio.sleep(FAULT_S)
            await asyncio.sleep(WATCH_S)

    async def look(self) -> None:
        """One look at every residency that nobody is working on."""
        handled, tell_once = self._effects.handled, self._effects.tell_once
        for body in sorted(self._memory.host.held):
            held = self._memory.host.held.get(body)
            if held is None or body in handled:
                continue
            if held.handle is not None:
                await self._look_at(held)
                trim_log(self._tools.doors.folder(body) / "log")
                self._give_back(held)
            elif held.state is ResidencyState.OFFLOADED and self._memory.host.verdict.admits:
                await tell_once(Recall(body))
            elif keepalive.due(held, self._memory.now_ms()):
                await tell_once(RetryDue(body))

    def _give_back(self, looked_at: Held) -> None:
        host = self._memory.host
        held = host.held.get(looked_at.body)
        if held is not None and held.body not in self._effects.handled and yielding.gives_back(host, held):
            self._effects.give_back(held.body)

    async def _look_at(self, held: Held) -> None:
        assert held.handle is not None
        keepers, body, tell_once = self._tools.keepers, held.body, self._effects.tell_once
        known = held.code == codes.NOT_OURS.code
        proof = await (keepers.prove if known else keepers.judge)(body, held.handle)
        match proof:
            case Proof.OURS:
                if known:
                    await tell_once(Proved(body))
            case Proof.NOT_OURS:
                await tell_once(Stuck(body, codes.NOT_OURS.code, keepers.doubt(held.handle)))
            case Proof.GONE:
                # What the dead leader started may still hold memory; it carries our cookie, so it can be proved.
                swept = await keepers.sweep(body, held)
                if not swept.gone:
                    await tell_once(Stuck(body, codes.RELEASE_STUCK.code, swept.detail))
                    return
                last = tail(self._tools.doors.folder(body) / "log", 1)
                why = "; ".join((keepers.ending(held.handle), *last))
                try:
                    await tell_once(Died(body, why, self._tools.releases.seen(body)))
                except Unwritable as error:
                    raise Unwritable(
                        f"{held.replica} is dead ({why}), and {error.message}", hints=error.hints
                    ) from error
                keepers.forget(held.handle)
