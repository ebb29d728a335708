"""Engines as containers: the whole life of one, through a real agent and the real client library.

The runtime is `box_runtime`, which follows the Engine API with real processes inside; the story that it is trusted for
runs against a real Docker or Podman too, where there is one (`test_containers_contract.py`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from gridops.base import limits
from gridops.base.ids import EngineName
from gridops.model.fleet import Runtime as HasRuntime
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.keep import container_spec as spec
from gridops_agent.status import status
from tests.agent.box_runtime import Server
from tests.agent.boxed import OTHER, ended_box, kept_alive, stopped, warmed
from tests.agent.site import Site, held_of


async def test_a_model_is_served_from_a_container_that_only_this_machine_can_reach(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        assert agent._readings().runtimes == (HasRuntime(engine=EngineName("llama.cpp"), backend="cpu"),)
        body = await warmed(agent, boxed)
        box = boxes.runtime.only()
        asked = box.spec
        assert asked["Labels"] == {
            "dev.gridops.managed": "true",
            "dev.gridops.fleet": boxed.config.fleet,
            "dev.gridops.host": "forge",
            "dev.gridops.body": body,
            "dev.gridops.model-id": "tiny",
            "dev.gridops.backend": "llama.cpp",
        }
        assert asked["HostConfig"]["PortBindings"] == {
            "8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(held_of(agent, body).port)}]
        }
        assert asked["HostConfig"]["RestartPolicy"] == {"Name": "no"}, "keep-alive is the agent's"
        assert asked["HostConfig"].get("DeviceRequests") in (None, []), "a CPU start names no device"
        mounts = {m["Target"]: (m["Source"], m["ReadOnly"]) for m in asked["HostConfig"]["Mounts"]}
        key_file = agent.doors.folder(body) / "engine.key"
        assert mounts == {
            f"/gridops/models/{boxed.model.path.name}": (str(boxed.model.path.resolve()), True),
            "/gridops/engine.key": (str(key_file), True),
        }
        key = key_file.read_text()
        assert key not in " ".join((*asked["Cmd"], *asked["Entrypoint"], *(asked.get("Env") or ()))), "a key in sight"
        handle = held_of(agent, body).handle
        assert handle is not None
        assert (handle.keeper, handle.name, handle.pid) == ("container", box.id, box.process.pid if box.process else 0)
        assert await agent.keepers.processes_of({body: handle}) == (handle.pid,), "its memory counts as ours"
        assert status(boxed.config, True)["residencies"][0]["state"] == "ready"
        assert (await stopped(agent, boxed, body)).outcome is Outcome.SUCCEEDED
        assert boxes.runtime.boxes == {}, "what was stopped in order leaves nothing"


async def test_a_restarted_agent_adopts_its_container_and_starts_no_second_one(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        before = held_of(agent, body).handle
    async with boxed.agent() as agent:
        assert held_of(agent, body).handle == before
        assert held_of(agent, body).state is ResidencyState.READY
        assert len(boxes.runtime.boxes) == 1
        assert not any(verb in ("stop", "kill", "create") for verb, _ in boxes.runtime.calls[-3:])


async def test_a_container_whose_handle_was_never_recorded_is_found_by_its_labels(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        held = held_of(agent, body)
        found = await agent.keepers.recover(replace(held, handle=None), agent.doors.folder(body) / "engine.key")
        assert found is not None
        assert replace(found, settled=True) == held.handle
        assert await agent.keepers.recover(replace(held, body=OTHER, handle=None), Path("/k")) is None


async def test_a_container_started_again_by_hand_is_another_life(boxes: Server, boxed: Site) -> None:
    """Its labels are ours, so it is ended; but what it was before is over, and keep-alive brings a new one."""
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        await agent.effects.settled()
        box = boxes.runtime.only()
        assert box.process is not None
        box.process.kill()
        box.process.wait()
        boxes.runtime.start(box.id)
        await agent.watch.look()
        await kept_alive(agent, body)
        assert not box.running
        handle = held_of(agent, body).handle
        assert handle is not None
        assert handle.name != box.id


async def test_a_container_that_the_kernel_ended_for_its_memory_says_so_and_is_kept(boxes: Server, boxed: Site) -> None:
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        await agent.effects.settled()
        box = boxes.runtime.only()
        box.oom = True
        assert box.process is not None
        box.process.kill()
        box.process.wait()
        await agent.watch.look()
        detail = held_of(agent, body).detail or ""
        assert f"the container {box.id[:12]} ended with exit code 137 (out of memory)" in detail
        assert box.id in boxes.runtime.boxes, "its log survives"
        assert (agent.doors.folder(body) / "log").read_text(), "and lies where the logs of other engines lie"
        await kept_alive(agent, body)
        assert len(boxes.runtime.boxes) == 2


async def test_only_so_many_ended_containers_are_kept(boxes: Server, boxed: Site) -> None:
    for number in range(limits.ENDED_CONTAINERS_KEPT + 4):
        old = ended_box(boxes.runtime, f"old-{number}", time.time() - 1_000 + number, boxed)
        boxes.runtime.boxes[old.id] = old
    theirs = ended_box(boxes.runtime, "theirs", 1.0, None)
    boxes.runtime.boxes[theirs.id] = theirs
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        await stopped(agent, boxed, body)
        left = sorted(box.name for box in boxes.runtime.boxes.values())
        newest = [f"old-{n}" for n in range(limits.ENDED_CONTAINERS_KEPT + 4)][-limits.ENDED_CONTAINERS_KEPT :]
        assert set(left) - {"theirs"} <= set(newest)
        assert "theirs" in left, "what is not ours is not ours to remove"


def test_names_are_for_people_and_never_longer_than_a_runtime_takes() -> None:
    assert spec.name_of("Org/Model 7B:Q4", "abc123") == "gridops-Org-Model-7B-Q4-abc123"
    assert len(spec.name_of("x" * 200, "abc123")) == 60
    assert spec.name_of("a/b", "t") == spec.name_of("a b", "t"), "two models may share one: nothing reads it back"


def test_a_host_without_containers_never_loads_their_library() -> None:
    code = "import sys, gridops_agent.shell, gridops_agent.cli.main; raise SystemExit('docker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
