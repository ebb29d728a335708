"""The ten steps of the demo, end to end: a real repository, real daemons, a real engine and model.

Each test is one step and needs the ones before it, so they run in order and a failure fails what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from examples.demo.__main__ import model_folder
from examples.demo.scenes import SCENES, Story
from examples.demo.stage import Stage


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with Stage() as stage:
        yield Story(stage, model_folder())


@pytest.fixture(scope="module")
def told() -> list[str]:
    """Names of the steps that were real."""
    return []


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_step_is_real(scene: Callable[[Story], None], story: Story, told: list[str]) -> None:
    before = [s.__name__ for s in SCENES[: SCENES.index(scene)]]
    assert told == before, "a step before this one was not real"
    scene(story)
    told.append(scene.__name__)
