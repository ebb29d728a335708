"""Runs of the lab: committed seeds that once failed, a batch of others, one run twice, and what was seen at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence, Set
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.lab.__main__ import main
from gridops.lab.options import OLD_FLEET, Options, calm, draw, draw_talk, read, written
from gridops.lab.run import Ran, batch, run
from gridops.lab.spread import runs

SEEDS = Path(__file__).with_name("seeds.txt")
BATCH = range(1, 25)
"""Always the same, so that a change that breaks a rule is told from a new finding: `python -m gridops.lab` hunts."""


MET_BY_FLEETS = {
    "a fleet was rebuilt",
    "a fleet was restored from an old journal",
    "a forecast asked for a replica",
    "a forecast let a replica go",
    "a forecast was wrong ten times over",
    "a host came back that was written off",
    "a host took its next key",
    "a host was expunged while a command was unknown",
    "a host was written off while a command was unknown",
    "a machine slept",
    "agent crash",
    "controller crash",
    "failed no_artifact",
    "failed start_failed",
    "kept alive",
    "not_admitted",
    "open intent at a start",
    "replayed",
    "stale_session",
}
MET_BY_TALKS = {
    "a machine slept",
    "a running load was taken back",
    "a withdrawal came in time",
    "a withdrawal came too late",
    "a woken controller found that it may write no more",
    "brake",
    "failed interrupted",
    "failed release_stuck",
    "open intent at a start",
    "rebuilt",
    "refused not_drained",
    "restored from an old journal",
    "stale_session",
}
REFUSED = {"bad_envelope", "bad_signature", "wrong_kind", "not_canonical", "bad_schema", "wrong_fleet", "wrong_host"}
REFUSED |= {"wrong_host_key", "stale_term", "term_jump", "gap", "not_yet", "expired", "stale_session"}
"""What hosts refuse, checks 1 to 5 and 7 to 9: what a forger makes of directives."""
REFUSED_FOR_NUMBERS = {"duplicate", "fork"}
REFUSED_FOR_GOOD = {"old_catalog", "not_in_catalog", "unapproved", "over_ceiling", "precondition"}
"""Checks 10 to 13: what a thief commands himself. The brake of check 12 is met by the talk."""
MET_BY_ROBBED = REFUSED_FOR_NUMBERS | REFUSED_FOR_GOOD | {"a command that was decided came again"}
MET_BY_ROBBED |= {"a fleet was rebuilt", "people believed a host that was held"}
MET_IN_WORSE = REFUSED | {
    "a budget held something back",
    "a caller was let in",
    "a crash at a commit that was not written",
    "a crash at a commit that was written",
    "a grant was over, and given again",
    "a plan was superseded while it was carried out",
    "a thief passed older documents on",
    "an approval was over when it came",
    "the branch is rewound",
    "the front says model_draining",
    "the last one that serves was kept until another did",
    "two controllers answered",
}


def told() -> list[tuple[str, str]]:
    """Runs that once broke a rule, with one line of prose each."""
    lines = (line.rpartition(" | ") for line in SEEDS.read_text().splitlines() if line and not line.startswith("#"))
    return [(line, prose) for line, _, prose in lines]


def worse(seed: int) -> Options:
    """Everything that is rare, all at once, in a short run."""
    rare = replace(draw(seed), chaos_ms=120_000, hosts=2 + seed % 2, profiles=2, disruptions=1, lying=0, host_mib=3072)
    rare = replace(rare, forger_ppm=200_000, twins_ppm=1_000_000, zombie_ppm=500_000, controller_crash_ppm=20_000)
    rare = replace(rare, restore_every_ms=0)
    rare = replace(rare, ask_every_ms=1_000, late_approval_ppm=300_000, automatic=seed % 3 > 0, rollouts_ppm=500_000)
    return replace(rare, signed_commits=True, pusher_every_ms=40_000, commit_every_ms=20_000, bad_commit_ppm=100_000)


def robbed(seed: int) -> Options:
    """A thief has the controller's key and commands hosts himself; some fleets have a catalog, some a long past."""
    steady = replace(draw(seed), clock_step_every_ms=0, freeze_every_ms=0, zombie_ppm=0, restore_every_ms=0)
    few = replace(steady, chaos_ms=120_000, catalog=seed % 2 == 0, automatic=seed % 4 > 0)
    return replace(few, usurper_ppm=60_000, past=OLD_FLEET if seed % 3 == 0 else 0)


def words(ran: Ran) -> str:
    return f"seed {ran.options.seed}: {ran.broken}\n{ran.options}\n" + "\n".join(ran.lines[-30:])


@pytest.mark.parametrize(("line", "prose"), told(), ids=lambda v: v.split(" ")[0] if " | " in v else "")
def test_a_run_that_once_failed_holds(line: str, prose: str) -> None:
    ran = run(read(line))
    assert ran.broken is None, f"{prose}\n{words(ran)}"


def all_hold_and_meet(runs: Sequence[Ran], must: Set[str]) -> None:
    broken = [ran for ran in runs if ran.broken is not None]
    assert not broken, words(broken[0])
    seen = {name for ran in runs for name in ran.tally}
    assert seen >= must, must - seen


def test_a_batch_holds_and_meets_what_a_batch_must_meet() -> None:
    all_hold_and_meet(batch(BATCH), MET_BY_FLEETS)


def test_a_batch_of_the_talk_meets_what_a_batch_must_meet() -> None:
    all_hold_and_meet([run(draw_talk(seed)) for seed in range(1, 41)], MET_BY_TALKS)


def test_a_batch_in_worse_weather_meets_what_a_batch_must_meet() -> None:
    """What hosts refuse (B5, checks 1 to 9), what holds plans back, and what overtakes what."""
    all_hold_and_meet([run(worse(seed)) for seed in range(5, 35)], MET_IN_WORSE)


def test_a_batch_of_robbed_fleets_meets_what_a_batch_must_meet() -> None:
    """What hosts refuse for good, or because its number is decided (B5, checks 6 and 10 to 13)."""
    all_hold_and_meet([run(robbed(seed)) for seed in range(1, 25)], MET_BY_ROBBED)


ALIKE = (draw(7), draw(8), worse(4), robbed(6), *(draw_talk(seed) for seed in range(1, 7)))
"""Of both worlds, with most that can happen in them."""


def test_the_same_seed_is_the_same_run_under_another_hash_seed() -> None:
    lines = [written(options) for options in ALIKE]
    way = "from gridops.lab.options import read; from gridops.lab.run import run"
    print_ = f"{way}; print(*(run(read(line)).fingerprint for line in {lines!r}))"
    env = {**os.environ, "PYTHONHASHSEED": "4711"}
    there = subprocess.run([sys.executable, "-c", print_], env=env, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [run(options).fingerprint for options in ALIKE]


@pytest.mark.parametrize("options", [draw(3), draw_talk(3)], ids=["full", "talk"])
def test_a_run_is_the_same_where_every_signature_is_verified_each_time(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = run(options)
    monkeypatch.setattr("gridops.lab.run.each_signature_once", nullcontext)
    assert run(options) == usual


def test_without_faults_everything_wanted_stands() -> None:
    ran = run(calm(Options(seed=1)))
    assert ran.broken is None, words(ran)
    assert any("of model-1/1" in line for line in ran.lines)


def test_a_run_is_written_down_in_one_line_and_read_back() -> None:
    for seed in range(40):
        assert read(written(draw(seed))) == draw(seed)
        assert read(written(draw_talk(seed))) == draw_talk(seed)


def test_the_way_in_runs_seeds_and_says_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 runs: every rule held. Seen:\n")
    assert main(["--jobs", "1", "--talk", "1"]) == 0
    assert capsys.readouterr().out.startswith("1 runs: every rule held. Seen:\n")
    assert main(["many"]) == 2
    assert capsys.readouterr().err.startswith("usage: python -m gridops.lab")


def test_seeds_over_two_processes_are_told_as_one_process_tells_them() -> None:
    options = [draw_talk(seed) for seed in range(1, 25)]
    one = list(runs(options, 1))
    assert list(runs(options, 2)) == one
    assert [ran.options.seed for ran in one] == list(range(1, 25))
    first = runs(iter(options), 2)
    assert next(first) == one[0]
    first.close()


def test_a_run_that_is_written_down_can_be_walked_to_any_step(capsys: pytest.CaptureFixture[str]) -> None:
    line = written(draw_talk(3))
    assert main(["--line", line]) == 0
    whole = capsys.readouterr().out
    assert main(["--line", line, "--until", "400"]) == 0
    part = capsys.readouterr().out
    assert ", 400 steps\nevery rule held so far" in part
    assert part.splitlines()[0] in run(draw_talk(3)).lines
    assert whole != part
    assert main(["--line", "3 | hostz=2"]) == 2
    assert capsys.readouterr().err.startswith("`hostz=2` is no option of a run: expected NAME=NUMBER, with one of seed")
