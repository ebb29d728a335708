"""Engines as containers: the whole life through a real agent and the real client library, and every way to fail.

The runtime is `box_runtime`, which follows the Engine API with real processes inside; the story that it is trusted for
runs against a real Docker or Podman too, where there is one (`test_containers_contract.py`).
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, EngineName
from gridops.disk.keyring import create_secret
from gridops.model.fleet import Runtime as HasRuntime
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome, Receipt
from gridops_agent import takeover
from gridops_agent.keep import container, taken
from gridops_agent.keep import container_spec as spec
from gridops_agent.keep.ways import Image, Ways
from gridops_agent.shell import Agent
from gridops_agent.status import status
from tests.agent.box_runtime import Box, Runtime, Server, hangs_up, says
from tests.agent.site import Site, command, done, free_ports, held_of, receipt, until

REFERENCE = "llama.cpp/server@sha256:" + "ab" * 32
OTHER = digest_bytes(b"somebody else's command")


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Server]:
    runtime = Runtime(tmp_path, images={REFERENCE: "sha256:" + "cd" * 32})
    with tempfile.TemporaryDirectory() as short, Server(Path(short) / "s", runtime) as server:
        yield server


@pytest.fixture
def boxed(boxes: Server, site: Site) -> Site:
    """A host that runs llama.cpp as a container."""
    ways = Ways(images={"llama.cpp": Image(REFERENCE, "cpu", port=8_080)}, socket=boxes.url)
    site.config = replace(site.config, ways=ways)
    return site


async def warmed(agent: Agent, site: Site) -> Digest:
    body = await command(agent, site, site.warm())
    made = await receipt(agent, body)
    assert made.outcome is Outcome.SUCCEEDED, made
    return body


async def stopped(agent: Agent, site: Site, body: Digest) -> Receipt:
    assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
    return await done(agent, site, site.unload(body))


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


async def kept_alive(agent: Agent, body: Digest, restarts: int = 1) -> None:
    watch = asyncio.ensure_future(agent.watch.run())
    await until(lambda: held_of(agent, body).restarts == restarts, "keep-alive")
    await until(lambda: held_of(agent, body).state is ResidencyState.READY, "the new engine")
    watch.cancel()


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


def ended_box(runtime: Runtime, name: str, created: float, site: Site | None) -> Box:
    labels = dict(spec.Owner(site.config.fleet, "forge").labels(OTHER)) if site is not None else {}
    done_ = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    done_.wait()
    made = {"Image": REFERENCE, "Labels": labels, "HostConfig": {"PortBindings": {}}}
    return Box(digest_bytes(name.encode())[7:], name, made, created, process=done_, started="2026-01-01T00:00:00Z")


# --- what speaks against creating it ---------------------------------------------------------------------------------


async def refused(agent: Agent, site: Site) -> str:
    made = await done(agent, site, site.warm())
    assert made.outcome is not Outcome.SUCCEEDED
    return f"{made.code}: {made.detail}"


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


# --- failures of the runtime -----------------------------------------------------------------------------------------

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
        boxes.runtime.broken |= dict.fromkeys(("inspect", "containers"), hangs_up)
        await agent.watch.look()
        assert (held_of(agent, body).state, held_of(agent, body).code) == (ResidencyState.FAILED, "not_ours")
        made = await done(agent, boxed, boxed.unload(body, force=True))
        assert made.outcome is Outcome.FAILED, "nothing is unloaded on no word"
        assert boxes.runtime.only().running
        boxes.runtime.broken.clear()
        await agent.watch.look()
        await until(lambda: held_of(agent, body).state is ResidencyState.READY, "the runtime is back")


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


def test_names_are_for_people_and_never_longer_than_a_runtime_takes() -> None:
    assert spec.name_of("Org/Model 7B:Q4", "abc123") == "gridops-Org-Model-7B-Q4-abc123"
    assert len(spec.name_of("x" * 200, "abc123")) == 60
    assert spec.name_of("a/b", "t") == spec.name_of("a b", "t"), "two models may share one: nothing reads it back"


def test_a_host_without_containers_never_loads_their_library() -> None:
    code = "import sys, gridops_agent.shell, gridops_agent.cli.main; raise SystemExit('docker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def foreign(boxes: Server, boxed: Site, key: Path, restart: str = "no", address: str = "127.0.0.1") -> Box:
    """A container that a person runs: the same engine and file, no label of ours."""
    words = ["--model", "/models/m.gguf", "--alias", "tiny", "--host", "0.0.0.0", "--port", "8080", "--ctx-size", "512"]
    words += ["--parallel", "2", "--threads", "1", "--api-key-file", "/key", "--slots", "--metrics"]
    port = str(free_ports(1)[0])
    mounts = [
        {"Target": "/models/m.gguf", "Source": str(boxed.model.path), "ReadOnly": True},
        {"Target": "/key", "Source": str(key), "ReadOnly": True},
    ]
    host = {"PortBindings": {"8080/tcp": [{"HostIp": address, "HostPort": port}]}, "Mounts": mounts}
    made = {"Image": REFERENCE, "Entrypoint": ["/app/llama-server"], "Cmd": words, "Labels": {}}
    body = {**made, "HostConfig": {**host, "RestartPolicy": {"Name": restart}}}
    box = boxes.runtime.find(boxes.runtime.create("theirs", body)["Id"])
    boxes.runtime.start(box.id)
    return box


async def handed_over(boxed: Site, key: Path) -> taken.Taken:
    for _ in range(600):
        try:
            return await takeover.found(boxed.config, takeover.Wish("theirs", str(key)))
        except Refusal as refusal:
            if "lists no model" not in refusal.message:
                raise
            await asyncio.sleep(0.1)
    raise AssertionError("it never came up")


async def test_a_container_is_taken_over_as_it_runs_and_may_then_be_ended(
    boxes: Server, boxed: Site, tmp_path: Path
) -> None:
    key = tmp_path / "keys" / "their.key"
    create_secret(key, b"f" * 64)
    box = foreign(boxes, boxed, key)
    takeover.keep(boxed.config, await handed_over(boxed, key), 1)
    async with boxed.agent() as agent:
        body = await warmed(agent, boxed)
        handle = held_of(agent, body).handle
        assert handle is not None
        assert (handle.name, handle.taken, handle.port) == (box.id, True, boxes.runtime._published(box))
        assert len(boxes.runtime.boxes) == 1, "nothing was created"
        assert (await stopped(agent, boxed, body)).outcome is Outcome.SUCCEEDED
    assert not box.running
    assert box.id in boxes.runtime.boxes, "what a person made is theirs to remove"


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"restart": "always"}, "would restart"), ({"address": "0.0.0.0"}, "on 127.0.0.1 only")],
)
async def test_a_container_that_others_reach_or_that_is_restarted_by_itself_is_not_taken_over(
    boxes: Server, boxed: Site, tmp_path: Path, changes: dict[str, str], says: str
) -> None:
    key = tmp_path / "keys" / "their.key"
    create_secret(key, b"f" * 64)
    box = foreign(boxes, boxed, key)
    box.spec["HostConfig"]["RestartPolicy"]["Name"] = changes.get("restart", "no")
    (bound,) = box.spec["HostConfig"]["PortBindings"]["8080/tcp"]
    bound["HostIp"] = changes.get("address", "127.0.0.1")
    with pytest.raises(Refusal, match=says):
        await takeover.found(boxed.config, takeover.Wish("theirs", str(key)))
    assert box.running
