"""A ledger whose writing is cut off or answered wrongly: whole or as before, and never empty and confident."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType

import pytest

from gridops.base.errors import BadSetup
from gridops.base.ids import DeviceId
from gridops.disk import failpoint
from gridops_agent.core.state import Count, Host
from gridops_agent.ledger import Ledger, Unwritable
from gridops_agent.statefolder import spare_roots
from tests.agent.site import Site, command, receipt


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoint.arm(None)


def opened(site: Site) -> Ledger:
    return Ledger.open(site.config.ledger, site.identity, spare_roots(site.config), 1_796_000_000_000)


def in_a_child(work: Callable[[], object]) -> int:
    """Its exit code; 0 when the work came to its end."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def spoilt(site: Site) -> None:
    site.config.ledger.write_bytes(b"not a database at all" * 300)


STEPS = [
    *("aside.rename.ledger.sqlite:1:kill", "aside.rename.ledger.sqlite:1:killed"),
    *("ledger.migrate:1:kill", "ledger.migrate:1:killed"),
    *("ledger.commit:1:kill", "ledger.commit:1:killed", "ledger.create:1:kill", "ledger.create:1:killed"),
]


@pytest.mark.parametrize("step", STEPS)
def test_a_damaged_ledger_stays_known_as_damaged_whenever_setting_it_aside_is_cut_off(site: Site, step: str) -> None:
    def cut() -> None:
        failpoint.arm(step)
        opened(site)

    spoilt(site)
    assert in_a_child(cut) == -signal.SIGKILL
    for _ in range(2):
        ledger = opened(site)
        assert ledger.damage is not None, "a host that forgot what it forgot would be confident"
        assert ledger.load("again").roots == (site.chain.text,)
        ledger.close()
    kept = [f for f in site.state.glob("ledger.sqlite.damaged-*") if not f.name.endswith(".why")]
    assert len(kept) == 1
    assert kept[0].read_bytes().startswith(b"not a database")
    assert str(kept[0]) == ledger.damage.aside


@pytest.mark.parametrize("step", STEPS[2:])
def test_a_first_ledger_is_there_whole_or_not_at_all(site: Site, step: str) -> None:
    path = site.config.ledger
    path.unlink()

    def cut() -> None:
        failpoint.arm(step)
        Ledger.create(path, site.identity, (site.chain.text,))

    assert in_a_child(cut) == -signal.SIGKILL
    if step != "ledger.create:1:killed":
        assert not path.exists()
        with pytest.raises(BadSetup, match="this host has not joined"):
            opened(site)
        Ledger.create(path, site.identity, (site.chain.text,)).close()
    ledger = opened(site)
    assert ledger.damage is None
    assert ledger.load("b").roots == (site.chain.text,)
    ledger.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [f.name for f in site.state.iterdir() if f.name.startswith(".")] == []


def test_the_log_of_a_ledger_that_is_gone_is_not_read_into_the_next_one(site: Site) -> None:
    ledger = opened(site)
    ledger.keep_note("front", "old")
    log = site.config.ledger.with_name("ledger.sqlite-wal").read_bytes()
    ledger.close()
    spoilt(site)
    set_aside = site.config.ledger.with_name("ledger.sqlite.damaged-20261130T000000Z")
    site.config.ledger.rename(set_aside)
    site.config.ledger.with_name("ledger.sqlite-wal").write_bytes(log)
    ledger = opened(site)
    assert ledger.damage is not None
    assert ledger.note("front") is None
    ledger.close()
    assert set_aside.with_name(set_aside.name + "-wal").read_bytes() == log, "kept beside what it belongs to"


async def test_a_step_that_was_written_and_called_failed_is_taken_back_by_the_next_one(site: Site) -> None:
    """Else the disk would know of a command that the host has never accepted."""
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        host = agent.memory.host
    ledger = opened(site)
    loaded = ledger.load(host.boot)
    more = with_count(loaded, "gpu7", 1)
    failpoint.arm("ledger.commit:1:unknown")
    with pytest.raises(Unwritable):
        ledger.write(loaded, more)
    assert "gpu7" in ledger.load("b").counts, "it is on the disk"
    other = with_count(loaded, "gpu8", 2)
    ledger.write(loaded, other)
    ledger.close()
    ledger = opened(site)
    found = ledger.load(host.boot)
    ledger.close()
    assert found.counts == other.counts
    for name in ("roots", "fence", "receipts", "last_word", "brake", "commands", "held", "guesses"):
        assert getattr(found, name) == getattr(loaded, name), name
    assert found.chain.fleet == loaded.chain.fleet


def with_count(host: Host, device: str, generation: int) -> Host:
    return replace(host, counts=MappingProxyType({**host.counts, DeviceId(device): Count(generation=generation)}))
