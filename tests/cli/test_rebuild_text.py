"""What `gridops controller rebuild` tells people to do next: commands that start this controller, keys they have."""

from __future__ import annotations

import shutil

import pytest


@pytest.mark.parametrize("verb", [("controller", "rebuild"), ("watch", "--once")])
def test_a_fleet_without_its_keys_here_wants_the_copy_of_them_and_no_new_ones(verb, trusted, call, tmp_path) -> None:
    answer = call("-C", trusted.root, *verb, "--state", tmp_path / "elsewhere")
    assert answer.code == 78
    assert "controller.seed: missing" in answer.err
    assert f"`keys` folder there: {tmp_path / 'elsewhere/keys'}" in answer.err
    assert "trust init" not in answer.err


def test_the_command_that_starts_it_names_the_same_repository_and_folder(trusted, call, tmp_path) -> None:
    state = tmp_path / "the state"
    shutil.copytree(trusted.state, state)
    answer = call("-C", trusted.root, "controller", "rebuild", "--state", state)
    assert answer.code == 0, answer.err
    assert f"Start it: gridops -C {trusted.root} watch --state '{state}'\n" in answer.out
