"""The controller's keys from the service manager: which place counts, what a rotation does, what doctor says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridops.base.errors import BadSetup
from gridops.controller.statedir import CREDENTIALS, GATEWAY, SEED, TLS_CERT, TLS_KEY, StateDir
from gridops.disk.credentials import VARIABLE
from gridops.disk.keyring import create_secret
from gridops.trust.keys import MachineSigner
from tests.controller.fleet import Desk

OLD, NEW = b"o" * 32, b"n" * 32


def key(seed: bytes) -> str:
    return MachineSigner.from_seed(seed).public.text


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What systemd hands over."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    for name, content in ((SEED, OLD), (TLS_KEY, b"tls key"), (GATEWAY, b"api key")):
        (folder / CREDENTIALS[name]).write_bytes(content)
        (folder / CREDENTIALS[name]).chmod(0o400)
    folder.chmod(0o500)
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    """A folder without any private key."""
    (tmp_path / "state" / "keys").mkdir(mode=0o700, parents=True)
    (tmp_path / "state" / TLS_CERT).write_text("PEM")
    return StateDir(tmp_path / "state")


def test_every_key_may_come_from_the_service_manager_and_none_lies_in_the_folder(state: StateDir, handed: Path) -> None:
    assert state.signer().public.text == key(OLD)
    assert state.tls_key == handed / CREDENTIALS[TLS_KEY]
    state.check_tls()
    (gateway,) = state.gateway_keys()
    assert gateway.name == "gateway"
    assert state.whole
    assert state.doubled() == ()


def test_a_file_in_the_folder_comes_first_so_that_a_rotation_holds(state: StateDir, handed: Path) -> None:
    create_secret(state.path / "keys/controller.next.seed", NEW)
    state.promote()
    assert state.signer().public.text == key(NEW), "by the old one nobody would believe it after the next start"
    assert state.doubled() == (CREDENTIALS[SEED],)
    create_secret(state.path / SEED, OLD, instead=True)
    assert state.doubled() == (), "the same in both places is one key"


def test_a_credential_that_is_open_to_others_is_refused_and_nothing_else_is_looked_for(
    state: StateDir, handed: Path
) -> None:
    (handed / CREDENTIALS[SEED]).chmod(0o404)
    for name in (TLS_KEY, GATEWAY):
        (handed / CREDENTIALS[name]).chmod(0o404)
    for ask in (state.signer, state.check_tls, state.gateway_keys):
        with pytest.raises(BadSetup, match="can be read or changed by others"):
            ask()


def test_without_either_the_way_to_both_is_named(state: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(BadSetup, match="missing") as caught:
        state.signer()
    assert any("LoadCredential=gridops.controller.seed:PATH" in hint for hint in caught.value.hints)
    assert not state.whole
    assert state.gateway_keys() == ()


def test_what_is_handed_over_and_is_no_key_is_named_by_its_place(state: StateDir, handed: Path) -> None:
    (handed / CREDENTIALS[SEED]).chmod(0o600)
    (handed / CREDENTIALS[SEED]).write_bytes(b"short")
    (handed / CREDENTIALS[SEED]).chmod(0o400)
    with pytest.raises(BadSetup, match=f"{handed / CREDENTIALS[SEED]}: not a controller key"):
        state.signer()


def test_a_controller_whose_keys_are_handed_over_goes_on_as_the_same(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hosts believe it, and nothing of its keys lies in its folder."""
    desk.settle(2)
    folder, before = desk.controller.dir.path, desk.controller.signer.public
    given = tmp_path / "given"
    given.mkdir()
    for name in (SEED, GATEWAY):
        (given / CREDENTIALS[name]).write_bytes((folder / name).read_bytes())
        (given / CREDENTIALS[name]).chmod(0o400)
        (folder / name).unlink()
    given.chmod(0o500)
    monkeypatch.setenv(VARIABLE, str(given))
    desk.restart()
    assert desk.controller.signer.public == before
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    names = {path.name for path in folder.rglob("*")}
    assert names.isdisjoint({"controller.seed", "gateway.key"})
