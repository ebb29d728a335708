"""Join tokens and the two proofs that they carry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId
from gridops.trust import join
from gridops.trust.secret import Secret

FLEET = Digest("sha256:" + "0123456789abcdef" * 4)
HOST = HostId("gpu-07.rack_2")
SECRET = bytes(range(32))
TOKEN = join.make_token(FLEET, HOST, SECRET)
KEY = join.join_key(SECRET)


def test_a_token_has_the_form_that_the_documents_show() -> None:
    version, rest = TOKEN.split(".", 1)
    assert version == "gj1"
    assert rest.startswith(f"{'0123456789abcdef' * 4}.gpu-07.rack_2.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8.")
    assert len(rest.rpartition(".")[2]) == 8


names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)


@given(st.binary(min_size=32, max_size=32), names, st.binary(min_size=32, max_size=32))
def test_a_token_reads_back_whatever_the_host_is_called(fleet: bytes, host: str, secret: bytes) -> None:
    digest = Digest("sha256:" + fleet.hex())
    text = join.make_token(digest, HostId(host), secret)
    token = join.parse_token(f" {text}\n")
    assert (token.fleet, token.host, token.secret.reveal()) == (digest, host, secret)


@given(st.integers(0, len(TOKEN) - 1), st.characters())
def test_one_wrong_character_is_noticed(at: int, character: str) -> None:
    bent = TOKEN[:at] + character + TOKEN[at + 1 :]
    if bent.strip() == TOKEN:
        return
    with pytest.raises(Refusal) as caught:
        join.parse_token(bent)
    assert caught.value.code == "bad_token"


def with_check(body: str) -> str:
    return f"{body}.{join._checksum(body)}"


BODY = TOKEN.rpartition(".")[0]
BAD_TOKENS = {
    "nothing": "",
    "cut short": TOKEN[:-1],
    "cut in the middle": TOKEN[:60],
    "another version": "gj2" + TOKEN[3:],
    "endless": with_check("gj1." + "a" * 300),
    "no parts": with_check("gj1.x"),
    "a short fleet": with_check(BODY.replace("0123", "", 1)),
    "a fleet in capitals": with_check(BODY.replace("abcdef", "ABCDEF", 1)),
    "a host that is no name": with_check(BODY.replace("gpu-07", "GPU-07")),
    "no host": with_check(BODY.replace("gpu-07.rack_2.", "")),
    "a short secret": with_check(BODY[:-4]),
    "a long secret": with_check(BODY + "AAAA"),
    "a secret in another spelling": with_check(BODY[:-1] + "9"),
    "a secret in the wrong alphabet": with_check(BODY[:-1] + "+"),
}


@pytest.mark.parametrize("text", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
def test_a_bad_token_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        join.parse_token(text)
    assert caught.value.code == "bad_token"
    shown = " ".join((str(caught.value), *caught.value.evidence, *caught.value.hints))
    assert "AAECAwQF" not in shown


def test_a_token_never_shows_its_secret() -> None:
    assert "AAECAwQF" not in repr(join.parse_token(TOKEN))
    assert SECRET.hex() not in repr(join.parse_token(TOKEN))


@pytest.mark.parametrize(
    ("fleet", "host", "secret"),
    [(FLEET, HOST, b"short"), ("sha256:short", HOST, SECRET), (FLEET, "No Name", SECRET), (FLEET[7:], HOST, SECRET)],
)
def test_a_token_is_made_of_the_right_parts_only(fleet: str, host: str, secret: bytes) -> None:
    with pytest.raises(ValueError, match="a join token is made of"):
        join.make_token(Digest(fleet), HostId(host), secret)


def test_the_stored_key_is_derived_and_stays_the_same_over_releases() -> None:
    """A controller's stored key and an agent of another release must agree, so the value is pinned."""
    assert join.join_key(Secret(SECRET)) == KEY
    assert KEY != SECRET
    assert KEY.hex() == "8be2ded7a929d01ee32e2ef342429096f4cad1be3340d36e65bcc65e071f5a6e"
    assert (
        join.request_mac(KEY, FLEET, "ed25519:ab", "nonce")
        == "a491a18ffc83f8ef0e1bfa16a43e9b17f2b30deb617301b46c246b705733b6ac"
    )
    assert (
        join.reply_mac(KEY, "ed25519:ab", "nonce", ["{}"])
        == "356bb2583a3734379601b730e260ed3ecaed6a84fac12889c1c1f7c1aba5ec43"
    )


def test_a_mac_binds_each_of_its_parts() -> None:
    requests = {
        join.request_mac(key, fleet, host_key, nonce)
        for key in (KEY, join.join_key(b"x" * 32))
        for fleet in (FLEET, Digest("sha256:" + "0" * 64))
        for host_key in ("ed25519:ab", "ed25519:abc")
        for nonce in ("nonce", "once")
    }
    replies = {
        join.reply_mac(key, host_key, nonce, roots)
        for key in (KEY, join.join_key(b"x" * 32))
        for host_key in ("ed25519:ab", "ed25519:abc")
        for nonce in ("nonce", "once")
        for roots in ((), ("a",), ("a", "b"), ("b", "a"), ("ab",))
    }
    assert len(requests) == 16
    assert len(replies) == 40
    assert not requests & replies


def test_parts_cannot_flow_into_each_other() -> None:
    assert join.request_mac(KEY, FLEET, "ab", "c") != join.request_mac(KEY, FLEET, "a", "bc")
    # A reply must not be usable as a request even when its parts are chosen to look like one.
    assert join.reply_mac(KEY, "a", "b", []) != join.request_mac(KEY, Digest("a"), "b", "")


def test_a_wrong_proof_is_refused() -> None:
    right = join.request_mac(KEY, FLEET, "ed25519:ab", "nonce")
    join.require_mac(right, right, "gpu-07")
    assert join.same_mac(right, right)
    for wrong in ("", right[:-1], right + "0", right.upper(), "é", "\ud800"):
        assert not join.same_mac(right, wrong)
        with pytest.raises(Refusal, match="gpu-07 does not know the secret") as caught:
            join.require_mac(right, wrong, "gpu-07")
        assert caught.value.code == "bad_mac"


def test_only_a_derived_key_makes_a_mac() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        join.request_mac(b"short", FLEET, "k", "n")
