"""What the lab must notice: one promise broken at a time, and a few seeds of which one has to see it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base import canon
from gridops.controller import planning
from gridops.controller.core import apply, propose
from gridops.lab import disk, host, work
from gridops.lab.options import draw
from gridops.lab.run import run
from gridops.protocol import outbox
from gridops.protocol.messages import GrantMode
from gridops.trust.approval import judge

SEEDS = range(1, 41)


def found(*rules: str) -> bool:
    """Whether one of the seeds breaks one of these rules."""
    for seed in SEEDS:
        broken = run(draw(seed)).broken
        if broken is not None and broken.split(":")[0] in rules:
            return True
    return False


def test_acting_before_the_intent_is_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each memory is acted upon at once, and written only with the next one."""
    late: dict[int, Any] = {}

    def write(self: disk.Ledger, memory: Any) -> None:
        self.kept = late.get(id(self), self.kept)
        late[id(self)] = memory
        if self._dice.happens(self.crash_ppm):
            raise disk.Crashed(False)

    monkeypatch.setattr(disk.Ledger, "write", write)
    assert found("S2", "S3", "S4", "S5", "S6", "S11", "L1")


def test_a_start_beside_the_process_of_before_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work.Work, "_gone", lambda self, body: True)
    assert found("S1", "S2", "S3")


def test_a_restart_that_adopts_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.LabHost, "_look_for", lambda self, body: host.Found(gone=True))
    assert found("S1", "S2", "S3")


def test_a_journal_that_lets_an_old_writer_write_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: disk.Journal, rows: Any, term: Any) -> int:
        self._platter.rows.extend((row.at_ms, term, row.kind, canon.dumps(row.value)) for row in rows)
        fate = self._fate()
        if fate is not None:
            raise disk.Crashed(fate)
        return len(self._platter.rows)

    monkeypatch.setattr(disk.Journal, "append", append)
    assert found("S5")


def test_memory_that_is_free_as_soon_as_a_start_was_withdrawn_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_(self: outbox.Entry) -> bool:
        return self.wanted is GrantMode.EXECUTE and (self.receipt is None or not self.receipt.final)

    monkeypatch.setattr(outbox.Entry, "open", property(open_))
    assert found("S1", "S6", "L1", "L5")


def test_an_open_command_that_is_carried_out_again_after_a_start_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = host.LabHost._begin

    def again(self: host.LabHost) -> None:
        left = tuple(self.ledger.kept.commands)
        begin(self)
        for body in left:
            self.work = work.Work(self)
            held = self.host.held.get(body)
            if held is not None:
                self.processes.spawn(body, held.warm.device_bytes)

    monkeypatch.setattr(host.LabHost, "_begin", again)
    assert found("S1", "S2", "S3")


def test_an_approval_that_is_over_and_counts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(approvals: Any, *, now_ms: int, **rest: Any) -> Any:
        return judge(approvals, now_ms=now_ms - 1_000, **rest)

    monkeypatch.setattr(apply, "judge", early)
    assert found("S10")


def test_a_target_that_follows_another_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are no longer judged by what was in force when they were made."""
    made = propose.inputs

    def stale(*given: Any) -> Any:
        found = made(*given)
        return None if found is None else replace(found, parent=None)

    monkeypatch.setattr(planning, "inputs", stale)
    assert found("S10", "S15", "S7", "L1")
