"""Root documents from mirrors: whoever holds the controller's address cannot hide the end of its key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from gridops.base.errors import Refusal
from gridops.base.ids import PersonName
from gridops.trust.keys import MachineSigner, PersonSigner
from gridops.trust.root import RoleKey, RoleName, RootChain, genesis, seal_root
from tests.agent.site import PERSON, Site

STRANGER = PersonSigner.from_seed(b"s" * 32)


@asynccontextmanager
async def mirror(files: dict[str, bytes | Callable[[], Any]]) -> AsyncIterator[str]:
    """A place that serves files; yields its address. Asked for what it lacks, it says 404."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/roots/")
        asked.append(name)
        content = files.get(name)
        if content is None:
            return web.Response(status=404)
        return web.Response(body=content) if isinstance(content, bytes) else await content()(request)

    app = web.Application()
    app.router.add_get("/roots/{name}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/roots/"
    finally:
        await runner.cleanup()


def stolen(chain: RootChain, version: int, *mirrors: str, by: PersonSigner = PERSON) -> str:
    """The document that ends the controller's key."""
    new = RoleKey(holder=PersonName("controller"), key=MachineSigner.from_seed(b"n" * 32).public.text)
    roles = tuple(replace(r, keys=(new,)) if r.name is RoleName.CONTROLLER else r for r in chain.root.roles)
    root = replace(
        chain.root,
        version=version,
        fleet=chain.fleet,
        roles=roles,
        controller_epoch=version,
        mirrors=mirrors or chain.root.mirrors,
    )
    return seal_root(root, by)


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


async def test_a_host_finds_the_end_of_a_stolen_key_though_the_controller_says_nothing(site: Site) -> None:
    files: dict[str, Any] = {}
    async with mirror(files) as url, site.agent() as agent:
        thief = agent.memory.host.chain.keys("controller")
        first = replace(site.chain.root, version=2, fleet=site.chain.fleet, mirrors=("http://127.0.0.1:1/", url))
        files["2.json"] = b"never asked for: it came by the controller"
        await agent.beats._roots((seal_root(first, PERSON),))
        assert await agent.mirrors.look() == 0
        chain = agent.memory.host.chain
        files["3.json"] = stolen(chain, 3).encode()
        files["4.json"] = stolen(chain.advance(stolen(chain, 3)), 4).encode() + b"\n"
        assert await agent.mirrors.look() == 2
        assert agent.memory.host.chain.root.controller_epoch == 4
        assert not set(thief) & set(agent.memory.host.chain.keys("controller"))
    async with site.agent() as agent:
        assert agent.memory.host.chain.root.version == 4, "kept"


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(64):
        await answer.write(b"x" * (1 << 16))
    return answer


HOSTILE: dict[str, Callable[[RootChain], Any]] = {
    "signed by nobody of the root": lambda chain: stolen(chain, 3, by=STRANGER).encode(),
    "a version that does not follow": lambda chain: stolen(chain, 4).encode(),
    "the document before it": lambda chain: chain.text.encode(),
    "rubbish": lambda chain: b"\xff\xfe rubbish",
    "without end": lambda chain: lambda: endless,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
async def test_a_mirror_is_believed_in_nothing_but_documents_that_follow(site: Site, name: str) -> None:
    files: dict[str, Any] = {}
    async with mirror(files) as url, site.agent() as agent:
        first = replace(site.chain.root, version=2, fleet=site.chain.fleet, mirrors=(url,))
        await agent.beats._roots((seal_root(first, PERSON),))
        alarms = agent.alarms.now()
        files["3.json"] = HOSTILE[name](agent.memory.host.chain)
        assert await agent.mirrors.look() == 0
        assert agent.memory.host.chain.root.version == 2
        assert agent.alarms.now() == alarms, "whoever holds a mirror alarms nobody"
        files["3.json"] = stolen(agent.memory.host.chain, 3).encode()
        assert await agent.mirrors.look() == 1, "and it goes on when the mirror does"


@pytest.mark.parametrize("url", ["ftp://x/", "https://x", "https://user@x/", "file:///etc/", "", "https:///\n/"])
def test_a_root_names_addresses_of_plain_files_or_none(site: Site, url: str) -> None:
    root = replace(site.chain.root, mirrors=(url,))
    with pytest.raises(Refusal, match="its mirrors are"):
        genesis(seal_root(root, PERSON))
