"""`gridops reconcile-outcome`: the right command or none, signed by who looked, and what to do next in words."""

from __future__ import annotations

import base64
import json

import pytest

FIRST, SECOND = "sha256:" + "4ab19c02" + "0" * 56, "sha256:" + "4ab19c03" + "0" * 56
DOUBTS = [
    {"command": FIRST, "what": "warm coder/1 on alpha", "since": "2026-11-29T09:00:00Z"},
    {"command": SECOND, "what": "load coder/2 on alpha", "since": "2026-11-29T09:00:00Z"},
]


@pytest.fixture
def asks(controller, trusted, call):
    controller.answers["/v1/status"] = (200, {"hosts": [{"host": "alpha", "uncertain": DOUBTS}, {"host": "beta"}]})
    answer = {"host": "alpha", "command": FIRST, "what": "warm coder/1 on alpha", "outcome": "failed"}
    controller.answers["/v1/operator"] = (200, answer)
    return lambda *words: call("-C", trusted.root, "reconcile-outcome", *words)


def test_a_person_names_it_by_what_the_status_shows_and_signs_for_what_they_saw(asks, controller) -> None:
    answer = asks("4ab19c02", "--outcome", "failed", "--evidence", "no process on gpu0")
    assert answer.code == 0, answer.err
    assert answer.out == "warm coder/1 on alpha failed, by your word; what it held is free.\n"
    path, body = controller.asked[-1]
    assert path == "/v1/operator"
    said = json.loads(base64.b64decode(json.loads(body["request"])["payload"]))
    asked = {name: said[name] for name in ("verb", "command", "outcome", "reason")}
    assert asked == {
        "verb": "reconcile_outcome",
        "command": FIRST,
        "outcome": "failed",
        "reason": "no process on gpu0",
    }


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("4ab19c", "--outcome", "failed"), 1, "`4ab19c` is short for more than one"),
        (("ffffffff", "--outcome", "failed"), 1, "uncertain: 4ab19c020000 (warm coder/1 on alpha), 4ab19c030000"),
        (("4ab1", "--outcome", "failed"), 1, "`4ab1` is short for more than one"),
        (("4ab19c02", "--outcome", "perhaps"), 64, "--outcome perhaps: expected succeeded or failed"),
    ],
)
def test_what_names_no_command_or_no_outcome_is_never_sent(asks, controller, words, code, text) -> None:
    answer = asks(*words, "--evidence", "x")
    assert answer.code == code
    assert text in answer.err
    assert all(path != "/v1/operator" for path, _ in controller.asked)


def test_too_short_an_id_is_not_guessed_at_even_where_only_one_is_uncertain(asks, controller) -> None:
    controller.answers["/v1/status"] = (200, {"hosts": [{"host": "alpha", "uncertain": DOUBTS[:1]}]})
    answer = asks("4ab", "--outcome", "failed", "--evidence", "x")
    assert answer.code == 1
    assert "`4ab` names none" in answer.err
