"""Takes a host out of its fleet: drained, its engines ended, its controller told, its service removed.

Each step looks at what is and goes on from there, so that a leave that was interrupted is begun again by the same
command. Work in flight is not cut, and the last healthy replica of a profile does not go, unless a person insists. The
host's key stays trusted until a person takes it out of git: no host can do that, and no leave is trusted to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gridops.base.codes import host as codes
from gridops.base.codes.trust import BAD_SCHEMA
from gridops.base.errors import Busy, EdgeError, Failed, GridopsError, Refusal, Unreachable
from gridops.base.ids import ProfileName
from gridops.base.units import counted, render_ms
from gridops.model.snapshot import ResidencyState
from gridops.trust.root import RootChain
from gridops_agent.account import as_root
from gridops_agent.client import Controller
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config
from gridops_agent.core.events import Departed, Stuck
from gridops_agent.core.protection import OverrideKind
from gridops_agent.core.state import Held
from gridops_agent.keep.base import FORCE_STEPS, STOP_STEPS
from gridops_agent.ledger import Ledger
from gridops_agent.life.install import Machine, place, remove
from gridops_agent.life.left import has_left, note_left
from gridops_agent.overrides import Wish, say
from gridops_agent.shell import Agent
from gridops_agent.statefolder import is_running

REASON = "this host leaves its fleet"
LOOK_S = 0.5
FOLLOWS_MS = 20_000
"""A running agent follows a word within a second, and leaves a new note within ten."""
FOLLOWED_MS = 2_000
GOODBYE_S = 30.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """How to leave."""

    force: bool
    version: str
    machine: Machine
    tell: Tell
    patience_ms: int | None = None
    """How long work in flight is waited for; None: as long as the drains of what is here may take."""


async def leave(config: Config, wishes: Wishes) -> None:
    """Leave. Raises Refusal (the last healthy replica), Busy (work in flight) or Failed; then call it again."""
    if has_left(config) is not None:
        wishes.tell(f"{config.host} has left its fleet already.")
        return
    held, chain = _remembered(config)
    if not wishes.force:
        _spare_what_was_handed_over(held)
        await _spare_the_last(config, held, chain)
    said = say(config.override, Wish(OverrideKind.DRAIN, REASON), SystemClock())
    wishes.tell("It takes no new work.")
    if is_running(config):
        await _until_idle(config, max((h.drain_ms for h in held), default=0), said.said_ms, wishes)
    with as_root():
        done = remove(place(config, wishes.machine), wishes.machine)
    wishes.tell(f"{done[:1].upper()}{done[1:]}.")
    if is_running(config):
        raise Failed(
            "an agent still runs on this state folder, and no service started it",
            hints=("end it where it was started (Ctrl-C), then call `gridops-agent leave` again",),
        )
    await _empty(config, wishes)
    note_left(config, SystemClock().wall_ms())
    wishes.tell(f"{config.host} has left. Its key is trusted until a person takes it out of git:")
    wishes.tell(f"  set `expunged: true` in fleet.d/keys/{config.host}.yaml, and remove the host from fleet.d")


def _remembered(config: Config) -> tuple[tuple[Held, ...], RootChain]:
    ledger = Ledger.look(config.ledger)
    try:
        host = ledger.load("")
    finally:
        ledger.close()
    return tuple(sorted(host.held.values(), key=lambda h: (h.replica, h.body))), host.chain


def _spare_what_was_handed_over(held: tuple[Held, ...]) -> None:
    """An engine that ran before it was taken over is a person's: whether it ends with the host, a person says."""
    theirs = sorted(h.replica for h in held if h.handle is not None and h.handle.taken)
    if theirs:
        raise Failed(
            f"a person handed these engines over, and leaving would end them: {', '.join(theirs)}",
            hints=(
                f"give them back first: gridops-agent release {theirs[0]} --keep-running",
                "or let them end: gridops-agent leave --force",
            ),
        )


async def _spare_the_last(config: Config, held: tuple[Held, ...], chain: RootChain) -> None:
    """Refuse when a profile would be left without a healthy replica, or when nobody can say."""
    here = sorted({h.profile for h in held if h.state is ResidencyState.READY})
    if not here:
        return
    controller = Controller.pinned(config.controller, chain.root.controller_tls)
    try:
        status = await controller.status()
    except (EdgeError, Refusal) as error:
        raise Unreachable(
            f"whether {', '.join(here)} is served elsewhere cannot be asked: {error.message}",
            hints=("leave when the controller answers, or insist: gridops-agent leave --force",),
        ) from error
    finally:
        await controller.close()
    alone = [profile for profile in here if not served_elsewhere(status, config.host, profile)]
    if alone:
        raise Refusal(
            codes.LAST_HERE.code,
            f"no other host is known to serve {', '.join(alone)}",
            hints=(
                f"let it be served elsewhere first: gridops host drain {config.host} --reason leaves",
                "or insist: gridops-agent leave --force",
            ),
        )


def served_elsewhere(status: Mapping[str, Any], host: str, profile: ProfileName) -> bool:
    """By the controller's status, another host that is heard and takes work holds a ready replica."""
    for row in status.get("hosts", ()):
        takes_work = row.get("host") != host and row.get("heard") is True
        if takes_work and row.get("state") in ("accepting", "throttled"):
            for residency in row.get("residencies", ()):
                if residency.get("profile") == profile and residency.get("state") == ResidencyState.READY:
                    return True
    return False


async def _until_idle(config: Config, drain_ms: int, since_ms: int, wishes: Wishes) -> None:
    """Let the running agent finish what it has taken. What it counts, it leaves in its note."""
    patience = drain_ms if wishes.patience_ms is None else wishes.patience_ms
    clock = SystemClock()
    end = clock.awake_ms() + patience + FOLLOWS_MS
    while is_running(config):
        count = _in_flight(config, since_ms + FOLLOWED_MS)
        if count == 0:
            return
        if clock.awake_ms() >= end:
            if wishes.force:
                return
            words = counted(count, "request") if count is not None else "it is not known how many requests are"
            raise Busy(
                f"{words} in flight after {render_ms(patience)}; nothing was cut, and no new ones are let in",
                hints=("call `gridops-agent leave` again, or with --force to cut them; `resume` takes it back",),
            )
        await asyncio.sleep(LOOK_S)


def _in_flight(config: Config, since_ms: int) -> int | None:
    """Of a note that is newer than the word, since it was followed."""
    try:
        note = json.loads(config.status.read_bytes())
        return sum(int(count) for count in note["in_flight"].values()) if note["at_ms"] >= since_ms else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


async def _empty(config: Config, wishes: Wishes) -> None:
    """End every engine, with this process as the agent, and tell the controller."""
    async with Agent(config, wishes.version) as agent:
        await agent.effects.leave()  # nothing is started again, fetched or waited for
        try:
            for held in sorted(agent.memory.host.held.values(), key=lambda h: (h.replica, h.body)):
                await _unload(agent, held, wishes)
        except Failed:
            with contextlib.suppress(GridopsError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await agent.talk.beat()  # what does not end is said where it is planned with, too
            raise
        for what, body in await agent.keepers.strangers(agent.hands.given()):
            raise Failed(f"{what} carries the command {body}, which this host does not know: it is left alone")
        try:
            async with asyncio.timeout(GOODBYE_S):
                await _say_goodbye(agent)
            wishes.tell("The controller was told goodbye.")
        except (GridopsError, TimeoutError) as error:
            words = error.message if isinstance(error, GridopsError) else "no answer"
            wishes.tell(f"The controller could not be told ({words}); it will see a silent host.")


async def _say_goodbye(agent: Agent) -> None:
    """Twice: the second brings the receipts that the first answer asked for, and is the last word."""
    agent.sleep.away = agent.sleep.for_good = True
    try:
        await agent.talk.beat()
    except Refusal as refusal:
        if refusal.code != BAD_SCHEMA.code:
            raise
        # A controller of before a goodbye could be for good takes one of the kind that it knows.
        agent.sleep.for_good = False
        await agent.talk.beat()
    await agent.talk.beat()


async def _unload(agent: Agent, held: Held, wishes: Wishes) -> None:
    """End one residency's engine as any unload does: proved gone, its memory back, and what is left remembered."""
    stops = agent.effects.stops
    if not wishes.force and held.handle is not None:
        work = await stops.told(held)
        if work:
            raise Busy(f"{held.replica}: {work}; nothing was cut", hints=("call it again, or with --force",))
    left = await stops.end_all(held.body, held, FORCE_STEPS if wishes.force else STOP_STEPS)
    if left.code == codes.GIVEN_BACK.code:
        wishes.tell(f"{held.replica} was given back to a person: it runs on.")
        return
    if left.code is not None:
        await agent.memory.take(Stuck(held.body, left.code, left.words))
        if not await agent.keepers.absent(held):
            raise Failed(
                f"{held.replica} does not end: {left.words}", hints=("look at it on the host, then call it again",)
            )
        if not wishes.force:
            words = "wait until it is back and call it again, or leave it: gridops-agent leave --force"
            raise Failed(f"{held.replica} has ended, and {left.words}", hints=(words,))
        wishes.tell(f"{held.replica} has ended; {left.words}.")
    await agent.memory.take(Departed(held.body))
    agent.doors.close(held.body)
    wishes.tell(f"{held.replica} is unloaded.")
