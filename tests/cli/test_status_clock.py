"""`gridops status` says when the controller's time and this machine's are so far apart that signed requests fail."""

from __future__ import annotations

import time

import pytest

from gridops.base.units import render_instant
from gridops.cli import exits

MINUTE_MS = 60_000


def document(ahead_ms: int) -> dict[str, object]:
    return {
        "schema": "gridops.status/1",
        "time": render_instant(time.time_ns() // 1_000_000 + ahead_ms),
        "controller": {"trusted": True, "project_error": None},
        "intent": {"branch": "main", "commit": None},
        "scopes": [],
        "hosts": [],
        "alarms": [],
    }


@pytest.mark.parametrize(
    ("ahead_ms", "said"),
    [
        (60 * MINUTE_MS, "ahead of"),
        (-60 * MINUTE_MS, "behind"),
        (10_000, None),
        (-10_000, None),
    ],
)
def test_clocks_that_are_apart_are_told_and_the_answer_stays_clean(ahead_ms, said, trusted, call, controller) -> None:
    controller.answers["/v1/status"] = (200, document(ahead_ms))
    answer = call("-C", trusted.root, "status", "-o", "json")
    assert answer.code == exits.OK
    assert answer.json["schema"] == "gridops.status/1"
    if said is None:
        assert answer.err == ""
    else:
        assert f"{said} this machine's clock; what you sign here may be refused for it" in answer.err
        assert "note: the controller's time is" in answer.err


def test_plans_that_cannot_be_written_and_alarms_of_hosts_need_attention(trusted, call, controller) -> None:
    full = "/srv/fleet: git hash-object failed: No space left on device"
    host = {"host": "alpha", "admitted": True, "heard": True, "state": "accepting", "seen": None, "reasons": [],
            "alarms": ["ledger_unwritable: the disk is full"], "draining": False, "residencies": []}  # fmt: skip
    made = document(0) | {"controller": {"trusted": True, "project_error": full}, "hosts": [host]}
    controller.answers["/v1/status"] = (200, made)
    answer = call("-C", trusted.root, "status", "--exit-status")
    assert answer.code == exits.FAILED
    assert f"plans are not written to git, it is tried again: {full}" in answer.out
    last = answer.out.splitlines()[-1]
    assert last.startswith("Needs attention: plans are not written to git; alpha: ledger_unwritable")
