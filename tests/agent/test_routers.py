"""Routers: servers that load and evict models by themselves are seen, marked, and never taken over."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from gridops.base.errors import Refusal
from gridops.model.snapshot import ResidencyState
from gridops_agent import takeover
from gridops_agent.keep import external, taken
from tests.agent.engine_doubles import listening
from tests.agent.site import Site, free_ports
from tests.agent.test_takeover import Theirs, ready, theirs

assert theirs is not None  # a fixture of theirs
ROUTED = (
    ("llama-server", "--models-dir", "/models"),
    ("llama-server", "--models-preset=/etc/models.ini", "--port", "1"),
)
SINGLE = (("llama-server", "-m", "x.gguf"), ("llama-server", "--port", "8080"))
"""The second one may be told its model by a variable."""


def test_a_router_is_known_by_its_command_line() -> None:
    assert all(external.is_router(words) for words in ROUTED)
    assert not any(external.is_router(words) for words in SINGLE)


async def models_of_a_router(request: web.Request) -> web.Response:
    """By the README of llama-server: in router mode each model has a status."""
    rows = [{"id": "a", "status": {"value": "loaded"}}, {"id": "b", "status": {"value": "unloaded"}}]
    return web.json_response({"object": "list", "data": rows})


@pytest.mark.parametrize("words", [ROUTED[0], SINGLE[1]], ids=["by its words", "by what it says"])
async def test_a_router_is_marked_and_its_models_are_resident_only_where_it_says_so(words: tuple[str, ...]) -> None:
    app, port = web.Application(), free_ports(1)[0]
    app.router.add_get("/v1/models", models_of_a_router)
    async with listening(app, port), aiohttp.ClientSession() as http:
        seen = await external.asked(http, external.External("llama.cpp", 7, "b", None, words, port))
    rows = seen.residencies("")
    assert [(r.profile, r.state) for r in rows] == [("a", ResidencyState.READY), ("b", ResidencyState.CACHED)]
    assert all("llama.cpp router, loads and evicts by itself, pid 7" in (r.detail or "") for r in rows)


async def test_a_router_that_tells_nothing_is_marked_by_its_words() -> None:
    async with aiohttp.ClientSession() as http:
        seen = await external.asked(http, external.External("llama.cpp", 7, "b", None, ROUTED[1], free_ports(1)[0]))
    assert seen.router
    assert [r.state for r in seen.residencies("")] == [ResidencyState.UNKNOWN]


async def test_a_router_is_not_taken_over(theirs: Theirs, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await ready(theirs)
    real = external.engines_here

    def as_router(*args: object) -> tuple[external.External, ...]:
        seen = real(*args)  # type: ignore[arg-type]
        return tuple(replace(e, words=(*e.words, "--models-max", "2")) if e.pid == theirs.pid else e for e in seen)

    monkeypatch.setattr(external, "engines_here", as_router)
    with pytest.raises(Refusal, match="is a router: it loads and evicts models by itself") as refused:
        await takeover.found(site.config, takeover.Wish(str(theirs.pid), str(theirs.key)))
    assert "one llama-server for each model" in refused.value.hints[0]
    assert not taken.read(site.config.hands).taken
