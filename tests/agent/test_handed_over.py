"""`secret:NAME` from the service manager: found without a folder, refused as a file would be, told to no engine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gridops.base.errors import Refusal
from gridops.disk.credentials import VARIABLE
from gridops.disk.keyring import create_secret
from gridops_agent.artifacts.settings import Secrets
from gridops_agent.supervise import ASKED, KEPT

ROOT = Path(__file__).parents[2]


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "gridops.secret.hub").write_text("hf_token\n")
    (folder / "gridops.secret.hub").chmod(0o400)
    folder.chmod(0o500)
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_what_is_handed_over_needs_no_folder(handed: Path, tmp_path: Path) -> None:
    for folder in (None, tmp_path / "secrets"):
        assert Secrets(folder).get("secret:hub").reveal() == b"hf_token"
    create_secret(tmp_path / "secrets" / "other", b"value")
    assert Secrets(tmp_path / "secrets").get("secret:other").reveal() == b"value", "what is not, lies in the folder"


def test_two_values_of_one_name_are_none(handed: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    create_secret(secrets / "hub", b"hf_token")
    assert Secrets(secrets).get("secret:hub").reveal() == b"hf_token"
    create_secret(secrets / "hub", b"another", instead=True)
    with pytest.raises(Refusal, match="are not the same") as caught:
        Secrets(secrets).get("secret:hub")
    assert caught.value.code == "no_credential"
    assert "another" not in f"{caught.value} {caught.value.hints}"
    assert caught.value.hints[0] == f"rm {secrets / 'hub'}"


def test_what_is_open_to_others_is_refused_and_the_folder_is_no_way_out(handed: Path, tmp_path: Path) -> None:
    create_secret(tmp_path / "secrets" / "hub", b"hf_token")
    (handed / "gridops.secret.hub").chmod(0o444)
    with pytest.raises(Refusal, match="can be read or changed by others"):
        Secrets(tmp_path / "secrets").get("secret:hub")


def test_without_either_both_ways_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(Refusal) as caught:
        Secrets(None).get("secret:hub")
    assert "or let systemd hand it over: LoadCredential=gridops.secret.hub:PATH" in caught.value.hints


def test_no_engine_is_told_where_they_lie() -> None:
    assert VARIABLE not in (*KEPT, *ASKED)


def units() -> list[str]:
    """The units that the how-to shows."""
    text = (ROOT / "docs/howto/run-as-services.md").read_text("utf-8")
    return [block for block in re.findall(r"```ini\n(.*?)```", text, re.DOTALL) if "ExecStart=" in block]


def test_the_controllers_unit_hands_over_every_key_by_its_name() -> None:
    from gridops.controller.statedir import CREDENTIALS

    (unit,) = units()
    assert re.findall(r"LoadCredential=([^:]+):", unit) == list(CREDENTIALS.values())


if shutil.which("systemd-analyze") is not None:

    def test_systemd_finds_nothing_wrong_with_the_controllers_unit(tmp_path: Path) -> None:
        (unit,) = units()
        file = tmp_path / "gridops.service"
        file.write_text(unit.replace("/opt/gridops/bin/gridops", "/bin/true"))
        argv = ["systemd-analyze", "verify", "--man=no", str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
