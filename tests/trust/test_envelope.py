"""Signed envelopes: every way in which one can be wrong, and that only the trusted key and the named kind count."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope as Oracle
from securesystemslib.signer import SSlibKey

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Bug, Refusal
from gridops.base.record import record
from gridops.trust import envelope
from gridops.trust.keys import PublicKey
from tests.trust.people import envelope_of, keys_of, machine, person, text_of

PAYLOAD = b'{"a":1,"b":"z\xc3\xbc"}'
CONTROLLER = machine("controller")
MIRA, JON = person("mira"), person("jon")
GRANT = json.loads(envelope.seal("grant", PAYLOAD, CONTROLLER))
APPROVAL = json.loads(envelope.seal("approval", PAYLOAD, MIRA))


def code_of(text: str | bytes, kind: str = "grant", keys: tuple[PublicKey, ...] = (CONTROLLER.public,)) -> str:
    with pytest.raises(Refusal) as caught:
        envelope.open_envelope(text, kind=kind, keys=keys)
    assert caught.value.message
    return caught.value.code


def with_signature(**fields: Any) -> str:
    return text_of({**GRANT, "signatures": [{**GRANT["signatures"][0], **fields}]})


@pytest.mark.parametrize("kind", sorted(envelope.MACHINE_KINDS))
def test_what_a_machine_seals_is_opened_by_its_key(kind: str) -> None:
    opened = envelope.open_envelope(envelope.seal(kind, PAYLOAD, CONTROLLER), kind=kind, keys=keys_of(CONTROLLER))
    assert opened.payload == PAYLOAD
    assert opened.signers == (CONTROLLER.public,)
    assert opened.digest == digest_bytes(PAYLOAD)


@pytest.mark.parametrize("kind", sorted(envelope.PERSON_KINDS))
def test_what_people_seal_names_each_of_them_once(kind: str) -> None:
    text = envelope.seal(kind, PAYLOAD, MIRA, JON, MIRA)
    opened = envelope.open_envelope(text.encode(), kind=kind, keys=keys_of(JON, MIRA, JON))
    assert opened.signers == (JON.public, MIRA.public)


MALFORMED: dict[str, str | bytes] = {
    "nothing": "",
    "not JSON": "{",
    "not UTF-8": b"\xff{}",
    "a lone surrogate": '"\ud800"',
    "a list": "[]",
    "a number too long to read": "1" * 5000,
    "nested without end": "[" * 100_000,
    "a field is missing": text_of({k: v for k, v in GRANT.items() if k != "payloadType"}),
    "a field is added": text_of({**GRANT, "note": ""}),
    "a field is given twice": text_of(GRANT)[:-1] + ',"payload":' + json.dumps(GRANT["payload"]) + "}",
    "a signature field is given twice": text_of(GRANT).replace('"sig"', '"keyid": "x", "sig"'),
    "payload is no text": text_of({**GRANT, "payload": 7}),
    "payload without padding": text_of({**GRANT, "payload": GRANT["payload"].rstrip("=")}),
    "payload with a line break": text_of({**GRANT, "payload": GRANT["payload"][:8] + "\n" + GRANT["payload"][8:]}),
    "payload with too much padding": text_of({**GRANT, "payload": GRANT["payload"] + "===="}),
    "payload beyond ASCII": text_of({**GRANT, "payload": "é==="}),
    "url alphabet in a signature": with_signature(sig="-_" + GRANT["signatures"][0]["sig"][2:]),
    "no signatures": text_of({**GRANT, "signatures": []}),
    "signatures are no list": text_of({**GRANT, "signatures": {}}),
    "signatures are a number": text_of({**GRANT, "signatures": 1}),
    "a signature is a number": text_of({**GRANT, "signatures": [1]}),
    "a signature is a list": text_of({**GRANT, "signatures": [["keyid", "sig"]]}),
    "a signature is no record": text_of({**GRANT, "signatures": ["x"]}),
    "a signature without key id": text_of({**GRANT, "signatures": [{"sig": GRANT["signatures"][0]["sig"]}]}),
    "a signature with more fields": with_signature(cert="x"),
    "a key id that is no text": with_signature(keyid=None),
    "two signatures of a machine": text_of({**GRANT, "signatures": GRANT["signatures"] * 2}),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_anything_that_is_not_exactly_an_envelope_is_refused(text: str | bytes) -> None:
    assert code_of(text) == "bad_envelope"


def test_base64_has_one_spelling() -> None:
    payload = b'{"a":1}'  # seven bytes leave four unused bits in the last digit
    sealed = json.loads(envelope.seal("grant", payload, CONTROLLER))
    other = sealed["payload"].removesuffix("Q==") + "R=="
    assert base64.b64decode(other) == payload
    assert code_of(text_of({**sealed, "payload": other})) == "bad_envelope"


def test_eight_signatures_are_the_most() -> None:
    many = [person(f"p{n}") for n in range(limits.SIGNATURES)]
    text = envelope.seal("root", PAYLOAD, *many)
    assert len(envelope.open_envelope(text, kind="root", keys=keys_of(*many)).signers) == limits.SIGNATURES
    nine = json.loads(text)
    nine["signatures"].append(APPROVAL["signatures"][0])
    assert code_of(text_of(nine), "root", keys_of(*many)) == "bad_envelope"


def test_size_is_counted_in_bytes_before_anything_is_parsed() -> None:
    text = text_of(GRANT)
    keys = keys_of(CONTROLLER)
    assert envelope.open_envelope(text, kind="grant", keys=keys, limit=len(text)).payload == PAYLOAD
    for given_text in (text, text.encode()):
        with pytest.raises(Refusal, match=f"larger than {len(text) - 1} bytes"):
            envelope.open_envelope(given_text, kind="grant", keys=keys, limit=len(text) - 1)
    with pytest.raises(Refusal, match="larger than 10 bytes"):
        envelope.open_envelope("é" * 6, kind="grant", keys=keys, limit=10)
    assert code_of("[" * (limits.ENVELOPE_BYTES + 1)) == "bad_envelope"


def test_a_signature_counts_for_its_kind_only() -> None:
    receipt = envelope.seal("receipt", PAYLOAD, CONTROLLER)
    assert code_of(receipt) == "wrong_kind"
    relabelled = {**json.loads(receipt), "payloadType": envelope.payload_type("grant")}
    assert code_of(text_of(relabelled)) == "bad_signature"
    approval = {**APPROVAL, "payloadType": envelope.payload_type("operator")}
    assert code_of(text_of(approval), "operator", keys_of(MIRA)) == "bad_signature"
    assert code_of(text_of({**GRANT, "payloadType": "\x1b[2J"})) == "wrong_kind"


def test_a_signature_by_another_key_is_refused_whatever_the_key_id_says() -> None:
    assert code_of(text_of(GRANT), keys=keys_of(machine("thief"))) == "bad_signature"
    assert code_of(text_of(GRANT), keys=()) == "bad_signature"
    forged = json.loads(envelope.seal("grant", PAYLOAD, machine("thief")))
    forged["signatures"][0]["keyid"] = CONTROLLER.public.key_id
    assert code_of(text_of(forged)) == "bad_signature"


def test_the_key_id_is_a_hint_and_decides_nothing() -> None:
    for hint in ("", "mine", machine("thief").public.key_id, "\x1b[2J" * 40):
        opened = envelope.open_envelope(with_signature(keyid=hint), kind="grant", keys=keys_of(CONTROLLER))
        assert opened.signers == (CONTROLLER.public,)


def test_a_strange_key_id_reaches_no_terminal() -> None:
    with pytest.raises(Refusal) as caught:
        envelope.open_envelope(with_signature(keyid="\x1b[2J"), kind="grant", keys=())
    assert all("\x1b" not in line for line in (caught.value.message, *caught.value.evidence))


def test_the_scheme_comes_from_the_trusted_key() -> None:
    """The same 32 bytes as a machine key and as a person's key are two schemes, and a kind admits one of them."""
    raw = MIRA.public.raw
    as_machine, as_person = PublicKey("ed25519", raw), PublicKey("ssh-ed25519", raw)
    approval = text_of(APPROVAL)
    assert envelope.open_envelope(approval, kind="approval", keys=(as_person,)).signers == (as_person,)
    assert code_of(approval, "approval", (as_machine,)) == "bad_signature"
    bare = envelope_of(PAYLOAD, "approval", ("", CONTROLLER.sign("approval", envelope.pae("approval", PAYLOAD))))
    assert code_of(text_of(bare), "approval", keys_of(CONTROLLER)) == "bad_signature"
    ssh = envelope_of(PAYLOAD, "grant", ("", MIRA.sign("grant", envelope.pae("grant", PAYLOAD))))
    assert code_of(text_of(ssh), "grant", (as_machine, as_person)) == "bad_signature"


def test_an_unknown_signature_beside_a_good_one_does_no_harm() -> None:
    text = envelope.seal("approval", PAYLOAD, person("stranger"), MIRA)
    assert envelope.open_envelope(text, kind="approval", keys=keys_of(MIRA, JON)).signers == (MIRA.public,)


NOT_CANONICAL: dict[str, bytes] = {
    "spaces": b'{"a": 1}',
    "keys out of order": b'{"b":1,"a":1}',
    "a key twice": b'{"a":1,"a":1}',
    "a float": b'{"a":1.0}',
    "not JSON": b"hello",
    "empty": b"",
    "a trailing line break": b'{"a":1}\n',
}


@pytest.mark.parametrize("payload", NOT_CANONICAL.values(), ids=NOT_CANONICAL.keys())
def test_a_signed_payload_must_be_canonical(payload: bytes) -> None:
    signature = CONTROLLER.sign("grant", envelope.pae("grant", payload))
    text = text_of(envelope_of(payload, "grant", ("", signature)))
    assert code_of(text) == "not_canonical"
    assert code_of(text, keys=keys_of(machine("thief"))) == "bad_signature", "the signature is judged first"
    with pytest.raises(Bug, match="not canonical"):
        envelope.seal("grant", payload, CONTROLLER)


@record
class Note:
    a: int


def test_a_record_of_another_form_is_named_by_its_field() -> None:
    note, opened = envelope.open_record(
        Note, envelope.seal("grant", b'{"a":1}', CONTROLLER), kind="grant", keys=keys_of(CONTROLLER)
    )
    assert (note, opened.payload) == (Note(a=1), b'{"a":1}')
    with pytest.raises(Refusal, match=r"Note\.b") as caught:
        envelope.open_record(Note, text_of(GRANT), kind="grant", keys=keys_of(CONTROLLER))
    assert caught.value.code == "bad_schema"


FAULTS: dict[str, Callable[[], object]] = {
    "an unknown kind is sealed": lambda: envelope.seal("letter", PAYLOAD, CONTROLLER),
    "an unknown kind is opened": lambda: envelope.open_envelope(text_of(GRANT), kind="letter", keys=()),
    "nobody signs": lambda: envelope.seal("grant", PAYLOAD),
    "two machines sign": lambda: envelope.seal("grant", PAYLOAD, CONTROLLER, machine("other")),
    "nine people sign": lambda: envelope.seal("root", PAYLOAD, *(person(str(n)) for n in range(9))),
    "a person signs a grant": lambda: envelope.seal("grant", PAYLOAD, MIRA),
    "a machine signs an approval": lambda: envelope.seal("approval", PAYLOAD, CONTROLLER),
    "a machine countersigns an approval": lambda: envelope.countersign(
        text_of(APPROVAL), kind="approval", signer=CONTROLLER
    ),
    "a grant is countersigned": lambda: envelope.countersign(text_of(GRANT), kind="grant", signer=CONTROLLER),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_faults_of_our_own_code_are_bugs(fault: Callable[[], object]) -> None:
    with pytest.raises(Bug):
        fault()


def test_envelopes_are_written_as_json_writes_them_whatever_the_keys_are_called() -> None:
    text = envelope.seal("root", PAYLOAD, MIRA)
    document = json.loads(text)
    for name in ("sha256:00", 'a "quoted" \\ one', "é\u2028\ud800", "", "\n"):
        document["signatures"][0]["keyid"] = name
        signed = envelope.countersign(json.dumps(document), kind="root", signer=JON)
        assert signed == json.dumps(json.loads(signed), separators=(",", ":"))
        assert json.loads(signed)["signatures"][0]["keyid"] == name


def test_people_sign_one_document_one_after_the_other() -> None:
    one = envelope.seal("root", PAYLOAD, MIRA)
    two = envelope.countersign(one, kind="root", signer=JON)
    assert two == envelope.seal("root", PAYLOAD, MIRA, JON)
    assert envelope.countersign(two, kind="root", signer=JON) == two, "signing again adds nothing"
    full = envelope.seal("root", PAYLOAD, *(person(str(n)) for n in range(limits.SIGNATURES)))
    with pytest.raises(Refusal) as caught:
        envelope.countersign(full, kind="root", signer=MIRA)
    assert caught.value.code == "bad_envelope"


@given(st.text(max_size=30), st.binary(max_size=200))
def test_the_signed_bytes_are_those_of_securesystemslib(kind: str, payload: bytes) -> None:
    assert envelope.pae(kind, payload) == Oracle(payload, envelope.payload_type(kind), {}).pae()


def test_our_envelopes_verify_in_securesystemslib() -> None:
    public = CONTROLLER.public
    scheme = {"public": public.raw.hex()}
    key = SSlibKey(public.key_id, "ed25519", "ed25519", scheme)
    assert Oracle.from_dict(dict(GRANT)).verify([key], 1)


WHOLE = text_of(GRANT)
PARTS = [*'{}[],:" =\\/+Az9', '"x":1,', '"payload":"e30=",', '"signatures":[],', "\\u0061", "é"]


@given(st.integers(0, len(WHOLE)), st.sampled_from(["", *PARTS]), st.integers(0, 3))
def test_a_bent_envelope_means_the_same_to_securesystemslib(at: int, part: str, gone: int) -> None:
    """What we open they verify, over the same payload; what they alone verify is no envelope to us by its form."""
    bent = WHOLE[:at] + part + WHOLE[at + gone :]
    theirs, code = verified_there(bent), ""
    try:
        ours = envelope.open_envelope(bent, kind="grant", keys=keys_of(CONTROLLER)).payload
    except Refusal as refusal:
        ours, code = None, refusal.code
    assert ours == theirs or code == "bad_envelope", "more than the form is another"


def verified_there(text: str) -> bytes | None:
    """The payload that securesystemslib finds signed by the controller. It goes by the key id, here only a hint."""
    key = SSlibKey(CONTROLLER.public.key_id, "ed25519", "ed25519", {"public": CONTROLLER.public.raw.hex()})
    try:
        document = json.loads(text)
        for signature in document["signatures"]:
            signature["keyid"] = key.keyid
        opened = Oracle.from_dict(document)
        opened.verify([key], 1)
    except Exception:  # noqa: BLE001 - whatever it stumbles over, it has not verified it
        return None
    return bytes(opened.payload)


SEALED = text_of(APPROVAL)


@given(st.integers(0, len(SEALED) - 1), st.characters(codec="ascii"))
def test_no_changed_character_changes_what_was_said(at: int, character: str) -> None:
    """A bent envelope is refused, or (key id, spaces) still says the same by the same key. Nothing else is raised."""
    bent = SEALED[:at] + character + SEALED[at + 1 :]
    try:
        opened = envelope.open_envelope(bent, kind="approval", keys=keys_of(MIRA))
    except Refusal:
        return
    assert (opened.payload, opened.signers) == (PAYLOAD, (MIRA.public,))


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_refusal(raw: bytes) -> None:
    with pytest.raises(Refusal):
        envelope.open_envelope(raw, kind="grant", keys=keys_of(CONTROLLER))
