"""Engines as containers: what speaks against creating one, and every way in which the runtime fails."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.keep import container
from gridops_agent.keep import container_spec as spec
from gridops_agent.keep.ways import Image
from tests.agent.box_runtime import Server, hangs_up, says
from tests.agent.boxed import OTHER, REFERENCE, ended_box, refused, warmed
from tests.agent.site import Site, command, done, held_of, receipt, until


async def test_an_image_that_is_not_here_is_no_runtime_and_is_not_fetched(boxes: Server, boxed: Site) -> None:
    boxes.runtime.images.clear()
    async with boxed.agent() as agent:
        assert agent._readings().runtimes == ()
        assert "no_runtime" in await refused(agent, boxed)
    assert {verb for verb, _ in boxes.runtime.calls} <= {"inspect_image", "containers"}


async def test_a_model_that_a_container_of_ours_serves_for_an_unknown_command_is_refused(
    boxes: Server, boxed: Site
) -> None:
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        box = boxes.runtime.only()
        box.spec["Labels"]["dev.gridops.body"] = OTHER  # type: ignore[index]
        await agent._measure()
        assert any(f"the container {box.id[:12]} carries the command" in a for a in agent.alarms.now())
        assert "stray_process" in await refused(agent, boxed)
        assert box.running, "it is named, and not touched"
        assert held_of(agent, body) is not None


async def test_a_name_that_a_foreign_container_has_is_refused(
    boxes: Server, boxed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container.secrets, "token_hex", lambda n=None: "ab" * (n or 32))
    foreign = ended_box(boxes.runtime, spec.name_of("tiny", "ab" * 3), 1.0, None)
    boxes.runtime.boxes[foreign.id] = foreign
    async with boxed.agent() as agent:
        assert f"a container is called {foreign.name} already" in await refused(agent, boxed)
        assert list(boxes.runtime.boxes.values()) == [foreign]


async def test_a_gpu_without_a_uuid_is_refused_before_anything_is_created(boxes: Server, boxed: Site) -> None:
    images = {"llama.cpp": Image(REFERENCE, "cuda", port=8_080)}
    boxed.config = replace(boxed.config, ways=replace(boxed.config.ways, images=images))
    async with boxed.agent() as agent:
        launch = replace(boxed.launch(), backend="cuda")
        made = await done(agent, boxed, boxed.warm(launch=launch))
        assert made.outcome is Outcome.FAILED
        assert "UUID" in (made.detail or "")
        assert boxes.runtime.boxes == {}


async def test_a_port_stolen_between_the_look_and_the_start_costs_one_more_try(boxes: Server, boxed: Site) -> None:
    import socket

    thief = socket.socket()
    stolen: list[int] = []

    def steal() -> None:
        if not stolen:
            port = boxes.runtime._published(boxes.runtime.only())
            thief.bind(("127.0.0.1", port))
            thief.listen()
            stolen.append(port)

    boxes.runtime.broken["start"] = steal
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        assert held_of(agent, body).port not in stolen
        assert len(boxes.runtime.boxes) == 1, "the one that could not be started is removed"
    thief.close()


FAILS = {
    "create says no": ("create", says(400, "invalid reference format")),
    "create hangs up": ("create", hangs_up),
    "start says no": ("start", says(500, "OCI runtime create failed")),
    "start hangs up": ("start", hangs_up),
    "the lists fail": ("containers", says(500, "database is locked")),
}


@pytest.mark.parametrize(("verb", "fault"), FAILS.values(), ids=FAILS)
async def test_a_start_that_the_runtime_fails_is_told_and_leaves_nothing_running(
    boxes: Server, boxed: Site, verb: str, fault: Callable[[], None]
) -> None:
    async with boxed.agent() as agent:
        boxes.runtime.broken[verb] = fault
        made = await done(agent, boxed, boxed.warm())
        assert made.outcome is Outcome.FAILED
        assert made.detail
        assert not any(box.running for box in boxes.runtime.boxes.values())
        boxes.runtime.broken.clear()
        assert (await receipt(agent, await command(agent, boxed, boxed.warm()))).outcome is Outcome.SUCCEEDED


async def test_a_start_that_cannot_be_recorded_is_ended_again(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        sick = agent.memory.take

        async def take(event: object) -> object:
            from gridops_agent.core.events import Spawned
            from gridops_agent.ledger import Unwritable

            if isinstance(event, Spawned):
                raise Unwritable("the ledger cannot be written")
            return await sick(event)  # type: ignore[arg-type]

        agent.memory.take = take  # type: ignore[method-assign,assignment]
        made = await done(agent, boxed, boxed.warm())
        assert made.outcome is Outcome.FAILED
        assert boxes.runtime.boxes == {}


async def test_a_runtime_that_cannot_be_asked_proves_nothing(
    boxes: Server, boxed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "DOUBT_S", 0.01)
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        await agent.effects.settled()
        for told_to_end in (False, True):
            boxes.runtime.broken |= dict.fromkeys(("inspect", "containers"), hangs_up)
            await agent.watch.look()
            assert (held_of(agent, body).state, held_of(agent, body).code) == (ResidencyState.FAILED, "not_ours")
            if told_to_end:
                made = await done(agent, boxed, boxed.unload(body, force=True))
                assert made.outcome is Outcome.FAILED, "nothing is unloaded on no word"
                assert boxes.runtime.only().running
            boxes.runtime.broken.clear()
            await agent.watch.look()
            back = ResidencyState.DRAINING if told_to_end else ResidencyState.READY
            await until(lambda state=back: held_of(agent, body).state is state, "the runtime is back")
        made = await done(agent, boxed, boxed.unload(body))
        assert made.outcome is Outcome.SUCCEEDED, "what was told to end serves no more, and ends when it can be proved"


async def test_a_container_whose_labels_are_not_ours_is_never_touched(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        await agent.effects.settled()
        box = boxes.runtime.only()
        for label, other in (("body", OTHER), ("host", "other"), ("fleet", OTHER), ("managed", "yes")):
            mine = box.spec["Labels"][f"dev.gridops.{label}"]
            box.spec["Labels"][f"dev.gridops.{label}"] = other  # type: ignore[index]
            handle = held_of(agent, body).handle
            assert handle is not None
            answer = await agent.keepers.stop(body, handle)
            assert not answer.gone, label
            assert box.running, label
            box.spec["Labels"][f"dev.gridops.{label}"] = mine  # type: ignore[index]


async def test_what_ignores_the_stop_is_killed_and_proved_gone(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        box = boxes.runtime.only()
        boxes.runtime.broken["stop"] = says(500, "cannot stop container: context deadline exceeded")
        await done(agent, boxed, boxed.drain(body))
        made = await done(agent, boxed, boxed.unload(body))
        assert made.outcome is Outcome.FAILED
        assert box.running, "a stop that failed is no stop"
        boxes.runtime.broken["stop"] = says(204, "")  # it says yes, and the container goes on
        made = await done(agent, boxed, boxed.unload(body))
        assert made.outcome is Outcome.SUCCEEDED, made
        assert box.exit_code == 128 + signal.SIGKILL
        assert not box.running


async def test_a_paused_container_lives_and_holds_its_memory(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        await agent.effects.settled()
        box = boxes.runtime.only()
        box.paused = True
        await agent.watch.look()
        assert held_of(agent, body).state is ResidencyState.READY
        assert box.running


async def test_a_replacement_that_fails_leaves_the_old_one_serving(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        old = await warmed(agent, boxed)
        made = await done(agent, boxed, boxed.warm(number=2, launch=replace(boxed.launch(), context=8_000_000_000)))
        assert made.outcome is Outcome.FAILED
        assert held_of(agent, old).state is ResidencyState.READY
        kept = [box for box in boxes.runtime.boxes.values() if not box.running]
        assert len(kept) == 1, "the failed one is kept for its log"
        assert sum(box.running for box in boxes.runtime.boxes.values()) == 1
