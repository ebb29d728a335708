"""Hardware tokens (sk-ssh-ed25519): what they sign counts as a file's key does, if somebody touched them."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.errors import Bug, Refusal
from gridops.base.ids import CommitId, PersonName
from gridops.trust import sshsig
from gridops.trust.commit import NAMESPACE as GIT
from gridops.trust.commit import read_commit, signed_by
from gridops.trust.envelope import seal, split, verified
from gridops.trust.keys import PublicKey, namespace, parse_key
from gridops.trust.root import Role, RoleKey, RoleName, genesis, seal_root
from tests.builders.commits import header, name_of, unsigned, with_header
from tests.builders.token import KNOWN, Token, string
from tests.trust.people import person, role, root

MESSAGE = b"what was decided"
SPACE = namespace("approval")
TOKEN = Token(b"t" * 32)
SSH = TOKEN.ssh


def signed(token: Token = TOKEN) -> bytes:
    return token.sign_for(SPACE, MESSAGE)


def keygen_believes(where: Path, public: PublicKey, block: bytes, space: str = SPACE) -> bool:
    oracle = shutil.which("ssh-keygen")
    assert oracle is not None, "commits are signed with it too: install openssh-client"
    (where / "signature").write_text(sshsig.armor(block))
    (where / "allowed").write_text(f"mira {public.text}\n")
    asks = [oracle, "-Y", "verify", "-f", where / "allowed", "-I", "mira", "-n", space, "-s", where / "signature"]
    return subprocess.run(asks, input=MESSAGE, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("flags", [b"\x01", KNOWN])
def test_a_touched_token_signs_and_ssh_keygen_agrees(tmp_path: Path, flags: bytes) -> None:
    block = signed(Token(b"t" * 32, flags=flags))
    assert sshsig.verify(SSH, SPACE, MESSAGE, block)
    assert keygen_believes(tmp_path, TOKEN.public, block)
    assert not sshsig.verify(SSH, "git", MESSAGE, block)
    assert not sshsig.verify(SSH, SPACE, MESSAGE + b" ", block)
    assert sshsig.claims(block) == (SSH, SPACE)


@pytest.mark.parametrize("flags", [b"\x00", b"\x04", b"\x41", b"\x81", b"\xff"])
def test_without_a_touch_or_with_words_that_nobody_knows_a_token_says_nothing(flags: bytes) -> None:
    """ssh-keygen is milder; here a touch is what a token is for."""
    block = signed(Token(b"t" * 32, flags=flags))
    assert not sshsig.verify(SSH, SPACE, MESSAGE, block)
    assert sshsig.flaw(SSH, SPACE, block) == "a signature of a token that nobody touched"


def test_every_single_byte_counts_the_flags_and_the_counter_too() -> None:
    block = signed(Token(b"t" * 32, counter=7))
    for at in range(len(block)):
        bent = bytes((*block[:at], block[at] ^ 4, *block[at + 1 :]))
        assert not sshsig.verify(SSH, SPACE, MESSAGE, bent), at
    for other in (block + b"\x00", block[:-1], block[:-5], b""):
        assert not sshsig.verify(SSH, SPACE, MESSAGE, other)


def test_a_key_for_one_application_is_none_for_another_and_none_of_a_file() -> None:
    other = Token(b"t" * 32, application="ssh:other")
    plain = sshsig.SshKey(SSH.raw)
    assert sshsig.verify(other.ssh, SPACE, MESSAGE, signed(other))
    assert not sshsig.verify(SSH, SPACE, MESSAGE, signed(other))
    assert not sshsig.verify(plain, SPACE, MESSAGE, signed())
    file = person("mira")
    of_file = sshsig.SshKey(file.public.raw)
    as_token = sshsig.SshKey(file.public.raw, "ssh:")
    block = file.sign("approval", MESSAGE)
    assert sshsig.verify(of_file, SPACE, MESSAGE, block)
    assert not sshsig.verify(as_token, SPACE, MESSAGE, block)
    # The same bytes with the other key's name over them: what is signed differs, so the name alone brings nothing.
    renamed = block.replace(string(of_file.blob), string(as_token.blob))
    assert not sshsig.verify(as_token, SPACE, MESSAGE, renamed)


def test_what_we_verify_ssh_keygen_verifies(tmp_path: Path) -> None:
    rng, agreed = random.Random(5), 0
    for number in range(80):
        block = signed(Token(b"t" * 32, flags=rng.choice([b"\x01", KNOWN, b"\x00"])))
        if number % 2:
            at = rng.randrange(len(block))
            block = block[:at] + bytes([block[at] ^ (1 << rng.randrange(8))]) + block[at + 1 :]
        ours = sshsig.verify(SSH, SPACE, MESSAGE, block)
        agreed += ours
        assert not ours or keygen_believes(tmp_path, TOKEN.public, block)
    assert agreed > 15


def test_a_token_s_key_is_written_as_openssh_writes_it() -> None:
    text = TOKEN.public.text
    assert parse_key(f"{text} mira@token") == TOKEN.public
    assert text.startswith("sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t")
    assert TOKEN.public.of_person
    assert TOKEN.public.in_token
    assert TOKEN.public.key_id != PublicKey("ssh-ed25519", SSH.raw).key_id


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        SSH.blob[:-1],
        SSH.blob + b"\x00",
        sshsig.SshKey(SSH.raw, "web:").blob,
        sshsig.SshKey(SSH.raw, "").blob,
        string(b"sk-ssh-ed25519@openssh.com") + string(SSH.raw) + string(b"ssh:\xff"),
        string(b"sk-ssh-ed25519@openssh.com") + string(SSH.raw),
        string(b"sk-ssh-ed25519@openssh.com") + string(SSH.raw[:-1]) + string(b"ssh:"),
        string(b"ssh-ed25519") + string(SSH.raw) + string(b"ssh:"),
        string(b"ecdsa-sha2-nistp256") + string(SSH.raw),
        struct.pack(">I", 1 << 31),
    ],
    ids=map(str, range(11)),
)
def test_what_is_not_exactly_such_a_key_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"OpenSSH|application"):
        sshsig.read_blob(blob)


def test_only_a_token_s_key_has_an_application() -> None:
    with pytest.raises(ValueError, match="application"):
        PublicKey("ssh-ed25519", SSH.raw, "ssh:")
    with pytest.raises(ValueError, match="application"):
        PublicKey(sshsig.TOKEN_TYPE, SSH.raw)


def holding(name: RoleName, *keys: tuple[str, PublicKey]) -> Role:
    entries = tuple(RoleKey(holder=PersonName(holder), key=public.text) for holder, public in keys)
    return Role(name=name, threshold=1, keys=entries)


def test_a_root_whose_only_key_lies_in_a_token_changes_hands_like_any_other() -> None:
    first = root(holding(RoleName.ROOT, ("mira", TOKEN.public)))
    chain = genesis(seal_root(first, TOKEN))
    second = replace(first, version=2, fleet=chain.fleet)
    assert chain.advance(seal_root(second, TOKEN)).root.version == 2
    with pytest.raises(Refusal, match="signed by 0 of the 1 person"):
        chain.advance(seal_root(second, Token(b"u" * 32)))
    with pytest.raises(Refusal, match="signed by 0 of the 1 person"):
        chain.advance(seal_root(second, Token(b"t" * 32, flags=b"\x00")))


@pytest.mark.parametrize("holder", ["mira", "jon"])
@pytest.mark.parametrize("application", ["ssh:", "ssh:other"])
def test_one_key_in_two_forms_is_one_key(application: str, holder: str) -> None:
    """A threshold counts distinct keys: what one secret can sign twice counts once."""
    twin = PublicKey.of_ssh(sshsig.SshKey(person("mira").public.raw, application))
    twice = root(holding(RoleName.APPROVER, ("mira", person("mira").public), (holder, twin)))
    with pytest.raises(Refusal, match=r"twice|two holders"):
        genesis(seal_root(twice, person("mira.root")))


def test_a_token_signs_for_people_and_never_for_machines() -> None:
    with pytest.raises(Bug, match="machines"):
        seal("grant", b"{}", TOKEN)
    as_machine = root(role(RoleName.CONTROLLER, 1, "controller"), holding(RoleName.CONTROLLER, ("c", TOKEN.public)))
    with pytest.raises(Refusal, match="expected an ed25519 key"):
        genesis(seal_root(as_machine, person("mira.root")))


def test_an_approval_by_a_token_and_one_by_a_file_are_two(tmp_path: Path) -> None:
    sealed = split(seal("approval", b"{}", TOKEN, person("jon")), kind="approval")
    keys = [TOKEN.public, person("jon").public, person("mira").public]
    assert verified(sealed, "approval", keys) == (TOKEN.public, person("jon").public)


def test_a_commit_that_a_token_signed_is_believed_by_us_and_by_git(tmp_path: Path) -> None:
    chain = genesis(seal_root(root(holding(RoleName.CHANGE, ("mira", TOKEN.public))), person("mira.root")))
    payload = unsigned(["a" * 40])

    def commit(token: Token) -> bytes:
        return with_header(payload, header(sshsig.armor(token.sign_for(GIT, payload))))

    raw = commit(TOKEN)
    assert signed_by(read_commit(name_of(raw), raw), chain).holder == "mira"

    def git(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", *args], cwd=tmp_path, input=stdin, capture_output=True, check=False)

    git("init", "-q", ".")
    (tmp_path / "allowed").write_text(f'mira namespaces="git" {TOKEN.public.text}\n')
    git("config", "gpg.ssh.allowedSignersFile", str(tmp_path / "allowed"))
    name = CommitId(git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw).stdout.decode().strip())
    assert name == name_of(raw)
    assert git("verify-commit", name).returncode == 0
    left_alone = commit(Token(b"t" * 32, flags=b"\x00"))
    with pytest.raises(Refusal, match="nobody touched"):
        signed_by(read_commit(name_of(left_alone), left_alone), chain)
