"""Leaving a fleet: nothing is left running, nothing is cut unasked, and whoever was interrupted goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gridops.base.errors import BadSetup, Busy, Failed, Refusal, Unreachable
from gridops.base.ids import ProfileName
from gridops.protocol.open import open_heartbeat
from gridops.trust.keys import parse_key
from gridops.trust.tls import TlsIdentity, self_signed
from gridops_agent.clock import SystemClock
from gridops_agent.config import write_config
from gridops_agent.core.protection import OverrideKind
from gridops_agent.hands import Hands
from gridops_agent.keep.base import Stopped
from gridops_agent.keep.child import ChildKeeper
from gridops_agent.ledger import Ledger
from gridops_agent.life import leave as leaving
from gridops_agent.life.install import Machine, install, place
from gridops_agent.life.leave import Wishes, leave, served_elsewhere
from gridops_agent.life.left import has_left
from gridops_agent.overrides import stands
from gridops_agent.releases import Releases
from gridops_agent.stops import Stops
from tests.agent.callers import lasting
from tests.agent.desk import Desk, listening
from tests.agent.service_manager import PROGRAM, ServiceManager, machine
from tests.agent.site import CLIENT_KEY, DAY, Site, command, receipt, until, wall_ms


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return self_signed(("127.0.0.1",), wall_ms() - DAY, 300)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "FOLLOWS_MS", 4_000)
    monkeypatch.setattr(leaving, "GOODBYE_S", 5.0)


class Earlier(Desk):
    """A controller of before a goodbye could be for good: it knows no such field."""

    async def beat(self, request: web.Request) -> web.Response:
        word = open_heartbeat((await request.json())["heartbeat"], parse_key(self.site.host_key))
        if word.inventory.left is not None:
            error = {"code": "bad_schema", "message": "Heartbeat.inventory.left: Unexpected keyword argument"}
            return web.json_response({"error": error}, status=403)
        return await super().beat(request)


async def test_a_controller_that_knows_no_leaving_hears_a_goodbye_all_the_same(
    site: Site, tls: TlsIdentity, leaver: Leaver
) -> None:
    async with listening(Earlier(site, tls, hosts=[other()])) as url:
        site.config = replace(site.config, controller=url)
        write_config(site.config)
        await leave(site.config, leaver.wishes())
        assert "The controller was told goodbye." in leaver.said


def other(state: str = "ready", **changes: object) -> dict[str, Any]:
    residency = {"profile": "tiny", "state": state}
    return {"host": "anvil", "heard": True, "state": "accepting", "residencies": [residency]} | changes


@asynccontextmanager
async def office(site: Site, tls: TlsIdentity) -> AsyncIterator[Desk]:
    """A controller that knows of another host which serves the same."""
    desk = Desk(site, tls, hosts=[other()])
    async with listening(desk) as url:
        site.config = replace(site.config, controller=url)
        write_config(site.config)
        yield desk


@dataclass
class Leaver:
    """A person who leaves, on a machine with services of its own."""

    machine: Machine
    said: list[str] = field(default_factory=list)

    def wishes(self, force: bool = False, patience_ms: int | None = 1_000) -> Wishes:
        return Wishes(force, "0.1.0", self.machine, self.said.append, patience_ms)


@pytest.fixture
def leaver(tmp_path: Path) -> Leaver:
    return Leaver(machine(tmp_path, ServiceManager()))


@pytest.fixture
def site(make_site: Callable[..., Site], tls: TlsIdentity) -> Site:
    return make_site(tls=tls)


async def with_engine(site: Site) -> None:
    async with site.agent() as agent:
        await receipt(agent, await command(agent, site, site.warm(launch=site.launch(context=32_768))))


def remembered(site: Site) -> Any:
    ledger = Ledger.look(site.config.ledger)
    try:
        return ledger.load("")
    finally:
        ledger.close()


async def test_a_host_that_leaves_leaves_nothing_running_and_says_so(
    site: Site, tls: TlsIdentity, leaver: Leaver
) -> None:
    await with_engine(site)
    where = place(site.config, leaver.machine)
    install(where, site.config, Path(PROGRAM), leaver.machine)
    async with office(site, tls) as desk:
        await leave(site.config, leaver.wishes())
        assert site.processes() == []
        assert remembered(site).held == {}
        last = desk.beats[-1]
        assert (last.inventory.goodbye, last.inventory.left, last.inventory.residencies) == (True, True, ())
        assert last.inventory.state == "draining"
        assert where.file is not None
        assert not where.file.exists()
        assert has_left(site.config) is not None
        told = "\n".join(leaver.said)
        assert "tiny/1 is unloaded." in told
        assert "`expunged: true` in fleet.d/keys/forge.yaml" in told
        before = len(desk.beats)
        await leave(site.config, leaver.wishes())
        assert leaver.said[-1] == "forge has left its fleet already."
        assert len(desk.beats) == before
    with pytest.raises(BadSetup, match="has left its fleet"):
        async with site.agent():
            pass


SITUATIONS: dict[str, list[dict[str, Any]]] = {
    "nobody else": [],
    "another profile": [other(residencies=[{"profile": "big", "state": "ready"}])],
    "it is still starting": [other("warming")],
    "it is not heard": [other(heard=False)],
    "it is paused": [other(state="paused")],
    "only this host": [other(host="forge")],
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_who_serves_elsewhere_is_who_is_heard_takes_work_and_is_ready(name: str) -> None:
    assert not served_elsewhere({"hosts": SITUATIONS[name]}, "forge", ProfileName("tiny"))
    assert served_elsewhere({"hosts": [*SITUATIONS[name], other()]}, "forge", ProfileName("tiny"))


async def test_the_last_healthy_replica_stays_unless_a_person_insists(
    site: Site, tls: TlsIdentity, leaver: Leaver
) -> None:
    await with_engine(site)
    (engine,) = site.processes()
    async with office(site, tls) as desk:
        desk.hosts = []
        with pytest.raises(Refusal, match="no other host is known to serve tiny") as caught:
            await leave(site.config, leaver.wishes())
        assert caught.value.code == "last_here"
        assert (site.processes(), leaver.said, has_left(site.config)) == ([engine], [], None)
        assert stands(site.config.override, None, SystemClock()) is None, "nothing was changed"
        await leave(site.config, leaver.wishes(force=True))
    assert site.processes() == []


async def test_a_controller_that_does_not_answer_is_no_yes(site: Site, leaver: Leaver) -> None:
    await with_engine(site)
    with pytest.raises(Unreachable, match="whether tiny is served elsewhere cannot be asked"):
        await leave(site.config, leaver.wishes())
    assert len(site.processes()) == 1
    await leave(site.config, leaver.wishes(force=True))
    assert site.processes() == []
    assert any("could not be told" in line for line in leaver.said)


async def test_work_in_flight_is_waited_for_and_not_cut(site: Site, tls: TlsIdentity, leaver: Leaver) -> None:
    """A real agent serves a long answer; the leave is refused while it lasts and goes through afterwards."""
    await with_engine(site)
    async with office(site, tls):
        async with site.agent() as agent:
            work = asyncio.ensure_future(agent.run())
            await until(lambda: agent.memory.host.last_word.keys != ())
            client = aiohttp.ClientSession()
            asked = lasting()
            auth = {"Authorization": f"Bearer {CLIENT_KEY}"}
            url = f"{agent.opened.endpoint}/v1/chat/completions"
            async with client.post(url, json=asked, headers=auth, ssl=False) as answer:
                assert answer.status == 200
                await answer.content.readany()
                with pytest.raises(Busy, match="1 request in flight"):
                    await leave(site.config, leaver.wishes(patience_ms=0))
                assert (await answer.content.readany()) != b"", "it was not cut"
            await client.close()
            assert len(site.processes()) == 1
            word = stands(site.config.override, None, SystemClock())
            assert word is not None
            assert (word.kind, word.reason) == (OverrideKind.DRAIN, leaving.REASON)
            with pytest.raises(Failed, match="an agent still runs"):
                await leave(site.config, leaver.wishes(patience_ms=30_000))
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(work, 60)
        await leave(site.config, leaver.wishes())
    assert site.processes() == []


async def test_an_engine_that_works_is_not_ended_unasked(
    site: Site, tls: TlsIdentity, leaver: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_engine(site)

    async def busy(*_: object) -> str:
        return "2 generations are running by the engine's own count"

    async with office(site, tls):
        with monkeypatch.context() as held:
            held.setattr(Stops, "in_flight", busy)
            with pytest.raises(Busy, match="tiny/1: 2 generations"):
                await leave(site.config, leaver.wishes())
        assert len(site.processes()) == 1
        await leave(site.config, leaver.wishes())
    assert site.processes() == []


async def test_what_does_not_end_is_remembered_and_told_and_the_leave_goes_on_later(
    site: Site, tls: TlsIdentity, leaver: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_engine(site)

    async def alive(*_: object) -> Stopped:
        return Stopped(False, "still alive after KILL: pid 7")

    async with office(site, tls) as desk:
        with monkeypatch.context() as held:
            held.setattr(ChildKeeper, "stop", alive)
            with pytest.raises(Failed, match="tiny/1 does not end: still alive after KILL: pid 7"):
                await leave(site.config, leaver.wishes(force=True))
        (stuck,) = remembered(site).held.values()
        assert (stuck.state, stuck.code) == ("failed", "release_stuck")
        assert (desk.beats[-1].inventory.residencies[0].state, desk.beats[-1].inventory.goodbye) == ("failed", False)
        assert has_left(site.config) is None
        await leave(site.config, leaver.wishes())
    assert (site.processes(), remembered(site).held) == ([], {})


async def test_memory_that_does_not_come_back_is_left_only_by_a_person_who_insists(
    site: Site, tls: TlsIdentity, leaver: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_engine(site)

    async def owed(*_: object) -> tuple[bool, str]:
        return False, "gpu0 did not give its memory back (1 GiB were held there); held by pid 9"

    monkeypatch.setattr(Releases, "after", owed)
    async with office(site, tls):
        with pytest.raises(Failed, match="tiny/1 has ended, and gpu0 did not give its memory back") as caught:
            await leave(site.config, leaver.wishes())
        assert "--force" in caught.value.hints[0]
        assert site.processes() == []
        await leave(site.config, leaver.wishes(force=True))
    assert any(line.startswith("tiny/1 has ended; gpu0 did not") for line in leaver.said)
    assert remembered(site).held == {}


async def test_an_engine_that_was_given_back_runs_on(
    site: Site, tls: TlsIdentity, leaver: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_engine(site)
    given = frozenset(remembered(site).held)
    monkeypatch.setattr(Hands, "given", lambda *_: given)
    async with office(site, tls):
        await leave(site.config, leaver.wishes(force=True))
    assert (len(site.processes()), remembered(site).held) == (1, {})
    assert "tiny/1 was given back to a person: it runs on." in leaver.said


async def test_an_engine_that_hangs_keeps_nobody_from_leaving(
    site: Site, tls: TlsIdentity, leaver: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridops_agent.engines.asking.PATIENCE", aiohttp.ClientTimeout(total=0.4))
    await with_engine(site)
    (engine,) = site.processes()
    os.kill(engine, signal.SIGSTOP)
    async with office(site, tls):
        await leave(site.config, leaver.wishes())
    assert site.processes() == []


async def test_a_leave_that_was_killed_anywhere_goes_on(
    make_site: Callable[..., Site], tls: TlsIdentity, tmp_path: Path
) -> None:
    """Killed before each of its durable steps: the next call ends what is left, and once."""
    steps = 0
    for at in range(1, 30):
        site = make_site(f"at-{at}", tls=tls)
        await with_engine(site)
        pid = os.fork()
        if pid == 0:
            dies(site, at, tmp_path)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        steps += 1
        left = Leaver(machine(tmp_path, ServiceManager()))
        async with office(site, tls):
            await leave(site.config, left.wishes(force=True))
        assert site.processes() == []
        assert remembered(site).held == {}
        assert has_left(site.config) is not None
    assert steps >= 3


def dies(site: Site, at: int, tmp_path: Path) -> None:
    count = 0
    write = Ledger._write

    def dying(self: Ledger, put: Any, gone: Any) -> None:
        nonlocal count
        count += bool(put or gone)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, put, gone)

    def before_the_note(*_: object) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    Ledger._write = dying  # type: ignore[method-assign]
    leaving.note_left = before_the_note
    code = 1
    try:
        asyncio.new_event_loop().run_until_complete(
            leave(site.config, Leaver(machine(tmp_path, ServiceManager())).wishes(force=True))
        )
        code = 0
    finally:
        os._exit(code)


async def test_an_engine_that_a_person_handed_over_is_not_ended_unasked(site: Site, leaver: Leaver) -> None:
    await with_engine(site)
    (held,) = remembered(site).held.values()
    theirs = replace(held, handle=replace(held.handle, taken=True))
    leaving._spare_what_was_handed_over((held,))
    with pytest.raises(Failed, match="leaving would end them: tiny/1") as caught:
        leaving._spare_what_was_handed_over((held, theirs))
    assert "release tiny/1 --keep-running" in caught.value.hints[0]


def test_a_note_from_before_the_word_was_followed_says_nothing(site: Site) -> None:
    for text, count in (('{"at_ms": 5, "in_flight": {"a": 2}}', None), ('{"at_ms": 9, "in_flight": {"a": 2}}', 2)):
        site.config.status.write_text(text)
        assert leaving._in_flight(site.config, 9) == count
    for broken in ("", "[]", '{"at_ms": 9}', '{"at_ms": 9, "in_flight": 3}'):
        site.config.status.write_text(broken)
        assert leaving._in_flight(site.config, 9) is None


ASKED = "Type the host's name (forge) to go on: "


def call_leave(site: Site, *more: str, typed: str | None = None) -> tuple[int, str]:
    """`gridops-agent leave` as its own process; with `typed` at a terminal, where a person types that."""
    argv = [sys.executable, "-m", "gridops_agent", "leave", "--state", str(site.config.state), *more]
    if typed is None:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{typed}\n".encode())
        done = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout + done.stderr


def test_leaving_asks_for_the_hosts_name_and_changes_nothing_without_it(site: Site) -> None:
    code, said = call_leave(site)
    assert code == 64
    assert "nobody can be asked here" in said
    assert "hint: say so: --yes" in said
    for typed in ("y", "anvil", ""):
        code, said = call_leave(site, typed=typed)
        assert code == 1, said
        assert ASKED in said
        assert "its engines end" in said
        assert "nothing was changed" in said
    assert has_left(site.config) is None
    assert not site.config.override.exists(), "it was not even drained"


def test_a_typed_name_or_yes_lets_it_go_and_who_has_left_is_not_asked(site: Site) -> None:
    code, said = call_leave(site, typed="forge")
    assert (code, ASKED in said) == (0, True), said
    assert has_left(site.config) is not None
    assert call_leave(site) == (0, "forge has left its fleet already.\n")


def test_yes_is_consent_and_no_force(site: Site) -> None:
    code, said = call_leave(site, "--yes")
    assert (code, ASKED in said) == (0, False), said
    assert "forge has left" in said
