"""SGLang, as an image's engine or an installed one: the same kind of server as vLLM with other words.

Never run here: what it says stands in its documentation, and the tests hold the adapter against a double of that.
"""

from __future__ import annotations

from collections.abc import Mapping

from gridops_agent.engines.base import Start
from gridops_agent.engines.flags import Flag, choice, number, switch, switch_off, word
from gridops_agent.engines.served import Served, Shape

FLAGS: Mapping[str, Flag] = {
    "attention_backend": Flag("--attention-backend", word),
    "chunked_prefill": Flag("--chunked-prefill-size", number(-1, 1 << 20)),
    "cuda_graph": Flag("--disable-cuda-graph", switch_off),
    "dtype": Flag("--dtype", choice("auto", "bfloat16", "float16", "float32")),
    "embeddings": Flag("--is-embedding", switch),
    "kv_cache_dtype": Flag("--kv-cache-dtype", choice("auto", "bfloat16", "fp8_e4m3", "fp8_e5m2")),
    "quantization": Flag("--quantization", word),
    "reasoning_parser": Flag("--reasoning-parser", word),
    "tool_call_parser": Flag("--tool-call-parser", word),
}


def _fixed(start: Start) -> tuple[str, ...]:
    return (
        *("--model-path", str(start.folder), "--served-model-name", start.alias),
        *("--host", start.host, "--port", str(start.port), "--enable-metrics"),
        *("--context-length", str(start.launch.context), "--max-running-requests", str(start.launch.lanes)),
        *("--log-level-http", "warning"),
    )


SHAPE = Shape(
    name="sglang",
    module="sglang",
    args=FLAGS,
    variables={},
    fixed=_fixed,
    share="--mem-fraction-static",
    split={"tensor": "--tp-size", "pipeline": "--pp-size"},
    running=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    environment={},
)


class Sglang(Served):
    """The SGLang adapter."""

    def __init__(self, command: tuple[str, ...] = ()) -> None:
        super().__init__(SHAPE, command)
