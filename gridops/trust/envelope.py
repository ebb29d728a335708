"""Signed envelopes (DSSE): what was said, by whom, and what kind of thing it is.

Everything that crosses a border of trust travels in one. The caller names the expected kind and the trusted keys;
size is checked before parsing, signatures are verified over the received bytes, and only then is the payload parsed
and required to be canonical. The key id in an envelope is a hint and decides nothing. Identity is the digest of the
payload, never of the envelope.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gridops.base import canon, limits
from gridops.base.codes.trust import BAD_ENVELOPE, BAD_SCHEMA, BAD_SIGNATURE, NOT_CANONICAL, WRONG_KIND
from gridops.base.errors import Bug, Refusal
from gridops.base.ids import Digest
from gridops.base.record import Malformed, digest_of, from_bytes, to_bytes
from gridops.base.units import counted
from gridops.trust.keys import PublicKey, Signer

T = TypeVar("T")

PERSON_KINDS = frozenset({"root", "catalog", "approval", "operator"})
"""Signed by people with SSH keys; may carry several signatures."""
MACHINE_KINDS = frozenset(
    {"grant", "receipt", "heartbeat", "directive", "join", "join-reply", "tls-binding", "plan", "qualification"}
    | {"rekey"}
)
"""Signed by a controller or a host; exactly one signature."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A payload that verified. `signers` are the distinct trusted keys that signed it, in the order of the trusted."""

    payload: bytes
    signers: tuple[PublicKey, ...]

    @property
    def digest(self) -> Digest:
        return canon.digest_bytes(self.payload)


@dataclass(frozen=True, slots=True)
class Sealed:
    """The parts of an envelope whose shape is right and whose signatures nobody has looked at yet."""

    payload: bytes
    signatures: tuple[bytes, ...]
    hints: tuple[str, ...]


def payload_type(kind: str) -> str:
    return f"application/vnd.gridops.{kind}.v1+json"


def pae(kind: str, payload: bytes) -> bytes:
    """The bytes that are signed (pre-authentication encoding): the type cannot be exchanged under a signature."""
    name = payload_type(kind).encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(payload), payload)


def seal(kind: str, payload: bytes, *signers: Signer) -> str:
    """Sign canonical bytes. Wrong kinds of signers or payloads are faults of the caller (Bug)."""
    _check_signers(kind, signers)
    try:
        canon.loads(payload)
    except canon.NotCanonical as error:
        raise Bug(f"sealing a {kind} whose payload is not canonical: {error}") from error
    return _signed(kind, payload, signers)


def seal_record(kind: str, value: Any, *signers: Signer) -> str:
    """`seal` of a record's own bytes, which are canonical because `to_bytes` wrote them: not parsed to prove it."""
    _check_signers(kind, signers)
    return _signed(kind, to_bytes(value), signers)


def _signed(kind: str, payload: bytes, signers: Sequence[Signer]) -> str:
    message = pae(kind, payload)
    return _render(kind, payload, [(s.public.key_id, s.sign(kind, message)) for s in signers])


def countersign(text: str | bytes, *, kind: str, signer: Signer, limit: int = limits.ENVELOPE_BYTES) -> str:
    """The same envelope with one more signature; how several people sign one document, each at home."""
    _check_signers(kind, (signer,))
    if kind in MACHINE_KINDS:
        raise Bug(f"a {kind} has exactly one signature")
    sealed = split(text, kind=kind, limit=limit)
    if len(sealed.signatures) >= limits.SIGNATURES:
        raise Refusal(BAD_ENVELOPE.code, f"the signed {kind} already carries {limits.SIGNATURES} signatures")
    added = (signer.public.key_id, signer.sign(kind, pae(kind, sealed.payload)))
    old = zip(sealed.hints, sealed.signatures, strict=True)
    return _render(kind, sealed.payload, [*(pair for pair in old if pair != added), added])


def open_envelope(
    text: str | bytes, *, kind: str, keys: Sequence[PublicKey], limit: int = limits.ENVELOPE_BYTES
) -> Opened:
    """The payload, if at least one of `keys` signed it as this kind. Raises Refusal (see the codes' pages)."""
    opened = _verified(text, kind, keys, limit)
    _canonical(opened.payload, kind)
    return opened


def open_record(
    record: type[T], text: str | bytes, *, kind: str, keys: Sequence[PublicKey], limit: int = limits.ENVELOPE_BYTES
) -> tuple[T, Opened]:
    """`open_envelope` and the payload as a record. Raises Refusal, also `bad_schema`."""
    opened = _verified(text, kind, keys, limit)
    return _read(record, opened, kind)[0], opened


def open_sealed(record: type[T], sealed: Sealed, *, kind: str, keys: Sequence[PublicKey]) -> tuple[T, Digest]:
    """`open_record` of an envelope that `split` has taken apart as one of this kind; and the record's own digest."""
    opened = _signed_by(sealed, kind, keys)
    value, own = _read(record, opened, kind)
    return value, opened.digest if own else digest_of(value)


def _read(record: type[T], opened: Opened, kind: str) -> tuple[T, bool]:
    """A verified payload as a record, and whether its bytes are the record's own.

    A record whose own bytes are those that were signed proves them canonical, at a fraction of what it takes to judge
    the JSON key by key. Where they are others (a field of None that is written out), or none, the JSON is judged.
    """
    try:
        value = from_bytes(record, opened.payload)
    except Malformed:
        _canonical(opened.payload, kind)
        return read_record(record, opened.payload, kind), False
    try:
        own = to_bytes(value) == opened.payload
    except canon.NotCanonical:  # a signed number beyond what the form has: refused below, in words
        own = False
    if not own:
        _canonical(opened.payload, kind)
    return value, own


def _verified(text: str | bytes, kind: str, keys: Sequence[PublicKey], limit: int) -> Opened:
    """What at least one of `keys` signed as this kind, whatever bytes that are."""
    return _signed_by(split(text, kind=kind, limit=limit), kind, keys)


def _signed_by(sealed: Sealed, kind: str, keys: Sequence[PublicKey]) -> Opened:
    signers = verified(sealed, kind, keys)
    if not signers:
        raise Refusal(
            BAD_SIGNATURE.code,
            f"none of the {counted(len(keys), 'key')} trusted for it signed this {kind}",
            evidence=tuple(f"it names the key {hint[:80]!r}" for hint in sealed.hints),
        )
    return Opened(sealed.payload, signers)


def _canonical(payload: bytes, kind: str) -> None:
    try:
        canon.loads(payload)
    except canon.NotCanonical as error:
        raise Refusal(NOT_CANONICAL.code, f"the payload of the signed {kind} is not canonical: {error}") from error


def read_record(record: type[T], payload: bytes, kind: str) -> T:
    """A verified payload as a record. Raises Refusal `bad_schema` naming the first wrong field."""
    try:
        return from_bytes(record, payload)
    except Malformed as error:
        raise Refusal(BAD_SCHEMA.code, f"the signed {kind} does not have the expected form: {error}") from error


def split(text: str | bytes, *, kind: str, limit: int = limits.ENVELOPE_BYTES) -> Sealed:
    """The parts of an envelope of this kind, unverified. For this room, and for showing what claims to be signed."""
    if kind not in PERSON_KINDS and kind not in MACHINE_KINDS:
        raise Bug(f"`{kind}` is not a kind of signed envelope")
    document = _document(text, kind, limit)
    said = document["payloadType"]
    if said != payload_type(kind):
        raise Refusal(WRONG_KIND.code, f"expected a signed {kind}, got {str(said)[:80]!r}")
    entries = document["signatures"]
    most = limits.SIGNATURES if kind in PERSON_KINDS else 1
    if not isinstance(entries, list) or not 1 <= len(entries) <= most:
        raise _malformed(kind, f"expected {'one signature' if most == 1 else f'one to {most} signatures'}")
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"keyid", "sig"} or not isinstance(entry["keyid"], str):
            raise _malformed(kind, "each signature has exactly `keyid` and `sig`")
    return Sealed(
        payload=_unbase64(document["payload"], kind),
        signatures=tuple(_unbase64(entry["sig"], kind) for entry in entries),
        hints=tuple(entry["keyid"] for entry in entries),
    )


def kind_of(text: str | bytes, limit: int = limits.ENVELOPE_BYTES) -> str:
    """Which kind a text says that it is. For looking at what somebody has in hand; whoever acts names the kind."""
    said = str(_document(text, "document", limit)["payloadType"])
    kind = next((k for k in PERSON_KINDS | MACHINE_KINDS if payload_type(k) == said), None)
    if kind is None:
        raise Refusal(WRONG_KIND.code, f"no kind of document that gridops knows: {said[:80]!r}")
    return kind


def verified(sealed: Sealed, kind: str, keys: Sequence[PublicKey]) -> tuple[PublicKey, ...]:
    """The distinct keys among `keys` that signed. A key of the wrong type for the kind never counts."""
    person = kind in PERSON_KINDS
    message = pae(kind, sealed.payload)
    return tuple(
        key
        for key in dict.fromkeys(keys)
        if key.of_person == person and any(key.verifies(kind, message, signature) for signature in sealed.signatures)
    )


def _document(text: str | bytes, kind: str, limit: int) -> dict[str, Any]:
    # A UTF-8 text has at least as many bytes as characters, so the cheap test comes first.
    if len(text) > limit:
        raise _malformed(kind, f"it is larger than {limit} bytes")
    try:
        raw = text.encode() if isinstance(text, str) else text
        if len(raw) > limit:
            raise _malformed(kind, f"it is larger than {limit} bytes")
        document = json.loads(raw.decode(), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _malformed(kind, "it is not JSON") from error
    if not isinstance(document, dict) or set(document) != {"payload", "payloadType", "signatures"}:
        raise _malformed(kind, "expected exactly `payload`, `payloadType` and `signatures`")
    return document


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


def _unbase64(text: object, kind: str) -> bytes:
    """Standard alphabet with padding, and the one spelling of these bytes."""
    if isinstance(text, str):
        try:
            raw = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise _malformed(kind, "payload and signatures are standard base64 with padding") from error
        if base64.b64encode(raw).decode() == text:
            return raw
    raise _malformed(kind, "payload and signatures are standard base64 with padding")


def _malformed(kind: str, why: str) -> Refusal:
    return Refusal(BAD_ENVELOPE.code, f"not a signed {kind}: {why}")


def _check_signers(kind: str, signers: Sequence[Signer]) -> None:
    person = kind in PERSON_KINDS
    if not person and kind not in MACHINE_KINDS:
        raise Bug(f"`{kind}` is not a kind of signed envelope")
    if not signers or len(signers) > (limits.SIGNATURES if person else 1):
        raise Bug(f"a {kind} cannot carry {len(signers)} signatures")
    for signer in signers:
        if signer.public.of_person != person:
            raise Bug(f"a {kind} is signed by {'people' if person else 'machines'}, not by {signer.public.type} keys")


def _render(kind: str, payload: bytes, signatures: Sequence[tuple[str, bytes]]) -> str:
    """As `json.dumps` would write it, which makes itself ready anew for each. Base64 needs no escapes; a key's name may
    come from outside."""
    rows = (f'{{"keyid":{json.dumps(key_id)},"sig":"{base64.b64encode(sig).decode()}"}}' for key_id, sig in signatures)
    text = f'{{"payload":"{base64.b64encode(payload).decode()}","payloadType":"{payload_type(kind)}"'
    return f'{text},"signatures":[{",".join(rows)}]}}'
