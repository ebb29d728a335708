"""What `gridops validate` says of an engine is what its adapter says of the launch: each fact, on both of its sides.

Files and agents share no code, so the table of one is held against the other here. A fact that only one of them knows
fails: an argument, a bound of its value, a lane too many, a missing config.json, a modality.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.ids import ConfigName, Digest, EngineName, ProfileName
from gridops.files.engine_facts import ENGINES, Values
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, ArtifactFile, DeviceNeed, EngineArg, Modality
from gridops_agent.engines import engines, services, sglang, vllm
from gridops_agent.engines.base import Engine, Service, Start
from gridops_agent.engines.llama_flags import FLAGS

ADAPTERS: dict[str, Engine | Service] = {
    **engines({}),
    **services({"comfyui": "http://127.0.0.1:1", "ollama": "http://127.0.0.1:1"}),
}
NAMES = sorted(ENGINES)
SHARDS = ("tensor", "pipeline", "layer")
JUNK = ("", " ", "on ", "TRUE", "yes", "maybe", "-", "0.5", "1e3", "a b", "$(id)", "../x", "q8_0;", "\n", "99999999999")
GUESSES = (*JUNK, "true", "false", "on", "off", "auto", "none", "f16", "fp8", "q4_0", "bfloat16", "generate", "mean",
           "row", "layer", "triton", "hermes", "0", "1", "1,2", "3,1.5", "0-3", "7-", "-1", "-2")  # fmt: skip


def good(name: str) -> Launch:
    """A launch that the engine takes."""
    facts = ENGINES[name]
    paths = [facts.needs] if facts.needs else []
    files = [ArtifactFile(path=p, sha256=Digest("sha256:" + "0" * 64), size_bytes=9) for p in (*paths, "weights")]
    source = "ollama://llama3.2:3b" if facts.source else None
    return Launch(
        profile=ProfileName("tiny"),
        config=ConfigName("one"),
        engine=EngineName(name),
        backend="cuda",
        artifact=Artifact(format=min(facts.formats), source=source, files=tuple(files)),
        context=1024,
        lanes=1,
    )


def objects(launch: Launch) -> bool:
    return ADAPTERS[launch.engine].objection(launch) is not None


def test_the_table_names_the_engines_that_agents_have() -> None:
    assert set(ENGINES) == set(ADAPTERS)


@pytest.mark.parametrize("name", NAMES)
def test_formats_and_modalities_are_those_of_the_adapter(name: str) -> None:
    able, facts = ADAPTERS[name].abilities, ENGINES[name]
    assert able.formats == facts.formats
    assert able.modalities == {str(m) for m in facts.modalities}
    assert able.shards == (facts.shards is not None)
    assert not objects(good(name))


def test_arguments_are_those_that_the_adapters_pass_on() -> None:
    assert set(ENGINES["llama.cpp"].args) == set(FLAGS)
    assert set(ENGINES["sglang"].args) == set(sglang.FLAGS)
    assert set(ENGINES["vllm"].args) == set(vllm.FLAGS) | set(vllm.VARIABLES)
    assert not ENGINES["ollama"].args
    assert not ENGINES["comfyui"].args


def probes(values: Values) -> Iterator[str]:
    """Both sides of every bound, every word, and what people write by mistake."""
    yield from values.words
    yield from GUESSES
    if values.low <= values.high:
        yield from (str(n) for n in (values.low - 1, values.low, values.low + 1, values.high, values.high + 1))


@pytest.mark.parametrize(("name", "argument"), [(n, a) for n in NAMES for a in sorted(ENGINES[n].args)])
def test_an_argument_may_carry_what_the_adapter_passes_on(name: str, argument: str) -> None:
    values, launch = ENGINES[name].args[argument], good(name)
    for value in probes(values):
        refused = objects(replace(launch, args=(EngineArg(name=argument, value=value),)))
        assert values.allow(value) != refused, f"{name} {argument}: {value!r}"


@pytest.mark.parametrize("name", NAMES)
def test_lanes_and_devices_are_as_many_as_the_adapter_takes(name: str) -> None:
    facts, launch = ENGINES[name], good(name)
    for lanes in (1, 2, 8):
        assert objects(replace(launch, lanes=lanes)) == (facts.lanes is not None and lanes > facts.lanes)
    for backend in ("cpu", "cuda"):
        for shard in (None, *SHARDS):
            wanted = facts.shards is not None and (shard or "tensor") in facts.shards
            wanted = wanted and (backend != "cpu" or facts.cuts_cpus)
            cut = replace(launch, backend=backend, devices=DeviceNeed(count=2, shard=shard))
            assert objects(cut) != wanted, (name, backend, shard)


@pytest.mark.parametrize("name", NAMES)
def test_an_artifact_has_the_files_that_the_adapter_asks_for(name: str) -> None:
    facts, launch = ENGINES[name], good(name)
    files = launch.artifact.files
    bare = tuple(file for file in files if file.path != "config.json")
    assert objects(replace(launch, artifact=replace(launch.artifact, files=bare))) == (facts.needs is not None)
    two = (*bare, replace(bare[0], path="more"), *(f for f in files if f not in bare))
    assert objects(replace(launch, artifact=replace(launch.artifact, files=two))) == (facts.one_file is not None)
    for source in ("ollama://llama3.2:3b", "ollama://llama3.2", "https://models.example/x", None):
        fits = facts.source is None or (source is not None and re.fullmatch(facts.source, source) is not None)
        assert objects(replace(launch, artifact=replace(launch.artifact, source=source))) != fits, (name, source)


@pytest.mark.parametrize("name", NAMES)
def test_the_variables_that_a_signed_entry_lets_through_are_those_that_the_adapter_sets(name: str) -> None:
    """Over every argument that may be one; a service gets none from us."""
    adapter, launch = ADAPTERS[name], good(name)
    found: set[str] = set()
    for backend in ("cpu", "cuda", "rocm", "xpu", "metal"):
        for argument, values in ENGINES[name].args.items():
            said = sorted(values.words) or ([str(values.low)] if values.low <= values.high else ["0-3"])
            made = replace(launch, backend=backend, args=(EngineArg(name=argument, value=said[0]),))
            start = Start(launch=made, model=Path("/m/config.json"), port=1, key_file=Path("/k"), gpus=("GPU-1",))
            found |= set(adapter.environment(start)) if hasattr(adapter, "environment") else set()
    assert tuple(sorted(found)) == ENGINES[name].variables


def test_every_modality_is_served_by_some_engine_and_no_engine_by_all() -> None:
    served = [facts.modalities for facts in ENGINES.values()]
    assert frozenset().union(*served) == set(Modality)
    assert all(m < set(Modality) for m in served)
