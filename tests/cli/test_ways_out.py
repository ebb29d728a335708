"""One way in, one way out: exit codes, streams, suggestions, and no traceback for anybody."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gridops.cli.errors
from gridops import __version__
from gridops.base.errors import BadSetup, Busy, ConfigError, Failed, Refusal, Unreachable
from gridops.cli import exits
from gridops.cli.errors import bug_text, redacted
from gridops.cli.output import Usage
from gridops.cli.table import COMMANDS, available


def program(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, **env}
    return subprocess.run(
        [sys.executable, "-m", "gridops", *args], capture_output=True, text=True, env=full, check=False
    )


def test_the_version_is_answered_by_one_module_alone() -> None:
    """What it takes on the clock is measured in bench/bench_start.py."""
    code = (
        "import sys; bare = set(sys.modules); from gridops.cli.entry import main; main(['--version']);"
        "print(sorted(set(sys.modules) - bare))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"gridops {__version__}", "['gridops', 'gridops.cli', 'gridops.cli.entry']"]


@pytest.mark.parametrize("args", [("--help",), ("validate",), ("validate", "--color", "never", "-o", "json")])
def test_reading_files_never_waits_for_the_checker_of_arguments_or_of_records(args: tuple[str, ...], fleet) -> None:
    """Each of these takes 20 to 80 ms to import, which is a tenth of what checking 500 files may take."""
    code = (
        f"import sys; from gridops.cli.entry import main; main(['-C', {str(fleet)!r}, *{args!r}]);"
        "print(sorted({'pydantic', 'gridops.model.plan', 'git', 'cryptography'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("flag", ["--ascii=perhaps", "--verbose=x"])
def test_values_that_need_a_check_get_it(flag: str, call) -> None:
    assert call(flag, "validate").code == exits.USAGE


def test_a_flag_of_the_environment_is_checked(call, monkeypatch) -> None:
    monkeypatch.setenv("GRIDOPS_ASCII", "perhaps")
    answer = call("validate")
    assert answer.code == exits.USAGE
    assert "GRIDOPS_ASCII" in answer.err


def test_help_lists_commands_without_importing_them() -> None:
    code = (
        "import sys; from gridops.cli.entry import main; main(['--help']);"
        "print([m for m in sys.modules if m in ('git', 'httpx', 'gridops.cli.plan')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for name in available():
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(available()))
def test_every_command_has_three_examples_and_the_global_flags(name, call) -> None:
    page = call("help", name)
    assert page.code == 0, page.err
    pages = [page.out]
    if "COMMAND [ARGS]" in page.out:
        names = re.findall(r"^  ([a-z-]+)  ", page.out.partition("Commands:")[2], re.MULTILINE)
        pages = [call("help", name, below).out for below in names]
    for text in pages:
        assert (
            len(re.findall(r"^\s+(?:[A-Z_]+=\S+ )?\S*gridops ", text.partition("Examples:")[2], re.MULTILINE)) >= 3
        ), text
    assert call(name, "--nope").code == 64


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["plna"], "did you mean `plan`?"),
        (["plan", "--agianst", "auto"], "did you mean `--against`?"),
        (["plans", "shwo"], "did you mean `show`?"),
        (["help", "exit-code"], "did you mean `exit-codes`?"),
        (["plan", "--nope"], "see: gridops plan --help"),
        (["zzz"], "see what there is: gridops --help"),
    ],
)
def test_a_slip_of_the_fingers_is_answered_with_the_word_that_was_meant(args, hint, call) -> None:
    answer = call(*args)
    assert answer.code == exits.USAGE
    assert f"hint: {hint}" in answer.err
    assert answer.out == ""


@pytest.mark.parametrize(
    "args", [["plan", "--detailed"], ["pla"], ["plan", "--allow"], ["plan", "extra"], ["plan", "--base"]]
)
def test_abbreviations_and_wrong_calls_are_usage_errors(args, call) -> None:
    assert call(*args).code == exits.USAGE


ERRORS = {
    "findings": (ConfigError("two problems"), 3),
    "refused": (Refusal("GO412", "plan is out of date", evidence=("what moved",), hints=("plan again",)), 4),
    "failed": (Failed("disk is full"), 1),
    "usage": (Usage("wrong"), 64),
    "unreachable": (Unreachable("no answer"), 69),
    "bug": (ZeroDivisionError("by zero"), 70),
    "busy": (Busy("locked"), 75),
    "bad config": (BadSetup("no key"), 78),
}


@pytest.mark.parametrize("name", sorted(ERRORS))
@pytest.mark.parametrize("form", ["text", "json", "jsonl", "yaml", "github"])
def test_every_error_ends_in_its_code_and_leaves_a_document_on_stdout(name, form, call, monkeypatch, fleet) -> None:
    error, code = ERRORS[name]

    def broken(context):
        raise error

    monkeypatch.setattr("gridops.cli.plan.place_of", broken)
    answer = call("plan", "-C", fleet, "-o", form)
    assert answer.code == code
    assert "Traceback" not in answer.err
    assert "{" not in answer.err
    assert "\x1b" not in answer.out + answer.err
    if form == "text":
        assert answer.out == ""
    elif form == "github":
        assert answer.out.startswith(f"::error title=gridops {name}::")
    else:
        (document,) = [json.loads(answer.out)]
        assert document["schema"] == "gridops.error/1"
        assert (document["exit_code"], document["reason"]) == (code, name)
        assert document["error"]["message"]


def test_a_refusal_shows_code_evidence_and_hints_in_this_order(call, monkeypatch, fleet) -> None:
    def broken(context):
        raise ERRORS["refused"][0]

    monkeypatch.setattr("gridops.cli.plan.place_of", broken)
    assert call("plan", "-C", fleet).err.splitlines() == [
        "refused[GO412]: plan is out of date",
        "  what moved",
        "  hint: plan again",
    ]
    assert call("plan", "-C", fleet, "-o", "json").json["error"] == {
        "message": "plan is out of date",
        "hints": ["plan again"],
        "code": "GO412",
        "subject": "",
        "evidence": ["what moved"],
    }


def test_a_fault_of_ours_writes_a_report_without_secrets(call, monkeypatch, fleet, tmp_path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    token = "gj1.aaaa.bbbb"

    def broken(context):
        secret_local = "hunter2hunter2"
        raise RuntimeError(f"cannot use https://ana:s3cret@host/x with {token}, len {len(secret_local)}")

    monkeypatch.setattr("gridops.cli.plan.place_of", broken)
    answer = call("plan", "-C", fleet, "--base", token)
    assert answer.code == exits.BUG
    assert "Traceback" not in answer.err
    path = re.search(r"a report was written: (\S+)", answer.err)
    assert path is not None
    report = Path(path.group(1))
    text = report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600
    assert "RuntimeError" in text
    assert __version__ in text
    assert "Traceback" in text
    for secret in (token, "s3cret", "hunter2"):
        assert secret not in text + answer.err + answer.out


def test_values_of_telling_flags_never_reach_a_report() -> None:
    args = ["host", "join", "--token", "abcdefgh", "--api-key=ijklmnop", "--reason", "fan alarm", "gj1.x.y"]
    shown = redacted(args)
    assert shown == ["host", "join", "--token", "***", "--api-key=***", "--reason", "fan alarm", "***"]
    text = bug_text(RuntimeError("it was abcdefgh"), args)
    assert "abcdefgh" not in text
    assert "ijklmnop" not in text


def test_when_no_report_can_be_written_it_is_shown(call, monkeypatch, fleet) -> None:
    monkeypatch.setattr(gridops.cli.errors, "write_report", lambda program, text: None)

    def broken(context):
        raise RuntimeError("oops")

    monkeypatch.setattr("gridops.cli.plan.place_of", broken)
    answer = call("plan", "-C", fleet, "-o", "json")
    assert answer.code == exits.BUG
    assert answer.json["error"]["report"] is None


def test_control_c_is_130_and_says_nothing_of_python(call, monkeypatch, fleet) -> None:
    def broken(context):
        raise KeyboardInterrupt

    monkeypatch.setattr("gridops.cli.plan.place_of", broken)
    answer = call("plan", "-C", fleet)
    assert (answer.code, answer.err) == (130, "interrupted\n")


def test_sigterm_is_143_and_quiet() -> None:
    code = (
        "import os, signal, sys; from gridops.cli import helptopics, main;"
        "helptopics.TOPICS['exit-codes'] = (lambda: os.kill(os.getpid(), signal.SIGTERM), dict);"
        "sys.exit(main.run(['help', 'exit-codes']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")


@pytest.mark.parametrize("size", [10, 500_000])
def test_a_reader_that_goes_away_is_no_error(size) -> None:
    code = (
        "import sys; from gridops.cli import helptopics, main;"
        f"helptopics.TOPICS['exit-codes'] = (lambda: 'a line\\n' * {size}, dict);"
        "sys.exit(main.run(['help', 'exit-codes']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talking:
        assert talking.stdout is not None
        talking.stdout.readline()
        talking.stdout.close()
        assert talking.stderr is not None
        assert talking.stderr.read() == b""
        assert talking.wait(timeout=20) == 0


def test_the_worst_code_wins_in_the_published_order() -> None:
    assert exits.worst([]) == 0
    order = list(exits.PRECEDENCE)
    for n, code in enumerate(order):
        assert exits.worst(order[n:]) == code
        assert exits.worst(reversed(order[n:])) == code
    assert exits.worst([0, 1, 5]) == 1
    assert exits.worst([1, 69]) == 69


def test_the_table_of_codes_is_what_help_prints(call) -> None:
    text, data = call("help", "exit-codes").out, call("help", "exit-codes", "-o", "json").json
    for row in exits.TABLE:
        assert re.search(rf"^{row.code} +{re.escape(row.name)} ", text, re.MULTILINE)
    assert [row["code"] for row in data["exit_codes"]] == [row.code for row in exits.TABLE]


@pytest.mark.parametrize(
    "args",
    [["-o", "json", "help", "exit-codes"], ["help", "-o", "json", "exit-codes"], ["help", "exit-codes", "-ojson"]],
)
def test_global_flags_may_stand_anywhere(args, call) -> None:
    assert call(*args).json["schema"] == "gridops.exit-codes/1"


def test_outputs_may_be_repeated_but_only_one_goes_to_stdout(call, tmp_path) -> None:
    file = tmp_path / "codes.json"
    answer = call("help", "exit-codes", "-o", "text", "-o", f"json={file}")
    assert answer.out.startswith("CODE")
    assert json.loads(file.read_text())["schema"] == "gridops.exit-codes/1"
    assert call("help", "exit-codes", "-o", "text", "-o", "json").code == exits.USAGE
    assert call("help", "exit-codes", "-o", "sarif").code == exits.USAGE
    assert call("help", "exit-codes", "-o", "yaml").code == exits.USAGE
    assert call("help", "exit-codes", "-o", f"json={tmp_path}/no/where").code == exits.FAILED


@pytest.mark.parametrize("args", [["--color", "blue"], ["--timeout", "soon"], ["-C", "/nowhere"]])
def test_values_that_mean_nothing_are_usage_errors(args, call) -> None:
    assert call("help", "exit-codes", *args).code == exits.USAGE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_us_back(shell, call) -> None:
    script = call("completion", shell).out
    assert "_GRIDOPS_COMPLETE" in script


def test_the_shell_is_told_the_names_of_commands_and_flags() -> None:
    done = program(_GRIDOPS_COMPLETE="complete_bash", COMP_WORDS="gridops pl", COMP_CWORD="1")
    assert done.stdout.split() == ["plan", "plans"]
    done = program(_GRIDOPS_COMPLETE="complete_bash", COMP_WORDS="gridops plan --allow", COMP_CWORD="2")
    assert done.stdout.split() == ["--allow-unplaced"]


def test_the_table_names_each_command_once_and_in_words() -> None:
    assert all(row.help.endswith(".") and len(row.help) < 72 for row in COMMANDS.values())


@pytest.mark.parametrize(
    "before", [(), ("-C", "."), ("--color", "never"), ("-q", "--scope", "office"), ("--timeout=3s",)]
)
def test_an_error_names_the_command_and_not_the_value_of_a_flag(before: tuple[str, ...]) -> None:
    done = program(*before, "-o", "json", "paln")
    assert done.returncode == 64
    assert json.loads(done.stdout)["command"] == "paln"


@pytest.mark.parametrize("args", [("paln",), ("plan", "--nope"), ("rule", "GO999")])
def test_an_error_that_nobody_reads_keeps_its_exit_code(args: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gridops", *args], stdout=writer, stderr=writer, check=False, timeout=60
        )
    finally:
        os.close(writer)
    assert done.returncode == 64


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("plan", "--base"), "gridops plan --help"),
        (("-C", ".", "validate", "--select"), "gridops validate --help"),
        (("-o",), "gridops --help"),
        (("completion",), "gridops completion --help"),
    ],
)
def test_what_is_missing_is_said_in_one_line_with_the_help_of_that_command(args: tuple[str, ...], hint: str) -> None:
    done = program(*args)
    assert done.returncode == 64
    assert done.stderr.splitlines()[1:] == [f"  hint: see: {hint}"]


ANSWERS = ("schema profile", "plan -o json", "plan -o jsonl", "rule GO203", "validate", "help")


def shell(line: str, where: Path) -> subprocess.CompletedProcess[str]:
    """One line of a shell, `gridops` being this program."""
    text = f'gridops() {{ "{sys.executable}" -m gridops -C "{where}" "$@"; }}; {line}'
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_finds_no_room_is_a_failure_and_no_fault(answer: str, fleet: Path) -> None:
    done = shell(f"gridops {answer} >/dev/full", fleet)
    assert done.returncode == exits.FAILED, done.stderr
    assert done.stderr.endswith("error: the answer: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_closed_stream_leads_nowhere(answer: str, fleet: Path) -> None:
    whole = shell(f"gridops {answer}", fleet)
    unread, untold = shell(f"gridops {answer} >&-", fleet), shell(f"gridops {answer} 2>&- <&-", fleet)
    assert (unread.returncode, untold.returncode) == (whole.returncode, whole.returncode), unread.stderr
    assert untold.stdout.count("\n") == whole.stdout.count("\n"), "no talk among the answers"


def test_a_folder_that_cannot_be_written_is_named(call) -> None:
    answer = call("init", "/proc/fleet")
    assert answer.code == exits.FAILED
    assert answer.err.startswith("error: /proc/fleet: ")
