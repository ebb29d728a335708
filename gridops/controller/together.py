"""Polls that arrive together are taken in together: one transaction for all that is in hand, not one for each.

The listener hands each poll here and waits for its answer. What came in one turn of the loop is heard in one step,
becomes durable in one, and is answered then, so that a disk which takes some milliseconds for a transaction bounds how
long a host waits and not how many hosts there may be. A poll that comes alone waits for nobody. Decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from gridops.controller.polls import Answered
from gridops.controller.writer import Lost
from gridops.protocol.messages import Beat

log = logging.getLogger("gridops.http")

AT_ONCE = 50
"""Polls of one step. Double: the loop stands still for twice as long while they are verified, some 25 ms on a slow
core; half: twice as many transactions when all hosts speak at once."""

Done = Callable[[str | Exception], None]
Take = Callable[[Sequence[Beat]], list[Answered | Exception]]


class Together:
    """Gathers polls for `take`. For one loop's thread."""

    def __init__(self, take: Take, changed: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        self._take = take
        self._changed = changed
        self._fail = fail
        self._waiting: list[tuple[Beat, Done]] = []

    async def answer(self, beat: Beat) -> str:
        """The sealed directive for one poll. Raises what `Controller.beat` raises."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.put(beat, partial(_settle, answer))
        return await answer

    def put(self, beat: Beat, done: Done) -> None:
        """The same for who waits in no task: `done` gets the directive, or what `answer` would raise."""
        self._waiting.append((beat, done))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._step)

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
        for (_, done), answered in zip(taken, answers, strict=True):
            try:
                done(answered if isinstance(answered, Exception) else answered.directive)
            except Exception:
                log.exception("a heartbeat's answer could not be given")  # nobody else's answer waits for that
        if any(isinstance(answered, Answered) and answered.news for answered in answers):
            self._changed()


def _settle(answer: asyncio.Future[str], answered: str | Exception) -> None:
    if answer.done():
        return  # its connection ended meanwhile
    if isinstance(answered, Exception):
        answer.set_exception(answered)
    else:
        answer.set_result(answered)
