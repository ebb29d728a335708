"""SSH signatures against what ssh-keygen recorded, and against ssh-keygen itself where the machine has it."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.trust import sshsig
from gridops.trust.keys import PersonSigner, namespace
from tests.trust.people import person

VECTORS = Path(__file__).parent / "vectors"
MESSAGE = (VECTORS / "message").read_bytes()
MIRA = PersonSigner.from_openssh((VECTORS / "without_passphrase").read_bytes())
NAMESPACE = namespace("approval")


def recorded(name: str) -> bytes:
    return sshsig.dearmor((VECTORS / f"{name}.sig").read_text())


def test_our_signature_is_byte_for_byte_the_one_of_ssh_keygen() -> None:
    ours = MIRA.sign("approval", MESSAGE)
    assert ours == recorded("approval")
    assert sshsig.armor(ours) == (VECTORS / "approval.sig").read_text()


def test_what_ssh_keygen_recorded_verifies() -> None:
    assert sshsig.verify(sshsig.SshKey(MIRA.public.raw), NAMESPACE, MESSAGE, recorded("approval"))
    assert sshsig.verify(sshsig.SshKey(MIRA.public.raw), "git", MESSAGE, recorded("git"))


@pytest.mark.parametrize("name", ["git", "sha256", "ecdsa"])
def test_another_namespace_hash_or_key_type_is_no_signature(name: str) -> None:
    assert not sshsig.verify(sshsig.SshKey(MIRA.public.raw), NAMESPACE, MESSAGE, recorded(name))


def test_another_key_or_message_is_no_signature() -> None:
    block = recorded("approval")
    assert not sshsig.verify(sshsig.SshKey(person("jon").public.raw), NAMESPACE, MESSAGE, block)
    assert not sshsig.verify(sshsig.SshKey(MIRA.public.raw), NAMESPACE, MESSAGE + b" ", block)


def test_every_single_byte_of_a_block_counts() -> None:
    block = recorded("approval")
    for at in range(len(block)):
        bent = bytes((*block[:at], block[at] ^ 1, *block[at + 1 :]))
        assert not sshsig.verify(sshsig.SshKey(MIRA.public.raw), NAMESPACE, MESSAGE, bent), at
    for other in (block + b"\x00", block[:-1], b"", block * 2):
        assert not sshsig.verify(sshsig.SshKey(MIRA.public.raw), NAMESPACE, MESSAGE, other)


def test_a_signature_over_the_bare_message_is_no_signature() -> None:
    """Signed without the SSHSIG preamble (as for an SSH login), the same key says nothing."""
    block = recorded("approval")
    raw = (VECTORS / "without_passphrase").read_bytes()
    assert PersonSigner.from_openssh(raw).public == MIRA.public
    bare = MIRA._private.sign(MESSAGE)
    assert not sshsig.verify(sshsig.SshKey(MIRA.public.raw), NAMESPACE, MESSAGE, block[:-64] + bare)


@given(st.binary(max_size=400))
def test_armour_comes_off_as_it_went_on(block: bytes) -> None:
    if block:
        assert sshsig.dearmor(sshsig.armor(block)) == block


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n",
        sshsig.armor(b"x" * 90)[:-30],
        sshsig.armor(b"x" * 90).replace("BEGIN SSH SIGNATURE", "BEGIN SSH KEY"),
        sshsig.armor(b"x" * 90).replace("END SSH SIGNATURE", "END SSH KEY"),
    ],
)
def test_text_without_armour_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="not an SSH signature"):
        sshsig.dearmor(text)


def test_armour_around_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not base64"):
        sshsig.dearmor(sshsig.armor(b"x" * 90).replace("eHh4", "eH!h4", 1))


def test_ssh_keygen_accepts_ours_and_refuses_it_elsewhere(tmp_path: Path) -> None:
    """The living oracle; without one on this machine the recorded signature stands in, byte for byte."""
    oracle = shutil.which("ssh-keygen")
    ours = sshsig.armor(MIRA.sign("approval", MESSAGE))
    if oracle is None:
        assert ours == (VECTORS / "approval.sig").read_text()
        return
    (tmp_path / "signature").write_text(ours)
    (tmp_path / "allowed").write_text(f"mira {MIRA.public.text}\n")

    def verdict(space: str, message: bytes) -> int:
        command = [oracle, "-Y", "verify", "-f", tmp_path / "allowed", "-I", "mira", "-n", space]
        return subprocess.run(
            [*command, "-s", tmp_path / "signature"], input=message, capture_output=True, check=False
        ).returncode

    assert verdict(NAMESPACE, MESSAGE) == 0
    assert verdict("git", MESSAGE) != 0
    assert verdict(NAMESPACE, b"other") != 0


def test_what_we_verify_ssh_keygen_verifies_and_the_other_way_round_but_for_forms_we_do_not_read(
    tmp_path: Path,
) -> None:
    """240 signatures, each with one small change in its block or in its text form, shown to both."""
    oracle = shutil.which("ssh-keygen")
    assert oracle is not None, "commits are signed with it too: install openssh-client"
    (tmp_path / "allowed").write_text(f"mira {MIRA.public.text}\n")
    rng, agreed, milder = random.Random(11), 0, []
    for number in range(240):
        block = recorded(rng.choice(["approval", "approval", "sha256", "git"]))
        text = bent_text(sshsig.armor(block), rng) if number % 2 else sshsig.armor(bent_block(block, rng))
        (tmp_path / "signature").write_bytes(text.encode("utf-8", "surrogateescape"))
        command = [oracle, "-Y", "verify", "-f", tmp_path / "allowed", "-I", "mira", "-n", NAMESPACE]
        shown = [*command, "-s", tmp_path / "signature"]
        theirs = subprocess.run(shown, input=MESSAGE, capture_output=True, check=False).returncode == 0
        ours = verifies(text)
        agreed += ours and theirs
        if ours:
            assert theirs, text
        elif theirs:
            milder.append(text)
    assert agreed > 20
    assert all(map(_not_read, milder)), "only a hash, or words behind the end, that we do not read are theirs alone"


def _not_read(text: str) -> bool:
    whole, _, after = text.partition("\n-----END SSH SIGNATURE-----")
    return bool(after.strip()) or b"sha256" in sshsig.dearmor(whole + "\n-----END SSH SIGNATURE-----\n")


def verifies(text: str) -> bool:
    try:
        return sshsig.verify(sshsig.SshKey(MIRA.public.raw), NAMESPACE, MESSAGE, sshsig.dearmor(text))
    except ValueError:
        return False


def bent_block(block: bytes, rng: random.Random) -> bytes:
    """A bit turned, a byte more or less, or a field exchanged for another of its kind."""
    at = rng.randrange(len(block))
    match rng.randrange(5):
        case 0:
            return block[:at] + bytes([block[at] ^ (1 << rng.randrange(8))]) + block[at + 1 :]
        case 1:
            return block[:at] + block[at + 1 :]
        case 2:
            return block[:at] + bytes([rng.randrange(256)]) + block[at:]
        case 3:
            return block.replace(b"sha512", b"sha256") if rng.random() < 0.5 else block.replace(b"SSHSIG", b"SSHSIX")
        case _:
            return block


def bent_text(text: str, rng: random.Random) -> str:
    """Line ends, empty lines, spaces, a letter changed: what mail programs and editors do to a signature."""
    at = rng.randrange(len(text))
    match rng.randrange(7):
        case 0:
            return text.replace("\n", "\r\n")
        case 6:
            return rng.choice([" ", "\n", "\u2028"]) + text
        case 1:
            return text[:at] + rng.choice(" \n=Ax-\t") + text[at:]
        case 2:
            return text[:at] + text[at + 1 :]
        case 3:
            return text.rstrip("\n")
        case 4:
            return text + rng.choice(["\n", "x", " ", "-----END SSH SIGNATURE-----\n"])
        case _:
            return text[:at] + rng.choice("ABz9+/") + text[at + 1 :]
