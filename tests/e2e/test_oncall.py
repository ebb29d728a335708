"""What goes wrong around an apply, with real daemons: each gets a clear refusal, and nothing is lost.

One fleet for the whole module: a controller, one host, a tiny model. Every test leaves it usable for the next.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.demo.scenes import TEMPLATE, Story
from examples.demo.stage import Stage
from tests.builders.tiny_gguf import write_tiny_gguf

PROFILE = """\
apiVersion: gridops/v1
kind: Profile
name: {name}
replicas: {replicas}
timing: {{load: 20s, warm: 10s, min_residency: 1s, scale_down_after: 2s, drain: 5s}}
restart: {{max: 5, per: 10m, backoff: 200ms}}
configs:
  cpu:
    engine: llama.cpp
    backends: [cpu]
    artifact: {{format: gguf, files: [{{path: tiny.gguf, sha256: {sha256}, size: {size}B}}]}}
    context: 512
    lanes: 1
    footprint: {{source: declared, device: 150MiB}}
    args: {{threads: 1}}
"""


@dataclass
class Office:
    """A running fleet of one host."""

    story: Story
    stage: Stage
    model: Path

    def profile(self, name: str, replicas: int) -> None:
        raw = self.model.read_bytes()
        text = PROFILE.format(name=name, replicas=replicas, sha256=hashlib.sha256(raw).hexdigest(), size=len(raw))
        (self.stage.fleet / f"profiles.d/{name}.yaml").write_text(text)

    def call(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["gridops", "--no-input", *args],
            cwd=self.stage.fleet,
            env=self.stage.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def proposal(self, wanted: str) -> str:
        """The id of the proposal whose headline is as wanted."""

        def waits() -> str:
            found = self.story.scope.get("proposal")
            return str(found["id"]) if found and found["headline"] == wanted else ""

        return self.stage.until(f"a proposal: {wanted}", waits)

    def settle(self, name: str, replicas: int) -> None:
        """Have exactly so many replicas of a profile, by commit and apply."""
        self.profile(name, replicas)
        self.stage.commit(f"{name}: {replicas}")
        head = self.stage.git("rev-parse", "HEAD").strip()
        self.stage.until("the commit is in force", lambda: self.story.status()["intent"]["commit"] == head)

        def settled() -> bool:
            ready = [r for r in self.story.ready() if r["profile"] == name]
            found = self.story.scope.get("proposal")
            if found is None:
                return len(ready) == replicas
            done = self.call("apply", found["id"], "--confirm", name)
            assert done.returncode in (0, 4, 75), done.stderr  # a newer proposal may have come in between
            return False

        self.stage.until(f"{replicas} of {name} are ready and nothing waits", settled)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    models = tmp_path_factory.mktemp("models")
    write_tiny_gguf(models / "tiny.gguf")
    with Stage(say=lambda _: None) as stage:
        story = Story(stage, models)
        shutil.copytree(TEMPLATE, stage.fleet)
        for path in (stage.fleet / "profiles.d").glob("*.yaml"):
            path.unlink()
        settings = stage.fleet / "policies/fleet.yaml"
        settings.write_text(settings.read_text().replace(":7443", f":{story.port}"))
        made = Office(story, stage, models / "tiny.gguf")
        made.profile("tiny", 0)
        stage.git("init", "--quiet", "--initial-branch", "main")
        stage.run("gridops", "trust", "init", "--person", "mira", "--state", str(stage.root / "controller"))
        stage.commit("Found the fleet")
        story.start_controller()
        token = stage.run("gridops", "host", "invite", "alpha").strip()
        url = f"https://127.0.0.1:{story.port}"
        stage.run(
            *("gridops-agent", "join", token, "--controller", url, "--state", str(stage.agent_state("alpha"))),
            *("--share", "1/4", "--artifacts", str(models), "--no-service", "--no-runtime"),
        )
        story.start_agent("alpha")
        stage.run("gridops", "host", "admit", "alpha")
        stage.commit("Admit alpha")
        stage.until("alpha is heard", lambda: any(h["heard"] for h in story.status()["hosts"]))
        yield made


@pytest.fixture
def idle(office: Office) -> Office:
    """The fleet with no replica and no proposal."""
    office.stage.check_alive()
    office.settle("tiny", 0)
    return office


def test_a_plan_edited_by_hand_is_refused_by_name(idle: Office) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    plan = idle.proposal("1 place")
    path = f"plans/default/{plan}/plan.yaml"
    idle.stage.until("the plan file is written", lambda: plan in idle.story.plan_documents())
    before = idle.stage.git("rev-parse", "gridops/plans").strip()
    _edit_on_branch(idle.stage, path, "alpha", "omega")
    try:
        for verb in ("show", "apply"):
            refused = idle.call(*(("plans", "show", plan) if verb == "show" else ("apply", plan)))
            assert refused.returncode == 4
            assert "refused[GO415]" in refused.stderr
            assert path in refused.stderr
        assert idle.story.engines() == {}
    finally:
        idle.stage.git("update-ref", "refs/heads/gridops/plans", before)


def test_a_key_that_the_fleet_does_not_know_is_refused(idle: Office, tmp_path: Path) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    plan = idle.proposal("1 place")
    other = tmp_path / "keys"
    subprocess.run(["mkdir", "-m", "700", str(other)], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other / "mira")], check=True)
    refused = idle.call("apply", plan, env={"GRIDOPS_KEYS": str(other)})
    assert refused.returncode == 4, refused.stderr
    assert "refused[GO414]" in refused.stderr
    assert idle.story.engines() == {}


def test_a_plan_that_is_out_of_date_is_refused_with_both_lists(idle: Office) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    plan = idle.proposal("1 place")
    idle.profile("other", 1)
    idle.stage.commit("And another")
    try:
        idle.proposal("2 place")
        refused = idle.call("apply", plan)
        assert refused.returncode == 4
        assert "refused[GO412]" in refused.stderr
        assert "other/1" in refused.stderr
        assert idle.story.engines() == {}
    finally:
        (idle.stage.fleet / "profiles.d/other.yaml").unlink()
        idle.stage.commit("Not another")


def test_of_two_applies_at_once_one_is_told_who_holds_the_scope(idle: Office) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    plan = idle.proposal("1 place")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda _: idle.call("apply", plan), range(2)))
    codes = sorted(done.returncode for done in ended)
    assert codes in ([0, 75], [0, 0]), [done.stderr for done in ended]
    assert len(idle.story.engines()) == 1
    if codes == [0, 75]:
        busy = next(done for done in ended if done.returncode == 75)
        assert "locked by mira" in busy.stderr


def test_observe_and_freeze_refuse_every_apply(idle: Office) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    plan = idle.proposal("1 place")
    assert idle.call("freeze", "default", "--reason", "fire drill").returncode == 0
    try:
        refused = idle.call("apply", plan)
        assert refused.returncode == 4
        assert "GO416" in refused.stderr
        assert "fire drill" in refused.stderr
        assert "FROZEN by mira" in idle.call("status").stdout
    finally:
        assert idle.call("thaw", "default").returncode == 0
    assert idle.call("apply", plan).returncode == 0
    assert len(idle.story.engines()) == 1


def test_one_changed_byte_in_the_model_is_a_failed_step_and_starts_nothing(idle: Office) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    good = idle.model.read_bytes()
    idle.model.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        failed = idle.call("apply", idle.proposal("1 place"))
        assert failed.returncode == 6, failed.stderr
        assert "wrong_digest" in failed.stderr or "no_artifact" in failed.stderr
        assert "--resume" in failed.stdout
        assert idle.story.engines() == {}
    finally:
        idle.model.write_bytes(good)
    plan = idle.story.scope["apply"]["id"]
    resumed = idle.call("apply", plan, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert len(idle.story.engines()) == 1


def test_a_commit_that_does_not_validate_changes_nothing(idle: Office) -> None:
    idle.settle("tiny", 1)
    engines = sorted(idle.story.engines())
    path = idle.stage.fleet / "profiles.d/tiny.yaml"
    good = path.read_text()
    path.write_text(good.replace("replicas:", "replcas:"))
    bad = idle.stage.commit("A typo")
    refused = idle.stage.until("the commit is refused", lambda: idle.story.status()["intent"].get("refused"))
    assert refused["commit"] == bad
    assert any("replcas" in line and "tiny.yaml:4" in line for line in refused["problems"]), refused
    assert sorted(idle.story.engines()) == engines
    assert "is REFUSED and changes nothing" in idle.call("status").stdout
    path.write_text(good)
    idle.stage.commit("Without the typo")
    idle.stage.until("the refusal is gone", lambda: not idle.story.status()["intent"].get("refused"))


def test_an_empty_fleet_or_profile_set_never_removes_anything_by_itself(idle: Office) -> None:
    idle.settle("tiny", 1)
    engines = sorted(idle.story.engines())
    mode = idle.stage.fleet / "policies/mode.yaml"
    recommended = mode.read_text()
    automatic = "automatic: {allow: [repair, scale_up, scale_down, rollout, rebalance, remove], last_replica: [tiny]}"
    mode.write_text(recommended.replace("mode: recommend ", f"mode: automatic\n    {automatic} "))
    kept = {p: p.read_bytes() for p in (idle.stage.fleet / "profiles.d").glob("*.yaml")}
    for path in kept:
        path.unlink()
    idle.stage.commit("Everything is gone")
    try:
        waiting = idle.stage.until("the removal only waits", lambda: idle.story.scope.get("proposal"))
        assert waiting["headline"] == "1 remove"
        assert sorted(idle.story.engines()) == engines
    finally:
        mode.write_text(recommended)
        for path, raw in kept.items():
            path.write_bytes(raw)
        idle.stage.commit("Back again")
    idle.stage.until("nothing waits any more", lambda: not idle.story.scope.get("proposal"))
    assert sorted(idle.story.engines()) == engines


def test_the_controller_is_rebuilt_from_git_and_hosts_and_no_engine_restarts(idle: Office) -> None:
    idle.settle("tiny", 1)
    engines = sorted(idle.story.engines())
    target = idle.story.scope["target"]["digest"]
    idle.stage.stop("controller")
    for path in (idle.stage.root / "controller").glob("journal.sqlite*"):
        path.unlink()
    idle.stage.run("gridops", "controller", "rebuild", "--state", str(idle.stage.root / "controller"))
    idle.story.start_controller()
    idle.stage.until(
        "the target is known again", lambda: (idle.story.scope.get("target") or {}).get("digest") == target
    )
    idle.stage.until("the replica is ready", lambda: len(idle.story.ready()) == 1)
    assert sorted(idle.story.engines()) == engines
    idle.settle("tiny", 0)
    assert idle.story.engines() == {}


def test_a_controller_killed_in_the_middle_of_an_apply_goes_on_without_repeating(idle: Office) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    plan = idle.proposal("1 place")
    idle.stage.run("gridops", "apply", plan, "--detach")
    idle.stage.stop("controller", signal.SIGKILL)
    idle.story.start_controller()
    idle.stage.until("the replica is ready", lambda: len(idle.story.ready()) == 1, seconds=60)
    assert len(idle.story.engines()) == 1
    idle.stage.until("the apply is done", lambda: idle.story.scope["apply"]["outcome"] == "done")


def test_an_agent_killed_in_the_middle_of_a_start_never_has_two_engines(idle: Office) -> None:
    idle.profile("tiny", 1)
    idle.stage.commit("One tiny")
    plan = idle.proposal("1 place")
    idle.stage.run("gridops", "apply", plan, "--detach")
    idle.stage.until("a process was started", idle.story.engines)
    idle.stage.stop("agent-alpha", signal.SIGKILL)
    idle.story.start_agent("alpha")
    idle.stage.until("the replica is ready", lambda: len(idle.story.ready()) == 1, seconds=90)
    assert len(idle.story.engines()) == 1


def test_no_secret_is_left_behind_in_git_logs_or_answers(office: Office) -> None:
    """Everything that a run leaves: the repository with all its objects, every log, and what the commands answer."""
    stage = office.stage
    states = [p for p in stage.root.rglob("*") if p.is_file() and stage.fleet not in p.parents]
    secrets = [p for p in states if "keys" in p.parts or p.name.endswith(".key")]
    values = {p: p.read_bytes().strip() for p in secrets if not p.name.endswith((".pub", ".pem"))}
    assert len(values) >= 6
    objects = stage.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    kept = [
        subprocess.run(["git", "cat-file", "-p", o], cwd=stage.fleet, capture_output=True, check=True).stdout
        for o in objects
    ]
    kept += [p.read_bytes() for p in states if p.suffix == ".log" or p.name == "log"]
    kept += [office.call("status", "-o", "json").stdout.encode(), json.dumps(_command_lines(stage)).encode()]
    everything = b"\n".join(kept)
    for path, value in values.items():
        for form in (value, value.hex().encode()):
            assert len(form) >= 16
            assert form not in everything, f"{path} leaked"


def _command_lines(stage: Stage) -> list[Any]:
    return [(p.cmdline(), p.environ()) for p in stage.survivors()]


def _edit_on_branch(stage: Stage, path: str, old: str, new: str) -> None:
    """Do what a person with git could do: change one word of a file on the plans branch."""
    folder = stage.root / "edit"
    stage.git("worktree", "add", "--quiet", str(folder), "gridops/plans")
    try:
        file = folder / path
        file.write_text(file.read_text().replace(old, new, 1))
        subprocess.run(["git", "commit", "-qam", "A small change"], cwd=folder, env=stage.env, check=True)
    finally:
        stage.git("worktree", "remove", "--force", str(folder))
