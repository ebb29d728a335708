"""Transfers under a real agent: they delay nothing, outlive its death, and what came on a guess can be told to go."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.ids import Digest, ProfileName, nobody
from gridops.model.action import Evict, Load
from gridops.model.profile import Artifact, ArtifactFile
from gridops.protocol.messages import GrantMode, Outcome
from gridops_agent.core.report import inventory
from gridops_agent.shell import Agent
from tests.agent.origin import Origin, Trick, serving
from tests.agent.origin import until as waited
from tests.agent.shelf import QUICK
from tests.agent.site import HOST, Site, command, done, hear, receipt, until
from tests.builders.gguf_bytes import made as sound_gguf

MODEL = sound_gguf(room=400_000)
HALF = len(MODEL) // 2
FILES = ProfileName("later")


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving(**{"m.gguf": MODEL}) as one:
        yield one


@pytest.fixture
def patient(site: Site) -> Site:
    """A host that waits long for a source that says nothing."""
    site.config = replace(site.config, artifacts=replace(QUICK, stall_ms=60_000))
    return site


def file_of(content: bytes) -> ArtifactFile:
    from gridops.base.canon import digest_bytes

    return ArtifactFile(path="m.gguf", sha256=digest_bytes(content), size_bytes=len(content))


def far(origin: Origin, content: bytes = MODEL) -> Artifact:
    return Artifact(format="gguf", files=(file_of(content),), source=f"{origin.url}/m.gguf")


def guess(origin: Origin) -> Load:
    return Load(host=HOST, replica=nobody(FILES), profile=FILES, artifact=far(origin), guess=True)


def evict(*files: Digest) -> Evict:
    return Evict(host=HOST, replica=nobody(FILES), profile=FILES, files=files or (file_of(MODEL).sha256,))


async def test_an_unload_ends_while_a_fetch_hangs(patient: Site, origin: Origin) -> None:
    async with patient.agent() as agent:
        warmed = await command(agent, patient, patient.warm())
        await receipt(agent, warmed)
        origin.tricks = [Trick(stall_after=HALF)]
        loading = await command(agent, patient, patient.load(artifact=far(origin)))
        behind = await command(agent, patient, patient.load("other", artifact=far(origin)))
        await until(lambda: bool(agent._readings().transfers), "the transfer")
        began = time.monotonic()
        assert (await done(agent, patient, patient.drain(warmed))).outcome is Outcome.SUCCEEDED
        assert (await done(agent, patient, patient.unload(warmed))).outcome is Outcome.SUCCEEDED
        assert time.monotonic() - began < 20
        assert {loading, behind} == set(agent.memory.host.commands), "both still wait: one hangs, one is behind it"
        shown = inventory(agent.memory.host, agent._readings()).transfers
        assert shown is not None
        assert [(t.source, t.done_bytes, t.size_bytes) for t in shown] == [("https", HALF, len(MODEL))]


async def test_a_fetch_that_is_taken_back_ends_at_once_and_makes_way(patient: Site, origin: Origin) -> None:
    async with patient.agent() as agent:
        origin.tricks = [Trick(stall_after=HALF)]
        body = patient.body(patient.load(artifact=far(origin)))
        await hear(agent, patient, patient.grant(body))
        await until(lambda: bool(agent._readings().transfers), "the transfer")
        began = time.monotonic()
        await hear(agent, patient, patient.grant(body, GrantMode.VOID))
        await until(lambda: not agent.memory.host.commands, "the receipt")
        assert time.monotonic() - began < 5
        assert agent.memory.host.receipts.kept[-1].outcome is Outcome.VOIDED
        assert (await done(agent, patient, patient.load(artifact=far(origin)))).outcome is Outcome.SUCCEEDED


CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from gridops_agent.artifacts import Artifacts
from gridops_agent.config import read_config
from gridops_agent.core.events import Heard
from gridops_agent.shell import Agent
from gridops.base.record import from_bytes
from gridops.protocol.messages import Directive

Artifacts._publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

async def main(state, directive):
    async with Agent(read_config(Path(state)), "0.1.0") as agent:
        heard = from_bytes(Directive, Path(directive).read_bytes())
        await agent.effects.tell(Heard(heard, floor_ms=heard.now_ms, epoch=1))
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""
"""It dies where a whole file would be published."""
POINTS = {"at its first byte": 1, "in its middle": HALF, "at its last byte": len(MODEL) - 1, "when it is whole": None}


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
async def test_an_agent_killed_in_a_transfer_goes_on_there_and_publishes_only_the_file(
    patient: Site, origin: Origin, tmp_path: Path, point: int | None
) -> None:
    from gridops.base.record import to_bytes
    from gridops_agent.config import write_config

    write_config(patient.config)
    body = patient.body(patient.load(artifact=far(origin)))
    (tmp_path / "directive").write_bytes(to_bytes(patient.directive((patient.grant(body),))))
    origin.tricks = [Trick(stall_after=point)] if point is not None else []
    came = point if point is not None else len(MODEL)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(patient.state), str(tmp_path / "directive"), env=dict(os.environ)
    )
    try:
        await asyncio.to_thread(waited, lambda: arrived(patient) == came, f"{came} bytes", 60)
        if point is None:
            await asyncio.wait_for(child.wait(), 60)
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
    assert arrived(patient) == came
    assert not published(patient), "nothing is published before it is whole"
    async with patient.agent() as agent:
        patient.seq, patient.head = agent.memory.host.fence.head.seq, agent.memory.host.fence.head.body
        assert [(r.outcome, r.code) for r in agent.memory.host.receipts.kept] == [(Outcome.FAILED, "interrupted")]
        assert (await done(agent, patient, patient.load(artifact=far(origin)))).outcome is Outcome.SUCCEEDED
        assert origin.ranges() == ["", *([f"bytes={point}-"] if point is not None else [])]
        assert agent._readings().cached == (file_of(MODEL).sha256,)
        (folder,) = patient.config.cache.iterdir()
        assert published(patient) == [folder], "no staging stays"
        assert (folder / "m.gguf").read_bytes() == MODEL


async def test_over_tls_by_a_ca_of_ones_own_a_killed_transfer_goes_on_where_it_was(
    patient: Site, origin: Origin, tmp_path: Path
) -> None:
    """Twice killed in the middle, by the certificate of a file: two agents in a row go on, the third one has it all."""
    from gridops.base.record import to_bytes
    from gridops_agent.config import write_config

    trusted = origin.speak_tls(tmp_path)
    write_config(patient.config)
    origin.tricks = [Trick(stall_after=HALF), Trick(stall_after=HALF // 2)]
    code = CHILD.replace("os.kill(os.getpid(), signal.SIGKILL)", "os._exit(7)")
    points = (HALF, HALF + HALF // 2, len(MODEL))
    for came in points:
        body = patient.body(patient.load(artifact=far(origin)))
        (tmp_path / "directive").write_bytes(to_bytes(patient.directive((patient.grant(body),))))
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, str(patient.state), str(tmp_path / "directive")),
            env=dict(os.environ) | {"SSL_CERT_FILE": str(trusted)},
        )
        try:
            await asyncio.to_thread(waited, lambda came=came: arrived(patient) == came, f"{came} bytes", 60)
            if came == len(MODEL):
                assert await asyncio.wait_for(child.wait(), 60) == 7, "it was right, and about to be published"
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGKILL)
                await child.wait()
    assert not published(patient)
    assert origin.ranges() == ["", *(f"bytes={came}-" for came in points[:-1])]


def published(site: Site) -> list[Path]:
    return [path for path in site.config.cache.iterdir() if not path.name.startswith(".")]


def arrived(site: Site) -> int:
    return sum(p.stat().st_size for p in site.config.cache.rglob("m.gguf")) if site.config.cache.exists() else 0


# -- what came on a guess ---------------------------------------------------------------------------------------------


@pytest.fixture
def keen(make_site: Callable[..., Site]) -> Site:
    site = make_site("keen")
    site.config = replace(site.config, artifacts=QUICK)
    return site


def shown(agent: Agent) -> list[tuple[str, tuple[Digest, ...], int]]:
    rows = inventory(agent.memory.host, agent._readings()).prefetched or ()
    return [(r.profile, r.files, r.size_bytes) for r in rows]


async def test_a_guess_is_remembered_over_restarts_and_goes_when_told(keen: Site, origin: Origin) -> None:
    mine = (FILES, (file_of(MODEL).sha256,), len(MODEL))
    async with keen.agent() as agent:
        assert inventory(agent.memory.host, agent._readings()).abilities == ("binding", "catalog", "evict", "proof")
        assert (await done(agent, keen, guess(origin))).outcome is Outcome.SUCCEEDED
        assert shown(agent) == [mine]
    async with keen.agent() as agent:
        assert shown(agent) == [mine]
        assert (await done(agent, keen, evict())).outcome is Outcome.SUCCEEDED
        assert shown(agent) == []
        assert agent._readings().cached == ()
        assert list(keen.config.cache.iterdir()) == []
        again = await done(agent, keen, evict())
        assert (again.outcome, again.code) == (Outcome.REFUSED, "not_a_guess")


async def test_what_was_there_before_is_no_guess_and_never_goes(keen: Site, origin: Origin, tmp_path: Path) -> None:
    folder = tmp_path / "operators"
    folder.mkdir()
    (folder / "m.gguf").write_bytes(MODEL)
    keen.config = replace(keen.config, artifact_folders=(folder,))
    async with keen.agent() as agent:
        assert (await done(agent, keen, guess(origin))).outcome is Outcome.SUCCEEDED
        assert shown(agent) == []
        assert (await done(agent, keen, evict())).code == "not_a_guess"
        assert (folder / "m.gguf").exists()


async def test_what_was_asked_for_in_earnest_is_no_guess_any_more(keen: Site, origin: Origin) -> None:
    async with keen.agent() as agent:
        await done(agent, keen, guess(origin))
        await done(agent, keen, keen.load(artifact=far(origin)))
        assert shown(agent) == []
        assert (await done(agent, keen, evict())).code == "not_a_guess"
        assert agent._readings().cached == (file_of(MODEL).sha256,)


async def test_what_a_process_was_started_from_is_no_guess_any_more(keen: Site, tmp_path: Path) -> None:
    source = tmp_path / "nas" / "tiny.gguf"
    source.parent.mkdir()
    source.write_bytes(keen.model.path.read_bytes())
    keen.config = replace(keen.config, artifact_folders=())
    artifact = keen.artifact(source=f"file://{source}")
    async with keen.agent() as agent:
        load = Load(host=HOST, replica=nobody(FILES), profile=FILES, artifact=artifact, guess=True)
        await done(agent, keen, load)
        assert len(shown(agent)) == 1
        warmed = await command(agent, keen, keen.warm(launch=keen.launch(artifact=artifact)))
        await receipt(agent, warmed)
        assert shown(agent) == []
        assert (await done(agent, keen, evict(Digest(keen.model.digest)))).code == "not_a_guess"
        await done(agent, keen, keen.drain(warmed))
        await done(agent, keen, keen.unload(warmed))
        assert (await done(agent, keen, evict(Digest(keen.model.digest)))).code == "not_a_guess", "used is used"


async def test_a_start_fetches_nothing(keen: Site, origin: Origin) -> None:
    async with keen.agent() as agent:
        launch = keen.launch(artifact=far(origin))
        assert (await done(agent, keen, keen.warm(launch=launch))).code == "no_artifact"
        assert origin.asked == []
