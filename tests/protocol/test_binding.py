"""A host's word on who answers at its front: whose it is, for how long it counts, and what is no such word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.protocol.binding import KIND, Bound, bind, open_binding
from gridops.protocol.messages import TlsBinding
from gridops.trust.envelope import MACHINE_KINDS, PERSON_KINDS, seal
from gridops.trust.keys import MachineSigner
from gridops.trust.tls import fingerprint, self_signed
from tests.protocol.build import CONTROLLER, FLEET, HOST, HOST_SIGNER, NOW, OTHER_HOST

DAY = limits.BINDING_MS
TLS = self_signed(("gpu-07.example",), NOW - DAY, 3_650)
ANOTHER = self_signed(("gpu-07.example",), NOW - DAY, 3_650)
WHERE = "https://gpu-07.example:8443"
SAYS = bind(FLEET, HOST, WHERE, TLS.cert_pem, NOW)


def sealed(says: TlsBinding = SAYS, signer: MachineSigner = HOST_SIGNER) -> str:
    return seal(KIND, to_bytes(says), signer)


def opened(text: str, now_ms: int = NOW, host: HostId = HOST) -> Bound:
    return open_binding(text, HOST_SIGNER.public, fleet=FLEET, host=host, now_ms=now_ms)


def test_a_host_that_signed_for_its_front_is_believed_for_a_day() -> None:
    bound = opened(sealed())
    assert (bound.says, bound.key, bound.text) == (SAYS, HOST_SIGNER.public.text, sealed())
    assert opened(sealed(), NOW + DAY).says == SAYS
    assert opened(sealed(), NOW - limits.ISSUED_AHEAD_MS).says == SAYS
    assert (bound.holds(NOW + DAY), bound.holds(NOW + DAY + 1)) == (True, False)
    assert (bound.ends_soon(NOW + DAY - DAY // 3), bound.ends_soon(NOW + DAY - DAY // 3 + 1)) == (False, True)


@pytest.mark.parametrize("where", ["https://[fd00::7]:8443", "https://192.0.2.7:1", "https://gpu-07:65535"])
def test_addresses_of_every_form_are_addresses(where: str) -> None:
    assert opened(sealed(replace(SAYS, endpoint=where))).says.endpoint == where


def test_it_is_about_the_front_that_the_host_speaks_of_and_about_no_other() -> None:
    bound, mine = opened(sealed()), fingerprint(TLS.cert_pem)
    assert bound.is_about(WHERE, mine)
    for where, certificate in (
        ("https://gpu-07.example:8444", mine),
        (WHERE, fingerprint(ANOTHER.cert_pem)),
        (WHERE, None),
        (None, mine),
    ):
        assert not bound.is_about(where, certificate)


WRONG: dict[str, tuple[Callable[[], str], int, str]] = {
    "another host's key": (lambda: sealed(signer=OTHER_HOST), NOW, "bad_signature"),
    "the controller's key": (lambda: sealed(signer=CONTROLLER), NOW, "bad_signature"),
    "about another host": (lambda: sealed(replace(SAYS, host=HostId("gpu-08"))), NOW, "wrong_host"),
    "of another fleet": (lambda: sealed(replace(SAYS, fleet=digest_bytes(b"staging"))), NOW, "wrong_fleet"),
    "a day and a moment later": (sealed, NOW + DAY + 1, "expired"),
    "too early": (sealed, NOW - limits.ISSUED_AHEAD_MS - 1, "not_yet"),
    "for longer than a day": (lambda: sealed(replace(SAYS, not_after_ms=NOW + DAY + 1)), NOW, "bad_schema"),
    "for less than nothing": (lambda: sealed(replace(SAYS, not_after_ms=NOW - 1)), NOW, "bad_schema"),
    "of a version to come": (lambda: sealed(replace(SAYS, v=2)), NOW, "bad_schema"),
    "no certificate": (lambda: sealed(replace(SAYS, certificate="ssh-ed25519 AAAA")), NOW, "bad_schema"),
    "no TLS": (lambda: sealed(replace(SAYS, endpoint="http://gpu-07.example:8443")), NOW, "bad_schema"),
    "no port": (lambda: sealed(replace(SAYS, endpoint="https://gpu-07.example")), NOW, "bad_schema"),
    "a path": (lambda: sealed(replace(SAYS, endpoint=WHERE + "/v1")), NOW, "bad_schema"),
    "somebody in it": (lambda: sealed(replace(SAYS, endpoint="https://a@gpu-07.example:8443")), NOW, "bad_schema"),
    "larger than any": (lambda: sealed(replace(SAYS, certificate=TLS.cert_pem * 8)), NOW, "bad_envelope"),
    "one byte changed": (lambda: sealed().replace('"sig":"', '"sig":"A', 1), NOW, "bad_envelope"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_word_of_this_host_for_now_opens_nothing(what: str) -> None:
    made, now_ms, code = WRONG[what]
    with pytest.raises(Refusal) as no:
        opened(made(), now_ms)
    assert no.value.code == code


@pytest.mark.parametrize("kind", sorted((MACHINE_KINDS | PERSON_KINDS) - {KIND}))
def test_nothing_else_that_a_host_signs_counts_as_one(kind: str) -> None:
    envelope: dict[str, Any] = {"payloadType": f"application/vnd.gridops.{kind}.v1+json"}
    text = sealed().replace("application/vnd.gridops.tls-binding.v1+json", envelope["payloadType"])
    with pytest.raises(Refusal) as no:
        opened(text)
    assert no.value.code == "wrong_kind"
