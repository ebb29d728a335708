"""Words: what was probably meant, and what had better not be in git."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.files.draw import draw_all
from gridops.files.near import damerau, nearest
from gridops.files.report import annotate, document
from gridops.files.secrets import looks_secret, masked
from tests.files.repo import APPROVALS, GOOD, PROFILE, added, problems

SUGGESTED = [
    ("memmory", ("memory", "model"), "memory"),
    ("gpu_memmory", ("gpu_memory", "gpus"), "gpu_memory"),
    ("prod-ue", ("prod-eu", "lab"), "prod-eu"),
    ("maxPerHost", ("max_per_host",), "max_per_host"),
    ("FLASH-ATTN", ("flash_attn",), "flash_attn"),
    ("reserv", ("reserve",), "reserve"),
]
NOT_SUGGESTED = [
    ("id", ("ie",)),  # one edit of two letters is half the word
    ("nope", ("no-preview",)),
    ("q5", ("q4", "q6")),
    ("abcdef", ("abcxef", "abcyef")),  # a tie
    ("x" * 200, ("y" * 200,)),
    ("same", ("same",)),
]


@pytest.mark.parametrize(("word", "known", "meant"), SUGGESTED)
def test_a_slip_of_the_fingers_is_understood(word: str, known: tuple[str, ...], meant: str) -> None:
    assert nearest(word, known) == meant


@pytest.mark.parametrize(("word", "known"), NOT_SUGGESTED)
def test_what_is_too_far_is_not_guessed(word: str, known: tuple[str, ...]) -> None:
    assert nearest(word, known) is None


def test_in_a_large_fleet_a_slip_is_still_understood() -> None:
    known = {f"host-{n:05d}": None for n in range(0, 20_000, 7)}
    assert nearest("hots-00700", known) == "host-00700"
    assert nearest("hosst-00700", known) == "host-00700"
    assert nearest("anything", known) is None


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_distance_is_a_distance(left: str, right: str) -> None:
    far = damerau(left, right)
    assert far == damerau(right, left)
    assert (far == 0) == (left == right)
    assert abs(len(left) - len(right)) <= far <= max(len(left), len(right))


SECRETS = [
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "ghp_0123456789abcdefABCDEF0123456789abcd",
    "sk-proj-abcdefghijklmnopqrstuvwxyz",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "gj1.abcdefghijklmnop.qrstuvwxyz",
    "eyJhbGciOiJIUzI1NiIs.eyJzdWIiOiIxMjM0NTY3.abc",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "https://user:pa55word@forge.example/x.git",
    "x7Kq9Zt2Lm4Pw8Rv1Ns6Bd3Yc5",
    "the key is dGhpcyBpcyBhIHNlY3JldCBrZXkgMTIz by the way",
]
NO_SECRETS = [
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "4d1c0aa9f3b2e1d0c9b8a7968574635241302f1e",
    "hf://bartowski/Meta-Llama-3.1-70B-Instruct-GGUF@1a2b3c4",
    "Meta-Llama-3.1-70B-Instruct-Q4_K_M-00001-of-00002.gguf",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "the fan of the second power supply makes a noise that nobody can work beside",
    "oci://registry.example/models/llama-3.1-70b-instruct-awq@v1",
    "git@forge.example:acme/fleet.git",
    "https://gridops.office.example:7443/v1/status",
    "2026-11-30T08:00:00Z",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF",
    "rolling out Qwen2.5-Coder-32B-Instruct-Q4_K_M-GGUF and DeepSeek-R1-Distill-Qwen-14B-Q6_K_L",
    "ssh://git@forge.example/acme/fleet.git",
    "https://models.example/a/b@v1",
    "internationalization-and-localization-of-everything",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_noticed(text: str) -> None:
    assert looks_secret(text)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_what_is_public_by_nature_is_no_secret(text: str) -> None:
    assert looks_secret(text) is None


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_blotted_out_and_nothing_moves(text: str) -> None:
    shown = masked(text)
    assert len(shown) == len(text)
    assert "***" in shown
    assert looks_secret(shown) is None or "://" in shown


TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"


@pytest.mark.parametrize(
    "extra",
    [f"env: {{HF_TOKEN: {TOKEN}}}\n", f"env:\n  - [{TOKEN}]\n", f"renamed_from: {TOKEN}\n", f"serves: [{TOKEN}]\n"],
)
def test_no_output_repeats_a_secret(extra: str) -> None:
    found = problems({**GOOD, PROFILE: GOOD[PROFILE] + extra})
    assert found
    shown = draw_all(found) + json.dumps(document(found, 1)) + "".join(annotate(found)) + "".join(map(str, found))
    assert TOKEN not in shown


def test_a_secret_under_a_field_that_does_not_exist_is_still_reported() -> None:
    found = problems({**GOOD, PROFILE: GOOD[PROFILE] + f"env: {{HF_TOKEN: {TOKEN}}}\n"})
    assert [p.code for p in found] == ["GO203", "GO130"]


def _root(number: int, *people: str, threshold: int = 1) -> dict[str, str]:
    keys = [{"holder": name, "key": "ssh-ed25519 AAAA"} for name in people]
    approver = {"name": "approver", "keys": keys, "threshold": threshold}
    payload = {"version": number, "roles": [{"name": "root", "keys": []}, approver]}
    envelope = {"payload": base64.b64encode(json.dumps(payload).encode()).decode()}
    return {f"policies/trust/root/{number}.json": json.dumps(envelope)}


ROLES = "apiVersion: gridops/v1\nkind: Approvals\nroles: {oncall: [mira, jonn]}\n"


def test_people_are_compared_with_the_newest_trust_root() -> None:
    files = {**added(APPROVALS, ROLES), **_root(9, "mira", "jonn"), **_root(10, "mira", "jon")}
    found = problems(files)
    assert [(p.code, p.severity, str(p.place)) for p in found] == [("GO316", "warning", f"{APPROVALS}:3:24")]
    assert found[0].hint == "did you mean `jon`?"


NEEDS = ROLES.replace("jonn", "jon") + "risks: {routine: {need: 1, from: [oncall]}}\n"


def test_an_approval_that_the_root_lets_nobody_complete_is_said_and_stops_no_root() -> None:
    """`trust demand approver 2`, or a key that left: else on-call learns of it at the plan that cannot be applied."""
    files = added(APPROVALS, NEEDS)
    assert problems({**files, **_root(2, "mira", "jon", threshold=2)}) == ()
    (two,) = [p for p in problems({**files, **_root(2, "mira", "ana", threshold=2)}) if p.code != "GO316"]
    assert (two.code, two.severity, str(two.place)) == ("GO335", "warning", f"{APPROVALS}:4:25")
    assert two.message == "2 approvals needed by root 2, whatever stands here, 1 can be given"
    assert two.hint == "who may approve: mira; without an approver key: jon"
    (none,) = [p for p in problems({**files, **_root(2, "ana")}) if p.code != "GO316"]
    assert (none.code, none.severity, none.message) == ("GO335", "warning", "1 approval needed, 0 can be given")
    (few,) = problems(added(APPROVALS, NEEDS.replace("need: 1", "need: 3")))
    assert (few.code, few.severity) == ("GO335", "error")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"payload": 3}', '{"payload": "e30="}', '{"payload": "!!"}'])
def test_a_trust_root_that_cannot_be_read_here_is_judged_elsewhere(text: str) -> None:
    assert problems({**added(APPROVALS, ROLES), "policies/trust/root/1.json": text}) == ()


def test_without_a_trust_root_nobody_is_unknown() -> None:
    assert problems({**GOOD, APPROVALS: ROLES}) == ()
