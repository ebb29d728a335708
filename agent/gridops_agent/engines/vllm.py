"""vLLM: installed beside the agent, in an interpreter that agent.toml names, or in an image.

Its share of a card is the plan's, rounded down, never the nine tenths that it takes by itself. It finishes work in
flight after TERM only because it is told to. Three processes serve one model (API, engine core, worker): the keeper's
group holds them together, since the last two outlive the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp

from gridops_agent.engines.asking import question
from gridops_agent.engines.base import Door, EngineSilent, Start
from gridops_agent.engines.flags import Flag, choice, number, switch, word
from gridops_agent.engines.served import Served, Shape

SHUTDOWN_S = 5
"""Less than the keeper waits after the first TERM: what is left then was approved to be cut."""

FLAGS: Mapping[str, Flag] = {
    "auto_tool_choice": Flag("--enable-auto-tool-choice", switch),
    "block_size": Flag("--block-size", number(1, 1024)),
    "dtype": Flag("--dtype", choice("auto", "bfloat16", "float16", "float32")),
    "enforce_eager": Flag("--enforce-eager", switch),
    "kv_cache_dtype": Flag("--kv-cache-dtype", choice("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")),
    "max_batched_tokens": Flag("--max-num-batched-tokens", number(1, 1 << 24)),
    "prefix_caching": Flag("--enable-prefix-caching", switch),
    "quantization": Flag("--quantization", word),
    "reasoning_parser": Flag("--reasoning-parser", word),
    "runner": Flag("--runner", choice("generate", "pooling")),
    "tool_call_parser": Flag("--tool-call-parser", word),
}
VARIABLES: Mapping[str, Flag] = {
    "cpu_kv_gib": Flag("VLLM_CPU_KVCACHE_SPACE", number(1, 4096)),
    "cpu_cores": Flag("VLLM_CPU_OMP_THREADS_BIND", lambda v: (v,) if re.fullmatch(r"\d{1,4}(-\d{1,4})?", v) else None),
}
"""On a CPU vLLM takes these from its environment and has no arguments for them."""


def _fixed(start: Start) -> tuple[str, ...]:
    return (
        *("--model", str(start.folder), "--served-model-name", start.alias),
        *("--host", start.host, "--port", str(start.port)),
        *("--max-model-len", str(start.launch.context), "--max-num-seqs", str(start.launch.lanes)),
        *("--uvicorn-log-level", "warning"),
    )


SHAPE = Shape(
    name="vllm",
    module="vllm",
    args=FLAGS,
    variables=VARIABLES,
    fixed=_fixed,
    share="--gpu-memory-utilization",
    split={"tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size"},
    running=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    environment={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
    # speech: /v1/audio/transcriptions and /translations, where the model is one for them
    modalities=frozenset({"text", "embedding", "speech"}),
)


class Vllm(Served):
    """The vLLM adapter."""

    def __init__(self, command: tuple[str, ...] = ()) -> None:
        super().__init__(SHAPE, command)

    def command(self, start: Start) -> tuple[str, ...]:
        words = super().command(start)
        knows = start.image or self.about().get("shutdown_timeout")
        return (*words, "--shutdown-timeout", str(SHUTDOWN_S)) if knows else words

    async def contradiction(self, http: aiohttp.ClientSession, door: Door) -> str | None:
        words = await super().contradiction(http, door)
        wanted = {arg.name: arg.value for arg in door.launch.args} if door.launch is not None else {}
        kind = wanted.get("kv_cache_dtype", "auto")
        if words is not None or kind == "auto":
            return words
        page = await question(http, f"{door.url}/metrics", door.headers)
        if page is None or page.status != 200:
            raise EngineSilent
        found = re.search(r'^vllm:cache_config_info\{[^}\n]*cache_dtype="([^"]*)"', page.text, re.MULTILINE)
        if found is not None and found.group(1) != kind:
            return f"its cache is kept as {found.group(1)} instead of {kind}"
        return None
