"""What may be called measured: a whole group, idle, settled and nobody else's. All else is refused with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId
from gridops_agent.core.weigh import CardLook, GroupLook, Weight, weigh
from tests.agent.driver import Driver, gpu
from tests.agent.on_cards import AGENT

MIB, GIB = 1 << 20, 1 << 30
GPU0, GPU1 = DeviceId("gpu0"), DeviceId("gpu1")


def card(used: int = 10 * GIB, total: int = 24 * GIB, **pids: int | None) -> CardLook:
    return CardLook(total, used, {int(name[1:]): held for name, held in pids.items()})


def look(at_ms: int = 1, **changes: object) -> GroupLook:
    """A wrapper, a worker on each of two cards, and another engine."""
    cards = {GPU0: card(p2=8 * GIB, p9=GIB), GPU1: card(p3=7 * GIB)}
    made = GroupLook(at_ms, frozenset({1, 2, 3}), frozenset({9}), 0, cards, 600 * MIB)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_footprint_is_the_largest_of_the_looks_over_the_whole_group_per_device() -> None:
    more = {GPU0: card(p2=8 * GIB + MIB, p9=GIB), GPU1: card(p3=7 * GIB, used=11 * GIB)}
    weight = weigh((look(1), look(2, cards=more, resident_bytes=610 * MIB), look(3)), (GPU1, GPU0))
    assert isinstance(weight, Weight)
    assert weight.by_device == ((GPU0, 8 * GIB + MIB), (GPU1, 7 * GIB))
    assert (weight.device_bytes, weight.host_bytes, weight.looks) == (8 * GIB + MIB, 610 * MIB, 3)


def test_the_rest_of_a_device_is_what_no_engine_is_listed_for_at_its_highest_with_its_time() -> None:
    more = {GPU0: card(used=13 * GIB, p2=8 * GIB, p9=GIB), GPU1: card(p3=7 * GIB)}
    weight = weigh((look(1), look(2, cards=more), look(3)), (GPU0, GPU1))
    assert [(r.device, r.bytes_, r.at_ms) for r in weight.reserves] == [(GPU0, 4 * GIB, 2), (GPU1, 3 * GIB, 3)]


def test_an_engine_on_the_cpu_is_weighed_by_what_it_keeps_resident() -> None:
    weight = weigh((look(1), look(2), look(3)), ())
    assert (weight.device_bytes, weight.host_bytes, weight.by_device) == (600 * MIB, 0, ())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pids": frozenset()}, "no process of this engine was found"),
        ({"in_flight": None}, "nobody knows whether the engine is idle"),
        ({"in_flight": 2}, "2 requests in flight"),
        ({"others": frozenset({2, 9})}, "process 2 belongs to another engine too"),
        ({"cards": {}}, "gpu0 could not be read"),
        ({"cards": {GPU0: CardLook(GIB, None, {})}}, "gpu0 could not be read"),
        ({"cards": {GPU0: CardLook(GIB, 1, None)}}, "gpu0 could not be read"),
        ({"cards": {GPU0: card(p2=None)}}, "does not tell what process 2 holds on gpu0"),
        ({"cards": {GPU0: card(p9=GIB)}}, "no memory of gpu0 is attributed to this engine"),
        ({"cards": {GPU0: card(p2=7 * MIB)}}, "7 MiB on gpu0 are less than any model holds"),
        ({"cards": {GPU0: card(used=GIB, p2=2 * GIB)}}, "more than is used there at all"),
        ({"cards": {GPU0: card(total=GIB, used=3 * GIB, p2=2 * GIB)}}, "more than is used there at all"),
        ({"cards": {GPU0: card(used=9 * GIB, p2=8 * GIB, p9=2 * GIB)}}, "do not fit together"),
        ({"cards": {GPU0: card(total=9 * GIB, used=20 * GIB, p2=8 * GIB)}}, "do not fit together"),
        ({"resident_bytes": None}, "its host memory could not be read"),
        ({"resident_bytes": 9}, "9 B of host memory are less than any program holds"),
    ],
)
def test_what_cannot_be_this_engines_memory_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(Refusal) as refused:
        weigh((look(1), look(2), look(3, **changes)), (GPU0,))
    assert refused.value.code == "footprint_unmeasured"
    assert why in refused.value.message


def test_what_has_not_settled_and_too_few_looks_are_refused() -> None:
    growing = {GPU0: card(p2=8 * GIB + 300 * MIB)}
    with pytest.raises(Refusal, match="it has not settled"):
        weigh((look(1), look(2), look(3, cards=growing)), (GPU0,))
    with pytest.raises(Refusal, match="2 looks were taken"):
        weigh((look(1), look(2)), (GPU0,))


def test_a_running_model_is_weighed_from_the_command_line(driver: Driver) -> None:
    driver.say(gpu("GPU-a", used=500))
    said = driver.run(
        AGENT
        + """
from gridops.base.errors import Refusal
from gridops_agent.weighing import weigh_replica

async def work(agent, site):
    warmed = await command(agent, site, warm(site))
    await receipt(agent, warmed)
    pid = pid_of(agent, warmed)
    say(gpu("GPU-a", used=9_500, procs=f"{pid}:9000"))
    try:
        await weigh_replica(site.config, "tiny1/1", apart_s=0)
    except Refusal as refusal:
        early = refusal.message
    agent._write_status()
    seen = await weigh_replica(site.config, "tiny1/1", apart_s=0.3)
    return [early, seen.weight.device_bytes >> 20, seen.weight.host_bytes >> 20, seen.weight.reserves[0].bytes_ >> 20]

answer(asyncio.run(told(work)))
"""
    )
    early, device, host, rest = said
    assert "nobody knows whether the engine is idle" in early
    assert (device, rest) == (9_000, 500)
    assert 10 < host < 2_000
