"""`context` is what all lanes hold together: the files say so, the footprint counts it, and each engine is told so.

llama.cpp cuts it into equal parts, one a lane. vLLM and SGLang lend from it, so that one sequence may take all of it;
what they keep for the cache is the share that the plan gave them, in which the same number was counted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.ids import ConfigName
from gridops.files.kinds_profile import CONFIG, FOOTPRINT
from gridops.footprint.need import Need, need
from gridops.model.policy import PlanningPolicy
from gridops.model.profile import Config, Footprint, FootprintSource
from gridops_agent.engines.base import Engine, Start
from gridops_agent.engines.llama_cpp import LlamaCpp
from gridops_agent.engines.sglang import Sglang
from gridops_agent.engines.vllm import Vllm
from tests.agent.engine_cases import WRAPPER, folder_of_files, gguf

MIB = 1 << 20
ENGINES = {
    "llama.cpp": (LlamaCpp(WRAPPER), gguf, "--ctx-size", "--parallel"),
    "vllm": (Vllm(("python3",)), lambda f: folder_of_files(f, "vllm"), "--max-model-len", "--max-num-seqs"),
    "sglang": (
        Sglang(("python3",)),
        lambda f: folder_of_files(f, "sglang"),
        "--context-length",
        "--max-running-requests",
    ),
}


def told(engine: Engine, start: Start, flag: str) -> str:
    words = engine.command(start)
    assert words.count(flag) == 1
    return words[words.index(flag) + 1]


def counted(start: Start) -> int:
    """Bytes of cache in the footprint of what is started."""
    launch = start.launch
    numbers = Footprint(source=FootprintSource.DECLARED, device_bytes=1000 * MIB, kv_per_1k_bytes=MIB)
    config = Config(
        name=ConfigName("one"), engine=launch.engine, backends=(launch.backend,), artifact=launch.artifact,
        context=launch.context, lanes=launch.lanes, footprint=numbers,
    )  # fmt: skip
    found = need(config, PlanningPolicy())
    assert isinstance(found, Need)
    return found.device_bytes - 1000 * MIB


@pytest.mark.parametrize("name", sorted(ENGINES))
@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_what_is_counted_is_what_the_engine_is_told(name: str, lanes: int, tmp_path: Path) -> None:
    engine, make, context_flag, lanes_flag = ENGINES[name]
    made = make(tmp_path)
    start = replace(made, launch=replace(made.launch, context=16_000, lanes=lanes))
    assert told(engine, start, context_flag) == "16000", "the whole, however many lanes share it"
    assert told(engine, start, lanes_flag) == str(lanes)
    assert counted(start) == 16 * MIB, "cache for the whole once, not once a lane"


def test_the_files_say_so() -> None:
    said = {name: field.doc for name, field in CONFIG.fields.items()}
    assert said["context"] == "Tokens that all its lanes hold together."
    rate = FOOTPRINT.fields["kv_per_1k"].doc
    assert "1000 tokens" in rate, "as it is counted"
    page = (Path(__file__).resolve().parents[2] / "docs/reference/files.md").read_text("utf-8")
    assert "Tokens that all its lanes hold together." in page
