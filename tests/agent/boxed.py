"""What stories about containers share: the image that is there, one that ended, and the way up and down."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome, Receipt
from gridops_agent.keep import container_spec as spec
from gridops_agent.shell import Agent
from tests.agent.box_runtime import Box, Runtime
from tests.agent.site import Site, command, done, held_of, receipt, until

REFERENCE = "llama.cpp/server@sha256:" + "ab" * 32

OTHER = digest_bytes(b"somebody else's command")


async def warmed(agent: Agent, site: Site) -> Digest:
    body = await command(agent, site, site.warm())
    made = await receipt(agent, body)
    assert made.outcome is Outcome.SUCCEEDED, made
    return body


async def stopped(agent: Agent, site: Site, body: Digest) -> Receipt:
    assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
    return await done(agent, site, site.unload(body))


async def kept_alive(agent: Agent, body: Digest, restarts: int = 1) -> None:
    watch = asyncio.ensure_future(agent.watch.run())
    await until(lambda: held_of(agent, body).restarts == restarts, "keep-alive")
    await until(lambda: held_of(agent, body).state is ResidencyState.READY, "the new engine")
    watch.cancel()


def ended_box(runtime: Runtime, name: str, created: float, site: Site | None) -> Box:
    labels = dict(spec.Owner(site.config.fleet, "forge").labels(OTHER)) if site is not None else {}
    done_ = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    done_.wait()
    made = {"Image": REFERENCE, "Labels": labels, "HostConfig": {"PortBindings": {}}}
    return Box(digest_bytes(name.encode())[7:], name, made, created, process=done_, started="2026-01-01T00:00:00Z")


async def refused(agent: Agent, site: Site) -> str:
    made = await done(agent, site, site.warm())
    assert made.outcome is not Outcome.SUCCEEDED
    return f"{made.code}: {made.detail}"
