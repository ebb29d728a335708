"""Opening messages: the right kind, the right key, a known version, and lists that are bounded before they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId, HostId, ProfileName, ReplicaId
from gridops.base.record import digest_of, to_bytes, to_data
from gridops.model.advice import Prefetched
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops.protocol import open as opening
from gridops.protocol.messages import Head, Outcome, Transfer
from gridops.protocol.receipts import new_receipts, state
from gridops.trust.envelope import seal
from tests.protocol import build
from tests.protocol.build import CONTROLLER, HOST_SIGNER, OTHER_HOST

KEYS = (CONTROLLER.public,)
BEAT = build.heartbeat(build.fence())
DIRECTIVE = build.directive()
GRANT = build.grant(build.body())
RECEIPT = state(
    new_receipts(build.FLEET, build.HOST, build.HOST_KEY),
    "b1",
    build.statement(Head(seq=1, body=digest_bytes(b"1")), Outcome.SUCCEEDED),
)[1]

GOOD: dict[str, tuple[Callable[..., Any], Any, Any, Any]] = {
    "grant": (opening.open_grant, GRANT, CONTROLLER, KEYS),
    "directive": (opening.open_directive, DIRECTIVE, CONTROLLER, KEYS),
    "heartbeat": (opening.open_heartbeat, BEAT, HOST_SIGNER, HOST_SIGNER.public),
    "receipt": (opening.open_receipt, RECEIPT, HOST_SIGNER, HOST_SIGNER.public),
}


@pytest.mark.parametrize("kind", GOOD)
def test_what_was_sealed_is_what_is_opened(kind: str) -> None:
    read, record, signer, key = GOOD[kind]
    assert read(build.sealed(record, signer), key) == record


def test_the_digest_of_a_heartbeat_is_that_of_its_record_however_it_was_spelt() -> None:
    """One that writes out what it does not say is the same heartbeat: the same number with it is no second agent."""
    spelt = json.dumps({**to_data(BEAT), "catalog_version": None}, sort_keys=True, separators=(",", ":")).encode()
    for payload in (to_bytes(BEAT), spelt):
        sealed = opening.sealed_heartbeat(seal("heartbeat", payload, HOST_SIGNER))
        assert opening.opened_heartbeat(sealed, HOST_SIGNER.public) == (BEAT, digest_of(BEAT))
    assert spelt != to_bytes(BEAT)


@pytest.mark.parametrize("kind", GOOD)
def test_a_strangers_signature_opens_nothing(kind: str) -> None:
    read, record, _, key = GOOD[kind]
    with pytest.raises(Refusal, match="bad_signature"):
        read(build.sealed(record, OTHER_HOST), key)


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("other", GOOD)
def test_a_message_never_counts_as_another_kind(kind: str, other: str) -> None:
    if kind == other:
        return
    read, key = GOOD[kind][0], GOOD[kind][3]
    with pytest.raises(Refusal, match="wrong_kind"):
        read(build.sealed(GOOD[other][1], GOOD[other][2]), key)


@pytest.mark.parametrize("kind", GOOD)
def test_a_version_nobody_here_speaks_is_refused_by_name(kind: str) -> None:
    read, record, signer, key = GOOD[kind]
    with pytest.raises(Refusal, match=r"bad_schema.*version 2"):
        read(build.sealed(replace(record, v=2), signer), key)


def _inventory(**changes: object) -> object:
    return replace(BEAT, inventory=replace(BEAT.inventory, **changes))  # type: ignore[arg-type]


HEAD = Head(seq=1, body=digest_bytes(b"1"))
DEVICES = tuple(
    DeviceReport(id=DeviceId(f"gpu{n}"), kind=DeviceKind.GPU, total_bytes=1) for n in range(limits.DEVICES_PER_HOST + 1)
)
TRANSFER = Transfer(artifact=HEAD.body, source="https", done_bytes=1, size_bytes=2)


def _guess(files: int = 1, host: str = build.HOST) -> Prefetched:
    many = tuple(digest_bytes(b"%d" % n) for n in range(files))
    return Prefetched(host=HostId(host), profile=ProfileName("later"), files=many, size_bytes=1, since_ms=1)


TOO_MUCH = {
    "transfers": ("heartbeat", _inventory(transfers=(TRANSFER,) * (limits.TRANSFERS + 1))),
    "abilities": ("heartbeat", _inventory(abilities=("x",) * (limits.ABILITIES + 1))),
    "prefetched artifacts": ("heartbeat", _inventory(prefetched=(_guess(),) * (limits.PREFETCHED_PER_HOST + 1))),
    "prefetched files": ("heartbeat", _inventory(prefetched=(_guess(limits.PREFETCHED_FILES + 1),))),
    "another host": ("heartbeat", _inventory(prefetched=(_guess(host="elsewhere"),))),
    "alarms": ("heartbeat", replace(BEAT, alarms=("x",) * (limits.ALARMS + 1))),
    "open bodies": ("heartbeat", replace(BEAT, open=(HEAD,) * (limits.OPEN_BODIES_PER_HOST + 1))),
    "devices": ("heartbeat", _inventory(devices=DEVICES)),
    "grants": ("directive", replace(DIRECTIVE, grants=("{}",) * (limits.GRANTS_PER_DIRECTIVE + 1))),
    "root documents": ("directive", replace(DIRECTIVE, roots=("{}",) * (limits.ROOTS_PER_DIRECTIVE + 1))),
    "count from 1": ("receipt", replace(RECEIPT, rseq=0)),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_lists_are_bounded(what: str) -> None:
    kind, record = TOO_MUCH[what]
    read, _, signer, key = GOOD[kind]
    with pytest.raises(Refusal, match=rf"bad_schema.*{what}"):
        read(build.sealed(record, signer), key)  # type: ignore[arg-type]


def test_a_message_too_large_is_not_even_parsed() -> None:
    many = tuple(digest_bytes(b"%d" % n) for n in range(limits.HEARTBEAT_BYTES // 70))
    with pytest.raises(Refusal, match=r"bad_envelope.*larger"):
        opening.open_heartbeat(build.sealed(_inventory(cached=many), HOST_SIGNER), HOST_SIGNER.public)  # type: ignore[arg-type]


@pytest.mark.parametrize("replica", ["", "coder", "coder/0", "../etc/1", "coder/1\n"])
def test_a_command_about_a_replica_by_a_name_that_is_none_is_not_read(replica: str) -> None:
    """What a host would start under such a name, its controller could hear no more of."""
    true = build.grant(build.body(action=build.warm()))
    bent = replace(true, body=replace(true.body, action=replace(build.warm(), replica=ReplicaId(replica))))
    with pytest.raises(Refusal, match="names no replica") as refusal:
        opening.open_grant(build.sealed(bent), (CONTROLLER.public,))
    assert refusal.value.code == "bad_schema"
