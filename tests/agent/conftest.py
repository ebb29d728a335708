"""Fixtures of the agent's tests: one tiny model for all, and hosts that leave no process behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops_agent.keep.ways import Image, Ways
from tests.agent.box_runtime import Runtime, Server
from tests.agent.boxed import REFERENCE
from tests.agent.driver import ALLOWED, Driver, build, compiler
from tests.agent.site import Site
from tests.agent.story import Story
from tests.builders.tiny_gguf import Made, Shape, write_tiny_gguf

_LEFT_OUT = pytest.StashKey[int]()


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


@pytest.fixture
def story() -> Story:
    """A heart by itself."""
    return Story()


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver library of the tests, built once."""
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(driver_library: Path, tmp_path: Path) -> Driver:
    """A driver whose cards a test says and moves."""
    made = Driver(driver_library, tmp_path / "cards")
    made.say()
    return made


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Server]:
    runtime = Runtime(tmp_path, images={REFERENCE: "sha256:" + "cd" * 32})
    with tempfile.TemporaryDirectory() as short, Server(Path(short) / "s", runtime) as server:
        yield server


@pytest.fixture
def boxed(boxes: Server, site: Site) -> Site:
    """A host that runs llama.cpp as a container."""
    ways = Ways(images={"llama.cpp": Image(REFERENCE, "cpu", port=8_080)}, socket=boxes.url)
    site.config = replace(site.config, ways=ways)
    return site


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where it is allowed by name, what needs a C compiler is left out; `pytest_terminal_summary` says so."""
    if compiler() is None and os.environ.get(ALLOWED):
        out = [item for item in items if "driver_library" in getattr(item, "fixturenames", ())]
        config.stash[_LEFT_OUT] = len(out)
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(
            f"NOT TESTED: {count} tests of the NVIDIA driver, for want of a C compiler", red=True
        )
