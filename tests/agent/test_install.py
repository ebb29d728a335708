"""The agent's service: units that systemd itself finds whole, launchd's list, and an installation that is believed
only when the service manager says so."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.errors import Failed
from gridops_agent.account import Account
from gridops_agent.cli import lifecycle
from gridops_agent.config import Config, default_state
from gridops_agent.life import install as installing
from gridops_agent.life.install import Place, Way, install, place, remove, standing
from gridops_agent.service import card_nodes, plist_bytes, unit_text, user_unit_text
from gridops_agent.supervise import ask
from tests.agent.service_manager import PROGRAM, ServiceManager, machine
from tests.agent.site import Site


def verified(folder: Path, text: str, *flags: str) -> str:
    """What `systemd-analyze verify` finds wrong with a unit; empty when nothing."""
    folder.mkdir(exist_ok=True)
    unit = folder / "gridops-agent.service"
    unit.write_text(text)
    argv = ["systemd-analyze", "verify", "--man=no", *flags, str(unit)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "SYSTEMD_LOG_TARGET": "console"}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False, timeout=60)
    return done.stdout + done.stderr + (f"exit {done.returncode}" if done.returncode else "")


UNITS = {
    "the default": (unit_text(PROGRAM), ()),
    "blanks, dollars and percents": (unit_text(PROGRAM, "/srv/a b$c/10%/x"), ()),
    "with cards and groups": (
        unit_text(PROGRAM, "/srv/x", ("render", "video"), ("/dev/davinci0", "/dev/hisi_hdc")),
        (),
    ),
    "a person's": (user_unit_text(PROGRAM, "/home/ana/.local/state/gridops agent/x"), ("--user",)),
}


def _systemd() -> int:
    """Which systemd is at hand; 0 for none."""
    if shutil.which("systemd-analyze") is None:
        return 0
    found = re.match(r"systemd (\d+)", ask(("systemd-analyze", "--version")))
    return int(found[1]) if found is not None else 0


if _systemd() > 0:  # elsewhere the lines below are what is checked

    @pytest.mark.parametrize("name", UNITS)
    def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
        text, flags = UNITS[name]
        assert verified(tmp_path / "good", text, *flags) == ""
        broken = text.replace("KillMode=process", "KillMode=nobody").replace("OOMPolicy", "OomPolicy")
        said = verified(tmp_path / "bad", broken, *flags)
        assert "kill mode" in said, "what is wrong would have been said"
        assert "OomPolicy" in said


def analysed(folder: Path, text: str) -> float:
    """How exposed systemd calls a unit of the system, from 0 to 10."""
    unit = folder / "gridops-agent.service"
    unit.write_text(text)
    done = ask(("systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)))
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done)
    assert found is not None, done
    return float(found[1])


if _systemd() >= 250:  # before, it judges only what runs

    def test_systemd_calls_the_systems_unit_less_exposed_for_its_account_and_its_devices(tmp_path: Path) -> None:
        text = unit_text(PROGRAM)
        whole = analysed(tmp_path, text)
        for line in (
            "User=gridops-agent\n",
            "DevicePolicy=closed\n",
            "ProtectSystem=strict\n",
            "NoNewPrivileges=yes\n",
        ):
            without = text.replace(line, "")
            if line.startswith("Device"):
                without = re.sub(r"DeviceAllow=.*\n", "", without)
            assert analysed(tmp_path, without) > whole, line
        assert whole < 2.5, "OK is below 5"


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_lets_engines_live_and_gives_up_on_what_does_not_heal(name: str) -> None:
    lines = UNITS[name][0].splitlines()
    for line in (
        "Type=notify",
        "NotifyAccess=main",
        "KillMode=process",
        "OOMPolicy=continue",
        "WatchdogSec=60",
        "Restart=on-failure",
        "RestartPreventExitStatus=64 78",
        "UMask=0077",
        "LimitMEMLOCK=infinity",
        "NoNewPrivileges=yes",
    ):
        assert line in lines, line
    assert not any(line.startswith(("PrivateDevices", "MemoryDenyWriteExecute")) for line in lines), (
        "engines need their cards, and drivers compile code for them"
    )


def test_the_systems_unit_has_an_account_of_its_own_and_lets_cards_in_and_no_other_device() -> None:
    lines = unit_text(PROGRAM, "/srv/x", ("render", "video"), ("/dev/hisi_hdc", "/dev/davinci0")).splitlines()
    section = lines[lines.index("[Service]") :]
    for line in ("User=gridops-agent", "Group=gridops-agent", "SupplementaryGroups=render video", "HOME=/srv/x"):
        assert any(said.removeprefix("Environment=") == line for said in section), line
    assert section.count("DevicePolicy=closed") == 1
    allowed = [line.removeprefix("DeviceAllow=") for line in section if line.startswith("DeviceAllow=")]
    drivers = ["char-nvidia* rw", "char-drm rw", "char-kfd rw", "char-accel rw"]
    assert allowed == [*drivers, "/dev/davinci0 rw", "/dev/hisi_hdc rw"]
    alone = unit_text(PROGRAM, "/srv/x")
    assert "SupplementaryGroups" not in alone, "systemd starts nothing for a group that is not there"
    assert "User=" not in user_unit_text(PROGRAM, "/srv/x"), "a person's own manager knows that person alone"


def test_cards_without_a_drivers_name_are_found_and_a_plain_file_of_such_a_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "davinci0").write_text("")
    assert card_nodes(tmp_path) == ()
    (tmp_path / "hisi_hdc").symlink_to("/dev/null")
    assert card_nodes(tmp_path) == (str(tmp_path / "hisi_hdc"),)


def test_a_call_that_is_not_allowed_fails_and_kills_no_engine() -> None:
    lines = unit_text().splitlines()
    assert "SystemCallErrorNumber=EPERM" in lines
    assert "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK" in lines
    assert "StateDirectory=gridops-agent/default" in lines
    assert "Environment=TMPDIR=/var/lib/gridops-agent/default/tmp" in lines, "a private /tmp ends before engines do"
    assert "ReadWritePaths=/srv/x" in unit_text(PROGRAM, "/srv/x").splitlines()


def test_launchd_leaves_the_engines_alone() -> None:
    listed = plistlib.loads(plist_bytes("org.gridops.gridops-agent", ("/opt/a b/gridops-agent",), Path("/srv/x y")))
    assert listed["Label"] == "org.gridops.gridops-agent"
    assert listed["ProgramArguments"] == ["/opt/a b/gridops-agent", "run", "--state", "/srv/x y"]
    assert listed["AbandonProcessGroup"] is True
    assert listed["KeepAlive"] == {"SuccessfulExit": False}
    assert listed["RunAtLoad"] is True
    assert listed["Umask"] == 0o077


PLACES = {
    "root with systemd": ({}, Way.SYSTEM, "units/"),
    "a person with systemd": ({"root": False}, Way.USER, "home/.config/systemd/user/"),
    "a person without a session": ({"root": False, "runtime_dir": ""}, Way.NONE, ""),
    "no systemd": ({"systemd": False}, Way.NONE, ""),
    "root on macOS": ({"system": "darwin", "systemd": False}, Way.LAUNCHD, "daemons/org.gridops."),
    "a person on macOS": ({"system": "darwin", "root": False}, Way.LAUNCHD, "home/Library/LaunchAgents/org.gridops."),
}


@pytest.mark.parametrize("name", PLACES)
def test_each_machine_has_its_way(name: str, site: Site, tmp_path: Path) -> None:
    changes, way, where = PLACES[name]
    found = place(site.config, machine(tmp_path, ServiceManager(), **changes))
    assert found.way is way
    if way is Way.NONE:
        assert (found.file, bool(found.why)) == (None, True)
    else:
        assert str(found.file).startswith(str(tmp_path / where.rstrip("/")))


def test_a_service_of_the_system_is_given_its_folder_and_says_whose_it_is(site: Site, tmp_path: Path) -> None:
    closed = tmp_path / "models"
    closed.mkdir(mode=0o700)
    config = replace(site.config, artifact_folders=(closed,))
    here = machine(tmp_path, ServiceManager())
    where = place(config, here)
    told = "\n".join(install(where, config, Path(PROGRAM), here))
    assert "It runs as gridops-agent, whose the state folder is from now on." in told
    assert "cannot read" not in told
    assert where.file is not None
    assert "User=gridops-agent" in where.file.read_text()


def test_where_the_account_cannot_reach_its_folder_no_service_is_written(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Account("gridops-agent", os.geteuid() + 4_000, os.getegid() + 4_000)
    here = machine(tmp_path, ServiceManager(), account=lambda: stranger)
    where = place(site.config, here)
    site.state.parent.chmod(0o700)
    monkeypatch.setattr("gridops_agent.account.runs_from", lambda: (tmp_path / "gone",))
    with pytest.raises(Failed, match="cannot reach the program: it may not pass /"):
        install(where, site.config, Path(PROGRAM), here)
    monkeypatch.setattr("gridops_agent.account.runs_from", lambda: ())
    with pytest.raises(Failed, match="cannot reach the state folder: it may not pass") as caught:
        install(where, site.config, Path(PROGRAM), here)
    assert "--no-service" in caught.value.hints[1]
    assert where.file is not None
    assert not where.file.exists()


def test_two_hosts_on_one_machine_have_two_services(site: Site, tmp_path: Path) -> None:
    seen = machine(tmp_path, ServiceManager())
    other = replace(site.config, state=tmp_path / "elsewhere" / site.config.state.name)
    assert place(site.config, seen).name != place(other, seen).name
    assert place(replace(site.config, state=default_state()), seen).name == "gridops-agent"


@pytest.mark.parametrize("name", [name for name in PLACES if PLACES[name][1] is not Way.NONE])
def test_a_service_is_installed_stands_and_is_removed(name: str, site: Site, tmp_path: Path) -> None:
    manager = ServiceManager()
    here = machine(tmp_path, manager, **PLACES[name][0])
    where = place(site.config, here)
    assert not standing(where, here).installed
    told = "\n".join(install(where, site.config, Path(PROGRAM), here))
    assert "is enabled and runs" in told
    assert ("loginctl enable-linger ana" in told) is (where.way is Way.USER)
    assert standing(where, here).running
    assert (site.state / "tmp").stat().st_mode & 0o777 == 0o700
    assert "stopped and removed" in remove(where, here)
    assert not standing(where, here).installed
    assert "no service" in remove(where, here), "a second time is no trouble"


def test_a_service_that_does_not_run_is_not_believed(site: Site, tmp_path: Path) -> None:
    manager = ServiceManager(starts=False)
    here = machine(tmp_path, manager)
    where = place(site.config, here)
    with pytest.raises(Failed, match="does not run: failed, disabled") as caught:
        install(where, site.config, Path(PROGRAM), here)
    assert f"journalctl -u {where.name}" in caught.value.hints[0]
    manager.starts, manager.stops = True, False
    install(where, site.config, Path(PROGRAM), here)
    with pytest.raises(Failed, match="does not stop"):
        remove(where, here)
    assert where.file is not None
    assert where.file.exists(), "what still runs is not forgotten"


def test_a_person_whose_services_linger_is_not_told_so(site: Site, tmp_path: Path) -> None:
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / "ana").touch()
    here = machine(tmp_path, ServiceManager(), root=False)
    told = install(place(site.config, here), site.config, Path(PROGRAM), here)
    assert "linger" not in "\n".join(told)


@pytest.mark.parametrize(
    ("starts", "systemd", "says", "fine"),
    [
        (True, True, "is enabled and runs", True),
        (False, True, "The host has joined all the same", False),
        (True, False, "not started by systemd", True),
    ],
)
def test_join_ends_with_the_service_or_with_what_to_do(
    starts: bool,
    systemd: bool,
    says: str,
    fine: bool,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = machine(tmp_path, ServiceManager(starts=starts), systemd=systemd)
    monkeypatch.setattr(installing, "Machine", lambda: here)
    assert lifecycle.tell_start(site.config, no_service=False) is fine
    told = capsys.readouterr().out
    assert says in told
    assert (f"run --state {site.state}" in told) is not (fine and systemd)
    assert lifecycle.tell_start(site.config, no_service=True)
    assert "Start it:" in capsys.readouterr().out


def test_nothing_is_written_where_nobody_would_start_it(site: Site, tmp_path: Path) -> None:
    manager = ServiceManager()
    config: Config = site.config
    told = install(Place(Way.NONE, "x", why="because"), config, Path(PROGRAM), machine(tmp_path, manager))
    assert told[0] == "No service: because."
    assert manager.calls == []
