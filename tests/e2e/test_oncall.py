"""What goes wrong around an apply, with real daemons: each gets a clear refusal, and nothing is lost.

One fleet for the whole module: a controller, one host, a tiny model. Every test leaves it usable for the next.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.scenes import Story
from examples.demo.stage import Stage
from tests.e2e.office import Office, opened
from tests.e2e.sweep import Sweep

HOG = """\
import sys
taken = bytearray(int(sys.argv[1]) << 20)
taken[::4096] = b"x" * len(range(0, len(taken), 4096))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(tmp_path_factory.mktemp("models"), ("alpha",)) as office:
        yield office


@pytest.fixture
def idle(office: Office) -> Office:
    """The fleet with no replica and no proposal."""
    office.stage.check_alive()
    office.have("tiny", 0)
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


def test_a_plan_that_a_person_rejects_is_gone_and_not_asked_again(idle: Office) -> None:
    idle.want(tiny=1)
    plan = idle.proposal("1 place")
    said = idle.call("plans", "reject", plan)
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"Plan {plan} of default is rejected; nothing of it is done.\n"
    again = idle.call("plans", "reject", plan)
    assert (again.returncode, "refused[GO424]" in again.stderr) == (4, True), again.stderr
    time.sleep(3)
    assert idle.story.scope.get("proposal") is None
    assert idle.story.engines() == {}


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
    idle.have("tiny", 1)
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
    idle.have("tiny", 1)
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
    idle.have("tiny", 1)
    engines = sorted(idle.story.engines())
    target = idle.story.scope["target"]["digest"]
    idle.lose_memory(signal.SIGTERM)
    idle.story.start_controller()
    idle.stage.until(
        "the target is known again", lambda: (idle.story.scope.get("target") or {}).get("digest") == target
    )
    idle.stage.until("the replica is ready", lambda: len(idle.story.ready()) == 1)
    assert sorted(idle.story.engines()) == engines
    idle.have("tiny", 0)
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
    idle.stage.until("the apply is done", lambda: idle.story.scope["apply"].get("outcome") == "done")


def test_a_controller_that_loses_its_memory_in_the_middle_of_an_apply_goes_on_from_what_the_host_knows(
    idle: Office,
) -> None:
    """One of two starts is under way when the journal goes: it is adopted, and what was not begun is offered again."""
    stage, story = idle.stage, idle.story
    idle.want(tiny=1, other=1)
    known = _applied_in_git(idle)
    stage.run("gridops", "apply", idle.proposal("2 place"), "--detach")
    first = stage.until("a start is under way", story.engines)
    process = next(iter(first.values()))
    process.suspend()  # it cannot become ready before the new controller has met it
    try:
        assert len(first) == 1
        begun = process.environ()["GRIDOPS_BODY"]
        # Git is a moment behind: what was applied and is not there yet is offered again, as a whole.
        stage.until("git knows what was applied", lambda: _applied_in_git(idle) > known)
        idle.lose_memory()
        idle.start_controller()
        stage.until("the host is heard", lambda: story.status()["hosts"][0]["heard"])
        stage.until("the start under way is known", lambda: begun in _incarnations(story))
        assert (list(story.engines()), idle.bodies()) == (list(first), [begun])
    finally:
        process.resume()
    stage.until("the start ends well", lambda: begun in {r["incarnation"] for r in story.ready()})
    stage.run("gridops", "apply", idle.proposal("1 place"))
    stage.until("both are ready", lambda: idle.is_so(tiny=1, other=1))
    assert begun in idle.bodies()
    assert set(first) < set(story.engines())
    idle.have("other", 0)


def test_memory_that_others_take_is_not_planned_and_two_that_fit_alone_are_never_both_on(idle: Office) -> None:
    stage, story = idle.stage, idle.story
    machines = stage.fleet / "fleet.d/machines.yaml"
    declared = machines.read_text()
    # Sizes go with the machine: whatever else runs on it meanwhile changes what others use, and only by a part of them.
    size = _memory_mib(idle, "total_bytes") // 8
    idle.mib = size

    def leave_room_for_one() -> int:
        """Declare so much that beside what others use now and 5% of headroom one fits, and half of a second."""
        ceiling_mib = (_external_mib(idle) + size * 3 // 2) * 100 // 95
        machines.write_text(declared.replace("3GiB", f"{ceiling_mib}MiB"))
        return ceiling_mib * 95 // 100

    try:
        open_mib = leave_room_for_one()
        with _hog(4 * size) as hog:  # the host has a quarter of the machine
            stage.until("the host sees it", lambda: open_mib - _external_mib(idle) < size * 9 // 10)
            idle.in_force(idle.want(tiny=1))
            # The controller may have planned before it heard of it: then the proposal is withdrawn as soon as it has.
            stage.until("it fits nowhere", lambda: _short_of_memory(story) == ["tiny/1"], 120)
            assert not story.scope.get("proposal")
            assert hog.poll() is None
        # Room again, for either of two, once the hog is out of the last minute, by whose most a host counts others.
        time.sleep(62)
        for _ in range(4):
            leave_room_for_one()
            time.sleep(2)
            idle.in_force(idle.want(tiny=1, other=1))
            waiting = stage.until("one of them has a place", lambda: story.scope.get("proposal"), 90)
            missing = _short_of_memory(story)
            if missing:
                break
            # Whoever else runs on this machine gave so much back meanwhile that there is room for both.
            idle.in_force(idle.want(tiny=0, other=0))
            stage.until("nothing is proposed", lambda: not story.scope.get("proposal"))
        (short,) = missing
        stage.run("gridops", "apply", waiting["id"])
        on, off = ("tiny", "other") if short == "other/1" else ("other", "tiny")
        stage.until("one is on", lambda: idle.is_so(**{on: 1, off: 0}))
        first = idle.bodies()
        idle.have(on, 0)
        stage.until("the other has its room", lambda: idle.is_so(**{on: 0, off: 1}))
        assert not set(first) & set(idle.bodies())
        started, ended = (_told(stage, words) for words in (f"warm {off}/1", f"unload {on}/1"))
        assert ended < started, "the other was started while the first still held its memory"
    finally:
        idle.mib = Office.mib
        machines.write_text(declared)
        idle.have("other", 0)


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
    """Everything that the tests before it have left, and the processes that still run."""
    with Sweep(office.stage) as sweep:
        assert sweep.leaks(office.call("status", "-o", "json").stdout) == []
    assert sweep.loose == set()
    assert len(sweep.secrets) >= 6


def _applied_in_git(office: Office) -> set[str]:
    """Plans of which git says that they were applied: what a rebuild goes by."""
    found = office.stage.run("git", "grep", "-l", "^applied_ms:", "gridops/plans", ok=(0, 1, 128), quiet=True)
    return set(found.splitlines())


def _incarnations(story: Story) -> set[str]:
    return {r["incarnation"] for h in story.status()["hosts"] for r in h["residencies"]}


@contextlib.contextmanager
def _hog(mib: int) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process that has taken its memory and keeps it."""
    process = subprocess.Popen([sys.executable, "-c", HOG, str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process
    finally:
        process.communicate()


def _external_mib(office: Office) -> int:
    """What the host says that others use of its memory."""
    return _memory_mib(office, "external_bytes")


def _memory_mib(office: Office, field: str) -> int:
    state = str(office.stage.agent_state("alpha"))
    seen = json.loads(office.stage.run("gridops-agent", "status", "--state", state, "-o", "json"))
    return max(int(d[field]) for d in seen["devices"]) >> 20


def _short_of_memory(story: Story) -> list[str]:
    """Replicas that no host has room for, and whose nearest host is short of some."""
    return [u["replica"] for u in story.scope["unplaced"] if u["code"] == "GO521" and u["short_bytes"] > 0]


def _told(stage: Stage, words: str) -> int:
    """Where in the controller's log these words come last."""
    lines = (stage.root / "logs/controller.log").read_text().splitlines()
    return max(number for number, line in enumerate(lines) if words in line)


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
