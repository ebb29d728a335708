"""Every profile that we ship or write for somebody is one that its engine takes: each launch, as planned, is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridops.base.ids import EngineName
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.model.plan import Launch
from gridops.planner.eligible import launch_of
from gridops_agent.engines import engines, services
from gridops_agent.engines.base import Engine, Service

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    ROOT,
    ROOT / "gridops/cli/skeleton",
    *sorted(p for p in (ROOT / "examples").iterdir() if (p / "profiles.d").is_dir()),
)
ADAPTERS: dict[EngineName, Engine | Service] = {
    **engines({}),
    **services({"comfyui": "http://127.0.0.1:1", "ollama": "http://127.0.0.1:1"}),
}


def launches(folder: Path) -> list[Launch]:
    return [
        launch_of(profile, config, backend)
        for profile in load(WorkingTree(folder)).desired.profiles
        for config in profile.configs
        for backend in config.backends
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name if p != ROOT else "root")
def test_no_engine_objects_to_a_config_of(folder: Path) -> None:
    asked = launches(folder)
    assert asked
    refused = {
        f"{launch.profile}/{launch.config} on {launch.backend}": words
        for launch in asked
        if (words := ADAPTERS[launch.engine].objection(launch)) is not None
    }
    assert refused == {}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name if p != ROOT else "root")
def test_every_engine_produces_what_a_profile_is_for_in(folder: Path) -> None:
    wrong = {
        f"{profile.name}/{config.name}": f"{config.engine} produces no {profile.modality}"
        for profile in load(WorkingTree(folder)).desired.profiles
        for config in profile.configs
        if str(profile.modality) not in ADAPTERS[config.engine].abilities.modalities
    }
    assert wrong == {}


def test_the_examples_speak_of_engines_of_each_kind() -> None:
    named = {launch.engine for folder in FOLDERS for launch in launches(folder)}
    assert named >= {"llama.cpp", "vllm", "comfyui"}
