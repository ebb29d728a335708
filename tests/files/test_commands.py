"""validate, fmt, schema and rule as people call them: streams, formats, exit codes, and what is written."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from gridops.base.codes import registry
from gridops.files.export import render
from gridops.files.fmt import format_text
from gridops.files.kinds import KINDS
from tests.builders.calls import Call, caller
from tests.files.repo import GOOD, HOSTS, MODE, PROFILE


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in GOOD.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture
def tidy(root: Path) -> Path:
    (root / HOSTS).write_text(format_text(HOSTS, GOOD[HOSTS].encode()).text)
    return root


@pytest.fixture
def broken(root: Path) -> Path:
    (root / MODE).write_text(GOOD[MODE].replace("recommend", "recomend"))
    (root / PROFILE).write_text(GOOD[PROFILE] + "spread: {by: rack, min: 3}\n")
    return root


def test_a_good_repository_is_quiet_on_stdout(call: Call, root: Path) -> None:
    answer = call("-C", root, "validate")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("Checked 3 files in ")
    assert "0 errors, 0 warnings." in answer.err


def test_a_file_whose_name_is_no_text_is_reported_in_every_form(call: Call, root: Path, tmp_path: Path) -> None:
    with open(os.fsencode(root) + b"/profiles.d/\xff.yaml", "w", encoding="utf-8") as file:
        file.write("x: [\n")
    for form in ("text", "json", "jsonl", "github"):
        assert "profiles.d/\\udcff.yaml" in _bytes(call("-C", root, "validate", "-o", form).out)
        answer = call("-C", root, "validate", "-o", f"{form}={tmp_path / 'out'}")
        assert answer.code == 3, answer.err
        assert "profiles.d/\\udcff.yaml" in (tmp_path / "out").read_text(encoding="utf-8")


def _bytes(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def test_what_to_do_is_said_where_nothing_closer_is_known(call: Call, root: Path) -> None:
    (root / HOSTS).write_text(GOOD[HOSTS].replace("memory: 256GiB", "memory: 256"))
    remedy = registry()["GO112"].remedy
    assert f"   = {remedy}\n" in call("-C", root, "validate").out
    assert f"%0A{remedy}\n" in call("-C", root, "validate", "-o", "github").out
    assert call("-C", root, "validate", "-o", "json").json["diagnostics"][0]["remedy"] == remedy


def test_findings_go_to_stdout_and_the_summary_to_stderr(call: Call, broken: Path) -> None:
    answer = call("-C", broken, "validate")
    assert answer.code == 3
    assert "error[GO206]" in answer.out
    assert "warning[GO321]" in answer.out
    assert "1 error, 1 warning." in answer.err
    assert "[*] 1 can be fixed with --fix.   More on a code: gridops rule GO206" in answer.err


def test_warnings_alone_are_no_failure(call: Call, broken: Path) -> None:
    (broken / MODE).write_text(GOOD[MODE])
    assert call("-C", broken, "validate").code == 0


def test_json_is_one_document_with_the_exit_code(call: Call, broken: Path) -> None:
    answer = call("-C", broken, "validate", "-o", "json")
    assert answer.json["exit_code"] == answer.code == 3
    assert [d["code"] for d in answer.json["diagnostics"]] == ["GO206", "GO321"]


def test_json_lines_begin_with_hello_and_end_with_the_result(call: Call, broken: Path) -> None:
    lines = [json.loads(line) for line in call("-C", broken, "validate", "-o", "jsonl").out.splitlines()]
    assert [line["type"] for line in lines] == ["hello", "diagnostic", "diagnostic", "result"]
    assert lines[-1]["exit_code"] == 3


@pytest.mark.parametrize("flags", [("--github",), ("-o", "github")])
def test_annotations_for_a_pull_request(call: Call, broken: Path, flags: tuple[str, ...]) -> None:
    lines = call("-C", broken, "validate", *flags).out.splitlines()
    assert lines[0].startswith(f"::error file={MODE},line=5,col=11,title=GO206::")
    assert lines[1].startswith(f"::warning file={PROFILE},")


def test_text_and_json_from_one_run(call: Call, broken: Path, tmp_path: Path) -> None:
    answer = call("-C", broken, "validate", "-o", "text", "-o", f"json={tmp_path / 'v.json'}")
    assert "error[GO206]" in answer.out
    assert json.loads((tmp_path / "v.json").read_text())["error_count"] == 1


def test_fix_writes_the_repair_and_keeps_the_mode_of_the_file(call: Call, broken: Path) -> None:
    os.chmod(broken / MODE, 0o640)
    answer = call("-C", broken, "validate", "--fix")
    assert answer.code == 0
    assert (broken / MODE).read_text() == GOOD[MODE]
    assert (broken / MODE).stat().st_mode & 0o777 == 0o640
    assert f"fixed {MODE}" in answer.err


def test_a_repair_that_changes_the_meaning_needs_its_own_flag(call: Call, root: Path) -> None:
    (root / HOSTS).write_text(GOOD[HOSTS].replace("256GiB", "256GB"))
    assert call("-C", root, "validate", "--fix").code == 3
    assert "256GB" in (root / HOSTS).read_text()
    assert call("-C", root, "validate", "--fix", "--unsafe-fixes").code == 0
    assert (root / HOSTS).read_text() == GOOD[HOSTS]


def test_named_files_are_judged_within_their_repository(call: Call, broken: Path) -> None:
    answer = call("-C", broken / "profiles.d", "validate", "coder.yaml", "-o", "json")
    assert answer.code == 0
    assert [d["code"] for d in answer.json["diagnostics"]] == ["GO321"]
    assert call("validate", broken).code == 3


def test_the_repository_is_found_from_a_folder_inside(call: Call, broken: Path) -> None:
    assert call("-C", broken / "fleet.d", "validate").code == 3


def test_codes_are_selected_and_only_warnings_ignored(call: Call, broken: Path) -> None:
    assert [d["code"] for d in call("-C", broken, "validate", "--select", "GO3", "-o", "json").json["diagnostics"]] == [
        "GO321"
    ]
    found = call("-C", broken, "validate", "--ignore", "GO321", "--ignore", "GO206", "-o", "json").json["diagnostics"]
    assert [d["code"] for d in found] == ["GO206"]


def test_a_folder_without_intent_is_named(call: Call, tmp_path: Path) -> None:
    answer = call("-C", tmp_path, "validate")
    assert answer.code == 64
    assert "no fleet here" in answer.err
    assert "gridops init" in answer.err
    assert call("-C", tmp_path, "validate", "nowhere.yaml").code == 1


def test_a_format_that_validate_does_not_speak_is_a_wrong_call(call: Call, root: Path) -> None:
    answer = call("-C", root, "validate", "-o", "markdown")
    assert answer.code == 64
    assert "it has: text, json, jsonl, github" in answer.err


UGLY = GOOD[MODE].replace("    mode:", "       mode:   ").replace("kind: Mode\n", "kind:   Mode\n\n\n")


def test_fmt_check_names_files_and_writes_nothing(call: Call, tidy: Path) -> None:
    (tidy / MODE).write_text(UGLY)
    answer = call("-C", tidy, "fmt", "--check")
    assert (answer.code, answer.out) == (3, f"would reformat {MODE} (3 lines)\n")
    assert answer.err == "1 file needs formatting, 2 are fine.   Run: gridops fmt\n"
    assert (tidy / MODE).read_text() == UGLY


def test_fmt_diff_heads_each_piece_with_its_place(call: Call, tidy: Path) -> None:
    (tidy / MODE).write_text(UGLY)
    answer = call("-C", tidy, "fmt", "--diff", MODE)
    assert answer.code == 3
    assert answer.out.startswith(f"@@ {MODE}:1 @@\n apiVersion: gridops/v1\n-kind:   Mode\n")
    assert "+    mode: recommend\n" in answer.out


def test_fmt_writes_and_then_has_nothing_to_do(call: Call, tidy: Path) -> None:
    (tidy / MODE).write_text(UGLY)
    assert call("-C", tidy, "fmt").out == f"reformatted {MODE} (3 lines)\n"
    answer = call("-C", tidy, "fmt", "--check", "--upgrade")
    assert (answer.code, answer.out) == (0, "")
    assert "all in canonical layout" in answer.err
    assert "nothing to upgrade" in answer.err


def test_fmt_tells_of_files_that_it_cannot_read(call: Call, tidy: Path) -> None:
    (tidy / MODE).write_text("scopes: [\n")
    answer = call("-C", tidy, "fmt")
    assert answer.code == 3
    assert "error[GO103]" in answer.err
    assert (tidy / MODE).read_text() == "scopes: [\n"


def test_fmt_answers_in_json(call: Call, tidy: Path) -> None:
    (tidy / MODE).write_text(UGLY)
    answer = call("-C", tidy, "fmt", "--check", "-o", "json").json
    assert answer["changed"] == [{"file": MODE, "lines": 3}]
    assert (answer["files"], answer["written"], answer["exit_code"]) == (3, False, 3)


def test_fmt_filters_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    give("a:   1\n")
    answer = call("fmt", "-")
    assert (answer.code, answer.out) == (0, "a: 1\n")
    give("a:   1\n")
    assert call("fmt", "--check", "-").code == 3
    give("a: [\n")
    answer = call("fmt", "-")
    assert (answer.code, answer.out) == (3, "")
    assert "GO103" in answer.err
    assert call("fmt", "-", "x.yaml").code == 64


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_schema_prints_one_kind(call: Call, kind: str) -> None:
    assert call("schema", kind.lower()).out == render(kind)


def test_schema_lists_kinds_writes_all_and_suggests(call: Call, tmp_path: Path) -> None:
    assert "policies/mode.yaml" in call("schema").out
    assert {k["kind"] for k in call("schema", "-o", "json").json["kinds"]} == set(KINDS)
    assert call("-C", tmp_path, "schema", "--write", ".gridops/schemas/v1").code == 0
    assert len(list((tmp_path / ".gridops/schemas/v1").iterdir())) == len(KINDS)
    answer = call("schema", "Profil")
    assert answer.code == 64
    assert "did you mean `Profile`?" in answer.err


def test_every_code_has_a_page(call: Call) -> None:
    for code in registry().values():
        page = call("rule", code.code).out
        assert page.startswith(f"{code.code}: {code.title}\n")
        assert "What it means" in page
        assert "What to do" in page
        assert max(len(line) for line in page.splitlines()[1:]) <= 80


def test_rule_lists_all_answers_in_json_and_suggests(call: Call) -> None:
    assert set(registry()) == {rule["code"] for rule in call("rule", "-o", "json").json["rules"]}
    assert call("rule", "go203", "-o", "json").json["title"] == "unknown field"
    answer = call("rule", "GO20")
    assert answer.code == 64
    assert "unknown code" in answer.err
