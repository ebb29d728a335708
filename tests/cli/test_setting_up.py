"""Setting up a fleet from nothing: init, trust, doctor, drain. Whatever cannot be done loses nothing and says so."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.cli.person import chain_of, key_folder
from gridops.cli.trust_words import words
from gridops.controller.statedir import StateDir
from gridops.trust.keys import PersonSigner
from tests.builders.calls import Call

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def fresh(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository as `gridops init` writes it, not yet in git."""
    monkeypatch.chdir(tmp_path)
    assert call("init", "fleet").code == 0
    return tmp_path / "fleet"


@pytest.fixture
def founded(fresh: Path, call: Call, git: Callable[..., str], tmp_path: Path) -> Path:
    answer = call("-C", fresh, "trust", "init", "--person", "mira", "--state", tmp_path / "state")
    assert answer.code == 0, answer.err
    git(fresh, "init", "-q", "-b", "main")
    git(fresh, "add", "-A")
    git(fresh, "commit", "-qm", "Found the fleet")
    return fresh


def test_the_skeleton_is_this_repositorys_own_example() -> None:
    for folder in ("fleet.d", "profiles.d", "policies"):
        for path in sorted((ROOT / folder).glob("*.yaml")):
            packaged = ROOT / "gridops/cli/skeleton" / folder / path.name
            assert packaged.read_text() == path.read_text().replace("../docs/schemas/v1", "../.gridops/schemas/v1")


def test_the_skeleton_validates_and_plans_as_it_stands(founded: Path, call: Call) -> None:
    assert call("-C", founded, "validate").code == 0
    planned = call("-C", founded, "plan", "-o", "json")
    assert planned.code == 0
    assert planned.json["summary"]["place"] >= 1


def test_the_workflow_pins_what_it_uses_as_the_workflows_of_this_repository_do(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("init", "fleet", "--github").code == 0
    uses = re.compile(r"^\s*- uses: (\S+@[0-9a-f]{40} # v[0-9.]+)$", re.MULTILINE)
    written = (tmp_path / "fleet/.github/workflows/gridops.yaml").read_text()
    own = "".join(path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yaml")))
    assert len(uses.findall(written)) == written.count("uses:") == 1
    assert set(uses.findall(written)) <= set(uses.findall(own))


def test_init_overwrites_nothing_unless_forced(fresh: Path, call: Call) -> None:
    mode = fresh / "policies/mode.yaml"
    mode.write_text("mine")
    refused = call("-C", fresh, "init")
    assert refused.code == 1
    assert "exists already; nothing was written" in refused.err
    assert mode.read_text() == "mine"
    assert call("-C", fresh, "init", "--force").code == 0
    assert mode.read_text() != "mine"


def test_init_without_the_example_writes_policies_only(call: Call, tmp_path: Path) -> None:
    assert call("-C", tmp_path, "init", "--example", "none").code == 0
    assert not (tmp_path / "fleet.d").exists()
    assert (tmp_path / "policies/mode.yaml").exists()


def test_every_kind_has_its_schema_beside_the_files(fresh: Path) -> None:
    for path in sorted(fresh.glob("*/*.yaml")):
        modeline = path.read_text().splitlines()[0]
        assert modeline.startswith("# yaml-language-server: $schema=")
        assert (path.parent / modeline.partition("=")[2]).resolve().is_file()


@pytest.mark.parametrize("name", ["quickstart", "homelab", "office", "fleet-64"])
def test_an_example_that_is_copied_elsewhere_names_schemas_that_one_command_writes(
    name: str, call: Call, tmp_path: Path
) -> None:
    words = (ROOT / "examples/README.md").read_text()
    assert "`gridops schema --write .gridops/schemas/v1`" in words
    copy = tmp_path / "mine"
    shutil.copytree(ROOT / "examples" / name, copy)
    assert call("-C", copy, "schema", "--write", ".gridops/schemas/v1").code == 0
    files = sorted(p for part in ("fleet.d", "profiles.d", "policies") for p in (copy / part).rglob("*.yaml"))
    assert files
    for path in files:
        modeline = path.read_text().splitlines()[0]
        assert (path.parent / modeline.partition("$schema=")[2]).is_file(), path
    assert call("-C", copy, "validate").code == 0


def test_one_command_makes_a_one_person_fleet(founded: Path, call: Call, tmp_path: Path) -> None:
    chain = chain_of(founded)
    assert {k.holder for r in chain.root.roles for k in r.keys} == {"mira", "controller"}
    assert StateDir(tmp_path / "state").signer().public in chain.keys("controller")
    assert PersonSigner.from_openssh((key_folder() / "mira").read_bytes()).public in chain.keys("approver")
    shown = call("-C", founded, "trust", "show")
    assert "approves, rejects and applies plans" in shown.out
    assert shown.out.count("\n             cannot ") == 5, "of each role also what it cannot"


def test_show_says_that_a_root_has_expired(founded: Path) -> None:
    chain = chain_of(founded)
    end = chain.root.expires_ms
    assert words(chain, end - 1)[0].startswith("Root 1, good until ")
    assert words(chain, end + 1)[0].startswith("Root 1 expired at ")
    assert "gridops trust renew" in words(chain, end + 1)[0]


def test_it_says_what_each_further_step_buys_and_each_can_be_taken(fresh: Path, call: Call, tmp_path: Path) -> None:
    said = call("-C", fresh, "trust", "init", "--person", "mira", "--state", tmp_path / "state").out
    steps = said.partition("Further, each when you want it\n")[2].splitlines()
    assert len(steps) == 4
    jon = tmp_path / "jon.pub"
    jon.write_text(PersonSigner.from_seed(b"j" * 32).public.text)
    for step in steps:
        command, _, buys = step.strip().partition("   ")
        assert ": " in buys, step
        words = [{"NAME": "jon", "FILE.pub": str(jon)}.get(word, word) for word in command.split()[1:]]
        taken = call("-C", fresh, *words)
        assert taken.code == 0, taken.err
    assert chain_of(fresh).root.signed_commits


def test_every_private_key_is_private_and_none_is_printed(founded: Path, call: Call, tmp_path: Path) -> None:
    secrets = [key_folder() / "mira", key_folder() / "mira.root"]
    secrets += [tmp_path / "state/keys" / n for n in ("controller.seed", "controller.tls.key", "gateway.key")]
    shown = call("-C", founded, "trust", "show", "-o", "json").out + call("-C", founded, "doctor").out
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert path.read_bytes().hex() not in shown
        assert path.read_bytes().decode("latin-1").strip() not in shown
    tracked = b"".join(p.read_bytes() for p in founded.rglob("*") if p.is_file() and ".git" not in p.parts)
    assert b"PRIVATE KEY" not in tracked


def test_a_root_is_renewed_by_its_key_and_by_nothing_else(founded: Path, call: Call) -> None:
    first = chain_of(founded)
    root_key = key_folder() / "mira.root"
    away = root_key.rename(root_key.with_name("away"))
    missing = call("-C", founded, "trust", "renew")
    assert missing.code == 1
    assert "holds none of the root keys that must sign" in missing.err
    away.rename(root_key)
    assert call("-C", founded, "trust", "renew").code == 0
    second = chain_of(founded)
    assert (second.fleet, second.root.version) == (first.fleet, 2)
    assert second.root.expires_ms > first.root.expires_ms
    assert second.root.roles == first.root.roles


def test_a_second_root_is_refused_and_changes_nothing(founded: Path, call: Call, tmp_path: Path) -> None:
    before = (founded / "policies/trust/root/1.json").read_bytes()
    again = call("-C", founded, "trust", "init", "--person", "eve", "--state", tmp_path / "other")
    assert again.code == 1
    assert "has a root already" in again.err
    assert (founded / "policies/trust/root/1.json").read_bytes() == before
    assert not (key_folder() / "eve").exists()
    assert not (tmp_path / "other").exists()


def test_a_state_folder_of_another_fleet_is_not_reused(founded: Path, call: Call, tmp_path: Path) -> None:
    assert call("-C", tmp_path, "init", "second").code == 0
    seed = (tmp_path / "state/keys/controller.seed").read_bytes()
    answer = call("-C", tmp_path / "second", "trust", "init", "--person", "mira", "--state", tmp_path / "state")
    assert answer.code == 1
    assert "keys of another fleet" in answer.err
    assert not (tmp_path / "second/policies/trust/root/1.json").exists()
    assert (tmp_path / "state/keys/controller.seed").read_bytes() == seed


def test_files_that_do_not_validate_get_no_root(fresh: Path, call: Call, tmp_path: Path) -> None:
    (fresh / "policies/fleet.yaml").write_text("apiVersion: gridops/v1\nkind: Fleet\ncontroler: x\n")
    answer = call("-C", fresh, "trust", "init", "--person", "mira", "--state", tmp_path / "state")
    assert answer.code == 3
    assert "did you mean `controller`" in answer.err
    assert not (tmp_path / "state").exists()


def test_a_key_that_others_can_read_is_refused_with_the_exact_repair(founded: Path, call: Call) -> None:
    key = key_folder() / "mira"
    key.chmod(0o644)
    answer = call("-C", founded, "doctor")
    assert answer.code == 1
    assert f"chmod 600 {key}" in answer.out


def test_doctor_says_that_the_controller_does_not_answer(founded: Path, call: Call) -> None:
    answer = call("-C", founded, "doctor", "-o", "json")
    assert answer.code == 1
    failed = [f for f in answer.json["findings"] if f["level"] == "fail"]
    assert any("no answer" in f["what"] for f in failed)
    assert any(f["level"] == "ok" and "files validate" in f["what"] for f in answer.json["findings"])


def test_asking_a_controller_that_is_away_exits_69_and_loses_nothing(founded: Path, call: Call) -> None:
    for args in (
        ("status",),
        ("host", "list"),
        ("apply", "12345678"),
        ("freeze", "--reason", "x"),
        ("host", "invite", "attic"),
    ):
        answer = call("-C", founded, *args)
        assert answer.code == 69, (args, answer.err)
        assert "no answer" in answer.err


@pytest.mark.parametrize("name", ["", "../status", "/tmp/plan.yaml", "a b", "a?b", "%2e%2e", "a\nb", "é"])
def test_what_cannot_name_a_plan_is_a_wrong_call_and_no_address(name: str, founded: Path, call: Call) -> None:
    answer = call("-C", founded, "apply", name)
    assert answer.code == 64, answer.err
    assert f"`{name}` is not a plan" in answer.err


def test_a_drain_is_one_file_and_undrain_removes_it(founded: Path, call: Call) -> None:
    made = call("-C", founded, "drain", "attic", "--reason", "roof leaks", "--until", "8h")
    assert made.code == 0, made.err
    text = (founded / "fleet.d/drains/attic.yaml").read_text()
    assert "roof leaks" in text
    assert "by: mira" in text
    assert call("-C", founded, "validate").code == 0
    assert call("-C", founded, "undrain", "attic").code == 0
    assert not (founded / "fleet.d/drains/attic.yaml").exists()
    assert call("-C", founded, "undrain", "attic").code == 1


@pytest.mark.parametrize("until", ["2020-01-01T00:00:00Z", "0s", "yesterday", "tomorrow-ish", "-8h"])
@pytest.mark.parametrize("verb", [("drain", "attic"), ("freeze",)])
def test_an_end_that_has_passed_or_means_nothing_is_a_wrong_call(
    verb: tuple[str, ...], until: str, founded: Path, call: Call
) -> None:
    answer = call("-C", founded, *verb, "--reason", "x", "--until", until)
    assert answer.code == 64
    assert "has passed" in answer.err or ("a time such as" in answer.err and "a duration such as 8h" in answer.err)
    assert not (founded / "fleet.d/drains/attic.yaml").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("plan",), ("validate",), ("fmt",), ("status",), ("explain", "a/1"), ("host", "list"), ("plans", "list"),
        ("freeze", "--reason", "x"), ("trust", "show"), ("drain", "a", "--reason", "x"),
    ],
)  # fmt: skip
def test_every_command_says_the_same_where_no_fleet_stands(args: tuple[str, ...], call: Call, tmp_path: Path) -> None:
    answer = call("-C", tmp_path, *args)
    assert answer.code == 64
    assert answer.err.startswith(f"error: {tmp_path}: no fleet here")
    assert "gridops init" in answer.err


def test_doctor_says_one_cause_once(fresh: Path, call: Call, tmp_path: Path) -> None:
    shown = call("-C", fresh, "doctor").out
    assert shown.count("no root of trust yet") == 1
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    answer = call("-C", nowhere, "doctor")
    assert answer.code == 1
    assert answer.out.count("no fleet here") == 1
    assert "validate" not in answer.out


def test_draining_a_host_that_is_none_is_a_wrong_call(founded: Path, call: Call) -> None:
    answer = call("-C", founded, "drain", "atic", "--reason", "x")
    assert answer.code == 64
    assert "attic" in answer.err


@pytest.mark.parametrize(
    "verb",
    [
        "init",
        "trust init",
        "trust show",
        "trust renew",
        "host invite",
        "host admit",
        "host list",
        "host write-off",
        "apply",
        "status",
        "freeze",
        "thaw",
        "drain",
        "undrain",
        "unlock",
        "reconcile-outcome",
        "doctor",
    ],
)
def test_each_command_shows_three_examples(verb: str, call: Call) -> None:
    shown = call(*verb.split(), "--help").out
    assert shown.partition("Examples:")[2].count("gridops ") >= 3, shown
