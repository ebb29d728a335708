"""A qualification is a real life: every step is tried here, signed, and only what is beyond doubt is measured."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.base.codes.host import EVIDENCE_DOUBTFUL
from gridops.base.errors import BadSetup, Busy, Failed, Refusal
from gridops.model.fleet import DeviceKind
from gridops.model.measured import revision, settings
from gridops.model.profile import ArtifactFile, EngineArg
from gridops.protocol.qualification import Found, Step, open_qualification
from gridops.trust.envelope import seal
from gridops_agent import evidence, qualify_setup
from gridops_agent.alarms import Alarms
from gridops_agent.qualify_setup import Made, Wish, qualify
from tests.agent.site import Site, command, receipt
from tests.builders.tiny_gguf import write_tiny_gguf

STEPS = [step.value for step in Step]


async def run(site: Site, **changes: object) -> tuple[Made, list[Found]]:
    seen: list[Found] = []
    wish = Wish(
        engine="llama.cpp",
        model=str(site.model.path),
        context=8_192,
        lanes=2,
        args=(EngineArg(name="threads", value="1"),),
        settle_ms=50,
        apart_ms=20,
    )
    made = await qualify(site.config, replace(wish, **changes), "0.1.0", seen.append)  # type: ignore[arg-type]
    return made, seen


async def test_a_whole_life_is_run_measured_and_signed(site: Site) -> None:
    made, seen = await run(site)
    assert [f.step.value for f in seen] == STEPS
    assert all(f.passed for f in seen), seen
    assert site.processes() == []
    said, digest = open_qualification(made.file.read_bytes(), site.signer.public)
    assert said.engine_version.startswith(("xllamacpp ", "llama-server ")), "which build it was measured with"
    assert digest == made.evidence
    assert said.passed
    assert (said.host, said.fleet) == (site.config.host, site.config.fleet)
    (reading,) = said.readings
    assert 8 << 20 < reading.own_bytes < reading.total_bytes
    (measured,), bad = evidence.measured(site.config.qualified, site.signer.public)
    assert bad == ()
    assert measured.evidence == digest
    assert measured.device_bytes == reading.own_bytes
    assert measured.revision == revision(site.artifact())
    assert measured.settings == settings(said.launch.args, said.launch.devices)
    assert (measured.context, measured.lanes, measured.kind) == (8_192, 2, DeviceKind.CPU)
    key = site.state / "engines"
    assert not list(key.rglob("engine.key")), "its key is of no use any more"


@pytest.mark.parametrize(
    ("changes", "failing", "says"),
    [
        ({"backend": "cuda", "devices": ()}, None, "has no card"),
        ({"args": (EngineArg(name="warp", value="9"),)}, Step.INVENTORY, "no argument `warp`"),
        ({"engine": "vllm"}, Step.INVENTORY, "vllm is here for nothing"),
        ({"engine": "nothing"}, None, "no engine of this host"),
    ],
)
async def test_what_cannot_be_run_is_said_before_anything_is_started(
    site: Site, changes: dict[str, object], failing: Step | None, says: str
) -> None:
    if failing is None:
        with pytest.raises(Exception, match=says):
            await run(site, **changes)
        return
    made, seen = await run(site, **changes)
    assert (seen[-1].step, seen[-1].passed) == (failing, False)
    assert says in seen[-1].detail
    said, _ = open_qualification(made.file.read_bytes(), site.signer.public)
    assert not said.passed
    assert evidence.measured(site.config.qualified, site.signer.public) == ((), ())
    assert site.processes() == []


async def test_a_broken_model_ends_with_the_step_at_which_it_broke_and_nothing_left(site: Site, tmp_path: Path) -> None:
    broken = write_tiny_gguf(tmp_path / "broken.gguf").path
    name = b"general.architecture"  # the header is sound, and no engine knows such a model
    raw = broken.read_bytes()
    assert raw.count(b"llama", raw.index(name), raw.index(name) + 64) == 1
    broken.write_bytes(raw.replace(b"llama", b"lamal", 1))
    made, seen = await run(site, model=str(broken))
    failed = [f for f in seen if not f.passed]
    assert failed
    assert failed[0].step in (Step.WARM, Step.OWNERSHIP, Step.READINESS)
    assert not made.outcome.passed
    assert site.processes() == []


async def test_what_is_no_model_reaches_no_engine_here_either(site: Site, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.gguf"
    hostile.write_bytes(b"GGUF" + b"\x07" * 4096)
    made, seen = await run(site, model=str(hostile))
    assert (seen[-1].step, seen[-1].passed) == (Step.IDENTITY, False)
    assert "is no sound gguf file" in seen[-1].detail
    assert not made.outcome.passed
    assert not list(site.state.rglob("log")), "nothing was started"


async def test_a_folder_that_is_no_model_is_an_ordinary_failure(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for number in range(4):
        (home / f"{number}.txt").write_text("a letter")
    monkeypatch.setattr(qualify_setup, "_MODEL_FILES", 3)
    with pytest.raises(BadSetup, match="more than 3 files: that is no model"):
        await run(site, model=str(home))
    monkeypatch.setattr(qualify_setup, "_MODEL_FILES", 4)
    hashed = qualify_setup._hashed

    def gone(file: Path, base: Path) -> ArtifactFile:
        if file.name == "2.txt":
            file.unlink()  # somebody else's, and it went between the listing and the reading
        return hashed(file, base)

    monkeypatch.setattr(qualify_setup, "_hashed", gone)
    with pytest.raises(Failed, match=r"2\.txt cannot be read: No such file"):
        await run(site, model=str(home))


async def test_what_a_killed_qualification_left_is_named_and_never_weighed_along(site: Site) -> None:
    """It lives in a session of its own: whoever kills the command does not end the engine."""
    first = shutil.copy(site.model.path, site.state.parent / "first.gguf")
    script = (
        "import asyncio, sys; from pathlib import Path; from gridops_agent.config import read_config\n"
        "from gridops_agent.qualify_setup import Wish, qualify\n"
        "def say(found):\n"
        "    if found.step.value == 'ownership': print('owned', flush=True)\n"
        "wish = Wish(engine='llama.cpp', model=sys.argv[2], context=512, settle_ms=600_000)\n"
        "asyncio.run(qualify(read_config(Path(sys.argv[1])), wish, '0.1.0', say))\n"
    )
    argv = (sys.executable, "-c", script, str(site.state), str(first))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as cut:
        assert cut.stdout is not None
        assert cut.stdout.readline() == "owned\n"
        cut.kill()
    assert len(site.processes()) == 1
    with pytest.raises(Failed, match=rf"pid {site.processes()[0]} is left of a run that was cut off"):
        await run(site)
    made, seen = await run(site, model=str(first), context=8_192)
    assert made.outcome.passed, seen
    assert site.processes() == []


async def test_nothing_is_measured_while_an_agent_runs_or_another_engine_lives(site: Site) -> None:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        await receipt(agent, body)
        with pytest.raises(Busy):
            await run(site)
    with pytest.raises(Failed, match="would be in the reading"):
        await run(site)


async def test_a_doubtful_reading_is_signed_as_refused_and_measures_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridops_agent.qualify_memory.resident_bytes", lambda pids: 0)
    made, seen = await run(site)
    failed = next(f for f in seen if not f.passed)
    assert failed.step is Step.MEMORY
    assert "no measurement" in failed.detail
    assert seen[-1].step is Step.STOP
    assert seen[-1].passed, "what was started is ended all the same"
    said, _ = open_qualification(made.file.read_bytes(), site.signer.public)
    assert said.refused is not None
    assert evidence.measured(site.config.qualified, site.signer.public) == ((), ())


async def test_evidence_that_was_touched_or_is_anothers_is_not_used(site: Site, make_site: Callable[..., Site]) -> None:
    made, _ = await run(site)
    folder, key = site.config.qualified, site.signer.public
    raw = made.file.read_bytes()
    (folder / "renamed.json").write_bytes(raw)
    (folder / "torn.json").write_bytes(raw[:-20])
    found, bad = evidence.measured(folder, key)
    assert len(found) == 1
    assert len(bad) == 2
    made.file.write_bytes(raw.replace(b"a", b"b", 1))
    found, bad = evidence.measured(folder, key)
    assert found == ()
    assert len(bad) == 3
    with pytest.raises(Refusal):
        open_qualification(seal("heartbeat", b"{}", site.signer), key)


async def test_the_newest_evidence_of_a_configuration_is_reported_and_of_too_many_the_newest(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = await run(site)
    folder, key = site.config.qualified, site.signer.public
    said, _ = open_qualification(made.file.read_bytes(), key)
    back_ms = 0
    while made.file in (min(folder.glob("*.json")), max(folder.glob("*.json"))):
        back_ms += 1  # until the newest is neither the first nor the last that is read
        evidence.keep(folder, replace(said, at_ms=said.at_ms - back_ms), site.signer)
    assert [m.at_ms for m in evidence.measured(folder, key)[0]] == [said.at_ms]
    for n in range(1, 4):
        launch = replace(said.launch, context=said.launch.context + n)
        evidence.keep(folder, replace(said, at_ms=said.at_ms - n, launch=launch), site.signer)
    assert len(evidence.measured(folder, key)[0]) == 4
    monkeypatch.setattr(limits, "MEASURED_PER_HOST", 2)
    found, _ = evidence.measured(folder, key)
    assert {m.at_ms for m in found} == {said.at_ms, said.at_ms - 1}
    assert [m.evidence for m in found] == sorted(m.evidence for m in found)


async def test_evidence_that_is_not_believed_is_an_alarm_beside_what_is(site: Site) -> None:
    made, _ = await run(site)
    (site.config.qualified / "torn.json").write_bytes(made.file.read_bytes()[:-20])
    alarms = Alarms(lambda: 0.0)
    (found,) = evidence.reported(site.config.qualified, site.signer.public, alarms)
    assert found.evidence == made.evidence
    (said,) = alarms.now()
    assert said.startswith(EVIDENCE_DOUBTFUL.code)
    assert "torn.json is not used" in said
