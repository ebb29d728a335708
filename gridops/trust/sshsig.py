"""SSH signatures (the SSHSIG format of `ssh-keygen -Y`): made and verified in-process over ssh-ed25519 keys.

`keys` calls this for everything that people sign. A signature speaks in a namespace, so that one made for git or for
another tool never counts here. Only SHA-512 and ssh-ed25519 are accepted; everything else is simply not a signature.
Must never start a process: `ssh-keygen` is an oracle in the tests, not a part of the house.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import textwrap

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_TYPE = b"ssh-ed25519"
_MAGIC = b"SSHSIG"
_VERSION = 1
_HASH = b"sha512"
_HEAD = "-----BEGIN SSH SIGNATURE-----"
_TAIL = "-----END SSH SIGNATURE-----"
_SPACE = " \t\r\n"


def make(private: Ed25519PrivateKey, namespace: str, message: bytes) -> bytes:
    """The raw signature block (`armor` gives the form that ssh-keygen reads and writes)."""
    signature = private.sign(_signed_bytes(namespace, message))
    return (
        _MAGIC
        + struct.pack(">I", _VERSION)
        + _string(public_blob(private.public_key().public_bytes_raw()))
        + _string(namespace.encode())
        + _string(b"")
        + _string(_HASH)
        + _string(_string(KEY_TYPE) + _string(signature))
    )


def verify(public: bytes, namespace: str, message: bytes, block: bytes) -> bool:
    """True if `block` is a signature by this raw public key over `message` in `namespace`, and nothing else."""
    signature = _signature(public, namespace, block)
    if signature is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _signed_bytes(namespace, message))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_blob(public: bytes) -> bytes:
    """A raw public key as OpenSSH writes it (the base64 part of a `.pub` line)."""
    return _string(KEY_TYPE) + _string(public)


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


def claims(block: bytes) -> tuple[bytes, str] | None:
    """Which raw ssh-ed25519 key and which namespace a block names; None where it names none that could be read.

    For saying what is wrong with a signature. Nothing is verified: whoever believes somebody calls `verify`.
    """
    key, at = _field(block, len(_MAGIC) + 4)
    name, _ = _field(block, at)
    head = public_blob(b"\x00" * 32)[:-32]
    if block[: len(_MAGIC)] != _MAGIC or key is None or name is None or key[:-32] != head:
        return None
    try:
        return key[-32:], name.decode("ascii")
    except UnicodeDecodeError:
        return None


def of_this_form(public: bytes, namespace: str, block: bytes) -> bool:
    """Whether every field but the signature itself is what this key would write in this namespace."""
    return _signature(public, namespace, block) is not None


def _field(block: bytes, at: int) -> tuple[bytes | None, int]:
    """A length and that many bytes; None where they are not all there."""
    if len(block) < at + 4:
        return None, at
    end = at + 4 + int(struct.unpack(">I", block[at : at + 4])[0])
    return (block[at + 4 : end], end) if end <= len(block) else (None, at)


def _signed_bytes(namespace: str, message: bytes) -> bytes:
    digest = hashlib.sha512(message).digest()
    return _MAGIC + _string(namespace.encode()) + _string(b"") + _string(_HASH) + _string(digest)


def _signature(public: bytes, namespace: str, block: bytes) -> bytes | None:
    """The 64 bytes inside, if every other field is exactly what this key and namespace would write."""
    expected = (
        _MAGIC
        + struct.pack(">I", _VERSION)
        + _string(public_blob(public))
        + _string(namespace.encode())
        + _string(b"")
        + _string(_HASH)
        + struct.pack(">I", 4 + len(KEY_TYPE) + 4 + 64)
        + _string(KEY_TYPE)
        + struct.pack(">I", 64)
    )
    # A field-by-field reader would have to refuse each odd length on its own; with one key type and one hash
    # there is exactly one prefix that is right, so it is compared whole.
    if not block.startswith(expected) or len(block) != len(expected) + 64:
        return None
    return block[len(expected) :]


def _string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value
