"""Placement cases observed on another allocator: each accepted answer, and what is wanted of each fault.

Variants in which several hosts would serve one replica are not asked. Beside them cases of our own (`cases_fresh`,
`cases_rules`), each with its answers, what is said of other hosts, and what is not kept.
"""

from __future__ import annotations

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ReplicaId
from gridops.model.plan import Assignment, Plan
from gridops.planner.explain import missing_in, walk
from tests.builders.placement_cases import Variant, faults, story, variants
from tests.builders.placement_fleets import ANSWER, FIRST, GUEST, fleet
from tests.planner import cases_fresh, cases_rules
from tests.planner.cases_fresh import NONE, Case
from tests.planner.fleet import Fleet

ASKED = [v for v in (*variants(), *faults()) if not v.several_hosts]


@pytest.mark.parametrize("variant", ASKED, ids=lambda v: v.id)
def test_the_plan_is_one_of_the_accepted_answers(variant: Variant) -> None:
    assert complaint(variant) is None


def test_no_variant_is_left_out_but_those_of_several_hosts() -> None:
    left = [v.id for v in (*variants(), *faults()) if v.several_hosts]
    assert left == [
        "P07",
        "P09 other = 0",
        "P17",
        "P23 dp 2",
        "P23 dp 3",
        "P33 tp2",
        "P33 fraction 0.5 pp3",
        "P35 sub 3",
    ]
    assert len(ASKED) == len(variants()) + len(faults()) - len(left) == 40


FRESH = [*cases_fresh.cases(), *cases_rules.cases()]


@pytest.mark.parametrize("case", FRESH, ids=lambda c: c.id)
def test_a_fresh_case_is_answered_as_the_rules_say(case: Case) -> None:
    made = case.fleet.plan()
    for replica, want in {FIRST: case.want, **case.others}.items():
        seat = made.assignment(ReplicaId(replica))
        answer = NONE if seat is None else _text(seat)
        assert answer in want or answer.partition("[")[0] in want, _headline(made)
    missing = next((u for u in made.report.unplaced if u.replica == FIRST), None)
    said = {line.host: line.code for line in missing.hosts} if missing is not None else {}
    assert {host: said.get(HostId(host)) for host in case.lines} == {h: c.code for h, c in case.lines.items()}
    if case.headline is not None:
        assert missing is not None
        assert missing.code == case.headline.code
    told = {s.code for s in made.report.shortfalls} | {w.code for w in made.report.waiting}
    assert told == set() if case.short is None else case.short.code in told
    if case.kinds is not None:
        assert tuple(sorted(d.kind.value for d in made.decisions)) == case.kinds


def complaint(variant: Variant) -> str | None:
    """What is wrong with the plan for a variant, in words; None if it is one of the accepted answers."""
    asked = fleet(story(variant))
    made = asked.plan()
    if variant.id.startswith("F"):
        return FAULTS[variant.id](asked, made)
    seat = made.assignment(FIRST)
    accept = variant.accept
    if accept.get("any_of") == ["none"]:
        return None if seat is None else f"placed on {_text(seat)}, must be refused"
    if seat is None:
        return f"unplaced: {_headline(made)}"
    host, devices = str(seat.seat.host), tuple(int(d[3:]) for d in seat.seat.devices if d.startswith("gpu"))
    if "any_of" in accept and not any(_is(str(answer), host, devices) for answer in accept["any_of"]):
        return f"placed on {_text(seat)}, accepted: {', '.join(map(str, accept['any_of']))}"
    if "of" in accept and host not in accept["of"]:
        return f"placed on {_text(seat)}"
    if "gpus_used" in accept and len(devices) != accept["gpus_used"]:
        return f"takes {len(devices)} devices, {accept['gpus_used']} accepted"
    if "ram_claim" in accept and seat.host_bytes != accept["ram_claim"]:
        return f"claims {seat.host_bytes} bytes of RAM, {accept['ram_claim']} accepted"
    if "claim" in accept and seat.device_bytes != accept["claim"]:
        return f"claims {seat.device_bytes} bytes, {accept['claim']} accepted"
    return None


def _is(answer: str, host: str, devices: tuple[int, ...]) -> bool:
    if answer == "node with partitioning":
        return host == "partitioned"
    match = ANSWER.fullmatch(answer)
    if match is None or match["host"] != host:
        return False
    return match["devices"] is None or tuple(int(n) for n in match["devices"].split(",")) == devices


def _text(seat: Assignment) -> str:
    return f"{seat.seat.host}[{','.join(d.removeprefix('gpu') for d in seat.seat.devices)}]"


def _headline(made: Plan) -> str:
    return next((f"{u.code} {u.detail}" for u in made.report.unplaced if u.replica == FIRST), "no word about it")


def _refused(made: Plan) -> str | None:
    seat = made.assignment(FIRST)
    return None if seat is None else f"placed on {_text(seat)}, must be refused"


def _external_use(asked: Fleet, made: Plan) -> str | None:
    """Refused, and the line says how much is really free beside what others use."""
    total, other = 25_757_220_864, 20_273_168_384
    if (wrong := _refused(made)) is not None:
        return wrong
    told = missing_in(walk(asked.inputs()), FIRST)
    lines = told.hosts if told is not None else ()
    if not any(line.have == total - other and "other" in line.detail for line in lines):
        return f"does not say that others hold the memory: {[(x.code, x.detail, x.have) for x in lines]}"
    return None


def _uneven_cards(asked: Fleet, made: Plan) -> str | None:
    return _refused(made)


def _count_mismatch(asked: Fleet, made: Plan) -> str | None:
    """Several hosts are refused, and too little memory is not the headline: all cards together would do."""
    if (wrong := _refused(made)) is not None:
        return wrong
    memory = (codes.INSUFFICIENT_DEVICE_MEMORY.code, codes.INSUFFICIENT_HOST_MEMORY.code)
    headline = _headline(made)
    if headline.startswith(memory):
        return f"the headline is about memory: {headline}"
    return None if "spans hosts" in headline else f"does not say that hosts are not joined: {headline}"


def _one_move_makes_room(asked: Fleet, made: Plan) -> str | None:
    seat = made.assignment(FIRST)
    if seat is None:
        return f"unplaced: {_headline(made)}"
    tenants = [a for a in made.placement if a.profile != GUEST]
    if len(tenants) != 2 or len({a.seat.host for a in tenants}) != 1:
        return f"the tenants stand on {sorted(a.seat.host for a in tenants)}"
    return None


def _claims_its_need(asked: Fleet, made: Plan) -> str | None:
    seat = made.assignment(FIRST)
    if seat is None:
        return f"unplaced: {_headline(made)}"
    return None if seat.device_bytes == 1_588_014_354 else f"claims {seat.device_bytes}"


def _unknown_is_refused(asked: Fleet, made: Plan) -> str | None:
    if (wrong := _refused(made)) is not None:
        return wrong
    headline = _headline(made)
    return None if headline.startswith(codes.FOOTPRINT_UNKNOWN.code) else f"does not say that nobody knows: {headline}"


FAULTS = {
    "F01": _external_use,
    "F03": _uneven_cards,
    "F05": _count_mismatch,
    "F07": _one_move_makes_room,
    "F09": _claims_its_need,
    "F11": _unknown_is_refused,
}
