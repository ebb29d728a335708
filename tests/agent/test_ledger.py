"""The ledger: what was written comes back, what was not written is never believed, and damage is never emptiness."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import BadSetup, Failed
from gridops.model.snapshot import HostState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import Measured
from gridops_agent.core.state import Host
from gridops_agent.ledger import Ledger, Unwritable
from gridops_agent.statefolder import spare_roots
from gridops_agent.status import status
from gridops_agent.status_lines import render
from tests.agent.site import Site, command, done, hear, pid_of, receipt, until


def reopened(site: Site) -> Host:
    ledger = Ledger.open(site.config.ledger, site.identity, spare_roots(site.config), 1)
    try:
        assert ledger.damage is None
        return ledger.load("again")
    finally:
        ledger.close()


async def test_everything_durable_comes_back_as_it_was(site: Site) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        await done(agent, site, site.load(artifact=site.artifact(source="oci://x")))
        await done(agent, site, site.drain(warmed))
        before = agent.memory.host
    after = reopened(site)
    for name in ("roots", "fence", "receipts", "last_word", "brake", "commands", "held", "counts"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.chain.fleet == before.chain.fleet
    assert site.config.ledger.stat().st_mode & 0o777 == 0o600


async def test_a_step_that_cannot_be_written_changes_nothing_and_starts_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.agent() as agent:
        before = agent.memory.host
        full = True
        write = Ledger._transact

        def on_full_disk(self: Ledger, *rows: object) -> None:
            if full:
                raise sqlite3.OperationalError("database or disk is full")
            write(self, *rows)  # type: ignore[arg-type]

        monkeypatch.setattr(Ledger, "_transact", on_full_disk)
        monkeypatch.setattr("gridops_agent.effects.LEDGER_RETRY_S", 0.05)
        with pytest.raises(Unwritable):
            await agent.memory.take(Measured(()))
        assert agent.memory.host is before
        telling = asyncio.ensure_future(hear(agent, site, site.grant(site.body(site.warm()))))
        await until(lambda: any(a.startswith("ledger_unwritable") for a in agent.alarms.now()), "an alarm")
        assert agent.memory.host.commands == {}
        assert site.processes() == []
        assert status(site.config, True)["last_command"] == 0, "status still answers"
        full = False
        await telling
        (body,) = agent.memory.host.commands
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED


async def test_a_process_whose_handle_cannot_be_recorded_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.agent() as agent:
        write = Ledger._transact

        def lose_handles(self: Ledger, put: dict[tuple[str, str], object], gone: object) -> None:
            if any(getattr(row, "handle", None) is not None for row in put.values()):
                raise sqlite3.OperationalError("database or disk is full")
            write(self, put, gone)  # type: ignore[arg-type]

        monkeypatch.setattr(Ledger, "_transact", lose_handles)
        answer = await done(agent, site, site.warm())
        assert (answer.outcome, answer.code) == (Outcome.FAILED, "start_failed")
        assert "disk is full" in (answer.detail or "")
        assert site.processes() == []


async def test_an_engine_that_died_while_nothing_could_be_recorded_is_shown_as_gone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        (row,) = status(site.config, True)["residencies"]
        assert (row["state"], row["recorded"], row["pid"]) == ("ready", "ready", pid_of(agent, warmed))
        os.kill(pid_of(agent, warmed), signal.SIGKILL)

        def on_full_disk(self: Ledger, *rows: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as full:
            full.setattr(Ledger, "_transact", on_full_disk)
            full.setattr("gridops_agent.watch.FAULT_S", 0.05)
            watch = asyncio.ensure_future(agent.watch.run())
            await until(lambda: bool(agent.alarms.now()), "an alarm")
            (alarm,) = agent.alarms.now()
            assert alarm.startswith("ledger_unwritable: tiny/1 is dead (pid")
            assert f"the ledger in {site.state} cannot be written" in alarm
            seen = status(site.config, True)
            (row,) = seen["residencies"]
            assert (row["state"], row["recorded"], row["pid"]) == ("gone", "ready", None)
            assert "tiny/1  gone (recorded as ready)  no process" in render(seen, 0)
        await until(lambda: agent.memory.host.held[warmed].restarts == 1, "keep-alive")
        assert agent._readings().alarms == (), "what can be written again is no alarm any more"
        watch.cancel()


async def test_a_state_folder_without_room_is_named_with_what_is_free_and_what_to_do(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.agent() as agent:
        agent._write_status()
        assert status(site.config, True)["alarms"] == []

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9 - 4_096, 4_096))
        agent._write_status()
        assert not site.config.status.exists(), "what it said before is not true now"
        seen = status(site.config, True)
        (alarm,) = seen["alarms"]
        assert alarm.startswith(
            f"ledger_unwritable: {site.state} cannot be written: No space left on device, 4 KiB are"
        )
        assert f"(df -h {site.state})" in alarm
        assert (seen["state_folder"], seen["state_free_bytes"]) == (str(site.state), 4_096)
        assert "controller not told: it could leave no note in its state folder" in render(seen, 0)
    assert sorted(site.state.glob(".*tmp*")) == []


async def test_what_an_earlier_run_said_is_not_shown_as_this_ones(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.agent():
        pass
    assert site.config.status.exists()
    async with site.agent():
        assert status(site.config, True)["endpoint"] is None, "this run has not said its address yet"


def test_a_ledger_is_closed_only_when_no_thread_writes_any_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite frees its memory when it closes: a writer in another thread would end the whole process."""
    ledger = Ledger.open(site.config.ledger, site.identity, (), 1)
    write, began, go_on = Ledger._transact, threading.Event(), threading.Event()

    def slow(self: Ledger, *rows: Any) -> None:
        began.set()
        assert go_on.wait(30)
        write(self, *rows)

    monkeypatch.setattr(Ledger, "_transact", slow)
    writing = threading.Thread(target=ledger.keep_note, args=("a", "kept"))
    writing.start()
    assert began.wait(30)
    closing = threading.Thread(target=ledger.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive(), "closed under the hands of a writer"
    go_on.set()
    writing.join()
    closing.join()
    with pytest.raises(Unwritable, match="closed"):
        ledger.keep_note("a", "too late")
    again = Ledger.open(site.config.ledger, site.identity, (), 1)
    assert again.note("a") == "kept"
    again.close()


async def test_an_agent_that_leaves_in_the_middle_of_a_step_lets_it_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, began, go_on = Ledger._transact, threading.Event(), threading.Event()

    def slow(self: Ledger, *rows: Any) -> None:
        began.set()
        assert go_on.wait(30)
        write(self, *rows)

    async with site.agent() as agent:
        monkeypatch.setattr(Ledger, "_transact", slow)
        hearing = asyncio.ensure_future(hear(agent, site, site.grant(site.body(site.load()))))
        await until(began.is_set)
        hearing.cancel()
        asyncio.get_running_loop().call_later(0.2, go_on.set)
    assert go_on.is_set(), "it left before the step was over"
    assert reopened(site).fence.head.seq == 1, "what had begun is durable"


DAMAGES: dict[str, Callable[[bytearray], bytes]] = {
    "empty": lambda raw: b"",
    "cut": lambda raw: bytes(raw[: len(raw) // 2]),
    "noise": lambda raw: os.urandom(len(raw)),
    "zeroes": lambda raw: bytes(len(raw)),
    "no header": lambda raw: b"\0" * 100 + bytes(raw[100:]),
}


def closed(path: Path) -> None:
    """Bring everything into the one file, as after a clean end."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.mark.parametrize("damage", sorted(DAMAGES))
async def test_a_damaged_ledger_is_set_aside_and_the_host_comes_up_refusing_and_saying_so(
    site: Site, damage: str
) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        pid = pid_of(agent, warmed)
    closed(site.config.ledger)
    site.config.ledger.write_bytes(DAMAGES[damage](bytearray(site.config.ledger.read_bytes())))
    for _ in range(2):  # also after a second restart
        async with site.agent() as agent:
            assert agent.memory.host.state is HostState.UNHEALTHY
            assert agent.beats.deaf
            assert agent.memory.host.held == {}
            alarms = agent.alarms.now()
            assert any(a.startswith("ledger_damaged: ") and "set aside as" in a for a in alarms)
            assert any(a.startswith("stray_process: ") and f"pid {pid}" in a for a in alarms)
            assert site.processes() == [pid], "engines are left alone"
            assert status(site.config, True)["alarms"]
    aside = list(site.state.glob("ledger.sqlite.damaged-*"))
    assert [p for p in aside if not p.name.endswith((".why", "-wal", "-shm"))]


async def test_every_flipped_bit_of_a_row_is_noticed_or_harmless(site: Site) -> None:
    async with site.agent() as agent:
        await done(agent, site, site.load())
        before = agent.memory.host
    closed(site.config.ledger)
    raw = site.config.ledger.read_bytes()
    noticed = 0
    for at in range(0, len(raw), 211):
        bent = bytearray(raw)
        bent[at] ^= 1 << (at % 8)
        site.config.ledger.write_bytes(bent)
        try:
            ledger = Ledger.open(site.config.ledger, site.identity, spare_roots(site.config), at)
        except (BadSetup, Failed):
            noticed += 1
            continue
        if ledger.damage is not None:
            noticed += 1
        else:
            assert ledger.load("b").receipts == before.receipts, f"byte {at}"
            assert ledger.load("b").fence == before.fence, f"byte {at}"
        ledger.close()
        for left in site.state.glob("ledger.sqlite*"):
            left.unlink()
    assert noticed > 10, f"{noticed} of {len(raw) // 211}"


async def test_a_receipt_taken_out_of_the_chain_is_damage(site: Site) -> None:
    async with site.agent() as agent:
        for _ in range(3):
            await done(agent, site, site.load())
    connection = sqlite3.connect(site.config.ledger)
    connection.execute("DELETE FROM entry WHERE kind = 'receipt' AND key = '000000000003'")
    connection.commit()
    connection.close()
    ledger = Ledger.open(site.config.ledger, site.identity, spare_roots(site.config), 1)
    assert ledger.damage is not None
    assert "receipt 3 is missing" in ledger.damage.why
    ledger.close()


def test_the_ledger_of_another_host_is_not_taken_for_ours_and_nothing_of_it_is_touched(site: Site) -> None:
    """A bit of the key's file may have changed: then a memory that is whole must not be set aside for it."""
    before = site.config.ledger.read_bytes()
    other = replace(site.identity, host_key="ed25519:" + "0" * 64)
    with pytest.raises(BadSetup, match=r"is that of host forge .* keys/host.seed is key ed25519:000"):
        Ledger.open(site.config.ledger, other, spare_roots(site.config), 1)
    assert site.config.ledger.read_bytes() == before
    assert list(site.state.glob("*damaged*")) == []


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_a_ledger_that_was_deleted_or_replaced_takes_no_promise_until_it_is_back(
    site: Site, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """What was written to it would be forgotten when the agent ends, and with it who was started."""
    monkeypatch.setattr("gridops_agent.effects.LEDGER_RETRY_S", 0.05)
    file = site.config.ledger.with_name(site.config.ledger.name + suffix)
    aside = site.config.state / "aside"
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        before, running = agent.memory.host, site.processes()
        file.rename(aside)
        if not suffix:
            shutil.copyfile(aside, file)  # a copy takes what is written, and it is not what is open
        with pytest.raises(Unwritable, match=f"{file.name} was deleted or replaced while this agent writes it"):
            await agent.memory.take(Measured(()))
        telling = asyncio.ensure_future(hear(agent, site, site.grant(site.body(site.drain(warmed)))))
        await until(lambda: any(a.startswith("ledger_unwritable") for a in agent.alarms.now()), "an alarm")
        assert agent.memory.host.commands == before.commands, "nothing was begun"
        assert site.processes() == running, "what runs goes on"
        aside.rename(file)
        await telling
        await until(lambda: len(agent.memory.host.receipts.kept) == 2, "what was asked meanwhile is done")
        after = agent.memory.host.receipts
    assert reopened(site).receipts == after


def test_a_missing_ledger_is_no_new_beginning(site: Site) -> None:
    site.config.ledger.unlink()
    with pytest.raises(BadSetup, match="is missing"):
        Ledger.open(site.config.ledger, site.identity, (), 1)


def test_a_ledger_that_cannot_be_opened_now_is_not_taken_for_a_damaged_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("gridops_agent.ledger._connect", full)
        with pytest.raises(Failed, match="cannot be opened: database or disk is full"):
            Ledger.open(site.config.ledger, site.identity, (), 1)
    assert list(site.state.glob("*.damaged-*")) == []
    assert reopened(site).fence.head.seq == 0


def test_a_ledger_of_a_newer_agent_is_refused_untouched(site: Site) -> None:
    connection = sqlite3.connect(site.config.ledger)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = site.config.ledger.read_bytes()
    with pytest.raises(BadSetup, match="newer agent"):
        Ledger.open(site.config.ledger, site.identity, (), 1)
    assert site.config.ledger.read_bytes() == before


async def test_two_agents_never_share_a_state_folder(site: Site) -> None:
    from gridops.base.errors import Busy

    async with site.agent():
        with pytest.raises(Busy, match=r"an agent runs on .* already"):
            async with site.agent():
                pass
    async with site.agent() as agent:
        assert agent.memory.host.commands == {}


async def test_of_a_controller_that_nobody_asks_nothing_is_claimed(site: Site) -> None:
    async with site.agent() as agent:
        agent._write_status()
    seen = status(site.config, False)
    assert seen["talk"].startswith("not known")
    first = render(seen, 0).splitlines()[0]
    assert first == f"{seen['host']}  agent not running, controller not known: only a running agent asks it"
