"""Gives memory back while a host is paused: waits until an engine is idle, stops it gently, and says it is gone.

Called for every residency that the heart would have given back, in the residency's lanes, when the watch has seen it.
Nothing in flight is ever cut: work that outlives the grace keeps its engine, and the memory waits for it. An engine
that hangs with nobody's request is not at work: it is ended too, and killed if it does not listen.
"""

from __future__ import annotations

from gridops.base.codes import host as codes
from gridops.base.ids import Digest
from gridops_agent.core.events import Died, GiveBack, Stuck
from gridops_agent.keep.base import HUNG_STEPS
from gridops_agent.ledger import Unwritable
from gridops_agent.memory import Memory
from gridops_agent.stops import HUNG_S, UNTOLD, Stops
from gridops_agent.tools import Says


async def give_back(body: Digest, memory: Memory, stops: Stops, says: Says) -> None:
    """Give one residency's memory back, if it is idle and the heart says so."""
    held = memory.host.held.get(body)
    if held is None or held.handle is None:
        return
    work = await stops.in_flight(held)
    if work and not stops.hangs(held):
        words = f"{held.replica}: {work}; nothing is cut, and its memory is given back when that ends"
        says.warn(codes.DRAIN_TIMEOUT.code, words, held.replica)
        return
    try:
        if not await says.tell_once(GiveBack(body)):
            return
    except Unwritable:  # the watch says so; what is not on disk does not begin
        return
    # From here on the front lets nobody in; who came in before that moment still has his answer.
    steps = await stops.idle(held)
    if steps is HUNG_STEPS:
        words = f"{held.replica}: {UNTOLD} after {HUNG_S:g} s, and no request is with it"
        says.warn(codes.ENGINE_HUNG.code, words, held.replica)
    left = await stops.end(held, held.handle, steps)
    if left.code is None:
        await says.tell(Died(body, "stopped to give memory back"))
    else:
        await says.tell(Stuck(body, left.code, left.words))
