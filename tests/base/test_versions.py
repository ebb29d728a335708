"""Versions are compared as numbers, and what is no version is before every other."""

from __future__ import annotations

import pytest

from gridops.base.versions import CHARS, agent_words, precedes, ranked


def test_versions_are_ordered_as_numbers_and_what_precedes_a_release_is_older_than_it() -> None:
    line = ["0.1.0", "0.2.0.dev3", "0.2.0rc1", "0.2.0", "0.9.0", "0.10.0", "1", "1.0.0.1", "2.0", "10.0"]
    ranks = [ranked(text) for text in line]
    assert None not in ranks
    assert ranks[0] < ranks[1] == ranks[2]  # type: ignore[operator]
    assert sorted(ranks[2:]) == ranks[2:]  # type: ignore[type-var]
    assert len(set(ranks[2:])) == len(line) - 2
    assert ranked("0.2") == ranked("0.2.0") == ranked("0.2.0+here.1") == ranked("0.2.0.post1")


@pytest.mark.parametrize(
    "text", ["", "latest", "v0.2.0", "0.2.0 ", "0..2", "-1", "1.2.3.4.5", "1e3", "٣.1", "0.2.0; rm", "1" * CHARS]
)
def test_what_is_no_version_is_before_every_other_and_met_by_none(text: str) -> None:
    assert ranked(text) is None
    assert precedes(text, "0.0.1")
    assert precedes("99.0", text)
    assert not precedes(text, None), "where nothing is demanded, nothing is asked"


def test_an_agent_is_named_also_where_its_version_is_none() -> None:
    assert agent_words("0.2.0") == "agent 0.2.0"
    assert agent_words(None) == "agent of no readable version (None)"
    assert len(agent_words("x" * 1_000)) < 100
