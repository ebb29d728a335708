"""Upgrade in place: an agent of newer code finds what an older one left, adopts its engines, and is not found by it.

The recorded ledgers were written by the agents of earlier states of this repository (`recorded/ledger-*.json`): two
warm residencies, one of them drained, an unload that was accepted and had no outcome, and four receipts. Paths of the
machine they were recorded on are replaced, and each row has the digest that its form prescribes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import BadSetup
from gridops.base.ids import Digest
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent import ledger_forms
from gridops_agent.core.state import Held
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity
from gridops_agent.status import status
from tests.agent.site import Site, command, done, held_of, pid_of, receipt, until

RECORDED = Path(__file__).with_name("recorded")
CORPORA = sorted(path.stem for path in RECORDED.glob("ledger-*.json"))


def digest(kind: str, key: str, value: str) -> str:
    """As every form so far prescribes it."""
    return "sha256:" + hashlib.sha256(b"\x00".join((kind.encode(), key.encode(), value.encode()))).hexdigest()


def written(name: str, path: Path) -> Identity:
    """The recorded ledger as a file; whose it is."""
    document = json.loads((RECORDED / f"{name}.json").read_text())
    database = sqlite3.connect(path)
    database.execute(document["table"])
    for kind, key, value, _ in document["rows"]:
        row = (kind, key, value.encode(), digest(kind, key, value))
        database.execute("INSERT INTO entry (kind, key, value, digest) VALUES (?, ?, ?, ?)", row)
    database.execute(f"PRAGMA user_version = {document['form']}")
    database.commit()
    database.close()
    (whose,) = (json.loads(row[2]) for row in document["rows"] if row[0] == "identity")
    return Identity(**whose)


@pytest.mark.parametrize("name", CORPORA)
def test_what_an_older_agent_remembered_is_remembered(name: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    identity = written(name, path)
    for _ in range(2):  # the second time it is of today's form
        ledger = Ledger.open(path, identity, (), 1)
        assert ledger.damage is None
        host = ledger.load("b")
        ledger.close()
        states = {held.replica: held.state for held in host.held.values()}
        assert states == {"tiny/1": ResidencyState.READY, "tiny/2": ResidencyState.DRAINING}
        assert all(h.handle is not None and h.handle.keeper == "child" for h in host.held.values())
        assert [r.outcome for r in host.receipts.kept] == [Outcome.SUCCEEDED] * 4
        assert [c.body.action.kind for c in host.commands.values()] == ["unload"]
        assert host.fence.head.seq == 5
    assert form_of(path) == ledger_forms.FORM


def test_there_are_corpora() -> None:
    assert CORPORA == ["ledger-before-0.1.0", "ledger-issue-2", "ledger-issue-3"]


def form_of(path: Path) -> int:
    database = sqlite3.connect(path)
    (form,) = database.execute("PRAGMA user_version").fetchone()
    database.close()
    return int(form)


def changed(path: Path, change: Callable[[sqlite3.Connection], Any]) -> bytes:
    database = sqlite3.connect(path)
    change(database)
    database.commit()
    database.close()
    return path.read_bytes()


def add_row(kind: str, key: str, value: str) -> Callable[[sqlite3.Connection], Any]:
    row = (kind, key, value.encode(), digest(kind, key, value))
    return lambda db: db.execute("INSERT INTO entry (kind, key, value, digest) VALUES (?, ?, ?, ?)", row)


NEWER = {
    "a higher form": lambda db: db.execute(f"PRAGMA user_version = {ledger_forms.FORM + 1}"),
    "a kind of row that is not known": add_row("dream", "x", "{}"),
    "a field that is not known": add_row("note", "x", '{"colour":"red","text":"y"}'),
}


@pytest.mark.parametrize("name", NEWER)
def test_a_newer_ledger_is_refused_with_words_and_nothing_of_it_is_touched(name: str, site: Site) -> None:
    before = changed(site.config.ledger, NEWER[name])
    with pytest.raises(BadSetup, match="was written by a newer agent") as caught:
        Ledger.open(site.config.ledger, site.identity, (), 1)
    assert "newer one; engines that run are not touched" in caught.value.hints[0]
    assert caught.value.exit_code == 78, "restarting would not help"
    assert site.config.ledger.read_bytes() == before
    assert list(site.state.glob("*aside*")) == []
    if name == "a higher form":
        with pytest.raises(BadSetup, match="newer agent"):
            status(site.config, running=False)


def test_a_row_that_nobody_wrote_so_is_damage_all_the_same(site: Site) -> None:
    row = ("note", "x", b'{"colour":"red"}', digest("note", "x", "another"))
    changed(site.config.ledger, lambda db: db.execute("INSERT INTO entry VALUES (?, ?, ?, ?)", row))
    ledger = Ledger.open(site.config.ledger, site.identity, (), 1)
    assert ledger.damage is not None
    ledger.close()


def test_steps_are_taken_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    identity = written(CORPORA[0], path)
    steps = (*ledger_forms.STEPS, ("CREATE TABLE extra (x)",), ("INSERT INTO extra VALUES (1)", "no such words"))
    monkeypatch.setattr(ledger_forms, "STEPS", steps)
    monkeypatch.setattr("gridops_agent.ledger.FORM", len(steps))
    monkeypatch.setattr("gridops_agent.ledger.migration", lambda form: ledger_forms.migration(form, len(steps)))
    before = json.loads((RECORDED / f"{CORPORA[0]}.json").read_text())["form"]
    database = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        database.executescript(ledger_forms.migration(before, len(steps)))
    database.close()
    assert form_of(path) == before
    good = (*steps[:-1], ("INSERT INTO extra VALUES (1)",))
    monkeypatch.setattr(ledger_forms, "STEPS", good)
    ledger = Ledger.open(path, identity, (), 1)
    assert ledger.damage is None
    ledger.close()
    assert form_of(path) == len(good)


async def test_newer_code_adopts_the_engines_of_older_code_with_their_pids(site: Site) -> None:
    """The ledger is written back to what form 1 knew, while the engine lives."""
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        await receipt(agent, body)
        pid = pid_of(agent, body)
    rewrite_as_form_1(site.config.ledger)
    async with site.agent() as agent:
        assert held_of(agent, body).state is ResidencyState.READY
        assert (pid_of(agent, body), held_of(agent, body).restarts) == (pid, 0)
        assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
    assert site.processes() == []


def rewrite_as_form_1(path: Path) -> None:
    """Take from every residency what its recorded form did not have."""
    document = json.loads((RECORDED / "ledger-issue-2.json").read_text())
    shape = next(json.loads(value) for kind, _, value, _ in document["rows"] if kind == "held")
    optional = {"code", "detail", "retry_at_ms"}

    def older(new: Any, old: Any) -> Any:
        if isinstance(new, dict) and isinstance(old, dict):
            return {k: older(v, old.get(k)) for k, v in sorted(new.items()) if k in old or k in optional}
        return new

    database = sqlite3.connect(path)
    rows = database.execute("SELECT key, value FROM entry WHERE kind = 'held'").fetchall()
    for key, value in rows:
        text = json.dumps(older(json.loads(value), shape), separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        database.execute(
            "UPDATE entry SET value = ?, digest = ? WHERE kind = 'held' AND key = ?",
            (text.encode(), digest("held", key, text), key),
        )
    database.execute("PRAGMA user_version = 1")
    database.commit()
    database.close()


async def test_an_agent_killed_in_the_middle_of_a_step_is_followed_by_one_of_newer_code(site: Site) -> None:
    """`kill -9` while an engine starts, an older ledger, a new agent: one process or none, never two."""
    pid = os.fork()
    if pid == 0:
        asyncio.run(dies_while_it_starts(site))
        os._exit(1)
    os.waitpid(pid, 0)
    rewrite_as_form_1(site.config.ledger)
    async with site.agent() as agent:
        watch = asyncio.ensure_future(agent.watch.run())
        site.seq, site.head = agent.memory.host.fence.head.seq, agent.memory.host.fence.head.body
        await until(lambda: not agent.memory.host.commands, "the command to be answered")
        assert len(site.processes()) == len(live(agent.memory.host.held)) <= 1
        watch.cancel()


def live(held: Any) -> list[Digest]:
    rows: list[Held] = list(held.values())
    return [row.body for row in rows if row.handle is not None]


async def dies_while_it_starts(site: Site) -> None:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        await until(lambda: body in live(agent.memory.host.held))
        os.kill(os.getpid(), signal.SIGKILL)
