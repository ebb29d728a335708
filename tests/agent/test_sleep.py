"""A machine that sleeps: the goodbye before it, the finding out after it, and what becomes of engines and loads."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gridops.base.errors import Failed
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.model.policy import protection_default
from gridops.model.profile import Restart
from gridops.model.snapshot import ResidencyState
from gridops.protocol import fresh
from gridops.protocol.messages import Outcome
from gridops.trust.tls import TlsIdentity, self_signed
from gridops_agent.clock import SystemClock
from gridops_agent.core.events import AwaitListed, BeatSoon, Died, Listed, RetryDue, StartAgain, Woke
from gridops_agent.core.state import Held
from gridops_agent.core.waking import APART_MS, EXCUSE_MS
from gridops_agent.life import sleep as sleeping
from gridops_agent.life.sleep import Announcements, Habits, Sleep, logind_ears
from gridops_agent.shell import Agent
from gridops_agent.supervise import listen
from tests.agent.desk import Desk, listening
from tests.agent.site import DAY, Site, command, hear, held_of, pid_of, receipt, until, wall_ms
from tests.agent.story import HANDLE, Story

HOUR = 3_600_000


@dataclass
class Clocks(SystemClock):
    """The machine's clocks, and a sleep that a test can put in."""

    slept_ms: int = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.slept_ms

    def boottime_ms(self) -> int:
        return super().boottime_ms() + self.slept_ms


# --- finding out --------------------------------------------------------------------------------------------------


@dataclass
class Diary:
    """What a sleep had done."""

    guest: bool = True
    said: list[bool] = field(default_factory=list)
    woke: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    held: bool = False
    answers: bool = True
    sleep: Sleep = field(init=False)

    def begin(self, clock: SystemClock) -> Sleep:
        self.sleep = Sleep(clock, Habits(lambda: self.guest, self._say, self._woke, self._ears))
        return self.sleep

    async def _say(self) -> None:
        if not self.answers:
            await asyncio.Event().wait()
        self.said.append(self.sleep.away)

    async def _woke(self, slept_ms: int) -> None:
        self.woke.append(slept_ms)

    async def _ears(self) -> AsyncIterator[str]:
        self.held = True
        try:
            for line in self.lines:
                yield line
            await asyncio.Event().wait()
        finally:
            self.held = False


async def test_a_sleep_is_seen_by_the_clock_that_stood_still() -> None:
    clock, diary = Clocks(), Diary()
    sleep = diary.begin(clock)
    assert await sleep.look() == 0
    clock.slept_ms += 1_500
    assert await sleep.look() == 0, "a busy machine is not asleep"
    clock.slept_ms += HOUR
    assert abs(await sleep.look() - HOUR) < 1_000
    assert await sleep.look() == 0, "once"
    assert len(diary.woke) == 1


def test_controller_time_goes_on_in_sleep() -> None:
    """Else a host would take for fresh what its controller said before the machine slept."""
    clock = Clocks()
    before, awake = clock.monotonic_ms(), clock.awake_ms()
    clock.slept_ms += HOUR
    assert clock.monotonic_ms() - before >= HOUR
    assert clock.awake_ms() - awake < 60_000


# --- the goodbye --------------------------------------------------------------------------------------------------

GDBUS = """\
Monitoring signals on object /org/freedesktop/login1 owned by org.freedesktop.login1
The name org.freedesktop.login1 is owned by :1.7
/org/freedesktop/login1: org.freedesktop.login1.Manager.SessionNew ('4', objectpath '/org/freedesktop')
/org/freedesktop/login1: org.freedesktop.login1.Manager.PrepareForSleep (true,)
/org/freedesktop/login1: org.freedesktop.login1.Manager.PrepareForSleep (false,)
"""
DBUS_MONITOR = """\
signal time=1796000000.1 sender=org.freedesktop.DBus -> destination=:1.91 serial=4 path=/org/freedesktop/DBus; \
interface=org.freedesktop.DBus; member=NameAcquired
   string ":1.91"
signal time=1796000001.2 sender=:1.7 -> destination=(null destination) serial=612 path=/org/freedesktop/login1; \
interface=org.freedesktop.login1.Manager; member=PrepareForSleep
   boolean true
signal time=1796000009.3 sender=:1.7 -> destination=(null destination) serial=613 path=/org/freedesktop/login1; \
interface=org.freedesktop.login1.Manager; member=PrepareForSleep
   boolean false
"""


@pytest.mark.parametrize(("text", "at"), [(GDBUS, [3]), (DBUS_MONITOR, [3])])
def test_one_line_tells_that_the_machine_is_about_to_sleep(text: str, at: list[int]) -> None:
    told = Announcements()
    assert [n for n, line in enumerate(text.splitlines()) if told.read(line)] == at


@contextmanager
def bus(tmp_path: Path) -> Iterator[str]:
    """A message bus of our own; yields its address."""
    argv = ["dbus-daemon", "--session", "--nofork", "--print-address", f"--address=unix:path={tmp_path}/bus"]
    daemon = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert daemon.stdout is not None
        yield daemon.stdout.readline().strip()
    finally:
        daemon.terminate()
        daemon.wait()


if shutil.which("dbus-daemon") and shutil.which("dbus-monitor") and shutil.which("dbus-send"):

    async def test_a_real_bus_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with bus(tmp_path) as address:
            monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
            told, ready, heard = Announcements(), asyncio.Event(), asyncio.Event()

            async def listens() -> None:
                lines = listen(sleeping._DBUS)
                try:
                    async for line in lines:
                        ready.set()
                        if told.read(line):
                            heard.set()
                            return
                finally:
                    await lines.aclose()

            work = asyncio.ensure_future(listens())
            await asyncio.wait_for(ready.wait(), 60)
            signal = ("org.freedesktop.login1.Manager.PrepareForSleep", "boolean:true")
            argv = ["dbus-send", f"--bus={address}", "--type=signal", sleeping._LOGIN[1], *signal]
            # Who sends may be cut off before his word is out, and says so; what is looked at is that it is heard.
            for _ in range(20):
                await asyncio.to_thread(subprocess.run, argv, timeout=60)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(work), 3)
                    break
            await asyncio.wait_for(work, 60)
            assert heard.is_set()


async def test_a_guest_says_goodbye_before_the_machine_may_sleep() -> None:
    clock, diary = Clocks(), Diary(lines=["nothing", GDBUS.splitlines()[3]])
    work = asyncio.ensure_future(diary.begin(clock).run())
    await until(lambda: diary.said == [True])
    await until(lambda: not diary.held, "the lock to be given back")
    assert diary.sleep.away
    diary.lines = []
    clock.slept_ms += HOUR
    await until(lambda: bool(diary.woke))
    assert not diary.sleep.away
    await until(lambda: diary.held, "to listen again")
    work.cancel()


async def test_a_sleep_that_does_not_come_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "ABORTED_S", 0.2)
    diary = Diary(lines=[GDBUS.splitlines()[3]])
    work = asyncio.ensure_future(diary.begin(Clocks()).run())
    await until(lambda: diary.said[:2] == [True, False])
    assert diary.woke == []
    work.cancel()


async def test_nobody_waits_long_for_a_goodbye_and_a_server_says_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "GOODBYE_S", 0.1)
    silent = Diary(answers=False)
    await asyncio.wait_for(silent.begin(Clocks()).goodbye(), 10)
    assert silent.sleep.away
    server = Diary(guest=False)
    await server.begin(Clocks()).goodbye()
    assert (server.said, server.sleep.away) == ([], False)


async def test_a_system_without_logind_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "has_systemd", lambda: False)
    with pytest.raises(Failed, match="no logind"):
        async for _ in logind_ears():
            pass


async def test_a_stopped_laptop_is_away_and_a_stopped_server_is_silent(
    make_site: Callable[..., Site], tls: Any
) -> None:
    for name, host_class in (("laptop", "opportunistic"), ("server", "dedicated")):
        site = make_site(name, tls=tls)
        desk = Desk(site, tls, changes={"protection": protection_default(host_class)})
        async with listening(desk) as url:
            site.config = replace(site.config, controller=url)
            async with site.agent() as agent:
                work = asyncio.ensure_future(agent.run())
                await until(lambda agent=agent: agent.memory.host.last_word.protection is not None)
                os.kill(os.getpid(), 15)
                await asyncio.wait_for(work, 60)
        goodbyes = [beat.inventory.goodbye for beat in desk.beats]
        assert goodbyes[-1] is (name == "laptop")
        assert not any(goodbyes[:-1])


@dataclass
class SlowDesk(Desk):
    """A controller that takes its time with one answer."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def beat(self, request: web.Request) -> web.Response:
        self.asked.set()
        await self.answers.wait()
        return await super().beat(request)


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return self_signed(("127.0.0.1",), wall_ms() - DAY, 300)


# --- after it -----------------------------------------------------------------------------------------------------


def held(story: Story, body: Digest) -> Held:
    return story.host.held[body]


def test_what_was_ready_is_asked_again_before_it_serves() -> None:
    story = Story()
    body = story.ready()
    effects = story.tell(Woke(HOUR), after_ms=HOUR)
    assert AwaitListed(body) in effects
    assert BeatSoon() in effects
    assert held(story, body).state is ResidencyState.WARMING
    assert "asked again after the machine slept" in (held(story, body).detail or "")
    story.tell(Listed(body, HANDLE))
    assert held(story, body).state is ResidencyState.READY
    assert held(story, body).restarts == 0


def test_a_restart_that_the_sleep_caused_costs_nothing_and_only_one_does() -> None:
    story = Story()
    body = story.ready(restart=Restart(max=1, per_ms=HOUR, backoff_ms=1_000))
    story.tell(Woke(HOUR), after_ms=HOUR)
    story.tell(Died(body, "lost its card"))
    assert StartAgain(body) in story.tell(RetryDue(body), after_ms=1_000)
    assert held(story, body).recent_ms == ()
    story.tell(Died(body, "again"))
    assert StartAgain(body) in story.tell(RetryDue(body), after_ms=1_000)
    assert len(held(story, body).recent_ms) == 1
    story.tell(Died(body, "and again"))
    assert held(story, body).state is ResidencyState.FAILED, "its policy allows one"


def test_the_excuse_runs_out_and_no_policy_is_no_policy() -> None:
    late = Story()
    body = late.ready(restart=Restart(max=1, per_ms=HOUR, backoff_ms=1_000))
    late.tell(Woke(HOUR), after_ms=HOUR)
    late.tell(Died(body, "much later"), after_ms=EXCUSE_MS + 1)
    late.tell(RetryDue(body), after_ms=1_000)
    assert len(held(late, body).recent_ms) == 1
    never = Story()
    body = never.ready(restart=Restart(max=0, per_ms=HOUR, backoff_ms=1_000))
    never.tell(Woke(HOUR), after_ms=HOUR)
    never.tell(Died(body, "gone"))
    assert held(never, body).state is ResidencyState.FAILED


def test_pauses_that_ran_out_in_sleep_do_not_end_in_one_moment() -> None:
    story = Story()
    patient = Restart(max=3, per_ms=10 * HOUR, backoff_ms=60_000)
    bodies = [story.ready(restart=patient, device_bytes=100) for _ in range(3)]
    for body in bodies:
        story.tell(Died(body, "out of memory"))
    story.tell(Woke(HOUR), after_ms=HOUR)
    due = sorted((held(story, body).retry_at_ms or 0) - story.now for body in bodies)
    assert due == [APART_MS, 2 * APART_MS, 3 * APART_MS]
    assert story.tell(RetryDue(bodies[0])) in ((), (StartAgain(bodies[0]),))


async def test_a_laptop_that_sleeps_while_it_asks_asks_anew(make_site: Callable[..., Site], tls: Any) -> None:
    """The answer to what was asked before the sleep counts for nothing, and nobody waits for it."""
    site = make_site(tls=tls)
    desk = SlowDesk(site, tls)
    async with listening(desk) as url:
        site.config = replace(site.config, controller=url)
        async with site.agent() as agent:
            desk.answers.set()
            await agent.talk.beat()
            first = agent.hours.session
            desk.answers.clear()
            desk.asked.clear()
            talk = asyncio.ensure_future(agent.talk.attempt())
            await asyncio.wait_for(desk.asked.wait(), 30)
            await agent._slept(HOUR)
            assert (await asyncio.wait_for(talk, 30)).failures == 1
            assert "slept while it asked" in agent.talk.word
            assert agent.hours.session.nonce is None
            desk.answers.set()
            await agent.talk.beat()
            assert agent.hours.session.hseq == first.hseq + 2
            assert fresh.is_fresh(agent.hours.session, agent._clock.monotonic_ms())


async def test_an_engine_lives_through_a_sleep_with_its_process(site: Site) -> None:
    async with site.agent() as agent:
        body = await warmed(agent, site)
        pid = pid_of(agent, body)
        watch = asyncio.ensure_future(agent.watch.run())
        await agent._slept(HOUR)
        assert held_of(agent, body).state in (ResidencyState.WARMING, ResidencyState.READY)
        await until(lambda: held_of(agent, body).state is ResidencyState.READY)
        assert (pid_of(agent, body), held_of(agent, body).restarts) == (pid, 0)
        watch.cancel()


async def test_a_load_that_was_half_done_goes_on_after_the_sleep(site: Site) -> None:
    """The command is open before and after, is not run twice, and has one receipt."""
    async with site.agent() as agent:
        body = site.body(site.load())
        gate = asyncio.Event()
        obtain = agent.effects._tools.artifacts.away

        async def slow(*args: Any) -> Any:
            await gate.wait()
            return await obtain(*args)

        agent.effects._tools.artifacts.away = slow  # type: ignore[method-assign]
        await hear(agent, site, site.grant(body))
        digest = digest_of(body)
        await until(lambda: agent.memory.host.commands[digest].began_ms is not None)
        await agent._slept(HOUR)
        await hear(agent, site, site.grant(body))
        gate.set()
        assert (await receipt(agent, digest)).outcome is Outcome.SUCCEEDED
        assert len(agent.memory.host.receipts.kept) == 1


async def warmed(agent: Agent, site: Site) -> Any:
    body = await command(agent, site, site.warm())
    assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
    return body
