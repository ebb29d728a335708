"""Another first root, pinned at a host's console: engines go on, and the former fleet is obeyed no more."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import BadSetup, Busy, Failed, Refusal
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.protocol.messages import Outcome, Term
from gridops.protocol.messages import genesis as first_head
from gridops.trust.root import genesis, seal_root
from gridops.trust.tls import TlsIdentity, self_signed
from gridops_agent.cli.entry import main
from gridops_agent.config import read_config, write_config
from gridops_agent.ledger import Ledger, Unwritable
from gridops_agent.life.repin import Pin, repin
from gridops_agent.shell import Agent
from gridops_agent.status import status
from tests.agent.desk import Desk, listening
from tests.agent.site import DAY, PERSON, Site, command, pid_of, receipt, until, wall_ms
from tests.attacks.durable import durable


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return self_signed(("127.0.0.1",), wall_ms() - DAY, 300)


@pytest.fixture
def site(make_site: Any, tls: TlsIdentity) -> Site:
    found: Site = make_site(tls=tls)
    return found


def founded_anew(site: Site) -> Site:
    """The same host as seen by a fleet that the same people founded again, with a controller of the very same keys:
    nothing but the pin tells the two apart."""
    other = replace(site, seq=0, term=Term(epoch=1, counter=1))
    root = replace(site.chain.root, expires_ms=site.chain.root.expires_ms + 1)
    other.chain = genesis(seal_root(root, PERSON))
    other.config = replace(site.config, fleet=other.chain.fleet)
    other.head = first_head(other.chain.fleet, other.host_key)
    return other


async def pinned(site: Site, other: Site, **changes: object) -> list[str]:
    folder = site.state.parent / "roots"
    folder.mkdir(exist_ok=True)
    (folder / "1.json").write_text(other.chain.text)
    said: list[str] = []
    pin = replace(Pin(other.chain.fleet, roots=folder), **changes)  # type: ignore[arg-type]
    await repin(site.config, pin, said.append)
    return said


@asynccontextmanager
async def talking(desk: Desk) -> AsyncIterator[Agent]:
    async with listening(desk) as url:
        desk.site.config = replace(read_config(desk.site.state), controller=url)
        async with desk.site.agent() as agent:
            agent._loops = [asyncio.ensure_future(w) for w in (agent.talk.run(), agent.watch.run())]
            await until(lambda: bool(desk.beats), "a heartbeat")
            yield agent


async def test_engines_go_on_and_only_the_new_fleet_is_obeyed(site: Site, tls: TlsIdentity) -> None:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
        pid, keys = pid_of(agent, body), agent.front.table.keys
    other = founded_anew(site)
    said = await pinned(site, other)
    assert any("1 model held here, and not touched" in line for line in said)
    assert site.processes() == [pid]
    assert read_config(site.state).fleet == other.chain.fleet
    desk = Desk(other, tls)
    async with talking(desk) as agent:
        assert pid_of(agent, body) == pid, "taken over, not started again"
        assert agent.front.table.keys == keys, "callers get in by the last word until there is another"
        last = desk.beats[-1]
        assert (last.fleet, last.head.seq, last.receipt_head, last.term.counter) == (other.chain.fleet, 0, 0, 0)
        former = site.grant(site.body(site.unload(body)))
        desk.grants = [former]
        count = len(desk.beats)
        await until(lambda: len(desk.beats) > count + 2, "it was said several times")
        assert site.processes() == [pid], "a command of the former fleet ends nothing"
        assert agent.memory.host.fence.head.seq == 0
        desk.grants = [other.grant(other.body(step)) for step in (other.drain(body), other.unload(body))]
        await until(lambda: 2 in desk.receipts, "the receipts")
        assert {r.outcome for r in desk.receipts.values()} == {Outcome.SUCCEEDED}
        assert {r.fleet for r in desk.receipts.values()} == {other.chain.fleet}
        assert site.processes() == []
    seen = status(read_config(site.state), running=False)
    assert site.chain.fleet in str(seen["repinned"])
    assert other.chain.fleet in str(seen["repinned"])


async def test_it_asks_whoever_answers_at_the_controllers_address(site: Site, tls: TlsIdentity) -> None:
    other = founded_anew(site)
    async with listening(Desk(other, tls)) as url:
        await repin(site.config, Pin(other.chain.fleet, controller=url), lambda _: None)
    found = read_config(site.state)
    assert (found.fleet, found.controller) == (other.chain.fleet, url)


async def test_what_is_not_that_fleets_changes_nothing(site: Site, tmp_path: Path) -> None:
    other, before = founded_anew(site), durable(site.config.ledger)
    config = site.config.file.read_bytes()
    bent = json.loads(other.chain.text)
    bent["payload"] = base64.b64encode(
        base64.b64decode(bent["payload"]).replace(b'"standing":true', b'"standing":null')
    ).decode()
    (tmp_path / "none").mkdir()
    (tmp_path / "bent").mkdir()
    (tmp_path / "bent" / "1.json").write_text(json.dumps(bent))
    for pin, error in (
        (Pin(Digest("sha256:" + "0" * 64), roots=site.config.roots), Refusal),
        (Pin(other.chain.fleet, roots=site.config.roots), Refusal),
        (Pin(other.chain.fleet, roots=tmp_path / "bent"), Refusal),
        (Pin(other.chain.fleet, roots=tmp_path / "none"), Failed),
        (Pin(other.chain.fleet, roots=tmp_path / "nowhere"), Failed),
    ):
        with pytest.raises(error, match=r"nothing was changed|no root document"):
            await repin(site.config, pin, lambda _: None)
    assert (durable(site.config.ledger), site.config.file.read_bytes()) == (before, config)


async def test_not_beside_a_running_agent_nor_while_a_command_is_open(site: Site) -> None:
    other = founded_anew(site)
    async with site.agent() as agent:
        with pytest.raises(Busy, match="an agent runs"):
            await pinned(site, other)
        body = await command(agent, site, site.warm())
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
        agent.effects.tell_once = lambda _: asyncio.sleep(0)  # type: ignore[method-assign]
    ledger = Ledger.open_anyones(site.config.ledger)
    host = ledger.load("x")
    from gridops_agent.core.state import Command

    open_ = Command(body=site.body(site.unload(body)), term=site.term, accepted_ms=1)
    ledger.write(host, replace(host, commands={digest_of(open_.body): open_}))
    ledger.close()
    with pytest.raises(Busy, match="1 command of the former fleet not finished"):
        await pinned(site, other)
    assert read_config(site.state).fleet == site.chain.fleet


async def test_cut_off_behind_the_ledger_the_same_command_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    other = founded_anew(site)
    spare = site.config.roots / "7.json"
    spare.write_text("of a longer chain")

    def torn(*_: object) -> None:
        raise Failed("the power went")

    with monkeypatch.context() as cut:
        cut.setattr("gridops_agent.life.repin.keep_roots", torn)
        with pytest.raises(Failed, match="the power went"):
            await pinned(site, other)
    with pytest.raises(BadSetup, match="is that of host"):
        async with site.agent():
            pass
    said = await pinned(site, other, roots=site.state / "nowhere")
    assert any("already" in line for line in said), "and nobody has to be asked again"
    assert not spare.exists()
    site.config = read_config(site.state)
    async with site.agent() as agent:
        assert agent.memory.host.chain.fleet == other.chain.fleet


async def test_a_ledger_that_cannot_be_written_or_is_damaged_stays_as_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = founded_anew(site)

    def full(*_: object) -> None:
        raise Unwritable("the ledger cannot be written")

    with monkeypatch.context() as cut:
        cut.setattr(Ledger, "become", full)
        with pytest.raises(Unwritable):
            await pinned(site, other)
    assert read_config(site.state).fleet == site.chain.fleet
    raw = bytearray(site.config.ledger.read_bytes())
    raw[raw.index(b'"host_key"') + 2] ^= 1
    site.config.ledger.write_bytes(bytes(raw))
    with pytest.raises(Failed, match="damaged"):
        await pinned(site, other)
    assert site.config.ledger.read_bytes() == bytes(raw)


def test_the_command_asks_for_the_hosts_name_and_takes_no_half_digest(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = founded_anew(site)
    write_config(site.config)
    (site.state.parent / "1.json").write_text(other.chain.text)
    args = ["--roots", str(site.state.parent), "--state", str(site.state)]
    assert main(["repin", other.chain.fleet[:20], *args]) == 64
    assert "all of them" in capsys.readouterr().err
    assert main(["repin", other.chain.fleet, *args]) == 64, "nobody can be asked here"
    assert read_config(site.state).fleet == site.chain.fleet
    assert main(["repin", other.chain.fleet, *args, "--yes"]) == 0
    assert "Start the agent again" in capsys.readouterr().out
    assert read_config(site.state).fleet == other.chain.fleet
    assert main(["status", "--state", str(site.state)]) == 0
    assert "pinned at" in capsys.readouterr().out
