"""What the lab must notice: one promise broken at a time, and a few seeds of which one has to see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gridops.controller import lineage, models, planning
from gridops.controller.core import apply, catalogs, fold, progress, propose, roster, rows
from gridops.controller.core.disrupted import Service
from gridops.controller.core.state import State
from gridops.controller.service import Controller
from gridops.controller.writer import Writer
from gridops.footprint import ledger
from gridops.lab import disk, host, strikes, work
from gridops.lab.options import Options, calm, draw, draw_talk
from gridops.lab.run import run
from gridops.model.snapshot import ResidencyState
from gridops.planner import actions, check, targets
from gridops.planner import signed as signed_by
from gridops.planner.budgets import Circumstances
from gridops.protocol import fence, outbox
from gridops.protocol.messages import GrantMode
from gridops.trust import line, release
from gridops.trust.approval import judge
from gridops.trust.commit import signed_by as signed_by_key
from gridops.trust.root import RoleName
from gridops_agent import front_table
from gridops_agent.core import heart, local
from tests.lab.test_seeds import robbed

SEEDS = 40


def found(*rules: str, of: Callable[[int], Options] = draw, first: int = 1) -> bool:
    """Whether one of the seeds, from the first on, breaks one of these rules."""
    for seed in range(first, first + SEEDS):
        broken = run(of(seed)).broken
        if broken is not None and broken.split(":")[0] in rules:
            return True
    return False


def cramped(seed: int) -> Options:
    """Little room on many hosts, and models that change often: nobody can start before somebody has gone."""
    few = replace(calm(draw(seed)), hosts=5, profiles=3, host_mib=1000, lying=0, laptops=0, beat_ms=2_000)
    return replace(few, automatic=True, cooldown_ms=0, disruptions=1, commit_every_ms=20_000, rollouts_ppm=500_000)


def changing(seed: int) -> Options:
    """Room for two of everything, and models that change often."""
    return replace(cramped(seed), hosts=2, profiles=2, host_mib=3072, disruptions=0, commit_every_ms=60_000)


def overtaken(seed: int) -> Options:
    """Controllers fall asleep at their writing and wake beside their successors."""
    return replace(draw_talk(seed), controller_crash_ppm=60_000, zombie_ppm=800_000)


def crashing(seed: int) -> Options:
    """Agents that die often, on machines that stay up."""
    return replace(draw_talk(seed), agent_crash_ppm=60_000, reboot_every_ms=0, restore_every_ms=0)


def tardy(seed: int) -> Options:
    """People whose word is over before it arrives."""
    return replace(draw(seed), automatic=False, late_approval_ppm=500_000, hosts=2, profiles=1)


def signed(seed: int) -> Options:
    """People have signed what may run, and commit more than that."""
    return replace(draw(seed), catalog=True, rollouts_ppm=500_000, hosts=2, automatic=True)


def doubled(seed: int) -> Options:
    """Controllers wake and are heard beside their successors, and a thief makes of grants what he likes."""
    often = replace(draw(seed), zombie_ppm=900_000, controller_crash_ppm=30_000, hosts=2, automatic=True)
    return replace(often, twins_ppm=1_000_000, forger_ppm=200_000, commit_every_ms=20_000)


def pushed(seed: int) -> Options:
    """Somebody may push and somebody has the controller's key, and both offer what was good once."""
    few = replace(draw(seed), hosts=1, profiles=1, catalog=True, rollouts_ppm=0, signed_commits=True)
    return replace(few, pusher_every_ms=15_000, renew_every_ms=30_000, thief_ppm=300_000)


def divided(seed: int) -> Options:
    """Two scopes, each with a host and a model of its own."""
    return replace(draw(seed), scopes=2, hosts=2, profiles=2, automatic=True)


def asked(seed: int) -> Options:
    """Callers ask often, of models that change often."""
    return replace(changing(seed), ask_every_ms=200, apply_after_ms=1_000)


def lying(seed: int) -> Options:
    """One host says that it has twice its memory, and it is needed."""
    return replace(draw(seed), hosts=1, profiles=4, host_mib=1000, lying=1, automatic=True)


def losing(seed: int) -> Options:
    """Hosts fall silent with commands under way, and people give them up."""
    few = replace(draw(seed), hosts=3, profiles=2, lying=0, laptops=0, scopes=1, commit_every_ms=20_000)
    return replace(few, lose_every_ms=25_000, chaos_ms=150_000)


def older(seed: int) -> Options:
    """The journal is an older copy of itself now and then, in a fleet that changes."""
    few = replace(draw(seed), hosts=2, profiles=2, lying=0, scopes=1, commit_every_ms=20_000, chaos_ms=150_000)
    steady = replace(few, clock_step_every_ms=0, freeze_every_ms=0, zombie_ppm=0, lose_every_ms=0)
    return replace(steady, restore_every_ms=30_000, automatic=True)


def braked(seed: int) -> Options:
    """What serves is taken out of service again and again, by nobody's word."""
    return replace(draw_talk(seed), hosts=1, stops_ppm=400_000)


def rekeyed(seed: int) -> Options:
    """Hosts take another key again and again, while they are commanded."""
    few = replace(draw(seed), hosts=2, profiles=2, lying=0, commit_every_ms=20_000, chaos_ms=120_000, lose_every_ms=0)
    return replace(few, rekey_every_ms=10_000)


def foreseen(seed: int) -> Options:
    """Hosts with room, and forecasts that are wrong ten times over."""
    few = replace(calm(draw(seed)), hosts=4, profiles=2, host_mib=3072, lying=0, laptops=0, scopes=1, chaos_ms=60_000)
    return replace(few, forecast_every_ms=5_000, lose_every_ms=0)


def test_acting_before_the_intent_is_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each memory is acted upon at once, and written only with the next one."""
    late: dict[int, Any] = {}

    def write(self: disk.Ledger, memory: Any) -> None:
        self.kept = late.get(id(self), self.kept)
        late[id(self)] = memory
        if self._dice.happens(self.crash_ppm):
            raise strikes.Crashed(False)

    monkeypatch.setattr(disk.Ledger, "write", write)
    assert found("S2", "S3", "S4", "S5", "S6", "S11", "L1")


def test_a_start_beside_the_process_of_before_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work.Work, "_gone", lambda self, body: True)
    assert found("S1", "S2", "S3")


def test_a_restart_that_adopts_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.LabHost, "_look_for", lambda self, body: host.Found(gone=True))
    assert found("S1", "S2", "S3", of=crashing)


def test_a_journal_that_lets_an_old_writer_write_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: disk.Journal, rows: Any, term: Any) -> int:
        self._platter.rows.extend((row.at_ms, term, row.kind, row.raw) for row in rows)
        fate = self._fate()
        if fate is not None:
            raise strikes.Crashed(fate)
        return len(self._platter.rows)

    monkeypatch.setattr(disk.Journal, "append", append)
    assert found("S5", of=overtaken)


def test_memory_that_is_free_as_soon_as_a_start_was_withdrawn_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_(self: outbox.Entry) -> bool:
        return self.wanted is GrantMode.EXECUTE and (self.receipt is None or not self.receipt.final)

    monkeypatch.setattr(outbox.Entry, "open", property(open_))
    assert found("S1", "S6", of=draw_talk)


def test_memory_that_is_free_after_a_while_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that nobody has heard of for fifteen seconds is taken to have failed."""
    read, seen = Controller.now, [0]

    def now(self: Controller) -> int:
        seen[0] = read(self)
        return seen[0]

    def open_(self: outbox.Entry) -> bool:
        settled = self.receipt is not None and self.receipt.final
        return not settled and seen[0] - self.created_ms < 15_000

    monkeypatch.setattr(Controller, "now", now)
    monkeypatch.setattr(outbox.Entry, "open", property(open_))
    assert found("S1", "S6", of=draw_talk)


def test_a_command_that_leaves_before_it_is_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows become durable a few at a time, and what they say is acted upon at once."""
    flush = Writer.flush

    def lazily(self: Writer) -> None:
        if not self.whole and len(self._buffer) >= 6:
            flush(self)

    monkeypatch.setattr(Writer, "flush", lazily)
    assert found("S5", "S6", "S11", "L4", of=draw_talk)


def test_numbers_that_begin_anew_with_each_controller_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    began = fold._STEPS[rows.Started]

    def anew(state: State, row: rows.Started, at_ms: int) -> None:
        began(state, row, at_ms)
        for book in state.hosts.values():
            old = book.outbox
            fresh = outbox.new_outbox(old.fleet, old.host, old.host_key)
            book.outbox = replace(fresh, acked_rseq=old.acked_rseq, receipt_prev=old.receipt_prev)

    monkeypatch.setitem(fold._STEPS, rows.Started, anew)
    assert found("S5", "S6", "S11", "L4", of=draw_talk)


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
    assert found("S1", "S2", "S3", of=crashing)


def test_an_approval_that_is_over_and_counts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(approvals: Any, *, now_ms: int, **rest: Any) -> Any:
        return judge(approvals, now_ms=now_ms - 1_000, **rest)

    monkeypatch.setattr(apply, "judge", early)
    assert found("S10", of=tardy)


def test_a_target_that_follows_another_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are no longer judged by what was in force when they were made."""
    made = propose.inputs

    def stale(*given: Any) -> Any:
        found = made(*given)
        return None if found is None else replace(found, parent=None)

    monkeypatch.setattr(planning, "inputs", stale)
    assert found("S10", "S15", "S7", "L1")


def test_disruptions_that_are_counted_anew_in_each_pass_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    count = propose.circumstances

    def anew(*given: Any) -> Circumstances:
        return replace(count(*given), disrupted=())

    monkeypatch.setattr(propose, "circumstances", anew)
    monkeypatch.setattr(Service, "crowded", lambda *_: None)  # it would still be noticed where the stop is queued
    assert found("S8", of=cramped, first=6)


def test_memory_that_is_believed_beyond_what_is_declared_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger of what the file says and what the host says."""
    monkeypatch.setattr(ledger, "min", max, raising=False)
    assert found("S1", "S15", of=lying)


def test_a_drain_that_waits_for_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions._Work, "_may_not_go", lambda self, host, residency: None)
    assert found("S7", of=changing)


@pytest.mark.parametrize("deaf", [1, 4])
def test_what_nobody_signed_is_noticed(deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planner, checker, controller and host each ask by themselves, and each that is left to ask is enough."""
    rooms = [
        (signed_by, "starts", None),
        (check, "catalogued", ()),
        (catalogs, "starts", None),
        (fence, "starts", None),
    ]
    for room, name, answer in rooms[:deaf]:
        monkeypatch.setattr(room, name, lambda *given, said=answer: said)
    assert found("S15" if deaf == 1 else "S9", of=signed)


def test_a_branch_that_goes_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies between is followed, and nobody asks whether what is in force is behind the tip."""

    def between(checkout: Any, base: Any, tip: Any) -> Any:
        return checkout.first_parents(tip, 500, f"^{base}")

    monkeypatch.setattr(lineage, "commits_between", between)
    assert found("S12", of=pushed)


def test_a_commit_that_nobody_signed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "signed_by", lambda commit, chain, ahead=None: chain.root.role(RoleName.CHANGE).keys[0])
    assert found("S12", of=pushed)


def test_a_commit_that_is_judged_by_its_own_tree_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents that a commit brings say who may sign it."""
    monkeypatch.setattr(line, "signed_by", lambda commit, chain, ahead: signed_by_key(commit, ahead))
    assert found("S12", of=pushed)


def test_a_host_that_obeys_an_earlier_term_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "term_refused", lambda *given: None)
    assert found("S4", of=doubled)


def test_an_older_catalog_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has seen a newer one takes what comes all the same."""
    monkeypatch.setattr(release, "demanded", lambda known, chain: chain.root.catalog or 0)
    assert found("S12", of=pushed)


def test_a_plan_that_reaches_into_another_scope_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host is shown to every scope, the planner takes it for its own, and nobody checks."""
    reckoned, make = propose.reckoned, planning.make_plan

    def wide(question: Any, *rest: Any) -> Any:
        desired = question.intent.desired
        hosts = tuple(replace(host, scope=question.scope) for host in desired.hosts)
        return make(replace(question, intent=replace(question.intent, desired=replace(desired, hosts=hosts))), *rest)

    monkeypatch.setattr(propose, "reckoned", lambda *given: reckoned(*given[:3], None, *given[4:]))
    monkeypatch.setattr(planning, "make_plan", wide)
    monkeypatch.setattr(planning, "check", lambda *given, **named: ())
    assert found("S10", of=divided)


def test_a_front_that_lets_callers_in_while_it_drains_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    route = front_table._route

    def open_(*given: Any) -> Any:
        found = route(*given)
        return None if found is None else replace(found, admitting=True)

    monkeypatch.setattr(front_table, "_route", open_)
    assert found("S14", of=asked)


def test_a_status_that_calls_what_drains_ready_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = models._standing

    def ready(*given: Any) -> Any:
        return {
            replica: [(host, replace(residency, state=ResidencyState.READY)) for host, residency in found]
            for replica, found in standing(*given).items()
        }

    monkeypatch.setattr(models, "_standing", ready)
    assert found("S14", of=asked)


def test_a_key_that_was_expunged_and_speaks_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def admitted(self: roster.Roster, host: Any) -> Any:
        return self.keys.get(host) if host in self.hosts else None

    monkeypatch.setattr(roster.Roster, "admitted", admitted)
    assert found("S6", of=losing, first=15)


def test_a_status_that_leads_callers_to_who_was_expunged_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lately(soft: Any, roster: Any, host: Any, now_ms: int) -> bool:
        heard, beat = soft.hosts.get(host), roster.desired.planning.heartbeat
        return heard is not None and now_ms - heard.report.observed_ms <= beat.stale_after_ms

    monkeypatch.setattr(models, "fresh", lately)
    assert found("S14", of=lambda seed: replace(losing(seed), ask_every_ms=500), first=15)


def test_an_apply_that_waits_for_who_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "parted", lambda state, host: False)
    assert found("L1", of=losing, first=15)


def test_writing_a_host_off_and_forgetting_what_it_was_asked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what it does by then, and it comes back."""
    write_off = fold._STEPS[rows.WrittenOff]

    def forgets(state: State, row: rows.WrittenOff, at_ms: int) -> None:
        write_off(state, row, at_ms)
        book = state.hosts[row.host]
        book.outbox = replace(book.outbox, entries=())

    monkeypatch.setitem(fold._STEPS, rows.WrittenOff, forgets)
    assert found("S1", "S5", "S6", "L1", "L4", of=losing, first=15)


def test_a_journal_that_is_older_than_its_hosts_and_goes_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes over what hosts know, and never says that it had forgotten: what it decided is on nobody's word."""
    monkeypatch.setitem(fold._STEPS, rows.Distrusted, lambda state, row, at_ms: None)
    assert found("S1", "S5", "S6", "S7", "S10", "L1", "L4", of=older, first=12)


def test_a_head_that_an_older_journal_does_not_take_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "relearn", lambda known, heartbeat, term=None: replace(known, obeyed=heartbeat.term))
    assert found("S1", "S5", "S6", "L1", "L4", of=older)


def test_demand_that_goes_beyond_what_a_file_allows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    of = targets.Sizes.of

    def unbounded(self: targets.Sizes, profile: Any, *given: Any) -> Any:
        return of(self, replace(profile, replicas_max=99), *given)

    monkeypatch.setattr(targets.Sizes, "of", unbounded)
    assert found("S15", of=foreseen)


def test_a_host_that_asks_for_no_approval_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "_with_authority", lambda *given: None)
    assert found("S13", of=robbed)


def test_a_host_that_asks_for_no_catalog_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "_in_catalog", lambda *given: None)
    monkeypatch.setattr(local, "_catalogued", lambda *given: None)
    assert found("S13", of=robbed)


def test_a_host_that_begins_what_does_not_fit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "room", lambda *given: None)
    assert found("S1", "S13", of=robbed)


def test_a_host_that_does_not_ask_whether_a_device_has_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_moved_on", lambda *given: None)
    assert found("S13", of=robbed)


def test_a_refusal_for_now_that_uses_up_a_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another command by a number that was decided is taken for the next one."""

    def next_one(known: Any, grant: Any) -> fence.Ruling:
        body = replace(grant.body, seq=known.head.seq + 1)
        return fence.Execute(grant, fence._consume(known, replace(grant, body=body)))

    monkeypatch.setattr(fence, "_decided_before", next_one)
    assert found("S3", "S5", "S11", "S13", "fault", of=robbed)


def test_a_host_without_a_brake_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_braked", lambda *given: None)
    assert found("S8", of=braked)


def test_a_host_that_forgets_with_its_key_what_runs_on_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take = heart.anew.rekeyed
    monkeypatch.setattr(heart.anew, "rekeyed", lambda host, key: replace(take(host, key), held=MappingProxyType({})))
    assert found("S2", of=rekeyed)


def test_numbers_that_go_on_under_another_key_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands for the former key are sent on, and the host obeys none of them."""
    seen = fold._STEPS[rows.HostSeen]

    def goes_on(state: State, row: rows.HostSeen, at_ms: int) -> None:
        before = state.hosts.get(row.host)
        seen(state, row, at_ms)
        if before is not None:
            state.hosts[row.host].outbox = replace(before.outbox, host_key=row.host_key)

    monkeypatch.setitem(fold._STEPS, rows.HostSeen, goes_on)
    assert found("S5", "S6", "S11", "L1", "L4", "fault", of=rekeyed)
