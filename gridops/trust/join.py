"""Join tokens: how a new host and the controller prove to each other that one person invited the host.

`gridops host invite` makes a token, the agent's `join` parses it, the controller keeps only a MAC key derived from
its secret. The token pins the fleet, so there is no trust on first use; it never admits a host by itself (a commit
does). Randomness is an argument, and a token never stands in a message.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gridops.base import canon
from gridops.base.codes.trust import BAD_MAC, BAD_TOKEN
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId, is_digest, is_name
from gridops.trust.secret import Secret

_VERSION = "gj1"
_CHARS_MAX = 256


@dataclass(frozen=True, slots=True)
class Token:
    """What a join token says. One use, one host, one fleet."""

    fleet: Digest
    host: HostId
    secret: Secret


def make_token(fleet: Digest, host: HostId, secret: bytes) -> str:
    """The text that a person carries to the new host. `secret` is 32 random bytes."""
    if len(secret) != 32 or not is_digest(fleet) or not is_name(host):
        raise ValueError("a join token is made of a fleet digest, a host name and 32 random bytes")
    body = f"{_VERSION}.{fleet.removeprefix('sha256:')}.{host}.{_base64url(secret)}"
    return f"{body}.{_checksum(body)}"


def parse_token(text: str) -> Token:
    """A token from its text. Raises Refusal `bad_token`, which says what is wrong without showing the token."""
    words = text.strip()
    if len(words) > _CHARS_MAX or not words.startswith(_VERSION + "."):
        raise _refused(f"it does not begin with {_VERSION}.")
    body, _, check = words.rpartition(".")
    if not hmac.compare_digest(_checksum(body).encode(), check.encode()):
        raise _refused("its check digits do not match: it was cut short or mistyped")
    # A host name may hold dots, so the fixed parts are taken from both ends.
    front, _, encoded = body.rpartition(".")
    fleet, _, host = front.removeprefix(_VERSION + ".").partition(".")
    secret = _unbase64url(encoded)
    if not is_digest("sha256:" + fleet) or not is_name(host) or secret is None:
        raise _refused("its parts are not a fleet, a host name and a secret")
    return Token(Digest("sha256:" + fleet), HostId(host), Secret(secret))


def join_key(secret: Secret | bytes) -> bytes:
    """The MAC key of a token's secret: what the controller stores (0600) instead of the secret itself."""
    raw = secret.reveal() if isinstance(secret, Secret) else secret
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"gridops.join.key.v1").derive(raw)


def request_mac(key: bytes, fleet: Digest, host_key: str, nonce: str) -> str:
    """Proof by the joining host that it holds the token, for exactly this key and fleet."""
    return _mac(key, b"gridops.join.request.v1", [fleet, host_key, nonce])


def reply_mac(key: bytes, host_key: str, nonce: str, roots: Sequence[str]) -> str:
    """Proof by the controller that it made the token, for exactly this answer to exactly this request."""
    return _mac(key, b"gridops.join.reply.v1", [host_key, nonce, list(roots)])


def same_mac(expected: str, given: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass"))


def require_mac(expected: str, given: str, subject: str) -> None:
    """Raise Refusal `bad_mac` unless both are equal."""
    if not same_mac(expected, given):
        raise Refusal(BAD_MAC.code, f"{subject} does not know the secret of this join token", subject=subject)


def _mac(key: bytes, label: bytes, parts: list[object]) -> str:
    if len(key) != 32:
        raise ValueError("a join key has 32 bytes: use join_key(secret)")
    return hmac.new(key, label + b"\x00" + canon.dumps(parts), hashlib.sha256).hexdigest()


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unbase64url(text: str) -> bytes | None:
    """32 bytes in their one spelling, or None."""
    try:
        raw = base64.urlsafe_b64decode(text + "=")
    except ValueError:
        return None
    return raw if len(raw) == 32 and _base64url(raw) == text else None


def _refused(why: str) -> Refusal:
    return Refusal(
        BAD_TOKEN.code,
        f"this is not a join token: {why}",
        hints=("copy it again, whole and on one line, or make a new one: gridops host invite HOST",),
    )
