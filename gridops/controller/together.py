"""Polls that arrive together are taken in together: one transaction for all that is in hand, not one for each.

The listener hands each poll here and waits for its answer. What came in one turn of the loop is heard in one step,
becomes durable in one, and is answered then, so that a disk which takes some milliseconds for a transaction bounds how
long a host waits and not how many hosts there may be. A poll that comes alone waits for nobody. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gridops.controller.polls import Answered
from gridops.controller.writer import Lost
from gridops.protocol.messages import Beat

AT_ONCE = 50
"""Polls of one step. Double: the loop stands still for twice as long while they are verified, some 25 ms on a slow
core; half: twice as many transactions when all hosts speak at once."""

Take = Callable[[Sequence[Beat]], list[Answered | Exception]]


class Together:
    """Gathers polls for `take`. For one loop's thread."""

    def __init__(self, take: Take, changed: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        self._take = take
        self._changed = changed
        self._fail = fail
        self._waiting: list[tuple[Beat, asyncio.Future[str]]] = []

    async def answer(self, beat: Beat) -> str:
        """The sealed directive for one poll. Raises what `Controller.beat` raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        self._waiting.append((beat, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._step)
        return await answer

    def _step(self) -> None:
        taken, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._step)
        try:
            answers: list[Answered | Exception] = self._take([beat for beat, _ in taken])
        except Exception as error:  # noqa: BLE001 - it is the answer of all of them
            if isinstance(error, Lost):
                self._fail(error)
            answers = [error] * len(taken)
        for (_, answer), answered in zip(taken, answers, strict=True):
            if answer.done():
                continue  # its connection ended meanwhile
            if isinstance(answered, Exception):
                answer.set_exception(answered)
            else:
                answer.set_result(answered.directive)
        if any(isinstance(answered, Answered) and answered.news for answered in answers):
            self._changed()
