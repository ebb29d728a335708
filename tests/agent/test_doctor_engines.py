"""The doctor on engines: whom their ports let in, routers among them, and evidence that speaks of other builds."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.model.fleet import DeviceKind
from gridops.protocol.qualification import DeviceReading, Qualification
from gridops_agent import evidence
from gridops_agent.artifacts.find import look
from gridops_agent.engines import engines
from gridops_agent.keep.external import External
from gridops_agent.keep.ways import Ways
from gridops_agent.ledger import Ledger
from gridops_agent.life import doctor_engines
from gridops_agent.life.install import Machine
from tests.agent.service_manager import ServiceManager, machine
from tests.agent.site import HOST, Site, wall_ms
from tests.agent.test_doctor import about, set_config, told


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return machine(tmp_path, ServiceManager())


@pytest.mark.parametrize(("address", "level"), [("127.0.0.1", "ok"), ("0.0.0.0", "bad"), ("::", "bad")])
async def test_a_service_that_others_reach_past_the_front_is_bad(
    site: Site, here: Machine, address: str, level: str
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as open_door:
        port = open_door.getsockname()[1]
        set_config(ways=Ways(services={"ollama": f"http://127.0.0.1:{port}"}))(site)
        ((found, words),) = about(await told(site, here), "doors")
        assert found == level
        assert level == "ok" or f"the service ollama listens on {address} port {port}" in words
    ((found, words),) = about(await told(site, here), "doors")
    assert (found, words) == ("warn", f"nobody listens on port {port}, where the service ollama should be")


def test_which_addresses_are_of_this_machine_alone() -> None:
    assert [doctor_engines.is_loopback(ip) for ip in ("127.0.0.1", "127.3.0.1", "::1", "::ffff:127.0.0.1")] == [
        True
    ] * 4
    assert [doctor_engines.is_loopback(ip) for ip in ("0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0", "*")] == [False] * 5


async def test_routers_are_named_with_what_they_hold(
    site: Site, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = External("llama.cpp", 7, "b", None, (), 8_080, ("a", "b"), router=True, loaded=frozenset({"b"}))
    plain = External("vllm", 8, "b", None, (), 8_000, ("c",))

    async def seen(*_: Any) -> tuple[External, ...]:
        return (router, plain)

    monkeypatch.setattr(doctor_engines.external, "look", seen)
    found = await told(site, here)
    assert about(found, "router") == [
        ("warn", "llama.cpp pid 7 port 8080 loads and evicts models by itself, now b"),
    ]
    assert about(found, "external") == [("ok", "vllm pid 8 port 8000, not started by this agent: c")]
    set_config(engine_command={"llama.cpp": ("/opt/llama-server", "--models-dir=/m")})(site)
    assert about(await told(site, here), "router")[0] == (
        "bad",
        f"the command of llama.cpp in {site.config.file} starts a router",
    )


async def test_evidence_of_another_build_or_of_files_that_changed_is_doubtful(
    site: Site, here: Machine, tmp_path: Path
) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    set_config(engine_command={"llama.cpp": (str(program),)})(site)
    build = engines(site.config.engine_command)["llama.cpp"].build()  # type: ignore[index]
    assert build.startswith("llama-server ")
    reading = DeviceReading(
        device="cpu0",
        kind=DeviceKind.CPU,
        total_bytes=9,
        used_bytes=2,
        own_bytes=1,  # type: ignore[arg-type]
    )
    made = Qualification(
        fleet=site.config.fleet, host=HOST, at_ms=1, agent_version="0.1.0", engine_version=build, launch=site.launch(),
        identity="x", steps=(), readings=(reading,), passed=True,
    )  # fmt: skip
    evidence.keep(site.config.qualified, made, site.signer)
    assert about(await told(site, here), "evidence") == [
        ("ok", "1 of 1 measured configurations are of what is installed here")
    ]
    program.write_text("#!/bin/sh\nexit 1\n")
    ((level, words),) = about(await told(site, here), "evidence")
    assert (level, f"measured with {build}, and llama-server " in words) == ("warn", True)
    program.write_text("#!/bin/sh\n")
    file = tmp_path / "m.gguf"
    file.write_bytes(b"old")
    ledger = Ledger.open(site.config.ledger, site.identity, (site.chain.text,), wall_ms())
    proof = look(file, site.launch().artifact.files[0].sha256)
    ledger.keep_proof(str(file), proof)
    ledger.close()
    assert about(await told(site, here), "evidence")[0][0] == "ok"
    file.write_bytes(b"changed")
    ((level, words),) = about(await told(site, here), "evidence")
    assert (level, f"{file} is not the file that was hashed any more" in words) == ("warn", True)
    old = replace(made, engine_version="unknown", at_ms=2)
    evidence.keep(site.config.qualified, old, site.signer)
    file.unlink()
    assert "measured with" not in about(await told(site, here), "evidence")[0][1], "what is not known is not said"
    next(site.config.qualified.glob("*.json")).write_text("{}")
    assert any(level == "bad" for level, _ in about(await told(site, here), "evidence"))
