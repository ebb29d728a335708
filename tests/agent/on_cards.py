"""The head of each script that runs a whole agent in a fresh process, on a driver whose cards a test moves."""

from __future__ import annotations

AGENT = """
import asyncio, dataclasses, os, subprocess, tempfile
from gridops.base import limits
from gridops.base.ids import DeviceId
from tests.agent.site import Site, command, done, held_of, pid_of, receipt, until
from tests.builders.tiny_gguf import Shape, write_tiny_gguf
GPU = DeviceId("gpu0")
limits.RELEASE_MS = 1_500

async def told(work):
    folder = Path(tempfile.mkdtemp())
    model = write_tiny_gguf(folder / "tiny.gguf", shape=Shape(context=65_536))
    site = Site(folder / "state", model).join()
    try:
        async with site.agent() as agent:
            watch = asyncio.ensure_future(agent.watch.run())
            try:
                return await work(agent, site)
            finally:
                watch.cancel()
    finally:
        site.end()

async def measure(agent):
    # A look at what was just said, not at what was read a moment ago.
    agent.cards._last = None
    await agent._measure()

def warm(site, number=1): return site.warm("tiny" + str(number), devices=(GPU,), device_bytes=4 << 30)

def seen(made): return [made.outcome.value, made.code, made.detail]
"""
