"""What `gridops status` says of a scope: each thing once, and in the grammar of its number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gridops.cli.status import _hosts, _scope, attention, lines
from gridops.cli.status_host import attention as attention_of_one


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


@pytest.mark.parametrize("state", ["silent", "unheard", "asleep", "left"])
def test_a_host_has_the_same_word_in_text_and_json(state: str) -> None:
    document = silent(state)
    assert [line.split()[:2] for line in _hosts(document, 0, None, wide=False)][2:] == [["alpha", state]]
    # Nobody has to look at a laptop that said that it goes to sleep; one that left is still trusted.
    found = {"asleep": [], "left": ["alpha has left: set `expunged: true` in fleet.d/keys/alpha.yaml"]}
    assert attention(document) == found.get(state, [f"alpha is {state}"])
    assert attention_of_one({"host": document["hosts"][0]}) == attention(document)


def screen(width: int | None, **more: Any) -> list[str]:
    document = silent("silent")
    host = document["hosts"][0] | more
    intent = {"commit": "a" * 40, "subject": "Begin", "accepted": "1970-01-01T00:00:00Z"}
    return list(
        lines(document | {"hosts": [host], "controller": {"trusted": True}, "intent": intent}, 0, width, wide=False)
    )


LONG = "stale_term: the grant is of term 7.3 and this host has seen term 9.1, so another controller spoke before"


def test_a_long_alarm_neither_hides_the_note_nor_runs_over_the_terminal() -> None:
    for width in (60, 80, 120):
        shown = screen(width, draining=True, alarms=[LONG])
        assert max(len(line) for line in shown) <= width
        assert "NOTE" in "\n".join(shown)
        assert any("draining, stale_term" in line for line in shown)
        assert "another controller spoke before" in " ".join(" ".join(shown).split())
    piped = screen(None, draining=True, alarms=[LONG])
    assert piped[-1] == f"Needs attention: alpha: {LONG}; alpha is silent"


def test_what_is_said_of_a_host_stands_in_the_column_of_notes() -> None:
    shown = screen(80, draining=True)
    head, row = next((a, b) for a, b in pairwise(shown) if "NOTE" in a)
    assert row.index("draining") == head.index("NOTE")


def test_a_host_that_was_written_off_is_said_to_be() -> None:
    running = {"replica": "coder/1", "profile": "coder", "state": "ready"}
    shown = "\n".join(screen(80, written_off=True, residencies=[running]))
    assert "coder/1:ready  written off" in shown
    assert "written off" not in "\n".join(screen(80, residencies=[running]))


def test_a_model_keeps_its_note_on_a_narrow_terminal() -> None:
    note = "failed on forge: the engine ended with 1; error while loading the shared library libcudart.so.13"
    model = {
        "profile": "coder",
        "want": 1,
        "ready": 0,
        "state": "Degraded",
        "note": note,
        "command": "gridops explain coder",
    }
    text = "\n".join(list(scope({}, models=[model])))
    assert "gridops explain coder" in text
    assert "    failed on forge" in text
