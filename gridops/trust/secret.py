"""Secrets that do not leak by accident, and the comparison of keys that clients present.

A `Secret` shows itself only to `reveal()`: not to repr, str, format, JSON, pickle or an equality test that takes
longer the closer one guesses. Randomness is an argument; nothing here is stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NoReturn

from gridops.base import canon
from gridops.base.ids import Digest

_PREFIX = "gk1_"


class Secret:
    """Bytes that must not reach a log, a document or another process by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes | str) -> None:
        self._value = value.encode() if isinstance(value, str) else bytes(value)

    def reveal(self) -> bytes:
        """The secret itself. Each caller of this is a place to review."""
        return self._value

    def reveal_text(self) -> str:
        return self._value.decode()

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> NoReturn:
        raise TypeError("a secret is not a dictionary key")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")


def new_api_key(random32: bytes) -> Secret:
    """A key that a client presents, from 32 random bytes. Only its digest (`digest_of_secret`) is ever sent or kept."""
    if len(random32) != 32:
        raise ValueError(f"an API key is made from 32 random bytes, not {len(random32)}")
    return Secret(_PREFIX + base64.urlsafe_b64encode(random32).rstrip(b"=").decode())


def digest_of_secret(secret: Secret) -> Digest:
    """What may be published about a 256-bit random secret: its SHA-256. Never use it for a password."""
    return canon.digest_bytes(secret.reveal())


def matches(secret: Secret | str | bytes, digest: Digest) -> bool:
    """True if what was presented has this digest. Takes the same time wherever they differ."""
    raw = secret.reveal() if isinstance(secret, Secret) else secret
    presented = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    return hmac.compare_digest("sha256:" + hashlib.sha256(presented).hexdigest(), digest)
