"""The ten steps of the demo, end to end: a real repository, real daemons, a real engine and model.

Each test is one step and needs the ones before it, so they run in order and a failure fails what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from examples.demo.__main__ import model_folder
from examples.demo.scenes import SCENES, Story
from examples.demo.stage import Stage
from tests.e2e.sweep import Sweep


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Everything that the demo shows."""
    return []


@pytest.fixture(scope="module")
def story(said: list[str]) -> Iterator[Story]:
    with Stage(say=said.append) as stage:
        yield Story(stage, model_folder())


@pytest.fixture(scope="module")
def sweep(story: Story) -> Iterator[Sweep]:
    with Sweep(story.stage) as sweep:
        yield sweep


@pytest.fixture(scope="module")
def told() -> list[str]:
    """Names of the steps that were real."""
    return []


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_step_is_real(scene: Callable[[Story], None], story: Story, told: list[str], sweep: Sweep) -> None:
    before = [s.__name__ for s in SCENES[: SCENES.index(scene)]]
    assert told == before, "a step before this one was not real"
    scene(story)
    told.append(scene.__name__)


def test_the_whole_run_has_left_no_secret_anywhere(told: list[str], sweep: Sweep, said: list[str]) -> None:
    """Git objects, journals, ledgers, logs, plans, what was shown, and every environment and command line meanwhile."""
    assert len(told) == len(SCENES), "a step before this one was not real"
    assert sweep.leaks(*said) == []
    assert sweep.loose == set()
    kinds = {what.rpartition("/")[2].partition(" ")[0] for what in sweep.secrets}
    assert {"controller.seed", "host.seed", "front.key", "gateway.key", "engine.key", "join"} <= kinds, kinds
    assert len(sweep.told) > 20
