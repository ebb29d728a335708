"""A plan with a `Recall` is the plan without one, whatever happened since; and it really takes something from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.canon import NotCanonical
from gridops.base.ids import DeviceId, HostId, ProfileName, ReplicaId
from gridops.base.record import Pieces, digest_of, from_bytes, to_bytes
from gridops.model.fleet import Domain, Drain, HostKey
from gridops.model.intent import Desired
from gridops.model.learned import Learned, LearnedTime, TimeKind
from gridops.model.plan import Plan
from gridops.model.policy import Headroom, PlanningPolicy, Search
from gridops.model.profile import Colocation, PlacementRules, Profile, Restart
from gridops.model.snapshot import HostReport, HostState, Residency, ResidencyState, Snapshot
from gridops.planner import gather, grid, openings, views
from gridops.planner.constants import LEARN_VALID_MS
from gridops.planner.draft import begin
from gridops.planner.host_board import HostBoard
from gridops.planner.learned import revision_of
from gridops.planner.planner import Inputs, Recall, plan
from gridops.planner.prospects import Prospect
from gridops.planner.rank_harm import Harms
from gridops.planner.recall import Shelf
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.fleet import GIB, Fleet, config, digest, host, profile, report, with_external
from tests.planner.worlds import Cook, Drawn, change, later, make_fleet, rolled

STEPS = 4


def chain(cook: Cook) -> Iterator[Inputs]:
    """What a controller asks one after another: things happen, time goes by, plans are carried out or are not."""
    fleet = make_fleet(cook)
    fleet = fleet.but(policy=replace(fleet.policy, search=Search(moves=8)))
    for _ in range(STEPS):
        yield fleet.inputs()
        match cook.pick(("carried out", "only the parent", "time goes by", "nothing", "read again")):
            case "carried out":
                fleet = later(plan(fleet.inputs()), fleet)
            case "only the parent":
                fleet = fleet.but(parent=plan(fleet.inputs()))
            case "time goes by":
                fleet = fleet.but(now=fleet.now + 20_000)
            case "read again":
                yield read_again(fleet.inputs())
            case _:
                pass
        if cook.pick((True, True, False)):
            fleet = change(cook, fleet)


def read_again(inputs: Inputs) -> Inputs:
    """Equal to the byte, and no object the same."""
    parent = None if inputs.parent is None else from_bytes(Plan, to_bytes(inputs.parent))
    desired = from_bytes(Desired, to_bytes(inputs.intent.desired))
    snapshot = from_bytes(Snapshot, to_bytes(inputs.snapshot))
    return replace(inputs, intent=replace(inputs.intent, desired=desired), snapshot=snapshot, parent=parent)


def nothing_is_stale(cook: Cook) -> None:
    recall = Recall()
    for inputs in chain(cook):
        assert to_bytes(plan(inputs, recall)) == to_bytes(plan(inputs))


@settings(max_examples=20)
@given(st.data())
def test_a_chain_of_drawn_worlds_is_planned_as_if_each_were_the_first(data: st.DataObject) -> None:
    nothing_is_stale(Drawn(data))


@pytest.mark.parametrize("seed", range(30))
def test_a_chain_of_rolled_worlds_is_planned_as_if_each_were_the_first(seed: int) -> None:
    nothing_is_stale(rolled(1_000 + seed))


def standing() -> Fleet:
    """Twelve hosts, converged; five profiles that stand, and two that find no seat."""
    wanted = [profile(f"p{n}", 3, gib=5 + n, priority=100 + n) for n in range(5)]
    picky = profile("picky", 1, gib=1, placement=PlacementRules(require_tags=("guest",)))
    fleet = Fleet(
        hosts=tuple(host(f"h{n:02d}", ((24,), (24, 24), (48,))[n % 3], rack=f"r{n % 4}") for n in range(12)),
        profiles=(*wanted, profile("vast", 1, gib=900), picky),
        policy=PlanningPolicy(search=Search(moves=8)),
    )
    fleet = fleet.but(keys=fleet.inputs().intent.desired.keys)
    return fleet.applied(plan(fleet.inputs()), later_ms=1_000)


def heard(fleet: Fleet, name: str, **changes: Any) -> Fleet:
    return fleet.reporting(name, observed_ms=fleet.now, **changes)


def but_profile(fleet: Fleet, which: str, /, **changes: Any) -> Fleet:
    return fleet.but(profiles=tuple(replace(p, **changes) if p.name == which else p for p in fleet.profiles))


def but_host(fleet: Fleet, name: str, **changes: Any) -> Fleet:
    return fleet.but(hosts=tuple(replace(h, **changes) if h.id == name else h for h in fleet.hosts))


def crashed(fleet: Fleet) -> Fleet:
    name = next(str(a.seat.host) for a in parent(fleet).placement)
    told = fleet.reports[name]
    assert told is not None
    first, *others = told.residencies
    return fleet.reporting(name, residencies=(replace(first, state=ResidencyState.FAILED), *others))


def parent(fleet: Fleet) -> Plan:
    assert fleet.parent is not None
    return fleet.parent


def stray(fleet: Fleet) -> Fleet:
    """Something runs on an empty host, and nobody's plan knows of it."""
    used = {a.seat.host for a in parent(fleet).placement}
    empty = next(h.id for h in fleet.hosts if h.id not in used)
    found = Residency(
        profile=ProfileName("p0"),
        state=ResidencyState.READY,
        replica=ReplicaId("p0/9"),
        identity=digest("another command"),
        devices=(DeviceId("gpu0"),),
        device_bytes=22 * GIB,
    )
    return but_profile(heard(fleet, empty, residencies=(found,)), "p4", replicas_min=9, replicas_max=9)


def moved(fleet: Fleet) -> Fleet:
    """By the parent, a replica stands on an empty host where nothing runs."""
    made = parent(fleet)
    used = {a.seat.host for a in made.placement}
    empty = next(h.id for h in fleet.hosts if h.id not in used)
    first, *others = made.placement
    seat = replace(first.seat, host=empty, devices=(DeviceId("gpu0"),))
    return fleet.but(parent=replace(made, placement=(replace(first, seat=seat), *others)))


CHANGES: dict[str, Callable[[Fleet], Fleet]] = {
    "nothing": lambda f: f,
    "time": lambda f: f.but(now=f.now + 5_000),
    "a host falls silent": lambda f: f.but(
        now=f.now + 300_000,
        reports={h: replace(r, observed_ms=f.now + 300_000) for h, r in f.reports.items() if r and h != "h00"}
        | {"h00": f.reports["h00"]},
    ),
    "a host pauses": lambda f: heard(f, "h01", state=HostState.PAUSED, since_ms=f.now - 3_600_000),
    "a host is throttled": lambda f: heard(f, "h01", state=HostState.THROTTLED),
    "a device is smaller": lambda f: f.but(
        reports={**f.reports, "h02": with_total(f, "h02", "gpu0", 12)},
    ),
    "others use memory": lambda f: f.but(
        reports={**f.reports, "h00": with_external(known(f, "h00"), "gpu0", 20)},
    ),
    "a process fails": crashed,
    "a stray process": stray,
    "a drain": lambda f: f.but(drains=(Drain(host=HostId("h00"), reason="disk"),)),
    "a key is withdrawn": lambda f: f.but(keys=tuple(k for k in f.keys or () if k.host != "h01")),
    "a host is gone": lambda f: f.but(hosts=f.hosts[1:]),
    "another tag": lambda f: but_host(f, "h02", tags=("guest",)),
    "another rack": lambda f: but_host(f, "h02", domains=(Domain(level="rack", value="r9"),)),
    "a price": lambda f: but_host(f, "h00", price_per_hour_micro=7),
    "fewer slots": lambda f: but_host(f, "h01", max_replicas=1),
    "a profile grows": lambda f: but_profile(f, "p2", replicas_min=5, replicas_max=5),
    "a profile shrinks": lambda f: but_profile(f, "p2", replicas_min=1, replicas_max=1),
    "a larger footprint": lambda f: but_profile(f, "p3", configs=(config("p3-q4", 30),)),
    "a profile is gone": lambda f: f.but(profiles=f.profiles[1:]),
    "a pin": lambda f: but_profile(f, "p1", placement=PlacementRules(pins=(HostId("h11"),))),
    "company": lambda f: but_profile(f, "p4", colocation=Colocation(exclude=(ProfileName("p3"),))),
    "terms": lambda f: but_profile(f, "p0", priority=999, restart=Restart(max=9)),
    "a new name": lambda f: but_profile(f, "p0", name=ProfileName("p9"), renamed_from=ProfileName("p0")),
    "more headroom": lambda f: f.but(policy=replace(f.policy, headroom=Headroom(memory_ppm=400_000))),
    "no parent": lambda f: f.but(parent=None),
    "another parent": lambda f: f.but(parent=replace(parent(f), placement=parent(f).placement[1:])),
    "another seat in the parent": moved,
    "a host more": lambda f: f.but(
        hosts=(*f.hosts, host("h99", (24,))),
        keys=(*(f.keys or ()), HostKey(host=HostId("h99"), key="ed25519:" + "1" * 64)),
    ),
}


def known(fleet: Fleet, name: str) -> HostReport:
    return fleet.reports.get(name) or report(fleet.host(name), at=fleet.now)


def with_total(fleet: Fleet, name: str, device: str, gib: int) -> HostReport:
    told = known(fleet, name)
    devices = tuple(replace(d, total_bytes=gib * GIB) if d.id == device else d for d in told.devices)
    return replace(told, devices=devices)


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_is_planned_like_the_first(name: str) -> None:
    before, recall = standing(), Recall()
    plan(before.inputs(), recall)
    plan(before.inputs(), recall)
    after = CHANGES[name](before)
    for fleet in (after, after, before, after):
        assert to_bytes(plan(fleet.inputs(), recall)) == to_bytes(plan(fleet.inputs()))


def test_whoever_looks_sees_who_stands_elsewhere_since() -> None:
    """Hosts and profiles are what they were, and another plan is in force."""
    fleet = Fleet(hosts=(host("h0", (24,)), host("h1", (24,))), profiles=(profile("first", 1, gib=20),))
    fleet, recall = fleet.but(keys=fleet.inputs().intent.desired.keys), Recall()
    (stands,) = (made := plan(fleet.inputs())).placement
    there = replace(stands, seat=replace(stands.seat, host=HostId("h1" if stands.seat.host == "h0" else "h0")))
    both = fleet.but(profiles=(*fleet.profiles, profile("second", 1, gib=20)))
    for placement in ((stands,), (stands,), (stands,), (there,)):
        now = both.but(parent=replace(made, placement=placement))
        after = plan(now.inputs(), recall)
        assert len({a.seat.host for a in after.placement}) == 2
        assert to_bytes(after) == to_bytes(plan(now.inputs()))


def after_ms(fleet: Fleet, ms: int, *, silent: str = "") -> Fleet:
    """So much later every host but one has told of itself again, and nothing new."""
    now = fleet.now + ms
    told = {h: replace(r, observed_ms=now) if r is not None and h != silent else r for h, r in fleet.reports.items()}
    return fleet.but(now=now, reports=told)


def test_a_grace_runs_out_although_nothing_new_is_heard() -> None:
    before, recall = standing(), Recall()
    paused = heard(before, "h01", state=HostState.PAUSED, since_ms=before.now)
    plans = []
    for fleet in (before, paused, after_ms(paused, 10_000_000)):
        plans.append(plan(fleet.inputs(), recall))
        assert to_bytes(plans[-1]) == to_bytes(plan(fleet.inputs()))
    assert [len(made.to_do) > 0 for made in plans] == [False, False, True]


def test_mass_silence_takes_replicas_as_the_parent_has_them() -> None:
    recall = Recall()
    larger = but_profile(standing(), "p3", configs=(config("p3-q4", 9),))
    plan(larger.inputs(), recall)
    silent = after_ms(larger, 300_000)
    silent = silent.but(reports={**silent.reports, **{f"h{n:02d}": larger.reports[f"h{n:02d}"] for n in range(6, 12)}})
    assert look(silent.inputs()).mass_stale
    assert to_bytes(plan(silent.inputs(), recall)) == to_bytes(plan(silent.inputs()))


def test_silence_that_lasts_is_told_by_its_length() -> None:
    fleet, recall = standing(), Recall()
    causes = set()
    for ms in (0, 10_000_000, 20_000_000):
        late = after_ms(fleet, ms, silent="h01")
        made = plan(late.inputs(), recall)
        assert to_bytes(made) == to_bytes(plan(late.inputs()))
        causes |= {d.cause.detail for d in made.to_do}
    assert len(causes) > 1


def choosing() -> Fleet:
    """One profile has no seat yet, and two empty hosts to choose from."""
    hosts = tuple(host(f"h{n}", (24,)) for n in (20, 21))
    only = PlacementRules(allow_hosts=tuple(h.id for h in hosts))
    fleet = but_profile(standing(), "vast", configs=(config("vast-q4", 20),), placement=only)
    return fleet.but(hosts=(*fleet.hosts, *hosts), keys=None)


def lesson(fleet: Fleet, on: str, ms: int, **more: Any) -> LearnedTime:
    wanted = next(p for p in fleet.profiles if p.name == "vast")
    first = wanted.configs[0]
    return LearnedTime(
        host=HostId(on),
        profile=wanted.name,
        config=first.name,
        revision=revision_of(first.artifact),
        kind=TimeKind.FETCH,
        count=8,
        ewma_ms=ms,
        last_ms=more.pop("last_ms", fleet.now),
        **more,
    )


def test_what_was_learned_since_counts_and_what_was_not_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second host taught something about one profile: only that one is asked anew, and the plan is the first's."""
    fleet, recall = choosing(), Recall()
    one, two = lesson(fleet, "h20", 900_000), lesson(fleet, "h21", 1_000)

    def asked(*times: LearnedTime, now: int = fleet.now) -> Inputs:
        copies = tuple(replace(t) for t in times)
        return replace(fleet.but(now=now).inputs(), learned=Learned(times=copies))

    opened: list[str] = []
    really = Prospect.__init__

    def looked(self: Prospect, harms: Harms, of: Profile, position: int) -> None:
        opened.append(of.name)
        really(self, harms, of, position)

    monkeypatch.setattr(Prospect, "__init__", looked)
    plan(asked(one), recall)
    places = []
    for times, expected in (((one,), []), ((one, two), ["vast"]), ((one, two), []), ((two,), ["vast"]), ((), ["vast"])):
        opened.clear()
        made = plan(asked(*times), recall)
        assert opened == expected, times
        places.append(next(a.seat.host for a in made.placement if a.profile == "vast"))
        assert to_bytes(made) == to_bytes(plan(asked(*times)))
    assert places == ["h21", "h21", "h21", "h21", "h20"]


def test_what_was_learned_too_long_ago_is_not_remembered_either() -> None:
    fleet, recall = choosing(), Recall()
    learned, places = Learned(times=(lesson(fleet, "h20", 900_000),)), []
    for ms in (0, LEARN_VALID_MS - 1_000, LEARN_VALID_MS):
        late = replace(after_ms(fleet, ms).inputs(), learned=learned)
        made = plan(late, recall)
        assert to_bytes(made) == to_bytes(plan(late))
        places.append(next(a.seat.host for a in made.placement if a.profile == "vast"))
    assert places == ["h21", "h21", "h20"]


def test_what_is_the_same_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, recall = standing(), Recall()
    plan(fleet.inputs(), recall)
    judged, viewed = counted(monkeypatch, gather, "judge"), counted(monkeypatch, views, "_new_view")
    plan(heard(fleet, "h03", generation=9).inputs(), recall)
    assert viewed == ["h03"]
    stands = [a.replica for a in parent(fleet).placement if a.seat.host == "h03"]
    assert stands
    assert sorted(judged) == sorted(stands)


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    """Who a function is asked about from now on."""
    asked: list[str] = []
    really = getattr(module, name)

    def ask(*about: Any) -> Any:
        names = (getattr(a, "replica", None) or getattr(a, "id", None) for a in about)
        asked.extend(str(name) for name in names if name is not None)
        return really(*about)

    monkeypatch.setattr(module, name, ask)
    return asked


def test_a_board_that_others_begin_as_stays_as_it_was() -> None:
    world = look(standing().inputs())
    board = next(b for b in begin(world, choose(world, gather.gather(world))).board.rows if b.desired)
    first = board.keep()
    claims, was = list(board.desired.values()), _contents(board)
    for happens in (
        lambda b: b.take(claims[0].replica, runs=True),
        lambda b: b.hold(claims[0]._replace(replica=ReplicaId("p0/9")), stuck=True),
        lambda b: b.put(claims[0]._replace(replica=ReplicaId("p0/9"))),
        lambda b: b.fetch(world.profiles[ProfileName("vast")].configs[0].artifact),
    ):
        begun = first.again(board.view, board.row, [])
        happens(begun)
        assert begun.origin is None
        assert _contents(begun) != was
        assert _contents(first) == _contents(board) == was


def _contents(board: HostBoard) -> tuple[object, ...]:
    sums = list(board.sums())
    return dict(board.desired), list(board.leaving), list(board.kept), set(board.artifacts), board.disk_bytes, sums


def test_what_a_plan_read_of_a_profile_is_what_it_says_now() -> None:
    """Decided upon twice, and another each time."""
    recall, read = Recall(), []
    for replicas in (5, 6):
        fleet = but_profile(standing(), "p2", replicas_min=replicas, replicas_max=replicas)
        made = plan(fleet.inputs(), recall)
        assert to_bytes(made) == to_bytes(plan(fleet.inputs()))
        read.append(next(p.digest for p in made.reads.profiles if p.profile == "p2"))
    assert len(set(read)) == 2


def test_what_was_wanted_before_is_what_the_present_parent_wanted() -> None:
    recall, fleet, told = Recall(), standing(), list[str]()
    parent = fleet.parent
    assert parent is not None
    for before in (5, 4):
        terms = tuple(replace(t, replicas_min=before) if t.profile == "p2" else t for t in parent.terms)
        asked = but_profile(fleet.but(parent=replace(parent, terms=terms)), "p2", replicas_min=6, replicas_max=6)
        told += {d.cause.detail for d in plan(asked.inputs(), recall).decisions if d.replica == "p2/6"}
    assert told == ["replicas 5 => 6", "replicas 4 => 6"]


@pytest.mark.parametrize("seed", range(8))
def test_asking_all_rows_says_what_asking_those_that_changed_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recall, questions = Recall(), list(chain(rolled(seed)))
    made = [to_bytes(plan(inputs, recall)) for inputs in questions]
    monkeypatch.setattr(openings, "ALL_AT_ONCE", 0)
    recall = Recall()
    assert [to_bytes(plan(inputs, recall)) for inputs in questions] == made


def test_what_an_opening_said_at_the_beginning_stays_said_whatever_changes_then() -> None:
    world = look(but_profile(standing(), "vast", configs=(config("vast-q4", 20),)).inputs())
    draft = begin(world, choose(world, gather.gather(world)))
    seats, wanted = Seats(draft), world.profiles[ProfileName("vast")]
    (opening,) = seats.openings(wanted)
    told = opening.answers()
    before = [np.array(part) for part in told[:-1]]
    for replica in list(draft.seats):
        draft.lift(replica)
    (opening,) = seats.openings(wanted)
    now = (opening.fits, opening.waits, opening.left, opening.soon_ms, opening.wait_ms, opening.harm)
    assert opening.waits.any(), "what runs has to leave first"
    assert not all(map(np.array_equal, before, now))
    assert all(map(np.array_equal, before, told[:-1]))


def test_what_a_seat_takes_from_others_is_of_what_hosts_have_free_now() -> None:
    world = look(standing().inputs())
    draft = begin(world, choose(world, gather.gather(world)))
    seats, wanted = Seats(draft), world.profiles[ProfileName("vast")]
    (opening,) = seats.openings(wanted)
    at = np.arange(len(opening.rows))
    before = opening.stranded(at).tolist()
    for replica in list(draft.seats):
        draft.lift(replica)
    (opening,), (fresh,) = seats.openings(wanted), Seats(draft).openings(wanted)
    assert before != opening.stranded(at).tolist() == fresh.stranded(at).tolist()


def test_states_of_hosts_go_by_the_numbers_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too many are known, the next plan begins to count anew."""
    monkeypatch.setattr(grid, "STATES_KEPT", 1)
    recall, asked = Recall(), but_profile(standing(), "p2", replicas_min=6, replicas_max=6).inputs()
    assert {to_bytes(plan(asked, recall)) for _ in range(3)} == {to_bytes(plan(asked))}


def test_a_heartbeat_without_news_makes_no_other_view_of_a_host() -> None:
    fleet, recall = standing(), Recall()
    first = look(fleet.inputs(), recall)
    later_on = fleet.but(now=fleet.now + 5_000)
    again = look(heard(later_on, "h00").inputs(), recall)
    assert again.hosts[HostId("h00")].traits is first.hosts[HostId("h00")].traits
    assert again.hosts[HostId("h00")].report != first.hosts[HostId("h00")].report
    news = look(heard(later_on, "h00", generation=4).inputs(), recall)
    assert news.hosts[HostId("h00")].traits is not first.hosts[HostId("h00")].traits


def test_a_shelf_gives_an_answer_for_the_same_sources_only() -> None:
    shelf: Shelf[str] = Shelf()
    one, other, equal = [1], [2], [2]
    shelf.put("x", (one, other), "answer")
    assert shelf.get("x", (one, other)) == "answer"
    assert shelf.get("x", (one, equal)) is None
    assert shelf.get("x", (one,)) is None
    assert shelf.get("y", (one, other)) is None


def test_a_shelf_forgets_what_a_whole_plan_did_not_ask_for() -> None:
    shelf: Shelf[int] = Shelf()
    shelf.put("asked", (), 1)
    shelf.put("not asked", (), 2)
    shelf.turn()
    assert shelf.get("asked", ()) == 1
    shelf.turn()
    assert (shelf.get("asked", ()), shelf.get("not asked", ())) == (1, None)


@pytest.mark.parametrize("parts", [("hosts",), ()])
def test_pieces_make_the_digest_of_the_whole(parts: tuple[str, ...]) -> None:
    snapshot, pieces = standing().snapshot(), Pieces()
    assert pieces.of(snapshot, parts) == digest_of(snapshot)
    news = replace(snapshot.hosts[0], generation=7)
    changed = replace(snapshot, hosts=(news, *snapshot.hosts[1:]))
    assert pieces.of(changed, parts) == digest_of(changed) != digest_of(snapshot)
    assert pieces.of(replace(snapshot, hosts=()), parts) == digest_of(replace(snapshot, hosts=()))


def test_pieces_of_what_is_not_canonical_are_refused_like_the_whole() -> None:
    snapshot = standing().snapshot()
    broken = replace(snapshot, hosts=(replace(snapshot.hosts[0], generation=1 << 60),))
    with pytest.raises(NotCanonical):
        digest_of(broken)
    with pytest.raises(NotCanonical):
        Pieces().of(broken, ("hosts",))
