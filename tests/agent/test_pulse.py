"""The watchdog is fed by loops that go round, and by nothing else: seen from the socket that systemd listens on."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridops_agent.life import pulse as pulses
from gridops_agent.life.pulse import Pulse
from gridops_agent.notify import notify, watchdog_s
from gridops_agent.shell import Agent
from tests.agent.site import Site, until


class Systemd:
    """The socket of a service manager, and everything that was said to it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self.said: list[str] = []

    def hear(self) -> list[str]:
        while True:
            try:
                self.said.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return self.said

    def fed(self) -> int:
        return self.hear().count("WATCHDOG=1")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    made = Systemd(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    yield made
    made.close()


async def running(agent: Agent, systemd: Systemd) -> asyncio.Task[None]:
    work = asyncio.ensure_future(agent.run())
    await until(lambda: "READY=1" in systemd.hear(), "READY")
    return work


async def test_a_service_says_that_it_is_ready_lives_and_stops(site: Site, systemd: Systemd) -> None:
    async with site.agent() as agent:
        assert systemd.hear() == [], "not before everything is adopted"
        work = await running(agent, systemd)
        await until(lambda: systemd.fed() >= 3, "the watchdog to be fed")
        await until(lambda: any(word.startswith("STATUS=") for word in systemd.hear()), "a word of status")
        os.kill(os.getpid(), 15)
        await asyncio.wait_for(work, 30)
        assert systemd.hear()[-1] == "STOPPING=1"


@pytest.mark.parametrize("dead", ["talk", "watch", "measure", "protection"])
async def test_one_loop_that_hangs_starves_the_watchdog(
    dead: str, site: Site, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulses, "PATIENCE_S", 1.0)
    monkeypatch.setattr("gridops_agent.shell.MEASURE_S", 0.1)
    monkeypatch.setattr("gridops_agent.core.pace.RETRY_MS", (100, 100))
    monkeypatch.setattr("gridops_agent.protect.TICK_S", 0.1)
    async with site.agent() as agent:
        work = await running(agent, systemd)
        await until(lambda: systemd.fed() >= 2)

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        victims: dict[str, tuple[object, str]] = {
            "talk": (agent.talk, "beat"),
            "watch": (agent.watch, "look"),
            "measure": (agent, "_measure"),
            "protection": (agent.protection, "tick"),
        }
        monkeypatch.setattr(*victims[dead], never)
        before, quiet_since = systemd.fed(), time.monotonic()
        end = time.monotonic() + 60
        while time.monotonic() - quiet_since < 1.5:
            assert time.monotonic() < end, "it is fed although one loop is dead"
            await asyncio.sleep(0.05)
            if systemd.fed() != before:
                before, quiet_since = systemd.fed(), time.monotonic()
        os.kill(os.getpid(), 15)
        await asyncio.wait_for(work, 30)


async def test_an_event_loop_that_hangs_feeds_nobody(systemd: Systemd) -> None:
    count = 0

    def mark() -> int:
        nonlocal count
        count += 1
        return count

    work = asyncio.ensure_future(Pulse({"any": mark}, time.monotonic).run())
    await until(lambda: systemd.fed() >= 2)
    before = systemd.fed()
    time.sleep(1)  # blocks the loop, as a fault would
    assert systemd.fed() == before
    await until(lambda: systemd.fed() > before)
    work.cancel()


def test_a_sleep_of_the_machine_is_no_hang() -> None:
    """The clock stands still in sleep, and a loop is late only by the time that it could have used."""
    now = 0.0
    rounds = 0
    pulse = Pulse({"talk": lambda: rounds}, lambda: now, patience_s=10.0)
    now = 10.0
    assert pulse.look() == ()
    now = 10.1
    assert pulse.look() == ("talk",)
    rounds = 1
    assert pulse.look() == ()


def test_nobody_listens_and_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    full = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    full.bind(str(tmp_path / "full"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "full"))
    begin = time.monotonic()
    for _ in range(2_000):  # more than a socket holds that nobody reads
        notify("WATCHDOG=1")
    assert time.monotonic() - begin < 10
    full.close()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdogs_time_is_for_the_process_it_names(
    environment: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert watchdog_s() == seconds
