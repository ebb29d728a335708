"""What `gridops status` says of a scope: each thing once, and in the grammar of its number."""

from __future__ import annotations

from typing import Any

import pytest

from gridops.cli.status import _hosts, _scope, attention


def scope(mode: dict[str, Any], **more: Any) -> list[str]:
    document = {"scope": "default", "held": [], "quiet": 0, "models": [], "retirements": []}
    shown = {"effective": "observe", "allow": [], "because": [], "reason": None, "freeze": None, **mode}
    return list(_scope({**document, "mode": shown, **more}, 0, 100, wide=False))


def test_a_freeze_is_told_once() -> None:
    freeze = {"by": "mira", "reason": "smoke", "overdue": False}
    because = ["the refused commit abc is stricter", "frozen by mira: smoke"]
    text = "\n".join(scope({"reason": "smoke", "because": because, "freeze": freeze}))
    assert text.count("smoke") == 1
    assert "FROZEN by mira: smoke   gridops thaw" in text
    assert because[0] in text


def test_a_freeze_that_has_ended_hides_no_reason_of_the_mode() -> None:
    freeze = {"by": "mira", "reason": "smoke", "overdue": True}
    lines = scope({"reason": "inventory", "freeze": freeze})
    assert lines[0] == 'default   observe   "inventory"'
    assert "OVERDUE" in lines[1]


def test_one_replica_and_one_plan_are_said_in_the_singular() -> None:
    target = {"since": "2026-11-29T16:28:15Z", "decisions_digest": "sha256:" + "a" * 64, "replicas": 1}
    text = "\n".join(scope({}, target=target, quiet=1))
    assert "1 replica\n" in text
    assert "1 plan gave" in text


def silent(state: str) -> dict[str, Any]:
    host = {"host": "alpha", "state": state, "heard": False, "draining": False, "admitted": True, "seen": None}
    return {
        "controller": {},
        "intent": {},
        "scopes": [],
        "hosts": [host | {"reasons": [], "alarms": [], "residencies": []}],
    }


@pytest.mark.parametrize("state", ["silent", "unheard", "asleep"])
def test_a_host_has_the_same_word_in_text_and_json(state: str) -> None:
    document = silent(state)
    assert [line.split()[:2] for line in _hosts(document, 0, None, wide=False)][2:] == [["alpha", state]]
    # Nobody has to look at a laptop that said that it goes to sleep.
    assert attention(document) == ([] if state == "asleep" else [f"alpha is {state}"])
