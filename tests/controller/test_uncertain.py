"""A command whose host cannot say how it ended: it holds what it may hold until an inventory or a person says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId, ReplicaId, ScopeName
from gridops.base.record import to_data
from gridops.cli.status_host import doubts
from gridops.controller import views
from gridops.controller.core.going import Going
from gridops.controller.core.observe import reckoned
from gridops.controller.core.state import HostBook, Uncertain
from gridops.controller.core.uncertain import ID_CHARS, id_of, proofs
from gridops.model.action import Action, Drain, Evict, Operate, Unload
from gridops.model.policy import ActionClass
from gridops.model.profile import Restart
from gridops.model.snapshot import HostState, Residency, ResidencyState
from gridops.protocol.messages import Inventory, Outcome, Transfer
from gridops.protocol.outbox import new_outbox
from tests.controller.fleet import POLICIES, Desk, Fleet, profile
from tests.controller.replayed import same
from tests.controller.scripted_agent import _running
from tests.controller.test_reconcile import WIDE, held, slow, started
from tests.protocol import build as b

HOUR = 3_600_000


def unclear(fleet: Fleet, *, shows: ResidencyState | None) -> tuple[Desk, HostId]:
    """A start of which the host says that it does not know; what it still shows of it, and whose host that is."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    slow(desk, "warm")
    desk.settle(6)
    agent = next(a for a in desk.fleet.agents.values() if a.open)
    ((body, (of, _)),) = agent.open.items()
    if shows is not None:
        agent.room.residencies[body] = replace(_running(of.action, body, desk.now), state=shows)
        agent.room.bump()
    agent.finish("warm", Outcome.UNKNOWN, "agent_fault")
    agent.room.fails["unload"] = "release_stuck"
    desk.beat()
    return desk, agent.host


def test_what_nobody_knows_of_holds_its_turn_and_its_memory_for_as_long_as_it_takes(fleet: Fleet) -> None:
    desk, host = unclear(fleet, shows=ResidencyState.FAILED)
    starts = len([k for _, k, _ in desk.executed() if k == "warm"])
    for _ in range(4):
        desk.clock.pass_by(6 * HOUR)
        desk.settle(4)
    assert desk.state.hosts[host].uncertain, "a day is no proof"
    assert len([k for h, k, _ in desk.executed() if k == "warm" and h == host]) == starts, (
        "nothing is tried again there"
    )
    (line,) = doubts(to_data(next(h for h in views.status(desk.controller.view()).hosts if h.host == host)))
    assert line.startswith(f"nobody knows what became of warm coder/1 on {host}: gridops reconcile-outcome ")
    same(desk)
    desk.controller.close()


def test_nothing_is_fetched_again_while_nobody_knows_what_became_of_the_fetch(fleet: Fleet) -> None:
    """The host has more files than a heartbeat lists: that it does not name these proves nothing."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    slow(desk, "load")
    desk.settle(4)
    agent = next(a for a in desk.fleet.agents.values() if a.open)
    agent.room.cached |= set(CROWD)
    agent.finish("load", Outcome.UNKNOWN, "agent_fault")
    for _ in range(4):
        desk.clock.pass_by(6 * HOUR)
        desk.settle(4)
    assert [k for h, k, _ in desk.executed() if h == agent.host] == ["load"]
    assert f"nobody knows what became of load coder/1 on {agent.host} (gridops reconcile-outcome " in held(desk)
    desk.controller.close()


def test_what_nobody_knows_of_keeps_its_turn_from_others_in_a_pass_too(fleet: Fleet) -> None:
    budgets = POLICIES["policies/budgets.yaml"].replace("concurrent: 4", "concurrent: 1")
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "policies/budgets.yaml": budgets})
    slow(desk, "load")
    desk.settle(4)
    agent = next(a for a in desk.fleet.agents.values() if a.open)
    agent.room.cached |= set(CROWD)
    agent.finish("load", Outcome.UNKNOWN, "agent_fault")
    desk.beat()
    desk.commit({"profiles.d/other.yaml": profile("other", sha="9" * 64)})
    desk.settle(4)
    assert [k for _, k, _ in desk.executed()] == ["load"]
    assert "other/1: load on" in held(desk)
    assert "1 of 1 command under way" in held(desk)
    desk.controller.close()


def test_what_nobody_knows_of_keeps_the_turn_that_it_had() -> None:
    for action, heard, counts in ((WARM, True, (1, 0)), (b.load(), True, (1, 1)), (b.load(), False, (0, 0))):
        going = Going(ScopeName("default"), lambda _, heard=heard: heard)
        going.keep(b.HOST, book(action).uncertain.values())
        beside = going.beside(b.load(), repair=False)
        assert (beside.in_scope, beside.fetching[b.HOST]) == counts
        assert going.beside(b.load(), repair=True).in_scope == 0, "repair waits for repair alone"


def test_memory_of_a_start_that_the_host_does_not_show_is_counted_while_nobody_knows(fleet: Fleet) -> None:
    """It fell silent with the very word that it does not know: no later inventory says anything."""
    desk, host = unclear(fleet, shows=None)
    (known,) = desk.state.hosts[host].uncertain.values()
    report = next(
        r
        for r in reckoned(desk.state, desk.controller.soft, desk.controller.roster, None, desk.now).hosts
        if r.host == host
    )
    (promised,) = [x for x in report.residencies if x.incarnation == known.body]
    assert promised.device_bytes > 0
    assert promised.detail == "nobody knows what became of it"
    desk.controller.close()


def test_the_next_inventory_shows_that_a_start_came_to_nothing_and_it_is_tried_again(fleet: Fleet) -> None:
    desk, host = unclear(fleet, shows=None)
    assert desk.state.hosts[host].uncertain
    for agent in desk.fleet.agents.values():
        agent.room.slow.discard("warm")
    desk.beat(host)
    assert not desk.state.hosts[host].uncertain
    assert any("failed after all: the host holds nothing of it" in line for line in desk.events("receipt"))
    desk.clock.pass_by(HOUR)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    same(desk)
    desk.controller.close()


def test_the_next_inventory_shows_that_a_start_is_ready_and_it_failed_nowhere(fleet: Fleet) -> None:
    desk, host = unclear(fleet, shows=ResidencyState.READY)
    desk.beat(host)
    assert not desk.state.hosts[host].uncertain
    assert not desk.state.hosts[host].attempts
    desk.settle(3)
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_person_who_has_looked_says_how_it_ended(fleet: Fleet, outcome: str) -> None:
    desk, host = unclear(fleet, shows=ResidencyState.FAILED)
    (known,) = desk.state.hosts[host].uncertain.values()
    desk.pass_()
    answer = desk.ask("reconcile_outcome", command=known.body, outcome=outcome, reason="no process, seen there")
    assert answer["what"] == f"warm coder/1 on {host}"
    assert not desk.state.hosts[host].uncertain
    assert bool(desk.state.hosts[host].attempts) is (outcome == "failed")
    (said,) = [line for line in desk.events("receipt") if "after all" in line]
    assert said.endswith(f"{outcome} after all, by mira: no process, seen there")
    assert "nobody knows" not in held(desk)
    same(desk)
    desk.controller.close()


WRONG = {
    "an id of nothing": ({"command": Digest("sha256:" + "0" * 64), "outcome": "failed", "reason": "x"}, "no command"),
    "no id": ({"outcome": "failed", "reason": "x"}, "no command of this id"),
    "no outcome": ({"outcome": None, "reason": "x"}, "`succeeded` or `failed`"),
    "another outcome": ({"outcome": "unknown", "reason": "x"}, "`succeeded` or `failed`"),
    "no evidence": ({"outcome": "failed", "reason": " "}, "needs a reason"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_says_nothing_settles_nothing(fleet: Fleet, name: str) -> None:
    desk, host = unclear(fleet, shows=ResidencyState.FAILED)
    (known,) = desk.state.hosts[host].uncertain.values()
    fields, words = WRONG[name]
    given = {k: v for k, v in {"command": known.body, **fields}.items() if v is not None}
    if name == "no id":
        del given["command"]
    with pytest.raises(Refusal, match=words) as refusal:
        desk.ask("reconcile_outcome", **given)
    assert refusal.value.code == "GO430"
    assert desk.state.hosts[host].uncertain
    desk.controller.close()


def test_what_is_still_with_its_host_is_its_hosts_to_settle(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    slow(desk, "warm")
    desk.settle(6)
    (body,) = [body for a in desk.fleet.agents.values() for body in a.open]
    with pytest.raises(Refusal, match=r"is still with its host, whose answer settles it.*write-off"):
        desk.ask("reconcile_outcome", command=body, outcome="failed", reason="x")
    desk.controller.close()


# -- what an inventory proves -----------------------------------------------------------------------------------------

BODY, CHILD = Digest("sha256:" + "a" * 64), Digest("sha256:" + "b" * 64)
FILES = tuple(sorted(f.sha256 for f in b.load().artifact.files))
SAID = {"host": b.HOST, "replica": ReplicaId("coder/1"), "profile": b.load().profile}
WARM = b.warm()
DRAIN = Drain(**SAID, incarnation=CHILD, grace_ms=1)  # type: ignore[arg-type]
UNLOAD = Unload(**SAID, incarnation=CHILD)  # type: ignore[arg-type]
EVICT = Evict(**SAID, files=FILES)  # type: ignore[arg-type]
OPERATE = Operate(**SAID, incarnation=CHILD, serves=(), restart=Restart(), drain_ms=1)  # type: ignore[arg-type]


def inventory(
    *residencies: tuple[Digest, ResidencyState], cached: tuple[Digest, ...] = (), busy: bool = False
) -> Inventory:
    transfer = Transfer(artifact=BODY, source="https", done_bytes=0, size_bytes=1)
    held_ = tuple(Residency(profile=b.load().profile, state=state, incarnation=i) for i, state in residencies)
    made = Inventory(state=HostState.ACCEPTING, generation=1, devices=(), residencies=held_, cached=cached)
    return replace(made, transfers=(transfer,) if busy else None)


FULL = tuple((Digest(f"sha256:{n:064x}"), ResidencyState.READY) for n in range(limits.RESIDENCIES_PER_HOST))
CROWD = tuple(Digest(f"sha256:{n:064x}") for n in range(limits.CACHED_PER_HEARTBEAT))
READY, GONE = ResidencyState.READY, inventory()
SHOWN: dict[str, tuple[Action, Inventory, str | None]] = {
    "a fetch: all there": (b.load(), inventory(cached=FILES), "succeeded"),
    "a fetch: not there": (b.load(), GONE, "failed"),
    "a fetch: something is still coming": (b.load(), inventory(busy=True), None),
    "a fetch: more files than a heartbeat lists": (b.load(), inventory(cached=CROWD), None),
    "a start: ready": (WARM, inventory((BODY, READY)), "succeeded"),
    "a start: warming": (WARM, inventory((BODY, ResidencyState.WARMING)), None),
    "a start: failed, so perhaps alive": (WARM, inventory((BODY, ResidencyState.FAILED)), None),
    "a start: nothing of it": (WARM, inventory((CHILD, READY)), "failed"),
    "a start: more residencies than a heartbeat lists": (WARM, inventory(*FULL), None),
    "a drain: draining": (DRAIN, inventory((CHILD, ResidencyState.DRAINING)), "succeeded"),
    "a drain: serves": (DRAIN, inventory((CHILD, READY)), "failed"),
    "a drain: gone": (DRAIN, GONE, "succeeded"),
    "an unload: gone": (UNLOAD, GONE, "succeeded"),
    "an unload: still there": (UNLOAD, inventory((CHILD, ResidencyState.DRAINING)), "failed"),
    "an unload: more residencies than a heartbeat lists": (UNLOAD, inventory(*FULL), None),
    "a deletion: gone": (EVICT, GONE, "succeeded"),
    "a deletion: still there": (EVICT, inventory(cached=FILES), "failed"),
    "new terms: may be told again": (OPERATE, inventory((CHILD, READY)), "failed"),
}


def book(action: Action, rseq: int = 3) -> HostBook:
    known = Uncertain(BODY, 7, rseq, ScopeName("default"), action, ActionClass.SCALE_UP, 0)
    return HostBook(new_outbox(b.FLEET, b.HOST, b.HOST_KEY), 0, uncertain={BODY: known})


@pytest.mark.parametrize("name", SHOWN)
def test_what_an_inventory_proves(name: str) -> None:
    action, found, outcome = SHOWN[name]
    beat = replace(b.heartbeat(b.fence()), receipt_head=3, inventory=found)
    assert [row.outcome.value for row in proofs(book(action), beat)] == ([outcome] if outcome else [])


def test_a_word_from_before_the_receipt_proves_nothing() -> None:
    beat = replace(b.heartbeat(b.fence()), receipt_head=2, inventory=GONE)
    assert proofs(book(WARM), beat) == ()
    assert len(id_of(next(iter(book(WARM).uncertain.values())))) == ID_CHARS
