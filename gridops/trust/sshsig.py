"""SSH signatures (the SSHSIG format of `ssh-keygen -Y`): Ed25519 keys of files and of hardware tokens.

`keys` calls this for everything that people sign. A signature speaks in a namespace, so that one made for git or for
another tool never counts here. Only SHA-512 and Ed25519 are accepted; everything else is simply not a signature. Made
here are those of key files alone: a token signs for whoever holds it (`ssh-keygen` asks it), and counts only if its
holder touched it. Must never start a process.

Sources: OpenSSH's PROTOCOL.sshsig for the block, PROTOCOL.u2f for what a token signs.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import textwrap
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FILE_TYPE: Final = "ssh-ed25519"
TOKEN_TYPE: Final = "sk-ssh-ed25519@openssh.com"
_MAGIC = b"SSHSIG"
_VERSION = 1
_HASH = b"sha512"
_HEAD = "-----BEGIN SSH SIGNATURE-----"
_TAIL = "-----END SSH SIGNATURE-----"
_SPACE = " \t\r\n"
_APPLICATION = "ssh:"
"""How the name of every application begins that a token keeps a key for SSH under."""
_TOUCHED, _KNOWN = 0x01, 0x05
"""What a token says of its signature: its holder was there; and besides, was asked for a PIN. Nothing else is meant."""


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public key as OpenSSH knows it: in a file, or (with an application) in a hardware token."""

    raw: bytes
    application: str | None = None

    @property
    def type(self) -> str:
        return FILE_TYPE if self.application is None else TOKEN_TYPE

    @property
    def blob(self) -> bytes:
        """As OpenSSH writes it (the base64 part of a `.pub` line)."""
        head = _string(self.type.encode()) + _string(self.raw)
        return head if self.application is None else head + _string(self.application.encode())


def read_blob(blob: bytes) -> SshKey:
    """The key that OpenSSH wrote so. Raises ValueError where it is none of the two types, or not written exactly so."""
    type_, at = _field(blob, 0)
    raw, at = _field(blob, at)
    application: str | None = None
    if type_ == TOKEN_TYPE.encode():
        said, at = _field(blob, at)
        application = (said or b"").decode("ascii", "replace")
        if not application.startswith(_APPLICATION):
            raise ValueError(f"a token's key is kept for an application whose name begins with `{_APPLICATION}`")
    if raw is None or len(raw) != 32 or SshKey(raw, application).blob != blob:
        raise ValueError("not an Ed25519 key of OpenSSH")
    return SshKey(raw, application)


def make(private: Ed25519PrivateKey, namespace: str, message: bytes) -> bytes:
    """The raw signature block (`armor` gives the form that ssh-keygen reads and writes)."""
    signature = private.sign(_signed_bytes(namespace, message))
    return (
        _MAGIC
        + struct.pack(">I", _VERSION)
        + _string(SshKey(private.public_key().public_bytes_raw()).blob)
        + _string(namespace.encode())
        + _string(b"")
        + _string(_HASH)
        + _string(_string(FILE_TYPE.encode()) + _string(signature))
    )


def verify(key: SshKey, namespace: str, message: bytes, block: bytes) -> bool:
    """True if `block` is a signature by this key over `message` in `namespace`, and nothing else."""
    found = _signature(key, namespace, block)
    if found is None or flaw(key, namespace, block) is not None:
        return False
    signature, tail = found
    signed = _signed_bytes(namespace, message)
    if key.application is not None:
        signed = hashlib.sha256(key.application.encode()).digest() + tail + hashlib.sha256(signed).digest()
    try:
        Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def armor(block: bytes) -> str:
    """The text form of `ssh-keygen -Y sign`."""
    return "\n".join((_HEAD, *textwrap.wrap(base64.b64encode(block).decode(), 70), _TAIL, ""))


def dearmor(text: str) -> bytes:
    """The raw block of a text form, as strictly as ssh-keygen reads it. Raises ValueError with a sentence."""
    body, found, after = text[len(_HEAD) :].partition("\n" + _TAIL)
    # What ssh-keygen passes over, and no other space: a form that only we read is one that git does not believe.
    if not text.startswith(_HEAD + "\n") or not body.strip(_SPACE) or not found or after.strip(_SPACE):
        raise ValueError(f"not an SSH signature: expected a block that begins with {_HEAD}")
    letters = body.translate(dict.fromkeys(map(ord, _SPACE)))
    try:
        block = base64.b64decode(letters, validate=True)
    except ValueError as error:
        raise ValueError("not an SSH signature: the block is not base64") from error
    if base64.b64encode(block).decode() != letters:
        raise ValueError("not an SSH signature: the block is not base64 as it is written")
    return block


def claims(block: bytes) -> tuple[SshKey, str] | None:
    """Which key and which namespace a block names; None where it names none that could be read.

    For saying what is wrong with a signature. Nothing is verified: whoever believes somebody calls `verify`.
    """
    blob, at = _field(block, len(_MAGIC) + 4)
    name, _ = _field(block, at)
    if block[: len(_MAGIC)] != _MAGIC or blob is None or name is None:
        return None
    try:
        return read_blob(blob), name.decode("ascii")
    except ValueError:
        return None


def flaw(key: SshKey, namespace: str, block: bytes) -> str | None:
    """Why a block cannot be what this key would write in this namespace, whatever was signed; None if it can."""
    found = _signature(key, namespace, block)
    if found is None:
        return "a signature that was not made with SHA-512"
    flags = found[1][:1]
    if flags and not (flags[0] & _TOUCHED and flags[0] | _KNOWN == _KNOWN):
        return "a signature of a token that nobody touched"
    return None


def _field(block: bytes, at: int) -> tuple[bytes | None, int]:
    """A length and that many bytes; None where they are not all there."""
    if len(block) < at + 4:
        return None, at
    end = at + 4 + int(struct.unpack(">I", block[at : at + 4])[0])
    return (block[at + 4 : end], end) if end <= len(block) else (None, at)


def _signed_bytes(namespace: str, message: bytes) -> bytes:
    digest = hashlib.sha512(message).digest()
    return _MAGIC + _string(namespace.encode()) + _string(b"") + _string(_HASH) + _string(digest)


def _signature(key: SshKey, namespace: str, block: bytes) -> tuple[bytes, bytes] | None:
    """The 64 bytes inside and what a token adds (flags and counter), if all else is as this key would write it."""
    type_, more = key.type.encode(), 0 if key.application is None else 1 + 4
    expected = (
        _MAGIC
        + struct.pack(">I", _VERSION)
        + _string(key.blob)
        + _string(namespace.encode())
        + _string(b"")
        + _string(_HASH)
        + struct.pack(">I", 4 + len(type_) + 4 + 64 + more)
        + _string(type_)
        + struct.pack(">I", 64)
    )
    # A field-by-field reader would have to refuse each odd length on its own; with one key and one hash there is
    # exactly one prefix that is right, so it is compared whole.
    if not block.startswith(expected) or len(block) != len(expected) + 64 + more:
        return None
    return block[len(expected) : len(expected) + 64], block[len(expected) + 64 :]


def _string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value
