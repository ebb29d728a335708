"""Which commands follow: limits, back-off, what is believed of a success, and destructive work that was withdrawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gridops.base.ids import ConfigName, DeviceId, Digest, EngineName, HostId, ProfileName, ReplicaId
from gridops.base.limits import RESIDENCIES_PER_HOST
from gridops.controller import views
from gridops.controller.core.learned import learn_terms
from gridops.controller.core.rows import BodyVoided
from gridops.controller.core.state import Attempt, HostBook
from gridops.model.action import Drain, Load, Operate, Unload, Warm
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, ArtifactFile, Restart
from gridops.model.snapshot import HostState, ResidencyState
from gridops.protocol import outbox as ob
from tests.controller.fleet import AUTOMATIC, DEFAULT, HOSTS, POLICIES, SHA, Desk, Fleet, mode, profile

WIDE = mode("{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, rollout, rebalance, remove]}}")


def started(fleet: Fleet, **files: str) -> Desk:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, **files})
    desk = Desk(fleet)
    desk.beat()
    desk.beat()
    return desk


THREE = f"{HOSTS}  gamma: {{domains: {{rack: up}}, devices: {{cpu0: {{kind: cpu, memory: 3GiB}}}}}}\n"


def three(fleet: Fleet, *, ready: Sequence[str] = ("coder/1", "coder/2", "coder/3"), **files: str) -> Desk:
    """A replica on each of three hosts, and everything is done by itself."""
    fleet.agents["gamma"] = fleet._agent("gamma")
    fleet.begin(hosts=THREE, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=3), **files})
    desk = Desk(fleet)
    desk.settle(14)
    assert desk.ready() == list(ready)
    return desk


def open_kinds(desk: Desk) -> list[str]:
    return sorted(e.body.action.kind for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox))


def held(desk: Desk) -> str:
    return "\n".join(views.status(desk.controller.view()).scopes[0].held)


def slow(desk: Desk, *kinds: str) -> None:
    for agent in desk.fleet.agents.values():
        agent.room.slow |= set(kinds)


def finish(desk: Desk, *kinds: str) -> None:
    for agent in desk.fleet.agents.values():
        for kind in kinds:
            agent.room.slow.discard(kind)
            agent.finish(kind)


def test_one_artifact_is_fetched_by_two_hosts_at_most_and_the_concurrent_limit_holds(fleet: Fleet) -> None:
    budgets = POLICIES["policies/budgets.yaml"].replace("concurrent: 4", "concurrent: 1")
    desk = started(fleet, **{"policies/budgets.yaml": budgets, "profiles.d/coder.yaml": profile(replicas=2)})
    slow(desk, "load")
    desk.settle(3)
    assert open_kinds(desk) == ["load"]
    assert "1 of 1 command under way" in held(desk)
    finish(desk, "load")
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    desk.controller.close()


def test_loads_of_the_same_artifact_wait_for_each_other(fleet: Fleet) -> None:
    budgets = POLICIES["policies/budgets.yaml"].replace("per_device: 1", "per_device: 1, loads_per_artifact: 1")
    desk = started(fleet, **{"policies/budgets.yaml": budgets, "profiles.d/coder.yaml": profile(replicas=2)})
    slow(desk, "load")
    desk.settle(3)
    assert open_kinds(desk) == ["load"]
    assert "fetching the same artifact" in held(desk)
    finish(desk, "load")
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    desk.controller.close()


@pytest.mark.parametrize("most", [1, 2])
def test_a_host_fetches_no_more_at_once_than_it_may(fleet: Fleet, most: int) -> None:
    del fleet.agents["beta"]
    alone = "\n".join(line for line in HOSTS.splitlines() if "beta" not in line)
    budgets = POLICIES["policies/budgets.yaml"].replace("per_device: 1", f"per_device: 1, transfers_per_host: {most}")
    other = profile("spare", sha=f"sha256:{'cd' * 32}")
    more = {"profiles.d/spare.yaml": other, "policies/budgets.yaml": budgets, "policies/mode.yaml": AUTOMATIC}
    fleet.begin(hosts=alone, **more)
    desk = Desk(fleet)
    slow(desk, "load")
    desk.settle(4)
    assert open_kinds(desk) == ["load"] * most
    assert ("1 transfer to the host is under way" in held(desk)) == (most == 1)
    finish(desk, "load")
    desk.settle()
    assert desk.ready() == ["coder/1", "spare/1"]
    desk.controller.close()


def test_one_command_at_a_time_on_a_device(fleet: Fleet) -> None:
    desk = started(fleet, **{"profiles.d/other.yaml": profile("other", sha="sha256:" + "cd" * 32)})
    for agent in desk.fleet.agents.values():
        agent.room.cached |= {"sha256:" + "ab" * 32, "sha256:" + "cd" * 32}
    slow(desk, "warm")
    desk.settle(3)
    for host in desk.state.hosts.values():
        warm = [e for e in ob.open_entries(host.outbox) if isinstance(e.body.action, Warm)]
        assert len(warm) <= 1
    finish(desk, "warm")
    desk.settle()
    assert desk.ready() == ["coder/1", "other/1"]
    desk.controller.close()


BACKOFF = {1: 30_000, 2: 60_000, 3: 120_000, 7: 1_920_000, 8: 3_600_000, 40: 3_600_000}


@pytest.mark.parametrize("failures", sorted(BACKOFF))
def test_back_off_doubles_up_to_an_hour(failures: int) -> None:
    assert Attempt(failures, 1_000).wait_until_ms == 1_000 + BACKOFF[failures]


def test_a_failing_load_backs_off_per_kind_host_and_profile_and_leaves_others_alone(fleet: Fleet) -> None:
    desk = started(fleet, **{"profiles.d/other.yaml": profile("other", sha="sha256:" + "cd" * 32)})
    failing = {}
    for name, agent in desk.fleet.agents.items():
        agent.room.cached.add("sha256:" + "cd" * 32)
        agent.room.fails["load"] = "wrong_digest"
        failing[name] = agent
    desk.settle(10)
    loads = [k for _, k, _ in desk.executed() if k == "load"]
    assert len(loads) == 1
    assert desk.ready() == ["other/1"]
    assert "failed 1 time (wrong_digest)" in held(desk)
    desk.clock.pass_by(30_000)
    desk.settle(2)
    assert len([k for _, k, _ in desk.executed() if k == "load"]) == 2
    desk.controller.close()


def test_back_off_survives_a_restart(fleet: Fleet) -> None:
    desk = started(fleet)
    for agent in desk.fleet.agents.values():
        agent.room.fails["load"] = "wrong_digest"
    desk.settle(4)
    tries = len(desk.executed())
    desk.restart()
    desk.settle(6)
    assert len(desk.executed()) == tries
    desk.controller.close()


def test_a_refusal_that_says_not_now_is_tried_again_without_back_off(fleet: Fleet) -> None:
    """The device changed between look and act; the next look is enough."""
    desk = started(fleet)
    for agent in desk.fleet.agents.values():
        agent.room.fails["load"] = "precondition"
    desk.settle(2)
    for agent in desk.fleet.agents.values():
        agent.room.fails.clear()
    desk.settle(4)
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_a_success_is_believed_until_a_later_heartbeat_shows_it(fleet: Fleet) -> None:
    """Reports that lag behind the receipt do not make the step be given again, for two minutes at most."""
    desk = started(fleet)
    slow(desk, "load")
    desk.settle(2)
    agent = next(a for a in desk.fleet.agents.values() if a.open)
    lagging = agent.inventory()
    finish(desk, "load")
    agent.inventory = lambda: lagging  # type: ignore[method-assign]

    def loads() -> int:
        return sum(isinstance(e.body.action, Load) for e in desk.state.hosts[agent.host].outbox.entries)

    desk.settle(30, step_ms=3_000)
    assert loads() == 1
    assert "has not yet reported its last step" in held(desk)
    desk.settle(20, step_ms=3_000)
    assert loads() == 2
    desk.controller.close()


def test_nothing_is_sent_to_a_host_that_is_silent(fleet: Fleet) -> None:
    desk = started(fleet)
    desk.pass_()
    host = next(h for h, b in desk.state.hosts.items() if ob.open_entries(b.outbox))
    other = next(n for n in desk.fleet.agents if n != host)
    for _ in range(20):
        desk.clock.pass_by(1_000)
        desk.beat(other)
        desk.pass_()
    assert desk.fleet.agents[host].executed == []
    desk.controller.close()


def test_a_paused_host_gets_nothing_new(fleet: Fleet) -> None:
    desk = started(fleet)
    for agent in desk.fleet.agents.values():
        agent.room.state = HostState.PAUSED
        agent.room.bump()
    desk.settle(4)
    assert desk.executed() == []
    desk.controller.close()


def test_a_transfer_that_nobody_wants_any_more_is_stopped(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    slow(desk, "load")
    desk.settle(3)
    assert open_kinds(desk) == ["load"]
    wide_last = WIDE.replace("remove]", "remove], last_replica: [coder]")
    desk.commit({"policies/mode.yaml": wide_last, "profiles.d/coder.yaml": profile(replicas=0)})
    desk.settle(4)
    assert open_kinds(desk) == []
    assert desk.ready() == []
    desk.controller.close()


def test_a_drain_withdrawn_too_late_blocks_further_destructive_work_on_its_profile(fleet: Fleet) -> None:
    """The host got the drain and has not answered; the commit is taken back: no second drain until it has."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    slow(desk, "drain")
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.settle(3)
    assert open_kinds(desk) == ["drain"]
    victim = next(h for h, b in desk.state.hosts.items() if ob.open_entries(b.outbox))
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(2)
    drains = [e for b in desk.state.hosts.values() for e in b.outbox.entries if isinstance(e.body.action, Drain)]
    assert len(drains) == 1
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.settle(3)
    drains = [e for b in desk.state.hosts.values() for e in b.outbox.entries if isinstance(e.body.action, Drain)]
    assert [e.body.host for e in drains] == [victim]
    desk.controller.close()


def test_the_same_step_is_not_repeated_within_its_cooldown(fleet: Fleet) -> None:
    """The engine vanished and the host says so: the second start waits for the cooldown."""
    budgets = POLICIES["policies/budgets.yaml"].replace("cooldown: 0s", "cooldown: 60s")
    desk = started(fleet, **{"policies/budgets.yaml": budgets})
    desk.settle(6)
    assert desk.ready() == ["coder/1"]
    for agent in desk.fleet.agents.values():
        agent.room.residencies.clear()
        agent.room.bump()
    desk.settle(4)
    assert len([k for _, k, _ in desk.executed() if k == "warm"]) == 1
    desk.clock.pass_by(60_000)
    desk.settle(3)
    assert len([k for _, k, _ in desk.executed() if k == "warm"]) == 2
    desk.controller.close()


def test_a_drain_that_became_unsafe_is_taken_back_with_all_of_its_profile(fleet: Fleet) -> None:
    """The survivor broke after the drain was queued and before the host heard of it: nothing is drained."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.pass_()
    assert open_kinds(desk) == ["drain"]
    victim = next(h for h, b in desk.state.hosts.items() if ob.open_entries(b.outbox))
    survivor = next(n for n in desk.fleet.agents if n != victim)
    room = desk.fleet.agents[survivor].room
    room.residencies = {k: replace(v, state=ResidencyState.FAILED) for k, v in room.residencies.items()}
    room.bump()
    desk.beat(survivor)
    desk.controller.reconcile(DEFAULT)
    desk.beat(victim)
    assert [k for _, k, _ in desk.executed() if k == "drain"] == []
    assert "coder" in desk.fleet.agents[victim].replicas().popitem()[0]
    desk.controller.close()


def test_with_one_end_that_is_not_wanted_any_more_all_of_its_profile_are_taken_back(fleet: Fleet) -> None:
    """What changed for one of them may not be known yet for the others; what is still wanted is decided anew."""
    desk = three(fleet)
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.pass_()
    asked = [(h, e.body.seq) for h, b in desk.state.hosts.items() for e in ob.open_entries(b.outbox)]
    assert len(asked) == 2
    heard, broken = desk.controller.soft.hosts, asked[0][0]
    failed = tuple(replace(x, state=ResidencyState.FAILED) for x in heard[broken].report.residencies)
    heard[broken] = replace(heard[broken], report=replace(heard[broken].report, residencies=failed))
    desk.controller.reconcile(DEFAULT)
    entries = {(h, e.body.seq): e for h, b in desk.state.hosts.items() for e in b.outbox.entries}
    assert [entries[at].wanted.value for at in asked] == ["void", "void"]
    desk.settle()
    assert len(desk.ready()) == 1
    desk.controller.close()


def test_nothing_but_a_fetch_begins_beside_a_command_that_this_controller_has_forgotten(fleet: Fleet) -> None:
    """It may hold memory on any device of its host until its final receipt."""
    desk = started(fleet)
    desk.settle()
    for book in desk.state.hosts.values():
        book.outbox = replace(book.outbox, unknown=(ob.Unknown(seq=1, body=Digest("sha256:" + "0" * 64)),))
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert "waits for 1 command there that this controller has forgotten" in held(desk)
    assert [k for _, k, _ in desk.executed()].count("load") == 2
    assert desk.ready() == ["coder/1"]
    for book in desk.state.hosts.values():
        book.outbox = replace(book.outbox, unknown=())
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    desk.controller.close()


def test_an_end_that_was_taken_back_blocks_the_next_of_its_profile_until_its_host_says_what_became_of_it(
    fleet: Fleet,
) -> None:
    """However long that takes: it may have been carried out, and its host takes nobody's turn while it is silent."""
    budgets = POLICIES["policies/budgets.yaml"].replace("concurrent: 4", "concurrent: 1")
    desk = three(fleet, **{"policies/budgets.yaml": budgets})
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.pass_()
    (asked,) = [(h, e.body.seq) for h, b in desk.state.hosts.items() for e in ob.open_entries(b.outbox)]
    gone, seq = asked
    others = [name for name in fleet.agents if name != gone]
    desk.controller.commit((BodyVoided(host=gone, seq=seq, why="a person was quick"),), desk.now)
    desk.clock.pass_by(16_000)
    for _ in range(3):
        desk.beat(*others)
        desk.controller.reconcile(DEFAULT)
    assert [k for _, k, _ in desk.executed() if k == "drain"] == []
    assert f"on {gone} was withdrawn and has not answered" in held(desk)
    desk.beat()
    desk.settle()
    assert len(desk.ready()) == 1, "with the answer it goes on"
    desk.controller.close()


def test_an_end_that_was_taken_back_blocks_no_start_of_its_profile_and_no_end_of_another(fleet: Fleet) -> None:
    """Its host is silent for good, and what only adds or is about other models goes on."""
    roomy = POLICIES["policies/budgets.yaml"].replace("per_device: 1", "per_device: 4")
    other = {"profiles.d/other.yaml": profile("other", replicas=3), "policies/budgets.yaml": roomy}
    desk = three(fleet, **other, ready=[f"{name}/{n}" for name in ("coder", "other") for n in (1, 2, 3)])
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.pass_()
    (asked,) = [(h, e.body.seq) for h, b in desk.state.hosts.items() for e in ob.open_entries(b.outbox)]
    gone, seq = asked
    others = [name for name in fleet.agents if name != gone]
    desk.controller.commit((BodyVoided(host=gone, seq=seq, why="a person was quick"),), desk.now)
    desk.commit({"profiles.d/other.yaml": profile("other", replicas=1)})
    room = fleet.agents[others[0]].room
    lost = next(k for k, v in room.residencies.items() if v.profile == "coder")
    room.residencies = {k: v for k, v in room.residencies.items() if k != lost}
    room.bump()
    before = desk.executed()
    for _ in range(24):
        desk.clock.pass_by(1_000)
        desk.beat(*others)
        desk.pass_()
    done = {(kind, replica.partition("/")[0]) for _, kind, replica in Counter(desk.executed()) - Counter(before)}
    assert ("warm", "coder") in done
    assert ("drain", "other") in done
    assert ("drain", "coder") not in done
    desk.controller.close()


@pytest.mark.parametrize("how", ["it was silent", "the controller was away"])
def test_a_host_that_comes_back_takes_nothing_away_on_what_was_seen_before(fleet: Fleet, how: str) -> None:
    """A drain was queued while two served; its host hears of it only after the other one is gone for good."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.pass_()
    assert open_kinds(desk) == ["drain"]
    victim = next(h for h, b in desk.state.hosts.items() if ob.open_entries(b.outbox))
    if how == "it was silent":
        for _ in range(20):
            desk.clock.pass_by(1_000)
            desk.pass_()
    else:
        desk.controller.close()
        desk.clock.pass_by(3_600_000)
        desk.start()
    for _ in range(6):
        desk.clock.pass_by(500)
        desk.beat(victim)
        desk.pass_()
    assert [k for _, k, _ in desk.executed() if k == "drain"] == []
    desk.settle()
    assert desk.ready() == ["coder/1"], "once both are heard again, it goes on"
    desk.controller.close()


def test_a_renamed_and_changed_replica_lets_its_former_self_go(fleet: Fleet) -> None:
    """The old process goes by the old name to its end: it is its successor's decision, and no last replica."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    desk.settle()
    desk.clock.pass_by(25 * 3_600_000)  # the authority of the first plan has ended
    renamed = profile("writer", context=4096) + "renamed_from: coder\n"
    desk.commit({"profiles.d/coder.yaml": None, "profiles.d/writer.yaml": renamed})
    desk.settle(16)
    assert desk.ready() == ["writer/1"], held(desk)
    desk.controller.close()


def test_a_renamed_last_replica_still_needs_its_name(fleet: Fleet) -> None:
    """A new name is no way around: the profile goes in the commit after the one that renamed and changed it."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    desk.settle()
    renamed = profile("writer", context=4096) + "renamed_from: coder\n"
    desk.commit({"profiles.d/coder.yaml": None, "profiles.d/writer.yaml": renamed})
    slow(desk, "warm")
    desk.settle(3)
    desk.commit({"profiles.d/writer.yaml": None})
    desk.settle(6)
    assert "coder/1" in desk.ready(), held(desk)
    desk.controller.close()


def test_what_a_running_process_acts_by_is_known_however_many_came_and_went_beside_it() -> None:
    """A host holds 256 residencies at most: what was unloaded is forgotten first, then what was told longest ago."""
    book = HostBook(ob.new_outbox(Digest("sha256:" + "0" * 64), HostId("alpha"), "ed25519:" + "0" * 64), 0)
    old = Digest("sha256:" + "f" * 64)
    learn_terms(book, warm("coder"), old)
    for n in range(2 * RESIDENCIES_PER_HOST):
        body = Digest(f"sha256:{n:064x}")
        learn_terms(book, warm("other"), body)
        gone = Unload(
            host=HostId("alpha"), replica=ReplicaId("other/1"), profile=ProfileName("other"), incarnation=body
        )
        learn_terms(book, gone, Digest("sha256:" + "e" * 64))
    assert list(book.terms) == [old]
    for n in range(RESIDENCIES_PER_HOST - 1):
        learn_terms(book, warm("other"), Digest(f"sha256:{n:064x}"))
    told = Operate(
        host=HostId("alpha"),
        replica=ReplicaId("coder/1"),
        profile=ProfileName("coder"),
        incarnation=old,
        serves=("coder", "writer"),
        restart=Restart(),
        drain_ms=1,
    )
    learn_terms(book, told, Digest("sha256:" + "d" * 64))
    learn_terms(book, warm("other"), Digest("sha256:" + "c" * 64))
    assert len(book.terms) == RESIDENCIES_PER_HOST
    assert book.terms[old].serves == ("coder", "writer"), "what was told lately stays"
    assert Digest(f"sha256:{0:064x}") not in book.terms, "the 257th pushes out what was told longest ago"


def warm(name: str) -> Warm:
    launch = Launch(
        profile=ProfileName(name),
        config=ConfigName("q4"),
        engine=EngineName("llama.cpp"),
        backend="cpu",
        artifact=Artifact(format="gguf", files=(ArtifactFile(path="m.gguf", sha256=Digest(SHA), size_bytes=1),)),
        context=1,
        lanes=1,
    )
    return Warm(
        host=HostId("alpha"),
        replica=ReplicaId(f"{name}/1"),
        profile=ProfileName(name),
        launch=launch,
        devices=(DeviceId("cpu0"),),
        device_bytes=1,
        host_bytes=0,
        serves=(name,),
        restart=Restart(),
        drain_ms=1,
        warm_ms=1,
    )


def test_a_stop_that_nobody_wants_any_more_is_not_called_withdrawn(fleet: Fleet) -> None:
    """It was delivered and cannot be taken back: the next one of its profile waits, and the words say for what."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    slow(desk, "drain")
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.settle(3)
    (going,) = [e for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox)]
    desk.commit({"profiles.d/coder.yaml": None})
    desk.commit({"policies/mode.yaml": WIDE.replace("remove]", "remove], last_replica: [coder]")})
    host = desk.fleet.agents[going.body.host]
    host.room.residencies = {k: v for k, v in host.room.residencies.items() if k != going.body.action.incarnation}
    host.room.bump()
    desk.settle(4)
    assert f"drain of coder/2 on {host.host} is not wanted any more and may still be carried out" in held(desk)
    assert "withdrawn" not in held(desk)
    desk.controller.close()
