"""What a controller wants before it starts (root, state, keys), and a remote that goes silent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gridops.base.errors import BadSetup, EdgeError
from gridops.controller import intake
from gridops.controller.start import ground
from tests.controller.fleet import Desk, Fleet, profile


def test_a_checkout_without_a_root_says_what_to_do(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.commit({"profiles.d/coder.yaml": profile()})
    from gridops.controller.start import opening

    with pytest.raises(BadSetup, match="root document"):
        opening(ground(fleet.path), fleet.state)


def test_a_state_folder_of_another_fleet_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    fleet.begin()
    (fleet.state / "keys" / "controller.seed").unlink()
    from gridops.disk.keyring import create_secret

    create_secret(fleet.state / "keys" / "controller.seed", b"z" * 32)
    with pytest.raises(BadSetup, match="not in root"):
        Desk(fleet)


def test_keys_that_others_can_read_are_refused_with_the_command_that_repairs_them(fleet: Fleet) -> None:
    fleet.begin()
    (fleet.state / "keys" / "controller.seed").chmod(0o644)
    with pytest.raises(EdgeError) as no:
        Desk(fleet)
    assert "chmod" in " ".join((no.value.message, *no.value.hints))


def test_a_remote_is_fetched_and_its_silence_forgets_nothing(fleet: Fleet, tmp_path: Path) -> None:
    from gridops.files.git import Checkout

    fleet.begin()
    remote = tmp_path / "remote.git"
    fleet.git("init", "-q", "--bare", str(remote))
    fleet.git("push", "-q", str(remote), "main")
    source = intake.Source("main", str(remote))
    checkout = Checkout(fleet.path)
    tip = intake.tip(checkout, source, True)
    assert tip == checkout.head("main")
    shutil.rmtree(remote)
    with pytest.raises(EdgeError):
        intake.tip(checkout, source, True)
    assert intake.tip(checkout, source, False) == tip
