"""A host takes another key while it runs: signed over, committed, and taken without a restart of agent or engine."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gridops.base.errors import BadSetup, Failed
from gridops.base.record import from_bytes
from gridops.disk.keyring import create_secret
from gridops.protocol.messages import Beat, JoinRequest, Outcome, Rekey
from gridops.protocol.messages import genesis as first_head
from gridops.trust.envelope import open_envelope, open_record
from gridops.trust.keys import MachineSigner, parse_key
from gridops.trust.tls import TlsIdentity, self_signed
from gridops_agent import evidence, rekeying
from gridops_agent.alarms import Alarms
from gridops_agent.core.state import Command
from gridops_agent.ledger import Ledger
from tests.agent.desk import Desk
from tests.agent.site import DAY, Site, pid_of, until, wall_ms
from tests.agent.test_beats import talking


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return self_signed(("127.0.0.1",), wall_ms() - DAY, 300)


@dataclass
class Fleet(Desk):
    """A controller and the people behind it: it believes the key that was committed last, and no other."""

    asked: JoinRequest | None = None
    refused: int = 0

    async def join(self, request: web.Request) -> web.Response:
        text = (await request.json())["request"]
        claimed = json.loads(base64.b64decode(json.loads(text)["payload"]))
        coming = parse_key(claimed["host_key"])
        asked = from_bytes(JoinRequest, open_envelope(text, kind="join", keys=(coming,)).payload)
        over, _ = open_record(Rekey, asked.over or "", kind="rekey", keys=(parse_key(self.site.host_key),))
        assert (over.next_key, over.host_key, over.nonce) == (asked.host_key, self.site.host_key, asked.nonce)
        self.asked = asked
        return web.json_response({"reply": {"v": 1, "roots": [], "mac": ""}})

    async def beat(self, request: web.Request) -> web.Response:
        said = json.loads(await request.text())
        claimed = open_hint(Beat(heartbeat=said["heartbeat"]))
        if claimed != parse_key(self.site.host_key).key_id:
            self.refused += 1
            error = {"code": "bad_signature", "message": "none of the keys trusted for it signed this heartbeat"}
            return web.json_response({"error": error}, status=403)
        return await super().beat(request)

    def commit(self) -> None:
        """People commit the next key: the host is a new counterparty from here on."""
        seed = (self.site.state / "keys/host.next.seed").read_bytes()
        self.site.signer = MachineSigner.from_seed(seed)
        self.site.seq, self.site.head = 0, first_head(self.site.chain.fleet, self.site.host_key)
        self.beats.clear()
        self.receipts.clear()
        self.grants = []


def open_hint(beat: Beat) -> str:
    return str(json.loads(beat.heartbeat)["signatures"][0]["keyid"])


@pytest.fixture
def fleet(make_site: Any, tls: TlsIdentity) -> Fleet:
    return Fleet(make_site(tls=tls), tls)


async def rekey(fleet: Fleet) -> str:
    from gridops_agent.joining import facts_of

    config = fleet.site.config
    coming = await rekeying.request(config, fleet.site.chain, await asyncio.to_thread(facts_of, config, "0.1.0"))
    return coming.text


async def test_the_next_key_is_taken_when_people_have_committed_it_and_engines_go_on(fleet: Fleet) -> None:
    site = fleet.site
    async with talking(fleet) as agent:
        fleet.grants = [site.grant(site.body(site.warm()))]
        await until(lambda: 1 in fleet.receipts, "the receipt")
        (body,) = agent.memory.host.held
        pid, former = pid_of(agent, body), site.host_key
        coming = await rekey(fleet)
        assert await rekey(fleet) == coming, "asked again, it is the same key"
        assert fleet.asked is not None
        assert fleet.asked.host_key == coming != former
        count = len(fleet.beats)
        await until(lambda: len(fleet.beats) > count + 1, "it goes on with the present key")
        term = agent.memory.host.fence.term
        fleet.commit()
        await until(lambda: bool(fleet.beats), "a heartbeat by the next key")
        first = fleet.beats[0]
        assert (first.head.seq, first.receipt_head, first.open) == (0, 0, ())
        assert first.term == term, "a term that it has obeyed is not forgotten"
        fleet.grants = [site.grant(site.body(step)) for step in (site.drain(body), site.unload(body))]
        await until(lambda: 2 in fleet.receipts, "the receipts")
        assert {r.outcome for r in fleet.receipts.values()} == {Outcome.SUCCEEDED}
        assert pid not in site.processes()
    assert not site.config.next_seed.exists()
    assert rekeying.former_keys(site.config) == ((parse_key(former),), None)
    fleet.beats.clear()
    async with talking(fleet):
        assert fleet.beats[-1].head.seq == 2, "a restart goes on with it"


async def test_a_refusal_without_a_next_key_changes_nothing_and_one_with_an_open_command_waits(fleet: Fleet) -> None:
    site = fleet.site
    async with talking(fleet) as agent:
        former = site.signer
        site.signer = MachineSigner.from_seed(b"z" * 32)  # somebody has committed another key by mistake
        await until(lambda: fleet.refused > 0, "it is refused")
        site.signer = former
        await rekey(fleet)
        memory = agent.memory
        key = memory.host.fence.host_key
        open_ = Command(body=site.body(site.load()), term=site.term, accepted_ms=1)
        memory.host = replace(memory.host, commands={"sha256:" + "0" * 64: open_})  # type: ignore[dict-item]
        site.seq -= 1
        fleet.commit()
        count = fleet.refused
        await until(lambda: fleet.refused > count, "it is refused")
        assert not await agent.beats._next_key()
        assert memory.host.fence.host_key == key, "what is open ends first"
        memory.host = replace(memory.host, commands={})
        await until(lambda: bool(fleet.beats), "a heartbeat by the next key")


async def test_cut_off_behind_the_ledger_it_is_finished_at_the_next_start(fleet: Fleet) -> None:
    site = fleet.site

    def torn() -> None:
        raise Failed("the power went")

    async with talking(fleet) as agent:
        await rekey(fleet)
        agent.beats.promote = torn
        fleet.commit()
        await until(lambda: Ledger.whose(site.config.ledger) == site.host_key, "the ledger is the next key's")
        assert site.config.next_seed.exists()
    fleet.beats.clear()
    async with talking(fleet) as agent:
        assert not site.config.next_seed.exists()
        assert agent.memory.host.fence.host_key == site.host_key


async def test_a_next_key_that_nobody_committed_is_not_taken_by_a_start(fleet: Fleet) -> None:
    async with talking(fleet):
        await rekey(fleet)
    async with talking(fleet) as agent:
        assert agent.memory.host.fence.host_key == fleet.site.host_key
    assert fleet.site.config.next_seed.exists()


def test_what_a_former_key_measured_stays_true(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rekeying.prepare(site.config)
    new = rekeying.next_signer(site.config)
    assert new is not None
    old = site.signer
    rekeying.promote(site.config)
    assert MachineSigner.from_seed(site.config.seed.read_bytes()).public == new.public
    seen: list[Any] = []

    def opened(raw: bytes, key: Any) -> Any:
        seen.append(key)
        raise evidence.Refusal("bad_signature", "not by this one")

    monkeypatch.setattr(evidence, "open_qualification", opened)
    site.config.qualified.mkdir(parents=True, exist_ok=True)
    (site.config.qualified / "a.json").write_text("{}")
    evidence.reported(site.config.qualified, new.public, Alarms(lambda: 0.0), *rekeying.former_keys(site.config)[0])
    assert set(seen) == {old.public, new.public}
    site.config.former_keys.write_bytes(b"\xff")
    found, doubt = rekeying.former_keys(site.config)
    assert (found, "former-keys.json is not used" in str(doubt)) == ((), True)


async def test_a_next_key_that_has_rotted_is_named_is_not_taken_and_keeps_no_agent_from_starting(fleet: Fleet) -> None:
    site = fleet.site
    rekeying.prepare(site.config)
    raw = site.config.next_seed.read_bytes()
    for bad in (b"short", bytes([raw[0] ^ 1]) + raw[1:]):
        create_secret(site.config.next_seed, bad, instead=True)
        with pytest.raises(BadSetup, match=r"host\.next\.seed"):
            rekeying.next_signer(site.config)
    async with talking(fleet) as agent:
        present = site.signer
        site.signer = MachineSigner.from_seed(b"z" * 32)
        await until(lambda: "host.next.seed" in agent.talk.word, "it says which file")
        site.signer = present
    site.config.next_public.unlink()
    rekeying.prepare(site.config)  # of a try that was cut off: made anew
    assert rekeying.next_signer(site.config) is not None
