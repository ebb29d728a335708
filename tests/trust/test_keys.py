"""Keys: their written form, their ids, and that a signer shows its private half to nobody."""

from __future__ import annotations

import copy
import hashlib
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import limits
from gridops.trust import keys
from gridops.trust.keys import (
    MachineSigner,
    PassphraseNeeded,
    PersonSigner,
    PublicKey,
    each_signature_once,
    parse_key,
)
from tests.trust.people import machine, person, seed

VECTORS = Path(__file__).parent / "vectors"
MIRA_LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFFYYI0XvSmbck8rhUxeWU4N/gidjvilECcNnX/y+9Mm"
JON_LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF1IlHCv6ZZpWkcjMcTTUXr2PWX6EQhWJrMZ9RXqQpnp"


@given(st.binary(min_size=32, max_size=32), st.sampled_from(["ed25519", "ssh-ed25519"]))
def test_a_written_key_reads_back(raw: bytes, kind: str) -> None:
    key = PublicKey(kind, raw)  # type: ignore[arg-type]
    assert parse_key(key.text) == key
    assert parse_key(f"  {key.text}\n") == key


def test_the_key_id_covers_type_and_key() -> None:
    raw = bytes(range(32))
    expected = "sha256:" + hashlib.sha256(b"ed25519\x00" + raw).hexdigest()
    assert PublicKey("ed25519", raw).key_id == expected
    assert PublicKey("ssh-ed25519", raw).key_id == "sha256:" + hashlib.sha256(b"ssh-ed25519\x00" + raw).hexdigest()


def test_an_openssh_line_may_carry_a_comment_that_is_dropped() -> None:
    assert parse_key(f"{MIRA_LINE} mira@example.invalid, the second token").text == MIRA_LINE


HEX = "00" * 32
NOT_KEYS = {
    "nothing": "",
    "another scheme": "rsa:" + HEX,
    "capital digits": "ed25519:" + "AB" * 32,
    "too short": "ed25519:" + HEX[2:],
    "too long": "ed25519:" + HEX + "00",
    "digits of another script": "ed25519:" + "٠" * 64,
    "a comment after hex": f"ed25519:{HEX} mira",
    "no second word": "ssh-ed25519",
    "not base64": "ssh-ed25519 AAAA!",
    "beyond ASCII": "ssh-ed25519 é",
    "a shorter key": MIRA_LINE[:-8],
    "a longer key": MIRA_LINE + "AAAA",
    "padding that is not there": MIRA_LINE + "====",
    "another type inside": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE4AAAAIFFYYI0XvSmbck8rhUxeWU4N/gidjvilECcNnX/y+9Mm",
    "a hardware key": "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t",
    "escape codes": "\x1b[2J",
}


@pytest.mark.parametrize("text", NOT_KEYS.values(), ids=NOT_KEYS.keys())
def test_anything_else_is_not_a_key(text: str) -> None:
    with pytest.raises(ValueError, match="is not a key") as caught:
        parse_key(text)
    assert "\x1b" not in str(caught.value)


def test_a_private_key_in_the_place_of_a_public_one_is_named_and_not_repeated() -> None:
    """Somebody forgot the `.pub`: what is said stands in logs and on screens."""
    form, none = serialization.PrivateFormat, serialization.NoEncryption()
    key = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
    for of in (form.PKCS8, form.OpenSSH):
        text = key.private_bytes(serialization.Encoding.PEM, of, none).decode()
        with pytest.raises(ValueError, match="this is a private key") as caught:
            parse_key(text)
        assert not [line for line in text.splitlines() if line in str(caught.value)]
    with pytest.raises(ValueError, match="this is not a key") as caught:
        parse_key("Zm9yZ290dGVuIHNlZWQgb2YgYSBjb250cm9sbGVy")
    assert "Zm9y" not in str(caught.value)


def test_a_file_of_two_keys_is_the_key_of_nobody() -> None:
    with pytest.raises(ValueError, match="more than one line"):
        parse_key(f"{MIRA_LINE}\n{MIRA_LINE}\n")
    assert parse_key(f"{MIRA_LINE}\n") == parse_key(MIRA_LINE)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_keys_and_seeds_have_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        PublicKey("ed25519", b"x" * size)
    for made in (MachineSigner, PersonSigner):
        with pytest.raises(ValueError, match="32 bytes"):
            made.from_seed(b"x" * size)


@pytest.mark.parametrize("signer", [machine("a"), person("a")], ids=["machine", "person"])
def test_a_signer_verifies_by_its_own_key_message_and_kind(signer: MachineSigner | PersonSigner) -> None:
    signature = signer.sign("root", b"message")
    assert signer.public.verifies("root", b"message", signature)
    assert not signer.public.verifies("root", b"massage", signature)
    assert not signer.public.verifies("root", b"message", signature[:-1])
    assert not signer.public.verifies("root", b"message", b"")
    assert not PublicKey(signer.public.type, machine("b").public.raw).verifies("root", b"message", signature)


def test_a_persons_signature_counts_in_its_namespace_only() -> None:
    signature = person("a").sign("root", b"message")
    assert not person("a").public.verifies("operator", b"message", signature)


def test_a_public_key_that_is_no_point_of_the_curve_verifies_nothing() -> None:
    assert not PublicKey("ed25519", b"\xff" * 32).verifies("root", b"", b"\x00" * 64)


@pytest.mark.parametrize("signer", [machine("a"), person("a")], ids=["machine", "person"])
def test_a_signer_shows_and_yields_no_private_key(signer: MachineSigner | PersonSigner) -> None:
    private = seed("machine a" if isinstance(signer, MachineSigner) else "person a")
    assert private.hex() not in repr(signer)
    assert signer.public.key_id in repr(signer)
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            take(signer)


def test_ssh_keygens_private_keys_are_opened() -> None:
    plain = PersonSigner.from_openssh((VECTORS / "without_passphrase").read_bytes())
    assert plain.public.text == MIRA_LINE
    assert plain.public_line("mira") == f"{MIRA_LINE} mira"
    assert plain.public_line("") == MIRA_LINE
    given_one_too_many = PersonSigner.from_openssh((VECTORS / "without_passphrase").read_bytes(), b"not needed")
    assert given_one_too_many.public == plain.public
    locked = PersonSigner.from_openssh((VECTORS / "with_passphrase").read_bytes(), b"correct horse")
    assert locked.public.text == JON_LINE


def test_what_is_wrong_with_a_private_key_is_said() -> None:
    locked = (VECTORS / "with_passphrase").read_bytes()
    with pytest.raises(PassphraseNeeded):
        PersonSigner.from_openssh(locked)
    with pytest.raises(ValueError, match="wrong passphrase"):
        PersonSigner.from_openssh(locked, b"wrong horse")
    with pytest.raises(ValueError, match="not an OpenSSH private key"):
        PersonSigner.from_openssh(b"hello")
    with pytest.raises(ValueError, match="is not ssh-ed25519"):
        PersonSigner.from_openssh((VECTORS / "ecdsa").read_bytes())


@pytest.mark.parametrize("passphrase", [None, b"correct horse"])
def test_our_private_keys_come_back(passphrase: bytes | None) -> None:
    written = person("a").to_openssh(passphrase)
    assert PersonSigner.from_openssh(written, passphrase).public == person("a").public
    if passphrase:
        with pytest.raises(PassphraseNeeded):
            PersonSigner.from_openssh(written)


@pytest.mark.parametrize("signer", [machine("a"), person("a")], ids=["machine", "person"])
def test_a_remembered_verdict_is_one_on_these_bytes_of_this_kind_under_this_key(
    signer: MachineSigner | PersonSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = machine("b") if isinstance(signer, MachineSigner) else person("b")
    asked: list[bytes] = []
    verifies = PublicKey._verifies

    def counted(self: PublicKey, kind: str, pae: bytes, signature: bytes) -> bool:
        asked.append(pae)
        return verifies(self, kind, pae, signature)

    monkeypatch.setattr(PublicKey, "_verifies", counted)
    before = signer.sign("grant", b"before")
    with each_signature_once():
        for _ in range(2):
            assert signer.public.verifies("grant", b"before", before)
        assert asked == [b"before"]
        made = signer.sign("grant", b"text")
        assert signer.public.verifies("grant", b"text", made)
        assert asked == [b"before"]
        for _ in range(2):
            assert not signer.public.verifies("grant", b"texts", made)
            assert not signer.public.verifies("grant", b"text", made[:-1] + bytes([made[-1] ^ 1]))
            assert not other.public.verifies("grant", b"text", made)
            assert signer.public.verifies("plan", b"text", made) is isinstance(signer, MachineSigner)
        assert len(asked) == 5
    assert signer.public.verifies("grant", b"text", made)
    assert len(asked) == 6


def test_verdicts_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VERDICTS_KEPT", 3)
    signer = machine("a")
    with each_signature_once():
        for n in range(10):
            signer.sign("grant", b"%d" % n)
            assert len(keys._verdicts.get() or ()) == min(n + 1, 3)
