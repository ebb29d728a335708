"""Plan documents: exact bytes, YAML that is the payload, and no hand edit that goes unnoticed."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gridops.base.errors import Refusal
from gridops.base.record import to_bytes, to_data
from gridops.files.plandoc import message_lines, read_plan, render_plan
from gridops.files.print_yaml import print_yaml
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from tests.render.plans import many, quiet, story

SIGNER = MachineSigner.from_seed(b"c" * 32)
OTHER = MachineSigner.from_seed(b"o" * 32)

_text = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "no",
            "Yes",
            "null",
            "~",
            "1e3",
            "0x1f",
            "12:30",
            "2026-11-29",
            ".inf",
            "- x",
            "a: b",
            "a #b",
            "@x",
            "`x`",
            "x\n",
            "*a",
            "<<",
            "=",
            "\u2028",
            "\ufeff",
            "\x85",
            "\U0001f600",
            "%x",
            "!t",
            "{a}",
            "[a]",
            "a,b",
            " a",
            "a ",
            "",
            "e5",
            "1234567",
        ]
    ),
)
_key = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _text,
    lambda inner: (
        st.lists(st.dictionaries(_key, inner, max_size=4), max_size=3)
        | st.lists(_text, max_size=3)
        | st.dictionaries(_key, inner, max_size=4)
    ),
    max_leaves=25,
)


def parsed(text: str) -> object:
    return YAML(typ="safe", pure=True).load(io.StringIO(text))


@pytest.mark.parametrize("plan", [story(), quiet(), many(80)], ids=["story", "quiet", "many"])
def test_the_yaml_is_exactly_what_the_payload_says(plan) -> None:
    text = render_plan(plan)
    assert parsed(text) == to_data(plan)
    assert text == render_plan(plan)
    assert text.startswith("# 7f3a2c19 prod-eu: ")
    assert "# Do not edit" in text.splitlines()[1]


@settings(max_examples=60)
@given(st.dictionaries(_key, _values, min_size=1, max_size=6))
def test_any_value_prints_as_yaml_that_reads_back_as_itself(value) -> None:
    assert parsed(print_yaml(value)) == value


def test_one_assignment_is_one_line_and_one_decision_one_block() -> None:
    lines = render_plan(story()).splitlines()
    assert "  - n: 1" in lines
    assert sum(line.startswith("  - {replica: ") for line in lines) == len(story().placement)
    assert "    cause: {kind: intent, detail: replicas 4 => 5, at: profiles.d/llama-70b.yaml:8:11}" in lines


def test_a_signed_plan_reads_back_as_itself() -> None:
    envelope = seal("plan", to_bytes(story()), SIGNER)
    assert read_plan(render_plan(story()), envelope, [OTHER.public, SIGNER.public]) == story()


def _edits() -> dict[str, tuple[str, int]]:
    text = render_plan(story())
    lines = text.splitlines(keepends=True)
    host = next(n for n, line in enumerate(lines, 1) if "eu1-gpu-09" in line)
    return {
        "another host": (text.replace("eu1-gpu-09", "eu1-gpu-10", 1), host),
        "a comment more": (lines[0] + "# looks good to me\n" + "".join(lines[1:]), 2),
        "a space at the end of a line": (text.replace("\n", " \n", 1), 1),
        "dos line ends": (text.replace("\n", "\r\n"), 1),
        "the last line lost": ("".join(lines[:-1]), len(lines)),
        "one line too many": (text + "extra: 1\n", len(lines) + 1),
        "nothing at all": ("", 1),
        "a look-alike letter": (text.replace("prod-eu", "prоd-eu", 1), 1),
    }


@pytest.mark.parametrize("name", sorted(_edits()))
def test_a_hand_edit_is_refused_with_its_first_line(name) -> None:
    text, line = _edits()[name]
    envelope = seal("plan", to_bytes(story()), SIGNER)
    with pytest.raises(Refusal) as refused:
        read_plan(text, envelope, [SIGNER.public], file="plans/prod-eu/x/plan.yaml")
    assert refused.value.code == "GO415"
    assert refused.value.subject == "plans/prod-eu/x/plan.yaml"
    assert refused.value.evidence[0] == f"plans/prod-eu/x/plan.yaml:{line}"


def test_a_wrong_key_a_wrong_kind_and_a_newer_form_are_refused() -> None:
    text = render_plan(story())
    with pytest.raises(Refusal) as refused:
        read_plan(text, seal("plan", to_bytes(story()), OTHER), [SIGNER.public])
    assert refused.value.code == "bad_signature"
    with pytest.raises(Refusal) as refused:
        read_plan(text, seal("grant", to_bytes(story()), SIGNER), [SIGNER.public])
    assert refused.value.code == "wrong_kind"
    newer = to_bytes(story()).replace(b'{"created_ms"', b'{"a_newer_field":1,"created_ms"')
    with pytest.raises(Refusal) as refused:
        read_plan(text, seal("plan", newer, SIGNER), [SIGNER.public])
    assert refused.value.code == "bad_schema"


def test_a_signature_over_another_plan_does_not_carry_this_text() -> None:
    envelope = seal("plan", to_bytes(replace(story(), scope="lab")), SIGNER)
    with pytest.raises(Refusal) as refused:
        read_plan(render_plan(story()), envelope, [SIGNER.public])
    assert refused.value.code == "GO415"


def test_the_commit_message_says_what_is_done_and_carries_trailers() -> None:
    lines = message_lines(story())
    assert lines[0] == "plan prod-eu 7f3a2c19: 1 place, 1 move, 2 change, 1 remove, 1 not placed"
    assert "+ llama-70b/5  eu1-gpu-09 [0,1]  replicas 4 => 5  (profiles.d/llama-70b.yaml:8)" in lines
    assert lines[-4:] == [
        "Gridops-Plan: 20261129T0907Z-7f3a2c19",
        f"Gridops-Decisions: {story().decisions_digest}",
        f"Gridops-Intent: {story().intent.commit}",
        "Gridops-Cause: drain, intent",
    ]
    assert len(message_lines(many(800))) < 60
