"""The lab's disks beside the real ones: the same calls give the same answers, and the same is there after a restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.ids import HostId
from gridops.lab.disk import Journal as LabJournal
from gridops.lab.disk import Platter
from gridops.lab.host import CPU0
from gridops.lab.identity import newborn, signer_of
from gridops.lab.people import Keys
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops.store.errors import StaleWriter
from gridops.store.face import Rows
from gridops.store.journal import Entry, Journal
from gridops.trust.root import genesis
from gridops_agent.core.events import Measured
from gridops_agent.core.heart import step
from gridops_agent.ledger import Identity, Ledger


@pytest.fixture(params=["real", "lab"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Rows]:
    platter = Platter()
    if request.param == "real":
        return lambda: Journal.open(tmp_path / "j")
    return lambda: LabJournal(platter, lambda: None)


def test_a_journal_keeps_rows_under_the_newest_term_and_refuses_an_older_one(opens: Callable[[], Rows]) -> None:
    one = opens()
    term = one.take_term(1)
    assert one.append([Entry("a", 5, {"x": 1}), Entry("b", 6, [])], term) == 2
    other = opens()
    newer = other.take_term(1)
    assert newer.rank > term.rank
    with pytest.raises(StaleWriter):
        one.append([Entry("c", 7, None)], term)
    assert other.append([Entry("d", 8, "text")], newer) == 3
    again = opens()
    rows = [(row.n, row.at_ms, row.term.counter, row.kind, row.value) for row in again.replay(1)]
    assert rows == [(2, 6, term.counter, "b", []), (3, 8, newer.counter, "d", "text")]
    assert again.take_term(1, above=40).counter == 41
    again.save_snapshot(3, {"state": True})
    saved = opens().latest_snapshot()
    assert saved is not None
    assert (saved.n, saved.value) == (3, {"state": True})


def test_a_ledger_keeps_what_the_lab_takes_to_be_durable(tmp_path: Path) -> None:
    keys, name = Keys.made(), HostId("alpha")
    signer, chain = signer_of(name), genesis(keys.root)
    identity = Identity(fleet=chain.fleet, host=name, host_key=signer.public.text)
    ledger = Ledger.create(tmp_path / "ledger", identity, (keys.root,))
    before = ledger.load("one")
    assert replace(before, boot="") == newborn(name, signer, chain, keys.root)
    device = DeviceReport(id=CPU0, kind=DeviceKind.CPU, total_bytes=1 << 30, generation=0)
    after = step(before, Measured((device,)), 5).host
    assert after.generation(CPU0) > before.generation(CPU0)
    ledger.write(before, after)
    ledger.close()
    kept = Ledger.open(tmp_path / "ledger", identity, (keys.root,), 0).load("two")
    assert kept == replace(after, boot="two", measured=())
