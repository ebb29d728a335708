"""A controller's desk for one host: it answers heartbeats as the real listener does, and remembers what it was told."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from gridops.base.record import from_bytes, from_data, to_bytes, to_data
from gridops.protocol.messages import Beat, Heartbeat, JoinReply, JoinRequest, Receipt
from gridops.protocol.open import open_heartbeat, open_receipt
from gridops.trust.envelope import open_envelope, seal
from gridops.trust.join import join_key, reply_mac, request_mac, same_mac
from gridops.trust.keys import MachineSigner, parse_key
from gridops.trust.tls import TlsIdentity
from tests.agent.site import CONTROLLER, Site


@dataclass
class Desk:
    """A controller as far as one host can see: it reads heartbeats, keeps receipts, and says what it is told to."""

    site: Site
    tls: TlsIdentity
    signer: MachineSigner = CONTROLLER
    grants: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    beats: list[Heartbeat] = field(default_factory=list)
    admitted: bool = True
    changes: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    secret: bytes = b"s" * 32
    no: tuple[int, str] | None = None
    """Status and code with which it refuses each heartbeat."""
    hosts: list[dict[str, Any]] = field(default_factory=list)
    """What its status says of hosts."""

    async def beat(self, request: web.Request) -> web.Response:
        if self.raw is not None:
            return web.json_response(self.raw)
        beat = from_data(Beat, await request.json())
        key = parse_key(self.site.host_key)
        heartbeat = open_heartbeat(beat.heartbeat, key)
        self.beats.append(heartbeat)
        if self.no is not None:
            status, code = self.no
            return web.json_response({"error": {"code": code, "message": "not this one"}}, status=status)
        if not self.admitted:
            error = {"code": "not_admitted", "message": "the key is not committed yet"}
            return web.json_response({"error": error}, status=403)
        for text in beat.receipts:
            receipt = open_receipt(text, key)
            assert self.receipts.setdefault(receipt.rseq, receipt) == receipt, "a receipt never changes"
        directive = self.site.directive(self.grants, acked=max(self.receipts, default=0), nonce=heartbeat.nonce)
        new = tuple(self.roots[heartbeat.root_version - 1 :])
        directive = replace(directive, roots=new, **self.changes)
        return web.json_response({"directive": seal("directive", to_bytes(directive), self.signer)})

    async def list_roots(self, request: web.Request) -> web.Response:
        return web.json_response({"roots": [self.site.chain.text, *self.roots]})

    async def status(self, _: web.Request) -> web.Response:
        return web.json_response({"hosts": self.hosts})

    async def join(self, request: web.Request) -> web.Response:
        text = (await request.json())["request"]
        claimed = json.loads(base64.b64decode(json.loads(text)["payload"]))
        opened = open_envelope(text, kind="join", keys=(parse_key(claimed["host_key"]),))
        asked = from_bytes(JoinRequest, opened.payload)
        key = join_key(self.secret)
        if not same_mac(request_mac(key, asked.fleet, asked.host_key, asked.nonce), asked.mac):
            return web.json_response({"error": {"code": "bad_mac", "message": "not this token"}}, status=403)
        roots = (self.site.chain.text, *self.roots)
        reply = JoinReply(roots=roots, mac=reply_mac(key, asked.host_key, asked.nonce, roots))
        return web.json_response({"reply": to_data(reply) | self.changes})


@asynccontextmanager
async def listening(desk: Desk) -> AsyncIterator[str]:
    """The controller's listener; yields its URL."""
    folder = desk.site.state.parent
    (folder / "c.pem").write_text(desk.tls.cert_pem)
    (folder / "c.key").write_bytes(desk.tls.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "c.pem", folder / "c.key")
    app = web.Application()
    app.router.add_post("/v1/beat", desk.beat)
    app.router.add_get("/v1/roots", desk.list_roots)
    app.router.add_post("/v1/join", desk.join)
    app.router.add_get("/v1/status", desk.status)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = int(desk.site.config.controller.rpartition(":")[2])
    site = web.TCPSite(runner, "127.0.0.1", 0 if port == 1 else port, ssl_context=context)
    await site.start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
