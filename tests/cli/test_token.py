"""A person whose keys lie in a hardware token: asked through the real ssh-keygen, which asks an SSH agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gridops.cli.person import chain_of, key_folder
from gridops.cli.token import token_at
from gridops.trust.keys import namespace
from gridops.trust.root import RoleName
from tests.builders.calls import Call
from tests.builders.token import Token, agent
from tests.cli.conftest import Trusted

SECOND = Path("policies/trust/root/2.json")


@pytest.fixture
def token() -> Token:
    return Token(b"t" * 32)


@pytest.fixture
def plugged(token: Token, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Token]:
    with agent(token, tmp_path) as address:
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        yield token


def named(token: Token, name: str, folder: Path | None = None) -> Path:
    path = (folder or key_folder()) / f"{name}.pub"
    path.write_text(f"{token.public.text} {name}@token\n")
    return path


@pytest.fixture
def founded(fleet: Path, call: Call, plugged: Token, tmp_path: Path) -> Path:
    """A fleet whose only root key lies in the token."""
    key_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    named(plugged, "mira.root")
    made = call("-C", fleet, "trust", "init", "--person", "mira", "--state", tmp_path / "state")
    assert made.code == 0, made.err
    return fleet


def test_a_fleet_is_founded_by_a_token_and_its_root_changed_by_it(founded: Path, call: Call, plugged: Token) -> None:
    assert not (key_folder() / "mira.root").exists(), "no key is made beside the token's"
    role = chain_of(founded).root.role(RoleName.ROOT)
    assert role is not None
    assert [entry.key for entry in role.keys] == [plugged.public.text]
    assert "mira: by a hardware token, if it is touched" in call("-C", founded, "trust", "show").out
    again = call("-C", founded, "trust", "renew")
    assert again.code == 0, again.err
    assert chain_of(founded).root.version == 2
    assert len(plugged.asked) == 2


def test_an_approver_with_a_token_is_added_and_signs(
    trusted: Trusted, call: Call, plugged: Token, tmp_path: Path
) -> None:
    assert call("-C", trusted.root, "trust", "add", "jon", "--key", named(plugged, "jon", tmp_path)).code == 0
    named(plugged, "jon")
    signer = token_at(key_folder() / "jon")
    assert signer is not None
    assert signer.public in chain_of(trusted.root).keys("approver")
    assert signer.public.verifies("approval", b"bytes", signer.sign("approval", b"bytes"))


@pytest.mark.parametrize(
    ("flags", "seed", "said"),
    [
        (b"\x00", b"t" * 32, "no signature of this key with a touch"),
        (b"\x01", b"u" * 32, "the token did not sign"),
    ],
    ids=["nobody touched it", "another token"],
)
def test_what_a_token_does_not_sign_changes_nothing(
    founded: Path, call: Call, plugged: Token, flags: bytes, seed: bytes, said: str
) -> None:
    before = sorted((founded / "policies/trust").rglob("*"))
    plugged.flags, plugged.seed = flags, seed
    refused = call("-C", founded, "trust", "renew")
    assert refused.code == 1
    assert f"mira.root.pub: {'what came back is ' if flags == bytes(1) else ''}{said}" in refused.err
    assert sorted((founded / "policies/trust").rglob("*")) == before


def test_without_an_agent_or_the_token_the_answer_says_what_to_do(
    fleet: Path, call: Call, token: Token, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    named(token, "mira.root")
    refused = call("-C", fleet, "trust", "init", "--person", "mira", "--state", tmp_path / "state")
    assert refused.code == 1, refused.err
    assert "mira.root.pub: the token did not sign" in refused.err
    assert "is it plugged in" in refused.err
    assert f"-n {namespace('root')}" not in refused.err
    assert not (fleet / "policies/trust/root/1.json").exists()


def test_without_ssh_keygen_the_answer_says_what_is_missing(
    fleet: Path, call: Call, token: Token, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    named(token, "mira.root")
    monkeypatch.setattr("gridops.cli.token.KEYGEN", str(tmp_path / "no-ssh-keygen"))
    refused = call("-C", fleet, "trust", "init", "--person", "mira", "--state", tmp_path / "state")
    assert refused.code == 1
    assert "there is no ssh-keygen here" in refused.err
    assert "openssh-client" in refused.err


def test_an_ordinary_public_key_beside_a_file_is_no_token(trusted: Trusted, call: Call) -> None:
    signer = key_folder() / "mira"
    assert signer.exists()
    (key_folder() / "mira.pub").write_text("ssh-ed25519 AAAA damaged\n")
    assert token_at(signer) is None
    assert call("-C", trusted.root, "trust", "renew").code == 0
    assert (trusted.root / SECOND).exists()
