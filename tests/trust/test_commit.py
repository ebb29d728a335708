"""One commit: what is refused of it by which name, and that our verdict is never milder than git's own."""

from __future__ import annotations

import hashlib
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base.codes import commits as codes
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId, PersonName
from gridops.trust import sshsig
from gridops.trust.commit import NAMESPACE, read_commit, signed_by
from gridops.trust.root import Role, RoleKey, RoleName, RootChain, genesis, seal_root
from tests.builders.commits import block, header, name_of, signed, unsigned, with_header
from tests.trust.people import person, role, root

PARENT = "a" * 40
PLAIN = unsigned([PARENT])
MIRA, THIEF = person("mira"), person("thief")


def chain(*holders: str) -> RootChain:
    return genesis(seal_root(root(role(RoleName.CHANGE, 1, *holders or ("mira",))), person("mira.root")))


def verdict(raw: bytes, known: RootChain | None = None, own: RootChain | None = None) -> str:
    """The code of the refusal, or who signed."""
    try:
        return signed_by(read_commit(name_of(raw), raw), known or chain(), own).holder
    except Refusal as refusal:
        return refusal.code if refusal.code in ALL else f"{refusal.code} has no page"


ALL = {code.code for code in vars(codes).values() if isinstance(code, codes.Code)}


def tag_by(signer: object = MIRA) -> bytes:
    """A merged tag with a good signature of its own, as a merge of a signed tag carries it."""
    text = b"object " + b"b" * 40 + b"\ntype commit\ntag v1\ntagger Test <t@example.invalid> 1 +0000\n\nv1\n"
    return text + sshsig.armor(block(text, MIRA)).encode()


def altered_after_signing() -> bytes:
    return signed(PLAIN, MIRA).replace(b"change\n", b"chance\n")


def damaged() -> bytes:
    return signed(PLAIN, MIRA).replace(b"-----END SSH SIGNATURE-----", b"-----END SSH SIGNATURF-----")


def sha256_block() -> bytes:
    """What `ssh-keygen -O hashalg=sha256` makes, in its form."""
    made = block(PLAIN, MIRA)
    return made.replace(sshsig._string(b"sha512"), sshsig._string(b"sha256"))


ATTACKS: list[tuple[str, Callable[[], bytes], str]] = [
    ("a good one", lambda: signed(PLAIN, MIRA), "mira"),
    ("not signed", lambda: PLAIN, "commit_unsigned"),
    ("a signature in the message only",
     lambda: unsigned([PARENT], message=b"x\n\n" + header(sshsig.armor(block(PLAIN, MIRA)))), "commit_unsigned"),
    ("a signature in a merged tag only",
     lambda: with_header(unsigned([PARENT, "b" * 40]), header(tag_by(), b"mergetag")), "commit_unsigned"),
    ("a merged tag that is altered under the signature",
     lambda: signed(with_header(unsigned([PARENT, "b" * 40]), header(tag_by(), b"mergetag")), MIRA)
     .replace(b"tag v1", b"tag v2"), "commit_altered"),
    ("a merged tag that is signed with the commit",
     lambda: signed(with_header(unsigned([PARENT, "b" * 40]), header(tag_by(), b"mergetag")), MIRA), "mira"),
    ("two signatures", lambda: signed(signed(PLAIN, MIRA), THIEF), "commit_signatures"),
    ("the same signature twice",
     lambda: with_header(signed(PLAIN, MIRA), header(sshsig.armor(block(PLAIN, MIRA)))), "commit_signatures"),
    ("a second signature for another kind of repository",
     lambda: with_header(signed(PLAIN, MIRA), header(sshsig.armor(block(PLAIN, MIRA)), b"gpgsig-sha256")),
     "commit_signatures"),
    ("the signature under the header of another kind of repository",
     lambda: with_header(PLAIN, header(sshsig.armor(block(PLAIN, MIRA)), b"gpgsig-sha256")), "commit_malformed"),
    ("the header in capitals",
     lambda: with_header(PLAIN, header(sshsig.armor(block(PLAIN, MIRA)), b"GPGSIG")), "commit_malformed"),
    ("another namespace", lambda: signed(PLAIN, MIRA, "gridops.approval.v1"), "commit_namespace"),
    ("the namespace of files", lambda: signed(PLAIN, MIRA, "file"), "commit_namespace"),
    ("a stranger's key", lambda: signed(PLAIN, THIEF), "commit_key"),
    ("a root key, which may not change intent", lambda: signed(PLAIN, person("mira.root")), "commit_key"),
    ("altered after it was signed", altered_after_signing, "commit_altered"),
    ("the signature of another commit",
     lambda: with_header(PLAIN, header(sshsig.armor(block(unsigned([PARENT], message=b"other\n"), MIRA)))),
     "commit_altered"),
    ("an OpenPGP signature",
     lambda: with_header(PLAIN, header("-----BEGIN PGP SIGNATURE-----\n\niQ==\n-----END PGP SIGNATURE-----")),
     "commit_form"),
    ("an X.509 signature",
     lambda: with_header(PLAIN, header("-----BEGIN SIGNED MESSAGE-----\nMII=\n-----END SIGNED MESSAGE-----")),
     "commit_form"),
    ("a damaged block", damaged, "commit_form"),
    ("no base64 in the block",
     lambda: with_header(PLAIN, header("-----BEGIN SSH SIGNATURE-----\n!!\n-----END SSH SIGNATURE-----")),
     "commit_form"),
    ("an empty signature header", lambda: with_header(PLAIN, b"gpgsig \n"), "commit_form"),
    ("a signature header that is no text", lambda: with_header(PLAIN, header(b"-----\xff\xfe")), "commit_form"),
    ("another hash", lambda: with_header(PLAIN, header(sshsig.armor(sha256_block()))), "commit_form"),
    ("an RSA key",
     lambda: with_header(PLAIN, header(sshsig.armor(b"SSHSIG\x00\x00\x00\x01" + sshsig._string(b"ssh-rsa")))),
     "commit_form"),
    ("bytes behind the signature",
     lambda: with_header(PLAIN, header(sshsig.armor(block(PLAIN, MIRA) + b"\x00"))), "commit_form"),
    ("a message in UTF-16",
     lambda: signed(unsigned([PARENT], more=[b"encoding UTF-16"]), MIRA), "commit_encoding"),
    ("a message in UTF-7, said in capitals",
     lambda: signed(unsigned([PARENT], more=[b"Encoding utf-7"]), MIRA), "commit_encoding"),
    ("two encodings",
     lambda: signed(unsigned([PARENT], more=[b"encoding utf-8", b"encoding latin1"]), MIRA), "commit_encoding"),
    ("a message in UTF-8, as it is said", lambda: signed(unsigned([PARENT], more=[b"encoding UTF-8"]), MIRA), "mira"),
    ("a zero byte in the message", lambda: signed(unsigned([PARENT], message=b"a\x00b\n"), MIRA), "commit_malformed"),
    ("a second tree", lambda: signed(unsigned([PARENT], more=[b"tree " + b"c" * 40]), MIRA), "commit_malformed"),
    ("a parent behind the committer",
     lambda: signed(unsigned([PARENT], more=[b"parent " + b"c" * 40]), MIRA), "commit_malformed"),
    ("a second author", lambda: signed(unsigned([PARENT], more=[b"author A <a@b> 1 +0000"]), MIRA),
     "commit_malformed"),
    ("a header of ours twice in other letters",
     lambda: signed(unsigned([PARENT], more=[b"Parent " + b"c" * 40]), MIRA), "commit_malformed"),
    ("a parent twice", lambda: signed(unsigned([PARENT, PARENT]), MIRA), "commit_malformed"),
    ("a parent that is no name", lambda: signed(unsigned(["A" * 40]), MIRA), "commit_malformed"),
    ("a short parent", lambda: signed(unsigned(["a" * 39]), MIRA), "commit_malformed"),
    ("no tree", lambda: signed(PLAIN[len(b"tree ") + 41:], MIRA), "commit_malformed"),
    ("no author", lambda: signed(PLAIN.replace(b"author ", b"writer "), MIRA), "commit_malformed"),
    ("an author without a time", lambda: signed(PLAIN.replace(b" 1796000000 +0000\nc", b"\nc"), MIRA),
     "commit_malformed"),
    ("an author with a mail in a mail",
     lambda: signed(PLAIN.replace(b"author Test <test", b"author Test <x> 1 +0000 <test"), MIRA), "commit_malformed"),
    ("a carriage return in a header", lambda: signed(unsigned([PARENT], more=[b"note a\rb"]), MIRA),
     "commit_malformed"),
    ("a line that is no header", lambda: signed(unsigned([PARENT], more=[b"-----"]), MIRA), "commit_malformed"),
    ("it begins with a continuation", lambda: b" x\n" + PLAIN, "commit_malformed"),
    ("no end of the headers", lambda: PLAIN.split(b"\n\n")[0] + b"\n", "commit_malformed"),
    ("nothing at all", lambda: b"", "commit_malformed"),
    ("larger than is read", lambda: signed(unsigned([PARENT], message=b"x" * (256 << 10)), MIRA),
     "commit_unreadable"),
    ("another header of git's kind is only signed with the rest",
     lambda: signed(unsigned([PARENT], more=[b"change-id abc"]), MIRA), "mira"),
]  # fmt: skip


@pytest.mark.parametrize(("attack", "expected"), [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS])
def test_a_commit_is_signed_once_by_a_change_key_over_what_stands_there(
    attack: Callable[[], bytes], expected: str
) -> None:
    assert verdict(attack()) == expected


def test_bytes_under_another_name_are_no_commit() -> None:
    raw = signed(PLAIN, MIRA)
    with pytest.raises(Refusal, match="not what its name says") as refusal:
        read_commit(CommitId("0" * 40), raw)
    assert refusal.value.code == "commit_malformed"
    with pytest.raises(Refusal, match="not what its name says"):
        read_commit(CommitId("refs/heads/main"), raw)


def test_a_repository_with_longer_names_has_its_signature_under_its_own_header() -> None:
    payload = unsigned(["a" * 64], tree="b" * 64)
    raw = with_header(payload, header(sshsig.armor(block(payload, MIRA)), b"gpgsig-sha256"))
    name = CommitId(hashlib.sha256(b"commit %d\x00" % len(raw) + raw).hexdigest())
    found = read_commit(name, raw)
    assert signed_by(found, chain()).holder == "mira"
    assert found.parents == (CommitId("a" * 64),)
    short = signed(payload, MIRA)
    with pytest.raises(Refusal, match="expected `gpgsig-sha256`"):
        read_commit(CommitId(hashlib.sha256(b"commit %d\x00" % len(short) + short).hexdigest()), short)


def test_a_key_that_only_the_commit_itself_brings_is_named_as_that() -> None:
    before = chain()
    new = Role(name=RoleName.CHANGE, threshold=1, keys=(RoleKey(holder=PersonName("jon"), key=THIEF.public.text),))
    own = before.advance(seal_root(root(new, version=2, fleet=before.fleet), person("mira.root")))
    raw = signed(PLAIN, THIEF)
    assert verdict(raw, before, own) == "commit_own_key"
    assert verdict(raw, before, before) == "commit_key"
    assert verdict(raw, own) == "jon", "from the next commit on it counts"


def test_without_anybody_who_may_change_nobody_signed() -> None:
    nobody = genesis(seal_root(root(), person("mira.root")))
    assert verdict(signed(PLAIN, MIRA), nobody) == "commit_key"


@given(st.binary(max_size=300) | st.binary(max_size=80).map(lambda raw: signed(PLAIN, MIRA)[:-20] + raw))
def test_whatever_bytes_there_are_the_answer_is_a_signer_or_a_refusal_with_a_page(raw: bytes) -> None:
    assert verdict(raw) in ALL | {"mira"}


# --- beside git and ssh-keygen


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """One small change somewhere: a byte, a line twice, a line gone, two lines exchanged, a header added."""
    at = rng.randrange(len(raw))
    lines = raw.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            return raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :]
        case 1:
            lines.insert(other, lines[one])
        case 2:
            del lines[one]
        case 3:
            lines[one], lines[other] = lines[other], lines[one]
        case 4:
            lines.insert(min(one, 4), rng.choice([b"encoding latin1", b"note x", b" more", b"gpgsig -", b"HG:x y"]))
        case _:
            return raw[:at] + rng.choice([b" ", b"\n", b"\r", b"\t", b"x"]) + raw[at:]
    return b"\n".join(lines)


def git(where: Path, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *args], cwd=where, input=stdin, capture_output=True, check=False)


@pytest.fixture
def repository_of_mira(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", ".")
    (tmp_path / "allowed").write_text(f'mira namespaces="git" {MIRA.public.text}\n')
    git(tmp_path, "config", "gpg.ssh.allowedSignersFile", str(tmp_path / "allowed"))
    return tmp_path


def stored(where: Path, raw: bytes) -> str | None:
    """Put a commit object there as it is, well formed or not."""
    made = git(where, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=raw)
    return made.stdout.decode().strip() if made.returncode == 0 else None


def test_whatever_we_believe_git_believes_and_what_git_writes_we_believe(repository_of_mira: Path) -> None:
    """300 commits, half of them with one small change: our verdict beside `git verify-commit` and its ssh-keygen."""
    rng, agreed, milder = random.Random(8), 0, []
    for number in range(150):
        message = b"change %d\n" % number
        more = [header(tag_by(), b"mergetag")[:-1]] if number % 5 == 0 else []
        raw = signed(unsigned([PARENT, "b" * 40], message=message, more=more), MIRA if number % 7 else THIEF)
        for one in (raw, mutated(raw, rng)):
            name = stored(repository_of_mira, one)
            assert name == name_of(one), "git names it as we do"
            theirs = git(repository_of_mira, "verify-commit", name).returncode == 0
            ours = verdict(one)
            if ours == "mira":
                agreed += 1
                assert theirs, one
            elif theirs and ours not in STRICTER:
                milder.append((ours, one))
    assert agreed > 100
    assert not milder


STRICTER = {"commit_malformed", "commit_encoding", "commit_signatures", "commit_form"}
"""What we refuse on purpose although git finds a good signature: forms that programs read in different ways."""


def test_a_commit_that_git_signs_with_ssh_keygen_is_believed(tmp_path: Path, repository_of_mira: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(MIRA.to_openssh())
    key.chmod(0o600)
    (tmp_path / "key.pub").write_text(MIRA.public_line("mira"))
    where = repository_of_mira
    for name, value in (("gpg.format", "ssh"), ("user.signingkey", str(key)), ("commit.gpgsign", "true")):
        git(where, "config", name, value)
    for message in ("plain", "with a body\n\nand more", "Grüße"):
        made = git(where, "commit", "-q", "--allow-empty", "-m", message)
        assert made.returncode == 0, made.stderr
        name = git(where, "rev-parse", "HEAD").stdout.decode().strip()
        raw = git(where, "cat-file", "commit", name).stdout
        assert signed_by(read_commit(CommitId(name), raw), chain()).holder == "mira"


def test_what_a_signature_claims_is_read_without_believing_it() -> None:
    made = block(PLAIN, MIRA)
    assert sshsig.claims(made) == (sshsig.SshKey(MIRA.public.raw), NAMESPACE)
    assert sshsig.claims(b"") is None
    for cut in range(len(made) - 100):
        assert sshsig.claims(made[:cut]) in (None, (sshsig.SshKey(MIRA.public.raw), NAMESPACE))
    odd = made.replace(sshsig._string(b"git"), sshsig._string(b"\xff\xff\xff"))
    assert sshsig.claims(odd) is None
