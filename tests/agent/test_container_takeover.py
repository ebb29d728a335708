"""Containers that a person started change hands as they run, and only where nobody else reaches or restarts them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gridops.base.errors import Refusal
from gridops.disk.keyring import create_secret
from gridops.protocol.messages import Outcome
from gridops_agent import takeover
from gridops_agent.keep import taken
from tests.agent.box_runtime import Box, Server
from tests.agent.boxed import REFERENCE, stopped, warmed
from tests.agent.site import Site, free_ports, held_of


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
