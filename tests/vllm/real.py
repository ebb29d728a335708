"""The real vLLM under contract: which interpreter has it, a tiny model for it, and how it is started.

`make test-vllm` sets TEST_VLLM_PYTHON to an interpreter of its own; without it nothing of this folder is collected.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

from gridops.base.ids import ConfigName, Digest, EngineName, ProfileName
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, ArtifactFile, EngineArg
from gridops_agent.engines.base import Start
from gridops_agent.engines.vllm import Vllm
from tests.agent.engine_contract import Case, as_child, key_file
from tests.agent.site import free_ports
from tests.builders import tiny_hf

PYTHON = os.environ.get("TEST_VLLM_PYTHON", "")


def model(folder: Path) -> Artifact:
    """A tiny model's folder as an artifact."""
    subprocess.run([PYTHON, tiny_hf.__file__, str(folder)], check=True, capture_output=True)
    files = tuple(
        ArtifactFile(
            path=file.name,
            sha256=Digest("sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()),
            size_bytes=file.stat().st_size,
        )
        for file in sorted(folder.iterdir())
    )
    return Artifact(format="safetensors", files=files)


def start_of(folder: Path, artifact: Artifact, where: Path) -> Start:
    launch = Launch(
        profile=ProfileName("tiny"),
        config=ConfigName("cpu"),
        engine=EngineName("vllm"),
        backend="cpu",
        artifact=artifact,
        context=4096,
        lanes=2,
        args=(
            EngineArg(name="cpu_cores", value="0"),
            EngineArg(name="dtype", value="bfloat16"),
            EngineArg(name="enforce_eager", value="true"),
        ),
    )
    return Start(launch=launch, model=where / artifact.files[0].path, port=free_ports(1)[0], key_file=key_file(folder))


def case(artifact: Artifact, where: Path) -> Case:
    made: dict[Path, Start] = {}

    def start(folder: Path) -> Start:
        return made.setdefault(folder, start_of(folder, artifact, where))

    return Case(
        name="vllm (real)",
        engine=Vllm((PYTHON, "-P")),
        start=start,
        serve=as_child,
        args=(("dtype", "bfloat16"), ("kv_cache_dtype", "fp8"), ("cpu_kv_gib", "2")),
        busy_request={"max_tokens": 3_900, "ignore_eos": True, "stream": True},
    )


def other(start: Start, **changes: object) -> Start:
    return replace(start, launch=replace(start.launch, **changes))  # type: ignore[arg-type]
