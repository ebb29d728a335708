"""The agent's command line: exit codes, help with examples, no traceback, no secret, and a real agent as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gridops import __version__
from gridops.base.errors import BadSetup
from gridops.protocol.messages import Outcome
from gridops.trust.tls import self_signed
from gridops_agent.cli.entry import main
from gridops_agent.cli.report import struck
from gridops_agent.config import Config, parse_ports, parse_share, read_config, write_config
from gridops_agent.service import unit_text
from tests.agent.site import Site, done

AGENT = (sys.executable, "-m", "gridops_agent")


def test_version_is_answered_without_loading_anything() -> None:
    code = "import sys; from gridops_agent.cli.entry import main; main(['--version']); print(len(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[0] == f"gridops-agent {__version__}"
    assert int(out[1]) < 90


VERBS = ("join", "run", "once", "status", "stop", "runtime", "repin", "rekey", "drain", "pause", "quarantine", "resume")


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_three_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    examples = capsys.readouterr().out.partition("Examples:")[2]
    assert len([line for line in examples.splitlines() if line.strip().startswith("gridops-agent")]) == 3


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--nope"], 64, "no such option"),
        (["warp"], 64, "no such command"),
        (["join"], 64, "missing"),
        (["drain"], 64, "see: gridops-agent drain --help"),
        (["status", "more"], 64, "see: gridops-agent status --help"),
        (["status", "--state", __file__], 78, "--state names the folder that join made"),
        (["join", "nonsense", "--controller", "https://a:1"], 4, "refused[bad_token]"),
        (["status", "-o", "xml"], 64, "not an output format"),
        (["status", "--state", "/nowhere"], 78, "has not joined a fleet"),
        (["run", "--state", "/nowhere"], 78, "gridops-agent join TOKEN"),
        (["stop", "--state", "/nowhere"], 78, "has not joined a fleet"),
        (["pause", "--state", "/nowhere"], 64, "--reason"),
        (["pause", "--reason", "x", "--state", "/nowhere"], 78, "has not joined a fleet"),
        (["drain", "--reason", " \n ", "--state", "/nowhere"], 64, "says nothing"),
        (["drain", "--reason", "a\x1b[2Jb", "--state", "/nowhere"], 64, "says nothing"),
        (["drain", "--reason", "x" * 301, "--state", "/nowhere"], 64, "at most 300 characters"),
        (["quarantine", "--reason", "x", "--for", "soon"], 64, "--for"),
        (["quarantine", "--reason", "x", "--for", "10ms"], 64, "from 1s to"),
        (["resume", "--state", "/nowhere"], 78, "has not joined a fleet"),
    ],
)
def test_what_is_wrong_is_said_with_its_exit_code(
    args: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == code
    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told


TOKEN = "gj1." + "a" * 64 + ".forge." + "B" * 43


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--share", "5/4", "at most 1"),
        ("--share", "0", "more than 0"),
        ("--share", "much", "not a share"),
        ("--ports", "80-90", "between 1024 and 65535"),
        ("--ports", "x", "not a range"),
        ("--front", "nowhere", "not an address"),
        ("--controller", "http://plain:1", "not the URL of a controller"),
        ("--controller", "https://user@host:1", "not the URL of a controller"),
        ("--artifacts", "/not/there", "is not a folder"),
        ("--artifacts", "", "names no folder"),
        ("--state", "", "names no folder"),
    ],
)
def test_a_wrong_flag_of_join_is_a_wrong_call(
    flag: str, value: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from gridops.base.canon import digest_bytes
    from gridops.base.ids import HostId
    from gridops.trust.join import make_token

    token = make_token(digest_bytes(b"fleet"), HostId("forge"), b"s" * 32)
    args = ["join", token, "--controller", "https://127.0.0.1:1", "--state", str(tmp_path / "s"), flag, value]
    assert main(args) == 64
    assert says in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_fault_of_ours_writes_a_report_without_the_token_and_exits_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def broken(text: str) -> None:
        raise RuntimeError(f"while reading {text}")

    monkeypatch.setattr("gridops.trust.join.parse_token", broken)
    assert main(["join", TOKEN, "--controller", "https://a:1"]) == 70
    told = capsys.readouterr().err
    assert "RuntimeError" in told
    assert "Traceback" not in told
    (report,) = (tmp_path / "gridops-agent" / "reports").iterdir()
    assert report.stat().st_mode & 0o777 == 0o600
    text = report.read_text()
    assert "Traceback" in text
    assert TOKEN not in text
    assert struck(f"Bearer abc.def and {TOKEN}") == "Bearer *** and ***"


def test_agent_toml_is_read_as_it_was_written(tmp_path: Path) -> None:
    from gridops.base.canon import digest_bytes
    from gridops.base.ids import HostId

    config = Config(
        state=tmp_path,
        controller="https://c.example:7443",
        host=HostId("forge"),
        fleet=digest_bytes(b"f"),
        artifact_folders=(Path('/srv/a "b"\\c'), Path("/srv/ä")),
        share=Fraction(1, 4),
        ports=(20_000, 20_010),
        front="[::1]:8443",
        secrets_folder=Path("/etc/secrets"),
        engine_command={"llama.cpp": ("/opt/llama-server", "--x")},
    )
    write_config(config)
    assert read_config(tmp_path) == config
    assert config.front_address == ("::1", 8443)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("host = [", "is not TOML"),
        ("hosts = 1", "unknown key `hosts`"),
        ('controller = "https://a:1"', "`host` is missing"),
        ("host = 1", "`host` must be a text"),
    ],
)
def test_a_wrong_agent_toml_is_named_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(BadSetup) as caught:
        read_config(tmp_path)
    assert says in caught.value.message
    assert str(tmp_path / "agent.toml") in caught.value.message


def test_a_damaged_file_of_the_state_folder_is_an_error_that_says_where_to_look(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.config.ledger.write_bytes(b"no database" * 1_000)
    for call in (["status"], ["stop"], ["release", "tiny/1", "--keep-running"]):
        assert main([*call, "--state", str(site.state)]) == 1
        said = capsys.readouterr().err
        assert f"cannot read {site.config.ledger}" in said
        assert "hint: see: gridops-agent doctor" in said
    (site.state / "agent.toml").write_text("host = [")
    for call in (["status"], ["drain", "--reason", "smoke"], ["run"]):
        assert main([*call, "--state", str(site.state)]) == 78
        assert "hint: mend it by hand" in capsys.readouterr().err


def test_shares_and_ports_are_exact() -> None:
    assert parse_share("1/3") == Fraction(1, 3)
    assert parse_share("0.25") == Fraction(1, 4)
    assert parse_ports("18300-18300") == (18_300, 18_300)


def test_the_unit_file_in_the_repository_is_the_default_one(repository: Path) -> None:
    unit = (repository / "agent" / "gridops-agent.service").read_text()
    assert unit == unit_text()
    assert "ExecStart=/a\\x20b/x run --state /s%%1" in unit_text("/a b/x", "/s%1")


def wait_for(holds: Callable[[], object], patience: float = 90) -> None:
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


async def warmed_once(site: Site) -> None:
    async with site.agent() as agent:
        assert (await done(agent, site, site.warm())).outcome is Outcome.SUCCEEDED


def test_a_real_agent_process_adopts_serves_leaves_and_tells(make_site: Callable[..., Site]) -> None:
    """Killed with SIGKILL, started again, asked, ended with SIGTERM: one engine all along."""
    site = make_site(tls=self_signed(("127.0.0.1",), 0, 3))
    asyncio.run(warmed_once(site))
    site.config.status.unlink()
    (engine,) = site.processes()
    command = (*AGENT, "run", "--state", str(site.state))
    environment = {**os.environ, "A_SECRET": "x"}
    with started(command, environment) as first:
        wait_for(site.config.status.exists)
        assert main(["run", "--state", str(site.state)]) == 75, "a second agent is told that it is busy"
        first.kill()
        first.wait()
    assert site.processes() == [engine]
    site.config.status.unlink()
    with started(command, environment) as second:
        wait_for(site.config.status.exists)
        seen = json.loads(_run("status", "--state", str(site.state), "-o", "json"))
        assert seen["schema"] == "gridops.agent-status/1"
        assert seen["running"] is True
        (row,) = seen["residencies"]
        assert (row["replica"], row["state"], row["pid"], row["restarts"]) == ("tiny/1", "ready", engine, 0)
        text = _run("status", "--state", str(site.state))
        assert f"tiny/1  ready  pid {engine} port {row['port']}  0 in flight" in text
        second.send_signal(signal.SIGTERM)
        assert second.wait(timeout=90) == 0
    assert site.processes() == [engine], "engines outlive every agent"
    assert "tiny/1  ready" in _run("status", "--state", str(site.state))
    assert _run("stop", "--state", str(site.state)) == "tiny/1  stopped\n"
    assert site.processes() == []


@contextmanager
def started(command: tuple[str, ...], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _run(*args: str) -> str:
    done = subprocess.run([*AGENT, *args], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_word_at_the_host_is_shown_whether_an_agent_runs_or_not(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    state = ["--state", str(site.state)]
    assert main(["pause", "--reason", "mine for an hour", "--for", "1h", *state]) == 0
    said = capsys.readouterr().out
    assert said.startswith("forge: pause for 60 min, as soon as an agent runs here (none does)\n")
    assert main(["status", *state]) == 0
    shown = capsys.readouterr().out
    assert "pause by a person: mine for an hour, " in shown
    assert " left\n" in shown
    assert main(["status", "-o", "json", *state]) == 0
    override = json.loads(capsys.readouterr().out)["override"]
    assert (override["kind"], override["reason"]) == ("pause", "mine for an hour")
    assert 0 < override["left_ms"] <= 3_600_000
    process = subprocess.Popen((*AGENT, "run", *state), stderr=subprocess.PIPE, start_new_session=True)
    try:
        seen = _seen(state, capsys, "paused")
        assert seen["reasons"][0].startswith("local_override: pause by a person: mine for an hour")
        assert main(["quarantine", "--reason", "smoke", *state]) == 0
        assert "until `gridops-agent resume`, within a second" in capsys.readouterr().out
        _seen(state, capsys, "quarantined")
        assert main(["resume", *state]) == 0
        assert capsys.readouterr().out == "forge: taken back, within a second\n"
        assert main(["resume", *state]) == 0
        assert "nothing was said" in capsys.readouterr().out
        end = time.monotonic() + 60
        while (seen := _status(state, capsys))["state"] == "quarantined":
            assert time.monotonic() < end
            time.sleep(0.2)
        assert seen["override"] is None
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _status(state: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["status", "-o", "json", *state]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _seen(state: list[str], capsys: pytest.CaptureFixture[str], wanted: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while (seen := _status(state, capsys))["state"] != wanted:
        assert time.monotonic() < end, seen
        time.sleep(0.2)
    return seen


def test_a_key_that_others_can_read_stops_the_agent_with_the_exact_command(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.config.seed.chmod(0o644)
    assert main(["run", "--state", str(site.state)]) == 78
    assert f"hint: chmod 600 {site.config.seed}" in capsys.readouterr().err


def test_a_front_address_that_is_taken_stops_the_agent_by_name(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        write_config(replace(site.config, front=f"127.0.0.1:{port}"))
        assert main(["run", "--state", str(site.state)]) == 78
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
