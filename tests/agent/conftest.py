"""Fixtures of the agent's tests: one tiny model for all, and hosts that leave no process behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.site import Site
from tests.builders.tiny_gguf import Made, Shape, write_tiny_gguf


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Half a megabyte of valid llama model with a long context, so that requests can be made to last."""
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", shape=Shape(context=65_536))


@pytest.fixture
def make_site(tmp_path: Path, model: Made) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(name: str = "state", **fields: object) -> Site:
        site = Site(tmp_path / name, fields.pop("model", model), **fields).join()  # type: ignore[arg-type]
        made.append(site)
        return site

    yield make
    for site in made:
        site.end()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()
