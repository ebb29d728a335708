"""A person's word about a host: durable, over restarts and reboots, by a clock that no wall clock moves."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gridops.base.errors import Failed
from gridops.model.snapshot import HostState
from gridops_agent.clock import SystemClock
from gridops_agent.core.protection import Override, OverrideKind
from gridops_agent.ledger import Unwritable
from gridops_agent.overrides import NOTE_EVERY_MS, Overrides, Wish, say, stands, take_back
from tests.agent.site import Site, until
from tests.agent.test_yielding import running

PAUSE = Wish(OverrideKind.PAUSE, "mine", 3_600_000)
HOUR = 3_600_000


@dataclass
class Clock:
    """A machine whose time we move."""

    boot: str = "a"
    at_ms: int = 5_000
    wall: int = 1_000_000

    def wall_ms(self) -> int:
        return self.wall

    def boottime_ms(self) -> int:
        return self.at_ms

    def boot_id(self) -> str:
        return self.boot

    def reboot(self) -> None:
        self.boot, self.at_ms = self.boot + "x", 10


@dataclass
class Notes:
    """What the ledger keeps, and whether it takes anything."""

    kept: dict[str, str] = field(default_factory=dict)
    full: bool = False
    writes: int = 0

    def note(self, key: str) -> str | None:
        return self.kept.get(key)

    def keep_note(self, key: str, text: str) -> None:
        if self.full:
            raise Unwritable("full")
        self.kept[key] = text
        self.writes += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "override.json"


def test_nothing_said_is_nothing(path: Path) -> None:
    assert stands(path, None, Clock()) is None
    assert Overrides(path, Notes(), Clock()).now() is None
    assert not take_back(path)


def test_a_word_is_private_holds_and_can_be_taken_back(path: Path) -> None:
    clock = Clock()
    say(path, Wish(OverrideKind.DRAIN, "new fan"), clock)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    clock.at_ms += 400 * 24 * HOUR
    assert Overrides(path, Notes(), clock).now() == Override(OverrideKind.DRAIN, "new fan")
    say(path, Wish(OverrideKind.QUARANTINE, "smoke"), clock)
    assert stands(path, None, clock) == Override(OverrideKind.QUARANTINE, "smoke"), "the newest word holds"
    assert take_back(path)
    assert stands(path, None, clock) is None


def test_it_expires_by_the_time_since_boot_whatever_the_wall_clock_says(path: Path) -> None:
    clock, notes = Clock(), Notes()
    say(path, PAUSE, clock)
    view = Overrides(path, notes, clock)
    for wall in (0, 10**15, 5):
        clock.wall = wall
        assert view.now() == Override(OverrideKind.PAUSE, "mine", HOUR)
    clock.at_ms += HOUR - 1
    assert view.now() == Override(OverrideKind.PAUSE, "mine", 1)
    clock.at_ms += 1
    assert view.now() is None
    assert stands(path, notes, clock) is None


def test_after_a_reboot_it_goes_on_from_what_was_left_when_last_noted(path: Path) -> None:
    clock, notes = Clock(), Notes()
    say(path, PAUSE, clock)
    view = Overrides(path, notes, clock)
    for _ in range(30):
        view.now()
        clock.at_ms += 60_000
    clock.reboot()
    again = Overrides(path, notes, clock).now()
    assert again == Override(OverrideKind.PAUSE, "mine", HOUR - 29 * 60_000)
    clock.at_ms += 31 * 60_000
    assert Overrides(path, notes, clock).now() is None


def test_one_that_has_expired_stays_so_after_a_reboot(path: Path) -> None:
    clock, notes = Clock(), Notes()
    say(path, PAUSE, clock)
    view = Overrides(path, notes, clock)
    view.now()
    clock.at_ms += 2 * HOUR
    assert view.now() is None
    clock.reboot()
    assert Overrides(path, notes, clock).now() is None


def test_with_no_agent_running_time_passes_all_the_same(path: Path) -> None:
    clock = Clock()
    say(path, PAUSE, clock)
    clock.at_ms += HOUR // 2
    assert stands(path, Notes(), clock) == Override(OverrideKind.PAUSE, "mine", HOUR // 2)


def test_a_note_about_an_earlier_word_says_nothing_about_this_one(path: Path) -> None:
    clock, notes = Clock(), Notes()
    say(path, PAUSE, clock)
    view = Overrides(path, notes, clock)
    view.now()
    clock.at_ms += 2 * HOUR
    assert view.now() is None
    say(path, PAUSE, clock)
    assert view.now() == Override(OverrideKind.PAUSE, "mine", HOUR)


def test_what_is_left_is_noted_seldom_and_never_for_a_word_without_end(path: Path) -> None:
    clock, notes = Clock(), Notes()
    say(path, PAUSE, clock)
    view = Overrides(path, notes, clock)
    for _ in range(600):
        view.now()
        clock.at_ms += 1_000
    assert notes.writes == 600_000 // NOTE_EVERY_MS
    say(path, Wish(OverrideKind.DRAIN, "fan"), clock)
    view.now()
    assert notes.writes == 600_000 // NOTE_EVERY_MS


def test_a_ledger_that_takes_nothing_prolongs_a_word_and_never_ends_it(path: Path) -> None:
    clock, notes = Clock(), Notes(full=True)
    say(path, PAUSE, clock)
    view = Overrides(path, notes, clock)
    assert view.now() is not None
    clock.at_ms += HOUR // 2
    assert view.now() == Override(OverrideKind.PAUSE, "mine", HOUR // 2)
    clock.reboot()
    assert view.now() == Override(OverrideKind.PAUSE, "mine", HOUR)


@pytest.mark.parametrize("content", [b"", b"{", b'{"kind":"pause"}', b"\xff" * 20_000, b"[]"])
def test_a_word_that_cannot_be_read_counts_as_the_strictest(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    found = Overrides(path, Notes(), Clock()).now()
    assert found is not None
    assert found.kind is OverrideKind.QUARANTINE
    assert found.reason.startswith("override_damaged: ")
    assert take_back(path)


def test_a_word_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    with pytest.raises(Failed):
        say(tmp_path / "nowhere" / "override.json", PAUSE, Clock())


def test_the_machine_s_own_clocks_do_not_go_back_and_name_one_boot() -> None:
    clock = SystemClock()
    before = clock.boottime_ms()
    assert clock.boottime_ms() >= before
    assert clock.boot_id() == SystemClock().boot_id() != ""


async def test_a_running_agent_follows_a_word_and_another_run_of_it_finds_it(site: Site) -> None:
    async with running(site) as agent:
        say(site.config.override, Wish(OverrideKind.QUARANTINE, "smoke", HOUR), SystemClock())
        await until(lambda: agent.memory.host.state is HostState.QUARANTINED)
        assert agent.memory.host.reasons[0].startswith("local_override: quarantine by a person: smoke")
    async with running(site) as agent:
        assert agent.memory.host.state is HostState.QUARANTINED, "before anybody was let in"
        take_back(site.config.override)
        await until(lambda: agent.memory.host.state is HostState.ACCEPTING)
        await asyncio.sleep(0)
