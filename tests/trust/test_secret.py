"""Secrets that do not leak by accident."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import canon
from gridops.base.ids import Digest
from gridops.trust.secret import Secret, digest_of_secret, matches, new_api_key

WORD = "correct horse"
SECRET = Secret(WORD)


@dataclass
class Holder:
    secret: Secret


def test_a_secret_shows_stars_wherever_it_is_printed() -> None:
    for shown in (repr(SECRET), str(SECRET), f"{SECRET}", f"{SECRET:>40}", "%s" % SECRET, repr(Holder(SECRET))):  # noqa: UP031
        assert "***" in shown
        assert WORD not in shown


def test_a_secret_goes_into_no_document() -> None:
    for write in (json.dumps, canon.dumps, pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises((TypeError, canon.NotCanonical)):
            write(SECRET)
    with pytest.raises(TypeError):
        hash(SECRET)
    assert not hasattr(SECRET, "__dict__")


def test_a_secret_reveals_itself_when_asked() -> None:
    assert (SECRET.reveal(), SECRET.reveal_text()) == (WORD.encode(), WORD)
    assert Secret(bytearray(b"x")).reveal() == b"x"


def test_secrets_are_equal_by_value_and_to_nothing_else() -> None:
    assert Secret(WORD) == Secret(WORD.encode())
    assert Secret(WORD) != Secret("correct")
    assert Secret(WORD) != WORD


def test_an_api_key_carries_all_of_its_randomness() -> None:
    key = new_api_key(bytes(range(32)))
    assert key.reveal_text() == "gk1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    with pytest.raises(ValueError, match="32 random bytes"):
        new_api_key(b"short")


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_presented_key_matches_its_own_digest_only(right: str, other: str) -> None:
    digest = Digest("sha256:" + hashlib.sha256(right.encode()).hexdigest())
    assert digest == digest_of_secret(Secret(right))
    assert matches(right, digest)
    assert matches(right.encode(), digest)
    assert matches(Secret(right), digest)
    assert matches(other, digest) == (other == right)


def test_what_cannot_be_a_key_is_not_one_and_raises_nothing() -> None:
    digest = digest_of_secret(SECRET)
    assert not matches("\ud800", digest)
    assert not matches("", digest)
    assert not matches(WORD, Digest(""))
    assert not matches(WORD, Digest(digest.upper()))
