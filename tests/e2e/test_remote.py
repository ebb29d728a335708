"""A controller that follows a remote: people push, it fetches, plans and pushes its plans back."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.scenes import TEMPLATE, Story
from examples.demo.stage import Stage


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with Stage(say=lambda _: None) as stage:
        made = Story(stage, tmp_path)
        shutil.copytree(TEMPLATE, stage.fleet)
        settings = stage.fleet / "policies/fleet.yaml"
        text = settings.read_text().replace(":7443", f":{made.port}")
        settings.write_text(text + f'remote: {{url: "{stage.root}/forge.git", branch: main, fetch_every: 1s}}\n')
        stage.git("init", "--quiet", "--initial-branch", "main")
        stage.run("gridops", "trust", "init", "--person", "mira", "--state", str(stage.root / "controller"))
        stage.commit("Found the fleet")
        stage.git("clone", "--quiet", "--bare", str(stage.fleet), str(stage.root / "forge.git"))
        stage.git("clone", "--quiet", str(stage.root / "forge.git"), str(stage.root / "laptop"))
        yield made


def test_what_people_push_is_followed_and_a_forge_that_is_away_stops_nothing(story: Story) -> None:
    stage = story.stage
    laptop, forge = stage.root / "laptop", stage.root / "forge.git"
    story.start_controller()

    def push(message: str) -> str:
        for args in (("commit", "-q", "--allow-empty", "-am", message), ("push", "-q", "origin", "main")):
            subprocess.run(["git", *args], cwd=laptop, env=stage.env, check=True)
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=laptop, env=stage.env, capture_output=True, check=True)
        return done.stdout.decode().strip()

    first = push("From a laptop")
    stage.until("the pushed commit is in force", lambda: story.status()["intent"].get("commit") == first)
    assert stage.git("rev-parse", "HEAD").strip() != first, "the controller's checkout itself is not moved"

    forge.rename(forge.with_name("away"))
    stage.until("the failure is told", lambda: story.status()["intent"].get("error"))
    assert story.status()["intent"]["commit"] == first
    forge.with_name("away").rename(forge)
    second = push("From a laptop again")
    stage.until("it goes on", lambda: story.status()["intent"].get("commit") == second, seconds=60)
    assert not story.status()["intent"].get("error")
