"""A fault of our own in one piece of work: what was in force stays, people are told, and the loop goes on.

The real loop with its listener, in this process, so that a test can break the planner or git and mend it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gridops.base.ids import CommitId, ScopeName
from gridops.base.record import to_data
from gridops.cli import status as screen
from gridops.controller import intake, planning, shell, views
from gridops.controller.clock import MachineClock
from gridops.controller.core import rows as r
from gridops.controller.core.modes import drains, permitted
from gridops.controller.faults import FIRST_AGAIN_MS, LAST_AGAIN_MS, Faults
from gridops.controller.http import Listen
from gridops.controller.service import Controller, Opening, state_dir
from gridops.controller.shell import Options, Shell
from gridops.files.git import Checkout
from gridops.files.trusted import root_texts
from gridops.model.policy import Mode
from tests.controller.fleet import AUTOMATIC, DEFAULT, OBSERVE, Desk, Fleet, mode, profile
from tests.controller.watching import now_ms

DRAIN = "apiVersion: gridops/v1\nkind: Drain\nhost: alpha\nreason: smoke\n"
TOKEN = "gj1.aaaaaaaabbbbbbbbccccccccdddd"


class Running:
    """A loop that runs while a test asks."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        checkout = Checkout(fleet.path)
        roots = root_texts(checkout.tree(checkout.head("main")))
        self.controller = Controller(Opening(state_dir(fleet.state), roots, MachineClock()))
        self.shell = Shell(self.controller, checkout, Options(Listen("127.0.0.1", 0), interval_s=0.1))

    async def until(self, what: str, question: Callable[[], object], seconds: float = 20.0) -> None:
        """Hosts speak every now and then, and the answer becomes true."""
        async with asyncio.timeout(seconds):
            while not question():
                assert not self.shell.stop.is_set(), f"the loop ended before {what}"
                for agent in self.fleet.agents.values() if self.commit else ():
                    agent.talk(lambda beat: self.controller.beat(beat).directive, now_ms())
                self.shell.changed()
                await asyncio.sleep(0.1)

    def ready(self) -> list[str]:
        return sorted(r for a in self.fleet.agents.values() for r, s in a.replicas().items() if s == "ready")

    def screen(self) -> str:
        document = to_data(views.status(self.controller.view()))
        return "\n".join(screen.lines(document, now_ms(), None, wide=False))

    @property
    def commit(self) -> str | None:
        accepted = self.controller.state.accepted
        return None if accepted is None else accepted.commit


def run(fleet: Fleet, story: Callable[[Running], Awaitable[None]]) -> int:
    async def main() -> int:
        running = Running(fleet)
        loop = asyncio.create_task(running.shell.run())
        try:
            await story(running)
        finally:
            running.shell.end(0)
            code = await loop
        return code

    return asyncio.run(main())


@pytest.fixture
def real(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path, now_ms=now_ms() - 60_000)
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    return fleet


def test_while_planning_is_broken_the_last_good_plan_stays_and_the_rest_goes_on(
    real: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*asked: object) -> None:
        raise ValueError(f"no such board {TOKEN}")

    async def story(it: Running) -> None:
        await it.until("the first replica is ready", lambda: it.ready() == ["coder/1"])
        target = it.controller.state.scope(DEFAULT).target
        with monkeypatch.context() as breaking:
            breaking.setattr(planning, "make_plan", broken)
            made = real.commit({"profiles.d/coder.yaml": profile(replicas=2)})
            await it.until("the fault is shown", lambda: "planning scope default met a fault" in it.screen())
            await it.until("commits are read", lambda: it.commit == made)
            assert it.controller.state.scope(DEFAULT).target == target
            assert f"alarm: {_alarm(it)}" in it.screen()
            report = real.state / "reports/fault-planning-scope-default.txt"
            assert str(report) in it.screen()
            assert "ValueError: no such board gj1." in report.read_text()
            assert TOKEN not in report.read_text(), "a report is made to be sent to somebody"
            done = it.controller.outcomes[DEFAULT]
            await it.until("it is carried out further", lambda: it.controller.outcomes[DEFAULT] is not done)
            request = real.request("freeze", now_ms(), reason="look", scope=ScopeName("default"))
            assert (await it.shell.planning.operator(request))["verb"] == "freeze", "the kill switch has no lock on it"
            assert it.ready() == ["coder/1"]
            await it.shell.planning.operator(real.request("thaw", now_ms(), scope=ScopeName("default")))
        real.commit({"profiles.d/coder.yaml": profile(replicas=2, context=2048) + "\n"})
        await it.until("it is planned again at once", lambda: it.ready() == ["coder/1", "coder/2"], FIRST_AGAIN_MS)
        assert "met a fault" not in it.screen()

    assert run(real, story) == 0


def test_while_git_is_broken_what_was_accepted_stays_in_force(real: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    async def story(it: Running) -> None:
        await it.until("the first replica is ready", lambda: it.ready() == ["coder/1"])
        before = it.commit
        with monkeypatch.context() as breaking:
            breaking.setattr(shell.intake, "tip", broken)
            await it.until("the fault is shown", lambda: "looking at the repository met a fault" in it.screen())
            assert "the repository could not be read: a fault of gridops (UnicodeDecodeError)" in it.screen()
            real.commit({"profiles.d/coder.yaml": profile(replicas=2)})
            await asyncio.sleep(0.5)
            assert it.commit == before
            died = next(a for a in real.agents.values() if a.replicas())
            assert it.controller.state.scope(DEFAULT).target is not None
            assert died.replicas() == {"coder/1": "ready"}
        await it.until("it goes on from the newest commit", lambda: it.ready() == ["coder/1", "coder/2"])
        assert "a fault of gridops" not in it.screen()

    assert run(real, story) == 0


def test_a_commit_that_breaks_the_reader_is_passed_over(real: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, poison = intake._read, set[str]()

    def breaking(checkout: Checkout, commit: object, *more: object) -> object:
        if commit in poison:
            raise RecursionError("maximum recursion depth exceeded")
        return reading(checkout, commit, *more)  # type: ignore[arg-type]

    async def story(it: Running) -> None:
        await it.until("the first replica is ready", lambda: it.ready() == ["coder/1"])
        before = it.commit
        monkeypatch.setattr(shell.intake, "_read", breaking)
        real.write({"profiles.d/coder.yaml": profile(replicas=2)})
        real.git("add", "-A")
        real.git("commit", "-q", "-m", "poison", "--date", "2026-01-01T00:00:00Z")
        # Made and named in one step of the loop, so nothing has read it in between.
        poison.add(real.git("rev-parse", "HEAD"))
        await it.until("the fault is shown", lambda: "reading the newest commit met a fault" in it.screen())
        assert it.commit == before
        after = real.commit({"profiles.d/spare.yaml": profile("spare", 0) + "\n"})
        await it.until("the next commit is in force", lambda: it.commit == after)
        assert "a fault of gridops" not in it.screen()

    assert run(real, story) == 0


def test_a_commit_that_breaks_the_reader_still_tightens(real: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode and drains are read by themselves and first: the kill switch has no lock on it."""

    def broken(tree: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    async def story(it: Running) -> None:
        await it.until("the first replica is ready", lambda: it.ready() == ["coder/1"])
        before = it.commit
        with monkeypatch.context() as breaking:
            breaking.setattr(intake, "check", broken)
            made = real.commit({"policies/mode.yaml": OBSERVE, "fleet.d/drains/alpha.yaml": DRAIN}, "stop")
            await it.until("the fault is shown", lambda: "reading the newest commit met a fault" in it.screen())
            await it.until("its mode holds", lambda: "default   observe" in it.screen())
            assert f"the refused commit {made[:8]} is stricter" in it.screen()
            assert f'commit {made[:7]} "stop" is REFUSED' in it.screen()
            assert [d.host for d in drains(it.controller.state)] == ["alpha"]
            assert it.commit == before
            rows = it.controller.view().rows
            await asyncio.sleep(0.5)
            assert it.controller.view().rows - rows < 20, "the same word of it is journalled once"
        await it.until("it is in force as soon as it can be read", lambda: it.commit == made)
        assert "REFUSED" not in it.screen()
        assert "a fault of gridops" not in it.screen()

    assert run(real, story) == 0


def test_a_mode_file_that_breaks_the_reader_is_one_that_nobody_can_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    made = desk.fleet.commit({"policies/mode.yaml": mode("{mode: automatic, automatic: {allow: [repair]}}")})

    def broken(tree: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(intake, "load_tightening", broken)
    monkeypatch.setattr(intake, "check", broken)
    with pytest.raises(intake.Unread) as unread:
        intake.look(desk.checkout, CommitId(made), desk.controller.base())
    desk.controller.tightened(unread.value.found)
    assert permitted(desk.state, DEFAULT, desk.now).mode.mode is Mode.RECOMMEND


def test_a_fault_that_leaves_the_journal_behind_the_memory_ends_the_loop(
    real: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(self: Controller, scope: ScopeName) -> None:
        self.writer.record((r.AlarmRaised(key="half", text="half of it"),), self.now())
        raise KeyError("the other half")

    monkeypatch.setattr(Controller, "reconcile", half)

    async def main() -> None:
        running = Running(real)
        async with asyncio.timeout(20):
            await running.shell.run()

    with pytest.raises(KeyError, match="the other half"):
        asyncio.run(main())
    checkout = Checkout(real.path)
    roots = root_texts(checkout.tree(checkout.head("main")))
    again = Controller(Opening(state_dir(real.state), roots, MachineClock()))
    assert "half" not in again.state.alarms, "what was not durable never was"
    again.close()


def test_a_fault_that_stays_is_tried_less_often_and_with_something_new_at_once(tmp_path: Path) -> None:
    faults = Faults(tmp_path)
    waits = []
    at = 0
    for _ in range(12):
        faults.met("planning", ValueError("x"), "a", (at, at))
        step = next(s for s in range(1_000, 400_000, 1_000) if not faults.waits("planning", "a", at + s))
        waits.append(step)
        assert not faults.waits("planning", "b", at + 1)
        assert not faults.waits("writing", "a", at + 1)
        at += step
    assert waits[0] == FIRST_AGAIN_MS
    assert waits == sorted(waits)
    assert waits[-1] == LAST_AGAIN_MS
    ((_, fault),) = faults.standing()
    assert fault.since_ms == 0, "since when, not how lately"
    assert [p.name for p in (tmp_path / "reports").iterdir()] == ["fault-planning.txt"], "one file, however often"
    faults.over("planning")
    assert faults.standing() == ()


def test_a_report_that_cannot_be_written_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "reports").write_text("in the way")
    text = Faults(tmp_path).met("planning", ValueError("boom"), None, (0, 0))
    assert text.endswith("no report could be written, the log has it")
    assert "boom" in caplog.text


def _alarm(it: Running) -> str:
    return next(a.text for a in views.status(it.controller.view()).alarms if a.key == "fault:planning scope default")
