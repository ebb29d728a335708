"""One commit as git stores it: what was signed, by which key, and whether that key may say so.

Bytes in, a signer or a Refusal out; `trust.line` asks this for every commit between what was accepted and what is new.
The reader is stricter than git's: whatever two programs could read in two ways is refused. Must never run git, follow
a key that the commit brings itself, or look into a message: who is its author by name is a claim, and decides nothing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.codes import commits as codes
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId
from gridops.trust import sshsig
from gridops.trust.keys import PublicKey, parse_key
from gridops.trust.root import RoleKey, RoleName, RootChain
from gridops.trust.sshsig import SshKey

NAMESPACE = "git"
"""In which git makes its SSH signatures."""
_HEADER = re.compile(rb"([A-Za-z][A-Za-z0-9-]*) (.*)", re.DOTALL)
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PERSON = re.compile(rb"[^<>]*<[^<>]*> \d{1,12} [+-]\d{4}")
_FIRST = (b"tree", b"parent", b"author", b"committer")
"""They open a commit in this order, parents as many as there are, and stand nowhere else."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The parts of a commit whose form is right. Nobody has looked at the signature yet."""

    id: CommitId
    tree: str
    parents: tuple[CommitId, ...]
    signature: bytes | None
    """What the one signature header holds; None without one."""
    payload: bytes
    """What that signature is about: the commit without that header."""


@dataclass(frozen=True, slots=True)
class _Header:
    name: bytes
    value: bytes
    raw: bytes
    """As it stands there, with its continuation lines."""


def read_commit(commit: CommitId, raw: bytes) -> Commit:
    """The parts of a commit object. Raises Refusal where git would not write such a one, or two signatures stand."""
    if _OBJECT.fullmatch(commit) is None or _name_of(commit, raw) != commit:
        raise _malformed(commit, "its bytes are not what its name says")
    if len(raw) > limits.COMMIT_BYTES:
        raise Refusal(codes.COMMIT_UNREADABLE.code, f"{_short(commit)} is larger than {limits.COMMIT_BYTES} bytes")
    if b"\x00" in raw:
        raise _malformed(commit, "it contains a zero byte, behind which some programs read no further")
    head, blank, message = raw.partition(b"\n\n")
    if not blank:
        raise _malformed(commit, "no empty line ends its headers")
    headers = _headers(commit, head)
    parents = _opening(commit, headers)
    _encoding(commit, headers)
    own = b"gpgsig" if len(commit) == 40 else b"gpgsig-sha256"
    signed = [h for h in headers if h.name.lower().startswith(b"gpgsig")]
    if len(signed) > 1:
        raise Refusal(codes.COMMIT_SIGNATURES.code, f"{_short(commit)} carries {len(signed)} signatures, expected one")
    if signed and signed[0].name != own:
        raise _malformed(commit, f"its signature stands under `{signed[0].name.decode()}`, expected `{own.decode()}`")
    payload = b"".join(h.raw for h in headers if h not in signed) + b"\n" + message
    return Commit(commit, _hex(headers[0]), parents, signed[0].value if signed else None, payload if signed else raw)


def signed_by(commit: Commit, chain: RootChain, following: RootChain | None = None) -> RoleKey:
    """Who signed: a key with the role `change` in `chain`, the documents of the commit's parent. Raises Refusal.

    `following` are the documents that the commit itself brings: only to name a commit that vouches for itself.
    """
    short = _short(commit.id)
    if commit.signature is None:
        raise Refusal(codes.COMMIT_UNSIGNED.code, f"{short} is not signed", subject=commit.id)
    block = _block(commit, short)
    claimed = sshsig.claims(block)
    if claimed is None:
        raise _form(short, "no SSH signature by an ssh-ed25519 or sk-ssh-ed25519 key")
    key, namespace = claimed
    if namespace != NAMESPACE:
        what = f"{short} carries a signature for {namespace[:60]!r}, expected one for {NAMESPACE!r}"
        raise Refusal(codes.COMMIT_NAMESPACE.code, what, subject=commit.id)
    entry = _entry(chain, key)
    if entry is None:
        raise _stranger(short, key, chain, following)
    if not sshsig.verify(key, NAMESPACE, commit.payload, block):
        flaw = sshsig.flaw(key, NAMESPACE, block)
        if flaw is not None:
            raise _form(short, flaw)
        what = f"{short} carries a signature of {entry.holder} over other bytes"
        raise Refusal(codes.COMMIT_ALTERED.code, what, subject=commit.id)
    return entry


def _entry(chain: RootChain, key: SshKey) -> RoleKey | None:
    role = chain.root.role(RoleName.CHANGE)
    text = PublicKey.of_ssh(key).text
    return next((e for e in role.keys if e.key == text), None) if role is not None else None


def _stranger(short: str, key: SshKey, chain: RootChain, following: RootChain | None) -> Refusal:
    version = chain.root.version
    if following is not None and following.root.version > version:
        entry = _entry(following, key)
        if entry is not None:
            return Refusal(
                codes.COMMIT_OWN_KEY.code,
                f"{short} is signed by a key of {entry.holder} that only its own root {following.root.version} names",
            )
    held = next((r.name for r in chain.root.roles for e in r.keys if parse_key(e.key).raw == key.raw), None)
    as_what = f"a key that is {held} and not change" if held is not None else "a key that nobody holds"
    return Refusal(codes.COMMIT_KEY.code, f"{short} is signed by {as_what} in root {version}")


def _block(commit: Commit, short: str) -> bytes:
    assert commit.signature is not None  # `signed_by` asked before
    try:
        return sshsig.dearmor(commit.signature.decode("ascii"))
    except UnicodeDecodeError as error:
        raise _form(short, "a signature header that is no text") from error
    except ValueError as error:
        first = commit.signature.split(b"\n", 1)[0][:60].decode("ascii", "replace")
        raise _form(short, f"no SSH signature: its header begins with {first!r}") from error


def _headers(commit: CommitId, head: bytes) -> list[_Header]:
    found: list[_Header] = []
    for line in head.split(b"\n"):
        if line.startswith(b" ") and found:
            last = found[-1]
            found[-1] = _Header(last.name, last.value + b"\n" + line[1:], last.raw + line + b"\n")
            continue
        match = _HEADER.fullmatch(line)
        if match is None:
            raise _malformed(commit, f"{line[:60].decode('utf-8', 'replace')!r} is no header")
        found.append(_Header(match[1], match[2], line + b"\n"))
    for header in found:
        if b"\r" in header.raw:
            raise _malformed(commit, f"its header `{header.name.decode()}` contains a carriage return")
    return found


def _opening(commit: CommitId, headers: list[_Header]) -> tuple[CommitId, ...]:
    """Tree, parents, author, committer: in this order, each in its form, and none of them again. The parents."""
    names = [h.name for h in headers]
    parents = names.count(b"parent")
    expected = [b"tree", *[b"parent"] * parents, b"author", b"committer"]
    if names[: len(expected)] != expected or any(n.lower() in _FIRST for n in names[len(expected) :]):
        raise _malformed(commit, "tree, parents, author and committer do not stand there once and in this order")
    for header in headers[: 1 + parents]:
        if len(header.value) != len(commit) or _OBJECT.fullmatch(_hex(header)) is None:
            raise _malformed(commit, f"its header `{header.name.decode()}` names no object")
    for header in headers[1 + parents : len(expected)]:
        if _PERSON.fullmatch(header.value) is None:
            raise _malformed(commit, f"its header `{header.name.decode()}` has not the form `name <mail> time zone`")
    found = tuple(CommitId(_hex(h)) for h in headers[1 : 1 + parents])
    if len(set(found)) != len(found):
        raise _malformed(commit, "it names one parent twice")
    return found


def _encoding(commit: CommitId, headers: list[_Header]) -> None:
    for header in headers:
        if header.name.lower() == b"encoding" and header.value.lower() not in (b"utf-8", b"utf8"):
            said = header.value[:40].decode("ascii", "replace")
            raise Refusal(codes.COMMIT_ENCODING.code, f"{_short(commit)} says that its message is in {said!r}")


def _name_of(commit: CommitId, raw: bytes) -> str:
    whole = b"commit %d\x00" % len(raw) + raw
    if len(commit) == 64:
        return hashlib.sha256(whole).hexdigest()
    # Git's own name of it. Collisions are git's to detect; plans bind a digest of what the commit says.
    return hashlib.sha1(whole, usedforsecurity=False).hexdigest()


def _hex(header: _Header) -> str:
    return header.value.decode("ascii", "replace")


def _form(short: str, what: str) -> Refusal:
    return Refusal(codes.COMMIT_FORM.code, f"{short} carries {what}")


def _malformed(commit: str, why: str) -> Refusal:
    return Refusal(codes.COMMIT_MALFORMED.code, f"{_short(commit)} cannot be read: {why}")


def _short(commit: str) -> str:
    return f"commit {commit[:12]}"
