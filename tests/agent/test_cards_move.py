"""Cards that change under what is being done on them: hot in a load, lost in a warm, and memory that outlives an agent.

A real agent with the real NVML code and a driver library of the tests, in a process of its own for each story.
"""

from __future__ import annotations

from tests.agent.driver import Driver, gpu
from tests.agent.on_cards import AGENT

HEAT = """
from dataclasses import replace
from gridops.base.record import digest_of
from gridops.model.policy import protection_default
from gridops_agent.shell import Agent
from tests.agent.origin import Trick, serving
from tests.agent.shelf import QUICK
from tests.agent.site import hear
from tests.agent.test_transfers import HALF, MODEL, arrived, far

RULES = replace(protection_default("dedicated"), debounce_ms=300, recovery_ms=1_000, drain_grace_ms=500)

def at(degrees): say(gpu("GPU-a", used=500, temp=degrees))

async def looks(agent):
    while True:
        agent.cards._last = None
        await agent.protection.tick()
        await asyncio.sleep(0.1)

async def story():
    folder = Path(tempfile.mkdtemp())
    model = write_tiny_gguf(folder / "tiny.gguf", shape=Shape(context=65_536))
    site = Site(folder / "state", model).join()
    site.config = replace(site.config, artifacts=replace(QUICK, stall_ms=60_000))
    directive_of = site.directive
    site.directive = lambda *a, **k: replace(directive_of(*a, **k), protection=RULES)
    # Its cards are read by the driver; how warm the machine of the tests itself is, is not what this is about.
    real = lambda agent: replace(site.sense(), **{
        "gpus": 1, "gpu_temperature_c": max((c.temperature_c for c in agent.cards.look().cards), default=None)})
    try:
        with serving(**{"m.gguf": MODEL}) as origin:
            agent = Agent(site.config, "0.1.0", lambda: real(agent))
            async with agent:
                await hear(agent, site)
                watching = asyncio.ensure_future(looks(agent))
                await until(lambda: agent.memory.host.verdict.admits, "a cool card")
                origin.tricks = [Trick(stall_after=HALF)]
                loading = await command(agent, site, site.load(artifact=far(origin)))
                await until(lambda: arrived(site) == HALF, "half of the file")
                at(97)
                hot = await receipt(agent, loading)
                state = [agent.memory.host.state.value, list(agent.memory.host.reasons), arrived(site) == HALF]
                refused = await done(agent, site, site.load("other", artifact=far(origin)))
                at(82)  # no pause any more, and not well yet
                await until(lambda: agent.memory.host.verdict.admits, "it to be less hot")
                between = agent.memory.host.state.value
                at(60)
                await until(lambda: agent.memory.host.state == "accepting", "it to cool down")
                again = await done(agent, site, site.load(artifact=far(origin)))
                watching.cancel()
                went_on = origin.ranges() == ["", f"bytes={HALF}-"]
                return [seen(hot), state, seen(refused), between, seen(again), went_on]
    finally:
        site.end()

answer(asyncio.run(story()))
"""


def test_a_card_that_gets_hot_in_a_load_takes_it_back_and_the_load_goes_on_when_it_is_cool(driver: Driver) -> None:
    driver.say(gpu("GPU-a", used=500, temp=50))
    hot, state, refused, between, again, went_on = driver.run(AGENT + HEAT)
    assert hot[:2] == ["failed", "host_state"]
    assert "what has arrived is kept" in hot[2]
    assert state[0] == "paused"
    assert any("97" in reason for reason in state[1]), state
    assert state[2] is True
    assert refused[:2] == ["refused", "host_state"]
    assert between == "throttled", "less hot is not cool"
    assert (again[0], went_on) == ("succeeded", True)


def test_a_card_that_is_lost_in_the_middle_of_a_warm_is_named_and_has_one_engine_when_it_is_back(
    driver: Driver,
) -> None:
    driver.say(gpu("GPU-a", used=500), gpu("GPU-b"))
    said = driver.run(
        AGENT
        + """
async def work(agent, site):
    engine = agent._engines["llama.cpp"]
    listed, held_up = engine.listed, asyncio.Event()
    async def late(*given):
        return held_up.is_set() and await listed(*given)
    engine.listed = late
    warmed = await command(agent, site, warm(site))
    await until(lambda: warmed in agent.memory.host.held and held_of(agent, warmed).handle is not None, "a process")
    pid = pid_of(agent, warmed)
    say(gpu("GPU-a", err=15), gpu("GPU-b"))
    await measure(agent)
    held_up.set()
    made = await receipt(agent, warmed)
    await measure(agent)
    held = held_of(agent, warmed)
    story = [made.outcome.value, held.state.value, held.code, held.detail, len(site.processes())]
    routes = [r.admitting for r in agent.front.table.routes]
    second = await done(agent, site, warm(site, 2))
    say(gpu("GPU-a", used=500), gpu("GPU-b"))
    await measure(agent)
    await until(lambda: held_of(agent, warmed).state == "ready", "its return")
    return [story, routes, seen(second)[:2], pid_of(agent, warmed) == pid, len(site.processes())]

answer(asyncio.run(told(work)))
"""
    )
    story, routes, second, same, engines = said
    assert story[1:3] == ["failed", "device_lost"]
    assert "gpu0" in story[3]
    assert story[4] == 1
    assert not any(routes), "nobody is sent to a card that is gone"
    assert second[0] in ("refused", "failed"), "and nothing is started on it"
    assert (same, engines) == (True, 1)


def test_memory_that_a_process_that_is_gone_still_holds_keeps_its_card_closed_over_a_restart_of_the_agent(
    driver: Driver,
) -> None:
    driver.say(gpu("GPU-a", used=500))
    said = driver.run(
        AGENT
        + """
async def stuck(agent, site):
    warmed = await command(agent, site, warm(site))
    await receipt(agent, warmed)
    pid = pid_of(agent, warmed)
    say(gpu("GPU-a", used=9_500, procs=f"{pid}:9000"))
    await measure(agent)
    await done(agent, site, site.drain(warmed))
    return warmed, pid, await done(agent, site, site.unload(warmed))

async def story():
    folder = Path(tempfile.mkdtemp())
    site = Site(folder / "state", write_tiny_gguf(folder / "tiny.gguf")).join()
    try:
        async with site.agent() as agent:
            warmed, pid, unload = await stuck(agent, site)
        async with site.agent() as agent:
            await measure(agent)
            held = held_of(agent, warmed)
            left = [held.state.value, held.code, held.handle is None, len(site.processes())]
            second = await done(agent, site, warm(site, 2))
            say(gpu("GPU-a", used=500))
            await measure(agent)
            gone = await done(agent, site, site.unload(warmed))
            third = await done(agent, site, warm(site, 3))
            return [pid, seen(unload), left, seen(second), seen(third), seen(gone)[:1]]
    finally:
        site.end()

answer(asyncio.run(story()))
"""
    )
    pid, unload, left, second, third, gone = said
    assert unload[:2] == ["failed", "release_stuck"]
    assert f"pid {pid} (8.7 GiB, of this engine, gone from the process table)" in unload[2]
    assert left == ["draining", "release_stuck", True, 0]
    assert second[:2] == ["refused", "release_stuck"]
    assert (gone, third[0]) == (["succeeded"], "succeeded"), third
