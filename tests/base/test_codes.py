"""The registry of codes: every entry says what it is, why it matters and what to do."""

from __future__ import annotations

import re

import pytest

from gridops.base import codes
from gridops.base.codes import Code, host, registry

ENTRIES = registry()


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())
def test_an_entry_is_whole(entry: Code) -> None:
    assert re.fullmatch(r"GO\d{3}|[a-z][a-z0-9_]*", entry.code)
    assert entry.title == entry.title.strip().rstrip(".")
    for text in (entry.meaning, entry.remedy):
        assert text.strip() == text
        assert text.endswith((".", "?", "`"))
    assert entry.title != entry.meaning


def test_the_codes_of_this_room_are_all_registered() -> None:
    wanted = (
        "GO413 GO414 GO421 bad_envelope bad_signature wrong_kind not_canonical bad_schema wrong_fleet root_version "
        "root_threshold root_epoch root_expired bad_token bad_mac request_expired request_not_yet"
    )
    assert set(wanted.split()) <= set(ENTRIES)
    assert list(ENTRIES) == sorted(ENTRIES)


def test_one_code_in_two_tables_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    double = Code("bad_mac", "t", "m.", "r.")
    monkeypatch.setattr(host, "ANOTHER", double, raising=False)
    with pytest.raises(AssertionError, match="bad_mac stands in two tables"):
        codes.registry()
