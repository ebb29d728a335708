"""Who answers at a host's front: the host's own signed word, for whoever brings prompts to its engines.

A `tls-binding` states the certificate of a front for a day, signed by the host key that a commit admits. The host
makes one when its controller asks for it, the controller hands it on as it came, and whoever connects opens it with the
key in `fleet.d/keys` and pins that certificate: so neither the controller nor whoever takes over the address is
believed, and an impostor is refused before it gets a byte of a prompt. The TLS key is never the signing key. Must never
open a connection, or say whom to ask for which model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.codes import protocol as codes
from gridops.base.codes import trust as trust_codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId
from gridops.base.units import render_instant, render_ms
from gridops.protocol.messages import WIRE_VERSION, TlsBinding
from gridops.trust.envelope import open_record
from gridops.trust.keys import PublicKey
from gridops.trust.tls import fingerprint

KIND = "tls-binding"
_ENDPOINT = re.compile(r"https://(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,64}\]):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding that held when it was opened, and the text that proves it."""

    text: str
    says: TlsBinding
    key: str
    """The host key that signed it."""

    def holds(self, now_ms: int) -> bool:
        return now_ms <= self.says.not_after_ms

    def ends_soon(self, now_ms: int) -> bool:
        """Two thirds of its life are over: time for the next one, as for every identity here."""
        return now_ms > self.says.not_after_ms - limits.BINDING_MS // 3

    def is_about(self, endpoint: str | None, certificate: str | None) -> bool:
        """Whether a host says the same of its front elsewhere: its address, and the fingerprint of its certificate."""
        return (endpoint, certificate) == (self.says.endpoint, fingerprint(self.says.certificate))


def bind(fleet: Digest, host: HostId, endpoint: str, certificate: str, now_ms: int) -> TlsBinding:
    """What a host says of its front from now on. `now_ms` is controller time, as for every deadline."""
    return TlsBinding(
        fleet=fleet,
        host=host,
        endpoint=endpoint,
        certificate=certificate,
        issued_ms=now_ms,
        not_after_ms=now_ms + limits.BINDING_MS,
    )


def open_binding(text: str | bytes, key: PublicKey, *, fleet: Digest, host: HostId, now_ms: int) -> Bound:
    """The binding, if this very host signed it for now. Raises Refusal; then its front is not to be asked.

    `key` is the one that a commit admits for the host (`fleet.d/keys/<host>.yaml`), wherever the text came from.
    """
    says, _ = open_record(TlsBinding, text, kind=KIND, keys=(key,), limit=limits.BINDING_BYTES)
    if says.v != WIRE_VERSION:
        raise _bad(f"it is of version {says.v}, this side reads version {WIRE_VERSION}")
    if says.fleet != fleet:
        raise Refusal(trust_codes.WRONG_FLEET.code, f"the binding is of fleet {says.fleet}, not of {fleet}")
    if says.host != host:
        raise Refusal(codes.WRONG_HOST.code, f"the binding is about the front of {says.host}, not of {host}")
    if _ENDPOINT.fullmatch(says.endpoint) is None:
        raise _bad(f"{says.endpoint[:80]!r} is no address of a front, expected https://HOST:PORT")
    try:
        fingerprint(says.certificate)
    except ValueError as error:
        raise _bad("it states no certificate") from error
    early = says.issued_ms - now_ms
    if early > limits.ISSUED_AHEAD_MS:
        raise Refusal(codes.NOT_YET.code, f"the binding of {host} counts only in {render_ms(early)}")
    valid_ms = says.not_after_ms - says.issued_ms
    if not 0 <= valid_ms <= limits.BINDING_MS:
        raise _bad(f"it states a validity of {valid_ms} ms, at most {render_ms(limits.BINDING_MS)} counts")
    if now_ms > says.not_after_ms:
        raise Refusal(codes.EXPIRED.code, f"the binding of {host} ended at {render_instant(says.not_after_ms)}")
    return Bound(text if isinstance(text, str) else text.decode(), says, key.text)


def _bad(why: str) -> Refusal:
    return Refusal(trust_codes.BAD_SCHEMA.code, f"the signed {KIND} does not have the expected form: {why}")
