"""The running agent: wires ledger, heart, engines, front and the talk with the controller, and keeps the loops going.

Starting up it looks for every engine it left behind, adopts what it can prove and starts no second one. Leaving it
stops nothing: engines serve on, and keep-alive goes on when it is back. Decides nothing by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections import Counter
from dataclasses import replace
from functools import partial

import aiohttp

from gridops.base.codes import host as codes
from gridops.base.codes.trust import AGENT_TOO_OLD
from gridops.base.errors import BadSetup, GridopsError
from gridops.base.ids import Digest, short
from gridops.disk.keyring import read_secret
from gridops.model.plan import Launch
from gridops.protocol import fresh
from gridops.trust.keys import MachineSigner
from gridops_agent import evidence, facts, rekeying, takeover
from gridops_agent.alarms import Alarms
from gridops_agent.artifacts.opening import open_artifacts, open_mirror, transfers
from gridops_agent.beats import Beats, SessionClock
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config
from gridops_agent.core.events import Found, Resumed, Woke
from gridops_agent.core.report import Readings
from gridops_agent.core.state import Held, Host
from gridops_agent.doors import Doors
from gridops_agent.effects import Effects, Listeners
from gridops_agent.engines import engines, services
from gridops_agent.front import Front
from gridops_agent.front_opening import open_front
from gridops_agent.front_outcomes import tell_withdrawn
from gridops_agent.front_silence import watch_silence
from gridops_agent.front_table import table_of
from gridops_agent.gauge import Gauge
from gridops_agent.hands import Hands
from gridops_agent.keep.base import Proof
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger, Unwritable
from gridops_agent.ledger_rows import Identity
from gridops_agent.life.left import has_left
from gridops_agent.life.pulse import Pulse
from gridops_agent.life.sleep import Habits, Sleep, is_guest, logind_ears
from gridops_agent.live_note import Live, write_live
from gridops_agent.loads import stored
from gridops_agent.measuring import Measuring
from gridops_agent.memory import Memory
from gridops_agent.mirrors import Mirrors
from gridops_agent.notify import notify
from gridops_agent.overrides import Overrides
from gridops_agent.platform import here
from gridops_agent.protect import Parts, Protection, Senses
from gridops_agent.releases import Releases
from gridops_agent.sensors.senses import CardSense, HostSense
from gridops_agent.statefolder import keep_roots, only_one, spare_roots
from gridops_agent.talk import Talk, Topics
from gridops_agent.tools import Tools
from gridops_agent.watch import Watch

LOG = logging.getLogger("gridops_agent")
MEASURE_S = 5.0


class Agent:
    """One agent on one state folder. Use it inside `async with`."""

    def __init__(self, config: Config, version: str, senses: Senses | None = None) -> None:
        self.config = config
        self._version = version
        self._clock = SystemClock()
        self._platform = here()
        self.keepers = keepers_of(config)
        self.cards = CardSense()
        self._sense = HostSense(self._platform, self.cards, config.cache, lambda: self._measuring.ours)
        self._senses = senses or self._sense.read
        self._stored: tuple[Digest, ...] = ()
        self.doors = Doors(config.engines)
        self._engines = engines(config.engine_command, config.runtime)
        self._services = services(config.ways.services)
        self.front = Front({service.name: service.abilities.api for service in self._services.values()})
        self.alarms = Alarms(lambda: self._clock.monotonic_ms() / 1000)
        self._rounds: Counter[str] = Counter()
        self._roots_kept = 0
        self._stack = contextlib.AsyncExitStack()
        self._loops: list[asyncio.Task[None]] = []

    # --- coming up and leaving ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Agent:
        self._stack.enter_context(only_one(self.config))
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _open(self) -> None:
        self._refuse()
        rekeying.settle(self.config)
        signer = MachineSigner.from_seed(read_secret(self.config.seed))
        former, doubt = rekeying.former_keys(self.config)
        if doubt is not None:
            self.alarms.warn(codes.EVIDENCE_DOUBTFUL.code, doubt, about=doubt)
        self._measured = evidence.reported(self.config.qualified, signer.public, self.alarms, *former)
        self._remember(signer)
        self._equip()
        self._protect()
        self._converse(signer)
        self._stack.push_async_callback(self.front.close)
        self.opened = await open_front(self.config, self._ledger, self.front)
        self.beats.front = (self.opened.endpoint, self.opened.pem)
        mirror = await open_mirror(self.config, self._artifacts)
        if mirror is not None:
            self._stack.push_async_callback(mirror.close)
        await self._resume()

    def _refuse(self) -> None:
        """Nothing starts on a host that has left, or with an engine that is set up wrongly."""
        if has_left(self.config) is not None:
            raise BadSetup("this host has left its fleet", hints=("join again, with a new token and another --state",))
        with contextlib.suppress(OSError):
            self.config.status.unlink(missing_ok=True)  # what an earlier run said is not what this one says
        for name, engine in self._engines.items():
            problem = engine.problem() if name not in self.config.ways.images else None
            if problem is not None:
                raise BadSetup(problem)

    def _remember(self, signer: MachineSigner) -> None:
        """The ledger, the host that it tells of, and controller time as that host last heard it."""
        identity = Identity(fleet=self.config.fleet, host=self.config.host, host_key=signer.public.text)
        self._ledger = Ledger.open(self.config.ledger, identity, spare_roots(self.config), self._clock.wall_ms())
        self._stack.callback(self._ledger.close)
        host = replace(self._ledger.load(secrets.token_hex(8)), version=self._version)
        word = host.last_word
        session = fresh.begin(host.fence.fleet, host.fence.host, host.boot, floor_ms=word.floor_ms, epoch=word.epoch)
        self.hours = SessionClock(session, self._clock)
        self.memory = Memory(self._ledger, host, self.hours.now_ms, self._changed)
        self._stack.push_async_callback(self.memory.settled)

    def _equip(self) -> None:
        """What commands are carried out with, the watch over what runs, and the measuring of what it holds."""
        self._http = aiohttp.ClientSession(trust_env=False)
        self._stack.push_async_callback(self._http.close)
        self._artifacts = open_artifacts(self.config, self._ledger, lambda: self.memory.host)
        self._stack.push_async_callback(self.keepers.close)
        self.keepers.know(self._launch_of)
        releases = Releases(self.memory, self.cards.look, self._platform, self.keepers.processes_of)
        self.hands = Hands(self.config, self.memory, self.keepers, self._platform)
        self.hands.on_file()  # one that cannot be read is no empty one
        tools = self.tools = Tools(
            keepers=self.keepers,
            engines=self._engines,
            services=self._services,
            artifacts=self._artifacts,
            doors=self.doors,
            front=self.front,
            http=self._http,
            ports=self.config.ports,
            releases=releases,
            hands=self.hands,
            measure=self._measure,
        )
        self.effects = Effects(self.memory, tools, Listeners(self.alarms.warn, lambda: self.talk.soon()))
        self.watch = Watch(self.memory, tools, self.effects, self.alarms.warn)
        hours, clock, look = self.hours, self._clock, self.cards.look
        gauge = Gauge(self._platform, self.config.share, look, lambda: (hours.now_ms(), clock.monotonic_ms()))
        self._measuring = Measuring(gauge, self.memory, self.keepers, releases, self.alarms)

    def _protect(self) -> None:
        parts = Parts(
            memory=self.memory,
            effects=self.effects,
            front=self.front,
            alarms=self.alarms,
            overrides=Overrides(self.config.override, self._ledger, self._clock),
            senses=self._senses,
            boottime_ms=self._clock.boottime_ms,
            show=self._write_status,
        )
        self.protection = Protection(parts)

    def _converse(self, signer: MachineSigner) -> None:
        """The talk with the controller, and the goodbye before a sleep."""
        self.beats = Beats(self.memory, self.hours, signer, self.effects, self.config.controller)
        self.beats.successor = partial(rekeying.next_signer, self.config)
        self.beats.promote = partial(rekeying.promote, self.config)
        self._stack.push_async_callback(self.beats.close)
        self.mirrors = Mirrors(self.memory, self.effects)
        topics = Topics(self._version, self._readings, lambda: self.sleep.away, self.alarms, self._talked)
        self.talk = Talk(self.beats, self._clock, topics)
        habits = Habits(lambda: is_guest(self.memory.host), self.talk.say_away, self._slept, logind_ears)
        self.sleep = Sleep(self._clock, habits)

    async def _resume(self) -> None:
        damage = self._ledger.damage
        if damage is not None:
            self.beats.deaf = True
            self.alarms.warn(codes.LEDGER_DAMAGED.code, f"{damage.why}; set aside as {damage.aside}")
            self.protection.faults = (f"{codes.LEDGER_DAMAGED.code}: {damage.why}",)
        with contextlib.suppress(Unwritable):
            await self._measure()
        with contextlib.suppress(Unwritable):
            await self.protection.tick()  # before anybody is let in, and before anything is started again
        self._changed(self.memory.host)  # what is ready serves on, whatever comes next
        with contextlib.suppress(GridopsError):
            await asyncio.to_thread(takeover.renew, self.config)
        found = {body: await self._look_for(held) for body, held in self.memory.host.held.items()}
        await self.effects.tell(Resumed(found))

    async def _look_for(self, held: Held) -> Found:
        """What is left of a residency after the agent was away."""
        handle = held.handle
        if handle is None and held.port is not None:
            # It may have been spawned in the very moment before its handle could be recorded: the cookie finds it.
            handle = await self.keepers.recover(held, self.doors.folder(held.body) / "engine.key")
        if handle is None:
            return Found(gone=True)
        proof = await self.keepers.judge(held.body, handle)
        if proof is Proof.NOT_OURS:
            return Found(gone=False, detail=self.keepers.doubt(handle))
        return Found(gone=proof is Proof.GONE, handle=handle if proof is Proof.OURS else None)

    async def __aexit__(self, *_: object) -> None:
        """Leave every engine running. Streams in flight get a few seconds to end."""
        self.front.fence()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self.effects.leave()
        self._write_status()
        await self._stack.aclose()

    # --- loops ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        leave = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                asyncio.get_running_loop().add_signal_handler(number, leave.set)
        marks = {name: (lambda name=name: self._rounds[name]) for name in ("talk", "watch", "measure")}
        pulse = Pulse({**marks, "protection": lambda: self.protection.sample}, lambda: self._clock.awake_ms() / 1000)
        went = self._went_round
        works = (
            self.talk.run(partial(went, "talk")),
            self.watch.run(partial(went, "watch")),
            self._measure_on(),
            self.mirrors.run(),
            self.protection.run(),
            self.sleep.run(),
            watch_silence(self.tools, self.alarms.warn),
            pulse.run(),
        )
        self._loops = [asyncio.ensure_future(work) for work in works]
        notify("READY=1")
        LOG.info("%s is up, front %s", self.config.host, self.opened.endpoint)
        waiting = asyncio.ensure_future(leave.wait())
        await asyncio.wait((waiting, *self._loops), return_when=asyncio.FIRST_COMPLETED)
        notify("STOPPING=1")
        await self.sleep.goodbye()
        waiting.cancel()
        for ended in self._loops:
            if ended.done():
                ended.result()

    async def once(self) -> str:
        """One talk with the controller, everything it asks for carried out, and the receipts delivered."""
        self._loops = [asyncio.ensure_future(work) for work in (self.watch.run(), self.protection.run())]
        await self.talk.beat()
        await self.effects.settled()
        await self.talk.beat()
        return self.talk.word

    def _went_round(self, loop: str) -> None:
        self._rounds[loop] += 1

    async def _slept(self, slept_ms: int) -> None:
        await self.beats.renew()
        await self.effects.tell(Woke(slept_ms))

    async def _measure_on(self) -> None:
        while True:
            await asyncio.sleep(MEASURE_S)
            self._went_round("measure")
            with contextlib.suppress(GridopsError):
                await self._measure()
                if await self.hands.look(self._http):
                    self._changed(self.memory.host)
            self._write_status()
            with contextlib.suppress(Unwritable):
                await self._try_ledger()

    async def _try_ledger(self) -> None:
        """A host that has nothing new to remember would never find out that it can again."""
        if not self._ledger.writable:
            await asyncio.to_thread(self._ledger.keep_note, "tried_ms", str(self._clock.wall_ms()))

    async def _measure(self) -> None:
        self._stored = await stored(self._services, self._http)
        self.doors.tidy(self.memory.host.held)
        await self._measuring.turn(self.effects)
        await self.hands.give_back(self.effects.handled, self.effects.tell_once)
        for what, body in await self.keepers.strangers(frozenset(self.memory.host.held) | self.hands.given()):
            text = f"{what} carries the command {short(body)}, which nobody remembers"
            self.alarms.warn(codes.STRAY_PROCESS.code, text, about=what)

    # --- what others see ------------------------------------------------------------------------------------------

    def _changed(self, host: Host) -> None:
        """A new memory, written: the front goes by it at once."""
        self.front.table = table_of(host, self.doors, self.hands, self.alarms)
        self.front.outcomes.keep(frozenset(route.body for route in self.front.table.routes))
        if len(host.roots) != self._roots_kept:
            with contextlib.suppress(GridopsError):
                keep_roots(self.config, host.roots)
                self._roots_kept = len(host.roots)

    def _launch_of(self, body: Digest) -> Launch | None:
        held = self.memory.host.held.get(body)
        return held.warm.launch if held is not None else None

    def _readings(self) -> Readings:
        if self._ledger.writable:
            self.alarms.over(codes.LEDGER_UNWRITABLE.code)
        tell_withdrawn(self.front.outcomes, self.memory.host, self.alarms)
        self._tell_outdated()
        return Readings(
            runtimes=self.keepers.runtimes(self._engines),
            cached=tuple(sorted({*self._artifacts.cached(), *self._stored})),
            external=self.hands.external(),
            transfers=transfers(self._artifacts),
            disk_free_bytes=facts.disk_free_bytes(self.config.cache),
            endpoint=self.opened.endpoint,
            front_cert=self.opened.certificate,
            in_flight=dict(self.front.in_flight),
            alarms=self.alarms.now(),
            measured=self._measured,
            unread=(*self._measuring.why, *self._sense.why),
            goodbye=self.sleep.away,
            left=self.sleep.for_good,
        )

    def _tell_outdated(self) -> None:
        """An agent that its root lets nobody drive says so without being commanded anything."""
        host = self.memory.host
        outdated = host.chain.outdated(host.version)
        if outdated is None:
            self.alarms.over(AGENT_TOO_OLD.code)
        else:
            self.alarms.warn(AGENT_TOO_OLD.code, f"{outdated}; serving goes on, change waits")

    def _talked(self, word: str) -> None:
        self._write_status()
        notify(f"STATUS={self.memory.host.state}, controller {word}"[:200])

    def _write_status(self) -> None:
        word = "stale" if self.talk.word == "fresh" and not self.hours.fresh() else self.talk.word
        live = Live(os.getpid(), self._clock.wall_ms(), self.talk.heard_ms, word, self._readings())
        write_live(self.config.status, self.memory.host, live, self.protection.readouts.rows())
