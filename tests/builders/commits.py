"""Commit objects made byte by byte, as git stores them, for tests of what git itself would never write."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from gridops.base.ids import CommitId
from gridops.trust import sshsig
from gridops.trust.keys import PersonSigner

WHO = b"Test <test@example.invalid> 1796000000 +0000"
TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The empty one: git knows it without having it."""


def unsigned(
    parents: Sequence[str] = (), *, tree: str = TREE, message: bytes = b"change\n", more: Sequence[bytes] = ()
) -> bytes:
    """A commit without a signature; `more` are headers behind the committer, without their ends."""
    lines = [b"tree " + tree.encode(), *(b"parent " + p.encode() for p in parents)]
    lines += [b"author " + WHO, b"committer " + WHO, *more]
    return b"".join(line + b"\n" for line in lines) + b"\n" + message


def block(payload: bytes, signer: PersonSigner, namespace: str = "git") -> bytes:
    """The raw SSH signature of a payload."""
    return signer.sign_for(namespace, payload)


def header(text: str | bytes, name: bytes = b"gpgsig") -> bytes:
    """A header that holds a text of several lines."""
    raw = text.encode() if isinstance(text, str) else text
    return name + b" " + raw.rstrip(b"\n").replace(b"\n", b"\n ") + b"\n"


def with_header(payload: bytes, line: bytes) -> bytes:
    """A commit with one more header, as the last one, where git puts signatures."""
    head, message = payload.split(b"\n\n", 1)
    return head + b"\n" + line + b"\n" + message


def signed(payload: bytes, signer: PersonSigner, namespace: str = "git") -> bytes:
    """A commit as `git commit -S` makes it."""
    return with_header(payload, header(sshsig.armor(block(payload, signer, namespace))))


def name_of(raw: bytes) -> CommitId:
    return CommitId(hashlib.sha1(b"commit %d\x00" % len(raw) + raw, usedforsecurity=False).hexdigest())
