"""`gridops status` without a controller: the newest state in git, said to be that and how old, and exit code 69."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest

from gridops.base.units import parse_instant
from gridops.cli import exits
from gridops.model.snapshot import Residency, ResidencyState
from tests.cli.test_plan import live_snapshot
from tests.render.plans import quiet

AGE_MS = 12 * 60_000
NOBODY = "https://127.0.0.1:9"


@pytest.fixture
def silent(trusted, monkeypatch):
    monkeypatch.setenv("GRIDOPS_CONTROLLER", NOBODY)
    return trusted


def store(trusted, age_ms: int = AGE_MS) -> int:
    """One host with one replica that was ready; the moment at which that was so."""
    at_ms = time.time_ns() // 1_000_000 - age_ms
    snapshot = live_snapshot(trusted.root, at_ms)
    ran = Residency(profile="smollm", state=ResidencyState.READY, replica="smollm/1", devices=("cpu0",))
    cached = Residency(profile="other", state=ResidencyState.CACHED)
    host = replace(snapshot.hosts[0], residencies=(ran, cached))
    trusted.branch().write_state("default", replace(snapshot, hosts=(host,)))
    return at_ms


def test_the_newest_state_in_git_is_shown_with_its_source_and_its_age(silent, call, git) -> None:
    store(silent)
    answer = call("-C", silent.root, "status")
    assert answer.code == exits.UNREACHABLE
    lines = answer.out.splitlines()
    assert lines[0] == "THE CONTROLLER DOES NOT ANSWER. This is the newest state in git, not what is now."
    assert lines[1].startswith(f"source gridops/state {git(silent.root, 'rev-parse', 'gridops/state')[:7]}, ")
    assert re.search(r"observed 12(?: min|m\d\ds) ago", lines[1])
    assert f'{git(silent.root, "rev-parse", "HEAD")[:7]} "Trust"' in lines[2]
    assert "smollm/1:ready" in answer.out
    assert "other" not in answer.out, "what merely lies on a disk does not run"
    assert answer.err.startswith(f"error: controller {NOBODY}: no answer")
    assert "hint: is it running? gridops watch" in answer.err


def test_in_json_it_is_one_document_that_nobody_takes_for_the_live_one(silent, call, git) -> None:
    at_ms = store(silent)
    answer = call("-C", silent.root, "status", "--exit-status", "-o", "json")
    assert answer.code == exits.UNREACHABLE
    document = json.loads(answer.out)
    assert document["schema"] == "gridops.status-stored/1"
    assert document["error"]["message"].startswith(f"controller {NOBODY}: no answer")
    source = document["source"]
    assert source["branch"] == "gridops/state"
    assert source["commit"] == git(silent.root, "rev-parse", "gridops/state")
    assert parse_instant(source["observed"]) == at_ms
    assert source["age_ms"] == pytest.approx(AGE_MS, abs=60_000)
    (scope,) = document["scopes"]
    assert (scope["scope"], scope["plan"], scope["problem"]) == ("default", None, None)
    (host,) = scope["hosts"]
    assert [r["state"] for r in host["residencies"]] == ["ready", "cached"]


def test_the_plan_in_force_is_shown_only_if_its_signature_holds(silent, call) -> None:
    store(silent)
    plan = replace(quiet(), fleet=silent.fleet, scope="default")
    silent.write(plan)
    silent.branch().write_result(plan.id, {"outcome": "done"})
    answer = call("-C", silent.root, "status", "-o", "json")
    assert json.loads(answer.out)["scopes"][0]["plan"]["id"] == plan.id
    other = replace(plan, fleet="sha256:" + "0" * 64, id="20991129T1007Z-00000000")
    silent.write(other)
    silent.branch().write_result(other.id, {"outcome": "done"})
    scope = json.loads(call("-C", silent.root, "status", "-o", "json").out)["scopes"][0]
    assert scope["plan"] is None
    assert "what was signed is" in scope["problem"]
    assert "is not shown" in call("-C", silent.root, "status").out


def test_files_that_are_being_edited_hide_nothing(silent, call) -> None:
    store(silent)
    (silent.root / "profiles.d/broken.yaml").write_text("kind: [")
    answer = call("-C", silent.root, "status")
    assert answer.code == exits.UNREACHABLE
    assert "smollm/1:ready" in answer.out


def test_where_git_holds_no_state_the_silence_is_the_answer(silent, call) -> None:
    answer = call("-C", silent.root, "status", "-o", "json")
    assert answer.code == exits.UNREACHABLE
    error = json.loads(answer.out)["error"]
    assert error["message"].startswith(f"controller {NOBODY}: no answer")
    assert any("nothing is stored on gridops/state" in hint for hint in error["hints"])


def test_a_controller_whose_disk_is_full_says_so_above_the_stored_state(trusted, call, controller) -> None:
    store(trusted)
    message = "the controller's disk is full: /var/lib/gridops/office has 0 bytes free"
    error = {"code": "not_ready", "message": message, "hints": ["free at least 1 MiB there"], "exit_code": 69}
    controller.answers["/v1/status"] = (503, {"error": error})
    answer = call("-C", trusted.root, "status")
    assert answer.code == exits.UNREACHABLE
    assert message in answer.err
    assert "free at least 1 MiB there" in answer.err
    assert "smollm/1:ready" in answer.out


def test_a_controller_that_refuses_to_answer_is_not_silence(trusted, call, controller) -> None:
    store(trusted)
    error = {"code": "bad_request", "message": "no", "exit_code": 4}
    controller.answers["/v1/status"] = (400, {"error": error})
    answer = call("-C", trusted.root, "status")
    assert answer.code == exits.REFUSED
    assert answer.out == ""
