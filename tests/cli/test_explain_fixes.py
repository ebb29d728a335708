"""`gridops explain` of a replica that stands nowhere proposes proven changes; `gridops plan` hints at the first."""

from __future__ import annotations

import re

from gridops.cli import exits


def edit(file, old: str, new: str) -> None:
    text = file.read_text()
    assert re.search(old, text, re.MULTILINE), old
    file.write_text(re.sub(old, new, text, count=1, flags=re.MULTILINE))


def test_a_replica_that_stands_nowhere_is_told_what_would_place_it_and_where_that_stands(fleet, call) -> None:
    file = fleet / "profiles.d/smollm.yaml"
    edit(file, "^replicas: 1$", "replicas: 2")
    edit(file, "device: 400MiB", "device: 3500MiB")
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "footprint:" in text)
    answer = call("explain", "-C", fleet, "smollm/2")
    assert answer.code == exits.OK
    said = " ".join(answer.out.split())
    assert "The smallest change that would place it 1 footprint.device 3500MiB => 2880MiB of config q4-cpu" in said
    assert f"profiles.d/smollm.yaml:{line}" in said
    found = call("explain", "-C", fleet, "smollm/2", "-o", "json").json
    (fix,) = found["fixes"]
    assert fix["kind"] == "footprint"
    assert fix["at"].startswith(f"profiles.d/smollm.yaml:{line}:")
    # The promise is kept by whoever follows it, for this replica and nobody else's loss.
    edit(file, "device: 3500MiB", f"device: {fix['new']}")
    after = call("plan", "-C", fleet, "-o", "json").json
    assert after["report"]["unplaced"] == []
    assert {a["replica"]: a["seat"]["host"] for a in after["placement"]}["smollm/2"] == fix["seat"]["host"]


def test_a_plan_ends_with_one_hint_for_its_first_unplaced_replica(fleet, call) -> None:
    edit(fleet / "profiles.d/smollm.yaml", "^replicas: 1$", "replicas: 3")
    answer = call("plan", "-C", fleet)
    assert answer.code == exits.UNPLACED
    (hint,) = [line for line in answer.err.splitlines() if line.startswith("hint")]
    assert hint == "hint  smollm/3 would fit: max_per_host 1 => 2 (profiles.d/smollm.yaml:4)"
    assert "hint" not in answer.out, "what could be done is not the answer"
    assert "hint" not in call("plan", "-C", fleet, "-o", "json").err
    edit(fleet / "profiles.d/smollm.yaml", "^replicas: 3$", "replicas: 2")
    assert "hint" not in call("plan", "-C", fleet).err


def test_a_replica_that_stands_is_compared_and_has_no_fixes(fleet, call) -> None:
    found = call("explain", "-C", fleet, "smollm/1", "-o", "json").json
    assert found["fixes"] is None
    assert (found["choice"]["host"], found["choice"]["runner_up"]) == ("alpha", "beta")
    assert "was chosen, next best beta" in call("explain", "-C", fleet, "smollm/1").out


def test_nothing_to_propose_is_said(fleet, call) -> None:
    file = fleet / "profiles.d/smollm.yaml"
    edit(file, "device: 400MiB", "device: 30GiB")
    out = " ".join(call("explain", "-C", fleet, "smollm/1").out.split())
    assert "No single change of the files that is known here would place it." in out
