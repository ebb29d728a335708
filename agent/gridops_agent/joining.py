"""Joining a fleet: makes this host's keys, proves the join token to the controller and the controller to this host.

The token pins the fleet, so there is no trust on first use: the controller's answer must know the token's secret, and
its root documents must begin with the root that the token names. Nothing is admitted by it; a commit does that.
"""

from __future__ import annotations

import os
import platform
import secrets
import socket
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.codes import trust as codes
from gridops.base.errors import Failed, Refusal
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.disk.atomic import write_atomic
from gridops.disk.keyring import create_secret, read_secret
from gridops.model.snapshot import DeviceReport
from gridops.protocol.messages import Facts, JoinRequest
from gridops.trust.envelope import seal
from gridops.trust.join import Token, join_key, reply_mac, request_mac, require_mac
from gridops.trust.keys import MachineSigner, PublicKey
from gridops.trust.root import genesis, walk
from gridops.trust.tls import self_signed
from gridops_agent.client import Controller
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config, write_config
from gridops_agent.engines import engines
from gridops_agent.facts import Ours
from gridops_agent.gauge import Gauge
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity
from gridops_agent.platform import here
from gridops_agent.sensors.senses import CardSense
from gridops_agent.statefolder import keep_roots

TLS_DAYS = 3_650
"""The front's certificate is pinned by each signed heartbeat, so its own dates carry no trust."""
BACKDATED_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Joined:
    """What a person has to compare and do next."""

    host: HostId
    key: PublicKey
    runtimes: tuple[str, ...]


async def join(config: Config, token: Token, version: str) -> Joined:
    """Join with a token; afterwards the state folder is complete. Raises Refusal or Unreachable; then try again."""
    if config.file.exists():
        raise Failed(
            f"{config.state} has joined a fleet already",
            hints=("use another folder with --state, or remove this one after writing the host off",),
        )
    config.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    signer = _host_key(config)
    request = _request(config, token, signer, version)
    controller = Controller.unproved(config.controller)
    try:
        reply = await controller.join(seal("join", to_bytes(request), signer))
    finally:
        await controller.close()
    key = join_key(token.secret)
    require_mac(reply_mac(key, request.host_key, request.nonce, reply.roots), reply.mac, "the controller")
    chain = walk(genesis(reply.roots[0], token.fleet), reply.roots[1:]) if reply.roots else None
    if chain is None or not chain.root.controller_tls:
        raise Refusal(codes.BAD_SCHEMA.code, "the controller's answer names no root document with its certificate")
    _front_identity(config)
    config.ledger.unlink(missing_ok=True)  # of a try that was interrupted; nothing was promised in it yet
    identity = Identity(fleet=token.fleet, host=token.host, host_key=signer.public.text)
    Ledger.create(config.ledger, identity, reply.roots).close()
    keep_roots(config, reply.roots)
    write_config(config)  # last: its presence says that all the rest is there
    runtimes = tuple(f"{r.engine} ({r.backend})" for r in request.facts.runtimes)
    return Joined(token.host, signer.public, runtimes)


def _host_key(config: Config) -> MachineSigner:
    """The host's key: made once, kept when a try to join is repeated."""
    if not config.seed.exists():
        create_secret(config.seed, os.urandom(32))
    return MachineSigner.from_seed(read_secret(config.seed))


def _front_identity(config: Config) -> None:
    if config.front_key.exists() and config.front_cert.exists():
        return
    config.front_key.unlink(missing_ok=True)
    address, _ = config.front_address
    names = [address] if address not in ("0.0.0.0", "::") else []
    made = self_signed([*names, socket.gethostname()], SystemClock().wall_ms() - BACKDATED_MS, TLS_DAYS)
    create_secret(config.front_key, made.key_pem)
    write_atomic(config.front_cert, made.cert_pem.encode(), mode=0o644)


def _devices(config: Config) -> tuple[DeviceReport, ...]:
    clock = SystemClock()
    gauge = Gauge(here(), config.share, CardSense().look, lambda: (clock.wall_ms(), clock.monotonic_ms()))
    return gauge.measure((), Ours()).measured.devices


def _request(config: Config, token: Token, signer: MachineSigner, version: str) -> JoinRequest:
    nonce, host_key = secrets.token_hex(16), signer.public.text
    return JoinRequest(
        fleet=token.fleet,
        host=token.host,
        host_key=host_key,
        nonce=nonce,
        facts=facts_of(config, version),
        mac=request_mac(join_key(token.secret), token.fleet, host_key, nonce),
    )


def facts_of(config: Config, version: str) -> Facts:
    """What this machine tells the person who admits its key."""
    known = engines(config.engine_command, config.runtime)
    return Facts(
        devices=_devices(config)[: limits.DEVICES_PER_HOST],
        runtimes=tuple(r for name in sorted(known) for r in known[name].runtimes()),
        agent_version=version,
        platform=f"{platform.system()} {platform.release()} {platform.machine()}"[:200],
    )
