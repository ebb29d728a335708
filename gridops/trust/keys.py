"""Public keys, key ids and the two kinds of signers: machines (bare Ed25519) and people (SSH signatures).

People's keys lie in files or in hardware tokens; what a token signs is verified here and made by whoever holds it.

Every room that names a key uses `PublicKey`; the shells load or make signers and pass them in. The scheme always
comes from the trusted key, never from what was received. Must never read a file or the environment, nor draw
randomness for a key: a seed is an argument (`MachineSigner.from_seed(os.urandom(32))` stands in the shell). Each
verdict is the library's, save in a program that asked for `each_signature_once`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NoReturn, Protocol, Self, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)

from gridops.base import limits
from gridops.base.ids import KeyId
from gridops.trust import sshsig

KeyType = Literal["ed25519", "ssh-ed25519", "sk-ssh-ed25519@openssh.com"]
WRITTEN = "`ed25519:<64 hex digits>`, `ssh-ed25519 AAAA...` or `sk-ssh-ed25519@openssh.com AAAA...`"
_HEX = re.compile(r"[0-9a-f]{64}")
_TYPE = re.compile(r"[a-z][a-z0-9@.-]{0,40}")
"""How SSH names types of keys."""
_PRIVATE = "PRIVATE KEY"


class PassphraseNeeded(ValueError):
    """The private key is protected and no passphrase was given."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key somebody may be trusted by. `ed25519` keys are machines; people sign by a file or by a hardware token."""

    type: KeyType
    raw: bytes
    application: str | None = None
    """What a token keeps the key for: a part of what it signs, so that a key for one is none for another."""

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise ValueError(f"an Ed25519 public key has 32 bytes, not {len(self.raw)}")
        if (self.application is None) == (self.type == sshsig.TOKEN_TYPE):
            raise ValueError("a token's key has an application, and no other key has one")

    @classmethod
    def of_ssh(cls, key: sshsig.SshKey) -> Self:
        """The key that OpenSSH wrote."""
        return cls("ssh-ed25519" if key.application is None else sshsig.TOKEN_TYPE, key.raw, key.application)

    @property
    def of_person(self) -> bool:
        """Whether people sign with it: approvals, roots, catalogs, requests and commits, and nothing of machines."""
        return self.type != "ed25519"

    @property
    def in_token(self) -> bool:
        return self.application is not None

    @property
    def key_id(self) -> KeyId:
        """`sha256:` over type, a zero byte and the raw key: what people compare and what envelopes hint at."""
        return KeyId("sha256:" + hashlib.sha256(self.type.encode() + b"\x00" + self.raw).hexdigest())

    @property
    def text(self) -> str:
        """The one written form: `ed25519:<hex>` or the first two words of an OpenSSH `.pub` line."""
        if self.type == "ed25519":
            return f"ed25519:{self.raw.hex()}"
        return f"{self.type} {base64.b64encode(self._ssh.blob).decode()}"

    @property
    def _ssh(self) -> sshsig.SshKey:
        return sshsig.SshKey(self.raw, self.application)

    def verifies(self, kind: str, pae: bytes, signature: bytes) -> bool:
        """True if this key signed `pae` as an envelope of `kind`, by the scheme that belongs to the key's type."""
        known = _verdicts.get()
        if known is None:
            return self._verifies(kind, pae, signature)
        about = (self.type, self.application, self.raw, kind, pae, signature)
        verdict = known.get(about)
        if verdict is None:
            verdict = self._verifies(kind, pae, signature)
            _remember(known, about, verdict)
        return verdict

    def _verifies(self, kind: str, pae: bytes, signature: bytes) -> bool:
        if self.of_person:
            return sshsig.verify(self._ssh, namespace(kind), pae, signature)
        try:
            _public(self.raw).verify(signature, pae)
        except (InvalidSignature, ValueError):
            return False
        return True


class Signer(Protocol):
    """Whoever can sign an envelope."""

    @property
    def public(self) -> PublicKey: ...

    def sign(self, kind: str, pae: bytes) -> bytes:
        """Signature over the pre-authentication encoding of an envelope of `kind`."""
        ...


class _Private:
    """Holds a private key so that no repr, copy or pickle shows it."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey, kind: KeyType) -> None:
        self._private = private
        self.public = PublicKey(kind, private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.public.key_id}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a signer cannot be copied or pickled: it holds a private key")


class MachineSigner(_Private):
    """A controller or host key: signs with bare Ed25519."""

    __slots__ = ()

    @classmethod
    def from_seed(cls, seed: bytes) -> Self:
        """The signer of a 32-byte seed. The seed is the whole secret."""
        return cls(_private_key(seed), "ed25519")

    def sign(self, kind: str, pae: bytes) -> bytes:
        return _made(self.public, kind, pae, self._private.sign(pae))


class PersonSigner(_Private):
    """A person's key: signs in the namespace `gridops.<kind>.v1` of the SSH signature format."""

    __slots__ = ()

    @classmethod
    def from_seed(cls, seed: bytes) -> Self:
        return cls(_private_key(seed), "ssh-ed25519")

    @classmethod
    def from_openssh(cls, pem: bytes, passphrase: bytes | None = None) -> Self:
        """The signer of an OpenSSH private key file. Raises PassphraseNeeded, or ValueError with a sentence."""
        try:
            private = load_ssh_private_key(pem, passphrase)
        except TypeError as error:
            if passphrase is None:
                raise PassphraseNeeded("the private key is protected by a passphrase") from error
            return cls.from_openssh(pem)  # a passphrase for a key that has none is no reason to refuse the key
        except UnsupportedAlgorithm as error:
            raise ValueError(f"this private key cannot be opened here: {error}") from error
        except ValueError as error:
            wrong = "not an OpenSSH private key, or damaged" if passphrase is None else "wrong passphrase, or damaged"
            raise ValueError(f"the private key cannot be opened: {wrong}") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError("the private key is not ssh-ed25519: make one with `ssh-keygen -t ed25519`")
        return cls(private, "ssh-ed25519")

    def to_openssh(self, passphrase: bytes | None = None) -> bytes:
        """The private key as an OpenSSH file (check bytes and salt come from the cryptography library's own RNG)."""
        protection: KeySerializationEncryption = NoEncryption()
        if passphrase:
            protection = BestAvailableEncryption(passphrase)
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, protection)

    def public_line(self, comment: str) -> str:
        """A line for a `.pub` or `allowed_signers` file."""
        return f"{self.public.text} {comment}".rstrip()

    def sign(self, kind: str, pae: bytes) -> bytes:
        return _made(self.public, kind, pae, sshsig.make(self._private, namespace(kind), pae))

    def sign_for(self, namespace: str, message: bytes) -> bytes:
        """Signature in a namespace of somebody else's, as `ssh-keygen -Y sign` makes it: git's is `git`."""
        return sshsig.make(self._private, namespace, message)


def namespace(kind: str) -> str:
    """The SSH signature namespace of an envelope kind: keeps our signatures apart from git's and other tools'."""
    return f"gridops.{kind}.v1"


@lru_cache(maxsize=limits.KEYS_KEPT)
def parse_key(text: str) -> PublicKey:
    """A public key from its written form (an OpenSSH line may carry a comment). Raises ValueError with a sentence.

    The sentence repeats no more of it than what kind of key it says it is: somebody may have named the wrong file.
    """
    if _PRIVATE in text:
        raise ValueError(f"this is a private key, which stays with its owner: expected the public one, {WRITTEN}")
    words = text.strip().split()
    if len(words) == 1 and words[0].startswith("ed25519:"):
        digits = words[0].removeprefix("ed25519:")
        if _HEX.fullmatch(digits) is None:
            raise ValueError(f"{text[:80]!r} is not a key: expected ed25519: and 64 lower-case hex digits")
        return PublicKey("ed25519", bytes.fromhex(digits))
    if len(words) >= 2 and words[0] in (sshsig.FILE_TYPE, sshsig.TOKEN_TYPE):
        try:
            blob = base64.b64decode(words[1], validate=True)
        except ValueError as error:
            raise ValueError(f"`{words[0]} ...` is not a key: its second word is not base64") from error
        try:
            key = PublicKey.of_ssh(sshsig.read_blob(blob))
        except ValueError as error:
            raise ValueError(f"`{words[0]} ...` is not a key: {error}") from error
        if len(text.strip().splitlines()) > 1:
            raise ValueError("this is more than one line: expected one key")
        if key.text == " ".join(words[:2]):
            return key
    named = f"`{words[0]} ...`" if words and _TYPE.fullmatch(words[0]) else "this"
    raise ValueError(f"{named} is not a key: expected {WRITTEN}")


_About: TypeAlias = tuple[KeyType, str | None, bytes, str, bytes, bytes]
_verdicts: ContextVar[dict[_About, bool] | None] = ContextVar("verdicts", default=None)


@contextmanager
def each_signature_once() -> Iterator[None]:
    """Meanwhile a verdict that was reached is remembered, and a signature that was made here is known to be good.

    Exact, because a verdict depends on key, kind, bytes and signature alone, and they are all compared. For a program
    that plays every side (`gridops.lab`), where each message is verified by the process that signed it. Whoever has one
    side only hears each message once, and would keep them for nothing.
    """
    before = _verdicts.set({})
    try:
        yield
    finally:
        _verdicts.reset(before)


def _made(key: PublicKey, kind: str, pae: bytes, signature: bytes) -> bytes:
    """A signature as it was made just now by the private half of this key."""
    known = _verdicts.get()
    if known is not None:
        _remember(known, (key.type, key.application, key.raw, kind, pae, signature), True)
    return signature


def _remember(known: dict[_About, bool], about: _About, verdict: bool) -> None:
    known[about] = verdict
    if len(known) > limits.VERDICTS_KEPT:
        del known[next(iter(known))]


@lru_cache(maxsize=limits.KEYS_KEPT)
def _public(raw: bytes) -> Ed25519PublicKey:
    """The library's form of a key; ValueError where the bytes are no point of the curve."""
    return Ed25519PublicKey.from_public_bytes(raw)


def _private_key(seed: bytes) -> Ed25519PrivateKey:
    if len(seed) != 32:
        raise ValueError(f"a key seed has 32 bytes, not {len(seed)}")
    return Ed25519PrivateKey.from_private_bytes(seed)
