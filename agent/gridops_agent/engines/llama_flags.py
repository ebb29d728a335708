"""The arguments that profiles may give to llama.cpp, and what `gridops` passes by itself. Read by `llama_cpp`."""

from __future__ import annotations

from collections.abc import Mapping

from gridops_agent.engines.flags import Flag, choice, number, ratios, switch, switch_off, word

_KV = choice("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
FLAGS: Mapping[str, Flag] = {
    "batch": Flag("--batch-size", number(1, 1 << 20)),
    "cache_ram_mib": Flag("--cache-ram", number(0, 1 << 20)),
    "cache_type_k": Flag("--cache-type-k", _KV),
    "cache_type_v": Flag("--cache-type-v", _KV),
    "chat_template": Flag("--chat-template", word),
    "check_tensors": Flag("--check-tensors", switch),
    "embeddings": Flag("--embeddings", switch),
    "flash_attn": Flag("--flash-attn", choice("on", "off", "auto", true="on", false="off")),
    "gpu_layers": Flag("--n-gpu-layers", number(-1, 100_000)),
    "jinja": Flag("--jinja", switch),
    "main_gpu": Flag("--main-gpu", number(0, 63)),
    "pooling": Flag("--pooling", choice("none", "mean", "cls", "last", "rank")),
    "reasoning_format": Flag("--reasoning-format", word),
    "split_mode": Flag("--split-mode", choice("none", "layer", "row")),
    "tensor_split": Flag("--tensor-split", ratios),
    "threads": Flag("--threads", number(1, 4096)),
    "threads_batch": Flag("--threads-batch", number(1, 4096)),
    "ubatch": Flag("--ubatch-size", number(1, 1 << 20)),
    "warmup": Flag("--no-warmup", switch_off),
}
"""Portable names to flags."""

NEEDED = (
    *("--model", "--alias", "--host", "--port", "--ctx-size", "--parallel"),
    *("--api-key-file", "--slots", "--metrics"),
)
"""A build without one of these is too old to be run unattended."""

WISHED = (
    *(("--sse-ping-interval", "1"), ("--no-webui",), ("--fit", "off"), ("--cache-ram", "0")),
    ("--check-tensors",),
)
"""What would let the engine choose for itself is switched off, and every tensor is looked at before it is used: said
where the build knows it, unless the config says otherwise."""

ROUTER = frozenset({"--models-dir", "--models-preset", "--models-max", "--models-autoload", "--no-models-autoload"})
"""Words that make llama-server a router, which loads and evicts models by itself."""
