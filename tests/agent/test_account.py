"""The account of the system's service: made once, given the state folder and nothing else, and stepped down to."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.errors import Failed
from gridops_agent.account import NAME, Account, barred, hand_over, known, lay_open, made
from gridops_agent.engines.base import Start
from gridops_agent.engines.llama_cpp import LlamaCpp
from gridops_agent.supervise import ask
from tests.agent.site import Site
from tests.protocol.build import warm

NOBODY = next((entry for entry in pwd.getpwall() if entry.pw_name == "nobody"), None)
AS_ROOT = os.geteuid() == 0
ME = Account(NAME, os.geteuid(), os.getegid())

if shutil.which("systemd-sysusers") is not None and AS_ROOT:

    def test_systemd_makes_the_account_as_it_is_declared(tmp_path: Path) -> None:
        """On a machine of its own, which is a folder here."""
        (tmp_path / "etc").mkdir()
        declared = tmp_path / "etc/sysusers.d/gridops-agent.conf"

        def told(argv: tuple[str, ...], patience: float) -> str:
            return ask((argv[0], f"--root={tmp_path}", argv[1]))

        def look() -> Account | None:
            file = tmp_path / "etc/passwd"
            rows = [line.split(":") for line in file.read_text().splitlines()] if file.exists() else []
            return next((Account(NAME, int(row[2]), int(row[3])) for row in rows if row[0] == NAME), None)

        account = made(told, declared, look)
        (row,) = [r for r in (tmp_path / "etc/passwd").read_text().splitlines() if r.startswith(f"{NAME}:")]
        assert row.endswith((":/var/lib/gridops-agent:/usr/sbin/nologin", ":/var/lib/gridops-agent:/sbin/nologin"))
        assert 0 < account.uid < 1_000, "a person's number would be a person's right"
        assert made(told, declared, look) == account, "a second host on the machine uses the same"


def test_an_account_that_is_there_is_used_and_one_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    calls: list[tuple[str, ...]] = []

    def told(argv: tuple[str, ...], patience: float) -> str:
        calls.append(argv)
        return ""

    assert made(told, tmp_path / "x.conf", lambda: ME) is ME
    assert (calls, (tmp_path / "x.conf").exists()) == ([], False)
    with pytest.raises(Failed, match="no account gridops-agent") as caught:
        made(told, tmp_path / "deep" / "x.conf", lambda: None)
    assert "useradd --system" in caught.value.hints[0]
    assert calls == [("systemd-sysusers", str(tmp_path / "deep" / "x.conf"))]
    assert (tmp_path / "deep" / "x.conf").stat().st_mode & 0o777 == 0o644, "systemd reads it, whoever it is"
    assert known() is None or known().name == NAME  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("mode", "last", "bars"),
    [(0o755, stat.S_IXOTH, False), (0o711, stat.S_IXOTH, False), (0o700, stat.S_IXOTH, True), (0o711, 5, True)],
)
def test_what_the_account_may_not_pass_is_found_by_its_mode(mode: int, last: int, bars: bool, tmp_path: Path) -> None:
    stranger = Account(NAME, os.geteuid() + 4_000, os.getegid() + 4_000)
    found = tmp_path / "a"
    found.mkdir()
    found.chmod(mode)
    for part in (tmp_path, *tmp_path.parents):
        if part.stat().st_mode & stat.S_IXOTH == 0 and part.stat().st_uid == os.geteuid():
            part.chmod(part.stat().st_mode | stat.S_IXOTH)
    assert barred(found, stranger, last=last) == (found if bars else None)
    assert barred(found, ME) is None
    assert barred(found / "gone", ME) == found / "gone"


def test_what_lies_between_the_home_and_a_state_folder_may_be_passed_and_not_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    state = home / "fleets" / "default"
    state.mkdir(parents=True)
    for part in (tmp_path, home, home / "fleets", state):
        part.chmod(0o700)
    lay_open(state, home)
    modes = [part.stat().st_mode & 0o777 for part in (tmp_path, home, home / "fleets", state)]
    assert modes == [0o700, 0o711, 0o711, 0o700]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may pass, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="gridops-account-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


if AS_ROOT and NOBODY is not None:
    them = Account("nobody", NOBODY.pw_uid, NOBODY.pw_gid)

    # Whether they can read this interpreter is no question of these tests.
    FREE = "from gridops_agent import account\naccount.runs_from = lambda: ()\n"
    LOADED = (
        "import codecs, gridops_agent.status, gridops_agent.status_lines, gridops_agent.overrides\n"
        "for name in ('ascii', 'latin-1', 'idna', 'unicode_escape'):\n    codecs.lookup(name)\n"
    )

    def owner(path: Path) -> int:
        return path.lstat().st_uid

    def test_the_state_folder_is_handed_over_whole_and_nothing_that_a_link_points_to(place: Path) -> None:
        state, outside = place / "state", place / "outside"
        (state / "keys").mkdir(parents=True)
        (state / "keys" / "host.seed").write_text("x")
        outside.write_text("root's own")
        (state / "link").symlink_to(outside)
        (state / "there").symlink_to(place)
        hand_over(state, them)
        assert {owner(p) for p in (state, *state.rglob("*"))} == {them.uid}
        assert (owner(outside), owner(place)) == (0, 0)

    def run(script: str, folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    BEGIN = f"import os, sys, pathlib\n{FREE}from gridops_agent.account import *\nhere = pathlib.Path(sys.argv[1])\n"
    BACK = "try:\n    os.setuid(0)\nexcept PermissionError:\n    print('for good')\n"

    def test_root_steps_down_to_the_owner_of_a_folder_for_good_and_stays_root_on_its_own(place: Path) -> None:
        script = f"{BEGIN}step_down(here)\nprint(os.getresuid(), os.getresgid(), began_as_root())\n{BACK}"
        assert run(script, place) == "(0, 0, 0) (0, 0, 0) True"
        os.chown(place, them.uid, them.gid)
        uid, gid = them.uid, them.gid
        assert run(script, place) == f"({uid}, {uid}, {uid}) ({gid}, {gid}, {gid}) True\nfor good"
        assert run(f"{BEGIN}step_down(here / 'gone')\nprint(os.geteuid())", place) == "0", "whoever reads it says so"

    def test_root_does_not_become_somebody_who_cannot_read_the_program(place: Path) -> None:
        """It would fail in the middle, wherever it reads the next part of itself."""
        os.chown(place, them.uid, them.gid)
        shut = place / "shut"
        shut.mkdir(mode=0o700)
        script = f"{BEGIN}account.runs_from = lambda: (here / 'shut' / 'python',)\nstep_down(here)"
        done = subprocess.run(
            [sys.executable, "-c", script, str(place)], capture_output=True, text=True, check=False, timeout=60
        )
        assert f"who cannot read this program: {shut}" in done.stderr

    def test_root_steps_down_for_a_while_and_is_root_for_a_moment_where_it_has_to_be(place: Path) -> None:
        os.chown(place, them.uid, them.gid)
        script = f"{BEGIN}step_down(here, for_good=False)\n"
        script += "print(os.geteuid())\nwith as_root():\n    print(os.geteuid())\n"
        assert run(f"{script}print(os.geteuid(), os.getegid())", place) == f"{them.uid}\n0\n{them.uid} {them.gid}"
        assert run(f"{BEGIN}with as_root():\n    print(os.geteuid())", place) == "0"

    def test_what_root_says_on_a_handed_over_host_is_written_by_its_owner(place: Path, site: Site) -> None:
        """The agent could not read a word of root's."""
        state = place / "state"
        shutil.copytree(site.state, state)
        hand_over(state, them)
        # What is loaded later is loaded before, since the interpreter of the tests may be readable for root alone.
        script = (
            f"{BEGIN}{LOADED}from gridops_agent.cli.main import run\n"
            "where = ['--state', sys.argv[1]]\n"
            "assert run(['drain', '--reason', 'maintenance', *where]) == 0\n"
            "assert run(['status', *where]) == 0\n"
        )
        assert "maintenance" in run(script, state)
        assert {owner(p) for p in (state, *state.rglob("*"))} == {them.uid}

    ENGINE = (
        'echo "cards=$CUDA_VISIBLE_DEVICES rocm=$ROCR_VISIBLE_DEVICES secret=${A_SECRET-none} as=$(id -u)"\n'
        'for file in "$1/m.gguf" "$1/new" "$2/fetched.gguf"; do\n'
        '  (echo x >> "$file") 2> /dev/null && echo "wrote ${file##*/}" || echo "kept from ${file##*/}"\n'
        "done\n"
        '[ "$(cat "$2/keys/host.seed")" = key ] && echo "reads the key of its host"\n'
    )

    def test_what_an_engine_under_the_account_gets_and_what_keeps_it_from_nothing(
        place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A real one, started as the agent starts it; the last two lines are what the how-to does not promise."""
        models, state = place / "models", place / "state"
        for folder in (models, state / "keys"):
            folder.mkdir(parents=True)
        for file in (models / "m.gguf", state / "fetched.gguf"):
            file.write_text("weights")
        (state / "keys" / "host.seed").write_text("key")
        (state / "keys" / "host.seed").chmod(0o600)
        hand_over(state, them)
        monkeypatch.setenv("A_SECRET", "x")
        started = Start(replace(warm().launch, backend="cuda"), models / "m.gguf", 18_300, state / "k", gpus=("GPU-1",))
        told = dict(LlamaCpp(()).environment(started))
        script = (
            f"{BEGIN}{LOADED}import json\nfrom gridops_agent.supervise import begin\nstep_down(here)\n"
            f"argv = ('/bin/sh', '-c', {ENGINE!r}, 'engine', {str(models)!r}, {str(state)!r})\n"
            f"print(begin(argv, {told!r}, here, here / 'log').wait())\n"
        )
        assert run(script, state) == "0"
        assert (state / "log").read_text().splitlines() == [
            f"cards=GPU-1 rocm= secret=none as={them.uid}",
            "kept from m.gguf",
            "kept from new",
            "wrote fetched.gguf",
            "reads the key of its host",
        ]
