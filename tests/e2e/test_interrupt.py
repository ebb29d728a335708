"""Whoever ends the demo, in whichever step: nothing of it survives."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from examples.demo.stage import Stage

ROOT = Path(__file__).resolve().parents[2]


def _processes_naming(text: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(text in part for part in process.cmdline()):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
        except psutil.Error:
            continue
    return found


def _hears_ctrl_c() -> None:
    """Also where these tests run in the background, where a shell lets nobody hear it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("moment", "how", "code"),
    [
        pytest.param("host admit alpha", signal.SIGINT, 130, id="ctrl-c while hosts are admitted"),
        pytest.param("gridops explain", signal.SIGTERM, 130, id="a signal while an engine runs"),
    ],
)
def test_nothing_survives_an_interruption(moment: str, how: signal.Signals, code: int, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "examples.demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=_hears_ctrl_c,
    )
    assert process.stdout is not None
    seen: list[str] = []
    try:
        for line in process.stdout:
            seen.append(line)
            if moment in line:
                break
        else:
            pytest.fail("the demo never came to that point:\n" + "".join(seen))
        assert _processes_naming(str(tmp_path)), "the test looks for processes by a name that none has"
        time.sleep(0.2)
        process.send_signal(how)
        rest, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code, rest
    assert not re.search(r"Traceback", rest), rest
    assert _processes_naming(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_stage_reaches_its_own_and_nobody_who_merely_names_or_neighbours_it(tmp_path: Path) -> None:
    sleep = [sys.executable, "-Sc", "import time; time.sleep(60)"]
    orphan = [sys.executable, "-Sc", f"import subprocess; subprocess.Popen({sleep!r}, stdout=-3, stderr=-3)"]
    elsewhere = os.environ | {"HOME": str(tmp_path)}
    bystanders: list[subprocess.Popen[bytes]] = []
    try:
        with Stage(say=lambda _: None) as stage:
            bystanders.append(subprocess.Popen([*sleep, f"{stage.root}/logs/controller.log"], env=elsewhere))
            bystanders.append(subprocess.Popen(sleep, env=elsewhere | {"HOME": f"{stage.root}-2"}))
            bystanders.append(subprocess.Popen(sleep, env=elsewhere))
            stage.start("daemon", *sleep)
            stage.run(*orphan)
            stage.until("the daemon and the orphan are seen", lambda: len(stage.survivors()) == 2)
        assert stage.survivors() == []
        assert [p.poll() for p in bystanders] == [None, None, None]
    finally:
        for process in bystanders:
            process.kill()
            process.wait()


def test_a_child_of_this_process_that_got_an_old_number_keeps_its_exit_status() -> None:
    with Stage(say=lambda _: None) as stage:
        child = subprocess.Popen([sys.executable, "-Sc", "raise SystemExit(7)"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stage.met[child.pid] = psutil.Process(child.pid).create_time() - 60
    assert child.wait() == 7


def test_a_daemon_of_the_stage_is_collected_by_who_started_it() -> None:
    with Stage(say=lambda _: None) as stage:
        daemon = stage.start("daemon", sys.executable, "-Sc", "import time; time.sleep(60)")
        assert [p.pid for p in stage.survivors()] == [daemon.pid]
        assert stage.met == {}
    assert daemon.returncode == -signal.SIGTERM
