"""Who brings prompts to a host pins what the host signed: the true front is reached, and an impostor hears nothing."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.protocol.binding import Bound, open_binding
from gridops.protocol.messages import Outcome
from gridops.trust.keys import MachineSigner, PublicKey
from gridops.trust.tls import TlsIdentity, pinned_client_context, self_signed
from tests.agent.callers import MINE, asked
from tests.agent.desk import Desk
from tests.agent.site import DAY, HOST, free_ports, until, wall_ms
from tests.agent.test_beats import talking
from tests.e2e.impostor import Impostor


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return self_signed(("127.0.0.1",), wall_ms() - DAY, 300)


@pytest.fixture
def desk(make_site: Any, tls: TlsIdentity) -> Desk:
    site = make_site(tls=tls)
    site.config = replace(site.config, front=f"127.0.0.1:{free_ports(1)[0]}")
    return Desk(site, tls)


async def said(desk: Desk) -> str:
    """What the host signs when its controller asks who answers at its front."""
    desk.changes = {"wants_binding": True}
    await until(lambda: desk.beats[-1].inventory.binding is not None, "a binding")
    return str(desk.beats[-1].inventory.binding)


def opened(desk: Desk, text: str, key: PublicKey | None = None, now_ms: int | None = None) -> Bound:
    """As whoever connects opens it: with the host's key from git, and the identity of the fleet."""
    mine = desk.site.signer.public
    fleet, now = desk.site.chain.fleet, now_ms if now_ms is not None else wall_ms()
    return open_binding(text, key or mine, fleet=fleet, host=HOST, now_ms=now)


async def chat(bound: Bound, secret: str) -> int:
    """A prompt brought to whoever can prove to be that front."""
    context = pinned_client_context((bound.says.certificate,))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=MINE) as http,
        http.post(f"{bound.says.endpoint}/v1/chat/completions", json=asked(user=secret)) as answer,
    ):
        return answer.status


async def test_a_host_signs_for_its_front_only_when_it_is_asked_and_that_front_is_reached(desk: Desk) -> None:
    async with talking(desk) as agent:
        desk.grants = [desk.site.grant(desk.site.body(desk.site.warm()))]
        await until(lambda: 1 in desk.receipts, "the receipt")
        assert desk.receipts[1].outcome is Outcome.SUCCEEDED
        assert all(beat.inventory.binding is None for beat in desk.beats), "nobody has asked"
        bound = opened(desk, await said(desk))
        assert (bound.says.endpoint, bound.says.certificate) == (agent.opened.endpoint, agent.opened.pem)
        assert bound.is_about(desk.beats[-1].inventory.endpoint, desk.beats[-1].inventory.front_cert)
        assert bound.says.not_after_ms - bound.says.issued_ms == limits.BINDING_MS
        assert await chat(bound, "a secret") == 200
        desk.changes = {}
        await until(lambda: desk.beats[-1].inventory.binding is None, "a heartbeat without it")


async def test_an_impostor_on_its_address_is_not_given_a_byte_of_the_prompt(desk: Desk, tmp_path: Path) -> None:
    async with talking(desk) as agent:
        bound = opened(desk, await said(desk))
        port = int(agent.opened.endpoint.rpartition(":")[2])
    cases = {"another": self_signed(("127.0.0.1",), wall_ms() - DAY, 300)}
    # The very certificate, which is no secret, cannot be shown with a key that is not its own: OpenSSL refuses it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "true.pem").write_text(bound.says.certificate)
    (tmp_path / "other.key").write_bytes(cases["another"].key_pem)
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(tmp_path / "true.pem", tmp_path / "other.key")
    (tmp_path / "cert.pem").write_text(cases["another"].cert_pem)
    (tmp_path / "key.pem").write_bytes(cases["another"].key_pem)
    with Impostor(port, tmp_path / "cert.pem", tmp_path / "key.pem", lambda *_: (200, b"{}")) as impostor:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await chat(bound, "a secret")
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            await asyncio.to_thread(_by_another_library, bound)
        assert impostor.asked == [], "it has heard something"
    async with desk.site.agent() as back:  # at the same port again, with the same key
        assert back.opened.endpoint == bound.says.endpoint
        assert await chat(bound, "hello") == 404, "reached, and it says itself that no model is there"


def _by_another_library(bound: Bound) -> None:
    context = pinned_client_context((bound.says.certificate,))
    with httpx.Client(verify=context, trust_env=False) as http:
        http.post(f"{bound.says.endpoint}/v1/chat/completions", json=asked(), headers=MINE)


async def test_a_plain_listener_on_its_address_gets_no_byte_of_the_prompt_either(desk: Desk) -> None:
    async with talking(desk) as agent:
        bound = opened(desk, await said(desk))
        port = int(agent.opened.endpoint.rpartition(":")[2])
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(65_536))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", port):
        with pytest.raises(aiohttp.ClientError):
            await chat(bound, "a secret that is in no handshake")
    assert heard[:1] == b"\x16", "a client hello of TLS"
    assert b"secret" not in heard
    assert b"Bearer" not in heard


async def test_what_another_signed_or_what_has_ended_leads_to_no_front(desk: Desk) -> None:
    async with talking(desk) as _:
        text = await said(desk)
    other = MachineSigner.from_seed(b"t" * 32)
    with pytest.raises(Refusal, match="bad_signature"):
        opened(desk, text, other.public)
    with pytest.raises(Refusal, match="expired"):
        opened(desk, text, now_ms=wall_ms() + limits.BINDING_MS + 1)
    with pytest.raises(Refusal, match="wrong_host"):
        open_binding(text, desk.site.signer.public, fleet=desk.site.chain.fleet, host=HostId("other"), now_ms=wall_ms())


async def test_a_front_at_another_port_is_signed_for_anew(desk: Desk) -> None:
    async with talking(desk) as agent:
        first = opened(desk, await said(desk))
    desk.site.config = replace(desk.site.config, front=f"127.0.0.1:{free_ports(1)[0]}")
    desk.beats.clear()
    async with talking(desk) as agent:
        await until(lambda: bool(desk.beats) and desk.beats[-1].inventory.binding is not None, "a binding")
        second = opened(desk, str(desk.beats[-1].inventory.binding))
        assert second.says.endpoint == agent.opened.endpoint != first.says.endpoint
