"""`gridops plan`: sources of state, exit codes, streams, pull requests, and the same bytes everywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ruamel.yaml import YAML

from gridops.base.ids import Digest
from gridops.base.record import from_data, to_data
from gridops.cli import exits
from gridops.cli.output import Context
from gridops.cli.plan import Asked, Call, _unheard
from gridops.cli.planning import Seen, intent_of, place_of
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.files.write import write_host_key
from gridops.model.fleet import DeviceKind, HostKey
from gridops.model.plan import Cause, CauseKind, Decision, DecisionKind, Plan, Seat
from gridops.model.policy import ActionClass, Risk
from gridops.model.snapshot import (
    DeviceReport,
    HostReport,
    Ownership,
    Residency,
    ResidencyState,
    Snapshot,
    SnapshotSource,
)
from gridops.planner.declared import declared_snapshot

NOW = 1_795_943_220_000
GIB = 1 << 30


def enlarge(fleet, git) -> None:
    """Ask for more replicas than the two hosts can hold."""
    file = fleet / "profiles.d/smollm.yaml"
    text = file.read_text()
    assert re.search(r"^replicas: 1$", text, re.MULTILINE)
    file.write_text(re.sub(r"^replicas: 1$", "replicas: 5", text, flags=re.MULTILINE))
    git(fleet, "commit", "-q", "-am", "Five replicas")


def live_snapshot(fleet, now: int) -> Snapshot:
    desired = load(WorkingTree(fleet)).desired
    return replace(declared_snapshot(desired, now), source=SnapshotSource.LIVE)


def test_a_fleet_nobody_has_asked_gives_a_hypothetical_plan(fleet, call) -> None:
    answer = call("plan", "-C", fleet)
    assert answer.code == 0
    assert re.search(r"\+ +smollm/1 ", answer.out)
    assert "state: declared hosts only" in answer.out
    assert "hypothetical" in answer.err
    assert "Nothing was changed. default is in mode `recommend` (policies/mode.yaml:" in answer.err
    assert "gridops apply" not in answer.out + answer.err, "what can never be applied is not offered"


def test_exit_codes_of_a_plan(fleet, call, git) -> None:
    assert call("plan", "-C", fleet).code == exits.OK
    assert call("plan", "-C", fleet, "--detailed-exitcode").code == exits.CHANGES
    enlarge(fleet, git)
    assert call("plan", "-C", fleet).code == exits.UNPLACED
    assert call("plan", "-C", fleet, "--detailed-exitcode").code == exits.UNPLACED, "5 comes before 2"
    assert call("plan", "-C", fleet, "--allow-unplaced").code == exits.OK
    assert call("plan", "-C", fleet, "--allow-unplaced", "--detailed-exitcode").code == exits.CHANGES


def test_wrong_files_are_findings_with_their_place(fleet, call) -> None:
    (fleet / "policies/mode.yaml").write_text("apiVersion: gridops/v1\nkind: Mode\nscopess: {}\n")
    answer = call("plan", "-C", fleet, "-o", "json")
    assert answer.code == exits.FINDINGS
    (found,) = [d for d in answer.json["error"]["problems"] if d["code"] == "GO203"]
    assert (found["file"], found["range"]["start"]["line"]) == ("policies/mode.yaml", 3)
    assert "--> policies/mode.yaml:3:1" in answer.err


@pytest.mark.parametrize("args", [["-C", "EMPTY"], ["--scope", "nope"], ["--base", "nope"], ["--against", "moon"]])
def test_a_call_about_nothing_is_a_usage_error(args, fleet, call, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    given = [str(tmp_path / "empty") if a == "EMPTY" else a for a in args]
    assert call("plan", *([] if "-C" in given else ["-C", fleet]), *given).code == exits.USAGE


def test_uncommitted_changes_are_planned_and_marked(fleet, call) -> None:
    file = fleet / "profiles.d/smollm.yaml"
    file.write_text(file.read_text() + "# a thought\n")
    answer = call("plan", "-C", fleet, "-o", "json")
    assert answer.json["intent"]["dirty"] is True
    assert answer.json["hypothetical"] is True
    assert "+ uncommitted changes" in call("plan", "-C", fleet).out


def test_a_folder_without_git_can_be_planned(fleet, call, tmp_path) -> None:
    subprocess.run(["rm", "-rf", str(fleet / ".git")], check=True)
    answer = call("plan", "-C", fleet, "-o", "json")
    assert answer.code == 0
    assert "commit" not in answer.json["intent"]


def test_a_fleet_inside_another_repository_is_planned_as_uncommitted(fleet, call, git, tmp_path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "commit", "-q", "--allow-empty", "-m", "Outer")
    subprocess.run(["rm", "-rf", str(fleet / ".git")], check=True)
    fleet.rename(outer / "examples")
    answer = call("plan", "-C", outer / "examples", "-o", "json")
    assert "commit" not in answer.json["intent"]
    assert answer.json["hypothetical"] is True
    assert "not the root of its repository" in answer.err
    assert call("plan", "-C", outer / "examples", "--base", "HEAD").code == exits.USAGE


def test_every_format_comes_from_one_run(fleet, call, tmp_path) -> None:
    out = {form: tmp_path / form for form in ("json", "jsonl", "yaml", "markdown", "github")}
    answer = call("plan", "-C", fleet, "-o", "text", *(x for f, p in out.items() for x in ("-o", f"{f}={p}")))
    assert answer.code == 0
    document = json.loads(out["json"].read_text())
    stated = YAML(typ="safe", pure=True).load(out["yaml"])
    assert {name: document[name] for name in stated} == stated
    assert from_data(Plan, stated).id == document["id"]
    lines = [json.loads(line) for line in out["jsonl"].read_text().splitlines()]
    assert (lines[0]["type"], lines[-1]["type"], lines[-1]["exit_code"]) == ("hello", "result", 0)
    assert out["markdown"].read_text().startswith("<!-- gridops:plan scope=default ")
    assert out["github"].read_text().startswith("::notice title=gridops plan default::")
    assert document["decisions_digest"].removeprefix("sha256:")[:8] in answer.out


def test_colour_is_off_in_pipes_and_on_when_asked_for(fleet, call, monkeypatch) -> None:
    assert "\x1b" not in call("plan", "-C", fleet).out
    assert "\x1b" in call("plan", "-C", fleet, "--color", "always").out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in call("plan", "-C", fleet).out
    assert "\x1b" not in call("plan", "-C", fleet, "--color", "never").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in call("plan", "-C", fleet).out


def test_in_a_workflow_outputs_and_summary_are_written(fleet, call, git, monkeypatch, tmp_path) -> None:
    enlarge(fleet, git)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "out"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    answer = call("plan", "-C", fleet, "--github", "-o", "json")
    assert answer.code == exits.UNPLACED
    assert answer.json["exit_code"] == exits.UNPLACED
    assert "::error file=profiles.d/smollm.yaml,line=" in answer.err
    outputs = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines())
    assert outputs["has_changes"] == "true"
    assert outputs["exit_code"] == "5"
    assert outputs["plan_id"] == answer.json["id"]
    assert "**Blocked** (exit 5)" in (tmp_path / "summary").read_text()


def test_a_saved_plan_is_a_document_to_read(fleet, call, tmp_path) -> None:
    answer = call("plan", "-C", fleet, "--save", tmp_path / "made", "-q")
    assert answer.err == ""
    (file,) = (tmp_path / "made").iterdir()
    assert from_data(Plan, YAML(typ="safe", pure=True).load(file)).scope == "default"


def test_a_pull_request_shows_what_it_changes_and_nothing_else(fleet, call, git) -> None:
    enlarge(fleet, git)
    whole = call("plan", "-C", fleet, "--allow-unplaced", "-o", "json").json
    change = call("plan", "-C", fleet, "--allow-unplaced", "--base", "HEAD~1", "-o", "json").json
    assert "smollm/1" in {d["replica"] for d in whole["decisions"]}
    assert "smollm/1" not in {d["replica"] for d in change["decisions"]}
    assert change["summary"]["place"] >= 1
    assert call("plan", "-C", fleet, "--base", "HEAD", "--allow-unplaced").out.count("smollm/1 ") == 0


def test_stored_state_is_used_when_no_controller_answers(trusted, call) -> None:
    observed = NOW - 3_600_000
    snapshot = live_snapshot(trusted.root, observed)
    trusted.branch().write_state("default", snapshot)
    answer = call("plan", "-C", trusted.root, "-o", "json", "--against", "state")
    assert answer.code in (0, 5)
    assert answer.json["snapshot"]["source"] == "state"
    assert answer.json["snapshot"]["observed_ms"] == observed
    assert answer.json["times"]["observed"] == "2026-11-29T08:07:00Z"
    assert "from gridops/state" in call("plan", "-C", trusted.root).out
    assert (
        call("plan", "-C", trusted.root, "--against", "declared", "-o", "json").json["snapshot"]["source"] == "declared"
    )


def test_state_that_is_asked_for_and_missing_is_an_error(fleet, call) -> None:
    answer = call("plan", "-C", fleet, "--against", "state")
    assert answer.code == exits.FAILED
    assert "git fetch origin gridops/state" in answer.err


def test_a_controller_that_does_not_answer_is_a_note_or_69(trusted, call, monkeypatch) -> None:
    monkeypatch.setenv("GRIDOPS_CONTROLLER", "https://127.0.0.1:9")
    answer = call("plan", "-C", trusted.root, "-o", "json")
    assert answer.code == 0
    assert answer.json["snapshot"]["source"] == "declared"
    assert "note: controller https://127.0.0.1:9: no answer" in answer.err
    answer = call("plan", "-C", trusted.root, "--against", "live", "-o", "json")
    assert answer.code == exits.UNREACHABLE
    assert answer.json["reason"] == "unreachable"


def test_the_controllers_state_and_target_are_used_when_it_answers(trusted, call, controller) -> None:
    made = call("plan", "-C", trusted.root, "--against", "declared", "-o", "json").json
    target = from_data(Plan, {name: made[name] for name in to_data(from_data(Plan, _record(made)))})
    device = DeviceReport(id="cpu0", kind=DeviceKind.CPU, total_bytes=8 * GIB)
    snapshot = Snapshot(
        source=SnapshotSource.LIVE,
        observed_ms=NOW,
        hosts=(HostReport(host="alpha", observed_ms=NOW, devices=(device,)),),
    )
    controller.answers["/v1/snapshot"] = (
        200,
        {
            "schema": "gridops.snapshot/1",
            "time": "2026-11-29T09:07:00Z",
            "fleet": trusted.fleet,
            "watching_since_ms": NOW,
            "snapshot": to_data(snapshot),
            "targets": [{"scope": "default", "plan": to_data(target)}],
        },
    )
    answer = call("plan", "-C", trusted.root, "-o", "json", "--allow-unplaced")
    assert answer.code == 0, answer.err
    assert answer.json["snapshot"]["source"] == "live"
    assert answer.json["parent"].startswith("sha256:")
    controller.answers["/v1/snapshot"] = (200, {"snapshot": {"source": "moon"}})
    assert call("plan", "-C", trusted.root, "--against", "live").code == exits.UNREACHABLE


def answer_live(trusted, controller, *targets) -> None:
    """The controller hears every declared host now, and these plans are in force."""
    device = DeviceReport(id="cpu0", kind=DeviceKind.CPU, total_bytes=8 * GIB)
    now = int(time.time() * 1000)
    snapshot = live_snapshot(trusted.root, now)
    hosts = tuple(replace(h, observed_ms=now, devices=(device,)) for h in snapshot.hosts)
    document = {
        "watching_since_ms": now,
        "snapshot": to_data(replace(snapshot, hosts=hosts)),
        "targets": [{"scope": t.scope, "plan": to_data(t)} for t in targets],
    }
    controller.answers["/v1/snapshot"] = (200, document)


def admit(trusted, git) -> None:
    for host in load(WorkingTree(trusted.root)).desired.hosts:
        write_host_key(trusted.root, HostKey(host=host.id, key=f"ed25519:{host.id.encode().hex():0>64}"))
    git(trusted.root, "add", "fleet.d")
    git(trusted.root, "commit", "-q", "-m", "Admit them")


@pytest.mark.parametrize(
    ("mode", "said", "unsaid"),
    [
        ({"effective": "recommend", "configured": "recommend"}, ["gridops plans list"], ["FROZEN", "gridops thaw"]),
        (
            {"effective": "observe", "configured": "recommend", "freeze": {"by": "mira", "reason": "smoke"}},
            ["FROZEN by mira (smoke)", "end the freeze", "gridops thaw"],
            ["gridops plans list", "gridops apply"],
        ),
        ({"effective": "observe", "configured": "observe"}, ["in mode `observe`"], ["plans list", "gridops thaw"]),
    ],
)
def test_nobody_is_told_to_wait_for_a_plan_that_nobody_writes(
    mode, said, unsaid, trusted, call, git, controller
) -> None:
    answer_live(trusted, controller)
    controller.answers["/v1/plans"] = (200, {"plans": []})
    controller.answers["/v1/status"] = (200, {"scopes": [{"scope": "default", "mode": {"freeze": None} | mode}]})
    admit(trusted, git)
    answer = call("plan", "-C", trusted.root)
    told = " ".join(answer.err.split())
    assert "smollm/1" in answer.out
    for words in said:
        assert words in told, answer.err + answer.out
    for words in unsaid:
        assert words not in told


@pytest.mark.parametrize(
    ("age_ms", "goodbye", "silent"), [(1_000, False, False), (600_000, False, True), (1_000, True, True)]
)
def test_a_host_nobody_hears_is_known_to_be_out_of_reach(age_ms, goodbye, silent, fleet) -> None:
    context = Context(directory=fleet)
    place = place_of(context)
    call = Call(context, Asked(None, "auto", None, False, False, False, False), place, intent_of(place), NOW)
    report = HostReport(host="alpha", observed_ms=NOW - age_ms, goodbye=goodbye)
    seen = Seen(Snapshot(source=SnapshotSource.LIVE, observed_ms=NOW, hosts=(report,)))
    leaves = Decision(
        n=1,
        kind=DecisionKind.MOVE,
        replica="smollm/1",
        profile="smollm",
        action_class=ActionClass.REPAIR,
        risk=Risk.ROUTINE,
        cause=Cause(kind=CauseKind.DRAIN, detail="host is draining"),
        change_set=1,
        source=Seat(host="alpha", devices=("cpu0",)),
    )
    plan = SimpleNamespace(decisions=(leaves,))
    assert _unheard(call, seen, plan) == (frozenset({"alpha"}) if silent else frozenset())


def test_what_stays_is_explained_by_the_plan_in_force_whose_name_other_commands_know(
    trusted, call, git, controller
) -> None:
    admit(trusted, git)
    answer_live(trusted, controller)
    made = call("plan", "-C", trusted.root, "-o", "json").json
    target = from_data(Plan, {name: made[name] for name in to_data(from_data(Plan, _record(made)))})
    name = target.decisions_digest.removeprefix("sha256:")[:8]
    assert f"plan {name}, decision 1" in call("explain", "-C", trusted.root, "smollm/1").out
    answer_live(trusted, controller, target)
    assert f"plan {name} in force, stays as it is" in call("explain", "-C", trusted.root, "smollm/1").out
    assert f"smollm: 1 replica, plan {name} in force" in call("explain", "-C", trusted.root, "smollm").out
    trusted.write(target)
    assert call("plans", "show", "-C", trusted.root, name).code == 0


def test_a_pull_request_shows_nothing_that_is_asked_without_it(trusted, call, git, controller) -> None:
    """What was given up, and what runs beside the plan: another commit in force would have decided about both."""
    admit(trusted, git)
    answer_live(trusted, controller)
    made = call("plan", "-C", trusted.root, "-o", "json").json
    target = from_data(Plan, {name: made[name] for name in to_data(from_data(Plan, _record(made)))})
    answer_live(trusted, controller, target)
    _, document = controller.answers["/v1/snapshot"]
    (placed,) = target.placement
    other = next(h for h in document["snapshot"]["hosts"] if h["host"] != placed.seat.host)
    copy = Residency(
        profile=placed.profile,
        state=ResidencyState.READY,
        ownership=Ownership.MANAGED,
        replica=placed.replica,
        incarnation=Digest("sha256:" + "7" * 64),
        identity=placed.launch,
        devices=placed.seat.devices,
    )
    other["residencies"] = [to_data(copy)]
    cause = to_data(Cause(kind=CauseKind.INTENT, detail="it was decided and never done"))
    told = {
        "given_up": [{"field": "process", "old": "never started", "new": "started again"}],
        "strays": [{"field": "process", "old": f"{other['host']} 77777777", "new": "ended"}],
    }
    source = {"host": other["host"], "devices": ["cpu0"]}
    for what, (was,) in told.items():
        row = {"replica": placed.replica, "profile": placed.profile, "seat": source, "cause": cause}
        row["was"] = was if what == "given_up" else [was]
        document["circumstances"] = [{"scope": "default", what: [row]}]
        whole = call("plan", "-C", trusted.root, "-o", "json").json
        assert [d["kind"] for d in whole["decisions"]] == ["place" if what == "given_up" else "remove"]
        change = call("plan", "-C", trusted.root, "--base", "HEAD", "-o", "json")
        assert (change.code, change.json["decisions"]) == (exits.OK, []), what


def test_what_fails_to_start_again_and_again_is_said_where_it_is_explained(trusted, call, git, controller) -> None:
    admit(trusted, git)
    answer_live(trusted, controller)
    model = {"profile": "smollm", "state": "Ready", "note": ""}
    for state, note, failing in (
        ("Ready", "", None),
        ("Degraded", "warm on alpha failed 4 times (start_failed)", "warm on alpha failed 4 times (start_failed)"),
    ):
        answer = {"scopes": [{"scope": "default", "models": [model | {"state": state, "note": note}]}]}
        controller.answers["/v1/status"] = (200, answer)
        assert call("explain", "-C", trusted.root, "smollm/1", "-o", "json").json["failing"] == failing
        assert (f"Failing: {note}. More" in call("explain", "-C", trusted.root, "smollm/1").out) == bool(failing)
    controller.answers["/v1/status"] = (500, {})
    silent = call("explain", "-C", trusted.root, "smollm/1")
    assert (silent.code, "whether it fails to start is not known" in silent.err) == (0, True)


def _record(document) -> dict:
    extra = {"schema", "summary", "has_changes", "hypothetical", "exit_code", "mode", "times"}
    return {name: value for name, value in document.items() if name not in extra}


def test_the_same_question_has_the_same_bytes_everywhere(fleet, git) -> None:
    enlarge(fleet, git)
    code = (
        "from pathlib import Path; from gridops.cli.plan import Asked, run;"
        "from gridops.cli.output import Context, Output;"
        "asked = Asked(None, 'declared', None, True, False, True, False);"
        f"[run(Context(directory=Path({str(fleet)!r}), outputs=(Output(f),), verbosity=-1), asked, {NOW})"
        " for f in ('text', 'json', 'jsonl', 'yaml', 'markdown', 'github')]"
    )
    seen = set()
    for seed, locale, zone in (("0", "C", "UTC"), ("1", "C.UTF-8", "Asia/Kathmandu"), ("77", "POSIX", "America/Lima")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1
    assert len(next(iter(seen))) > 5_000
