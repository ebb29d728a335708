"""What each engine takes, as far as it can be known from a file alone: one table, kept equal to the agent's adapters.

Read by `kinds_profile` and `sense_engines`. Files and agents share no code, so a test asks each adapter for launches on
both sides of every fact here. A name or a value that stands in no table may be one that a newer agent knows; what an
engine is by its nature (one prompt at a time, a folder with its config.json) is no such guess. Decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gridops.model.profile import Modality


@dataclass(frozen=True, slots=True)
class Values:
    """What an argument may carry: one of some words, a number within bounds, or text of one form."""

    words: frozenset[str] = frozenset()
    low: int = 0
    high: int = -1
    form: str = ""
    """A regular expression, matched as a whole."""

    def allow(self, value: str) -> bool:
        if value in self.words:
            return True
        if self.low <= self.high and re.fullmatch(r"-?\d{1,9}", value):
            return self.low <= int(value) <= self.high
        return bool(self.form) and re.fullmatch(self.form, value) is not None

    @property
    def says(self) -> str:
        if self.words:
            return f"one of {', '.join(sorted(self.words))}"
        return f"a number from {self.low} to {self.high}" if self.low <= self.high else "plain words of its own form"


def _of(*words: str) -> Values:
    return Values(words=frozenset(words))


def _from(low: int, high: int) -> Values:
    return Values(low=low, high=high)


_SWITCH = _of("true", "false")
_WORD = Values(form=r"[a-z0-9][a-z0-9._-]{0,62}")
_KV = _of("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_DTYPE = _of("auto", "bfloat16", "float16", "float32")
_SIZE = _from(1, 1 << 20)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine."""

    formats: frozenset[str]
    modalities: frozenset[Modality]
    """What its adapter can serve through the front; not everything that somebody has taught the engine to do."""
    args: Mapping[str, Values] = field(default_factory=dict)
    lanes: int | None = None
    """The most that it works on at once; None: as many as a config says."""
    shards: frozenset[str] | None = frozenset({"tensor", "pipeline", "layer"})
    """How it can be cut over several devices of a host; None: not at all."""
    cuts_cpus: bool = True
    """Also over several devices of a CPU backend."""
    needs: str | None = None
    """A file, by its bare name, without which it does not know what to do with the others."""
    one_file: str | None = None
    """It takes exactly one file, and this is what the file is."""
    source: str | None = None
    """The form of its source, as a regular expression; None: any that hosts fetch from."""
    source_says: str = ""
    variables: tuple[str, ...] = ()
    """Names of every variable that its adapter may set for it, sorted: what a signed entry has to let through."""


_SERVED = (
    *("CUDA_VISIBLE_DEVICES", "DO_NOT_TRACK", "HF_HUB_OFFLINE", "ROCR_VISIBLE_DEVICES", "TRANSFORMERS_OFFLINE"),
    "ZE_AFFINITY_MASK",
)
_VLLM = ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_NO_USAGE_STATS")
_TEXT = frozenset({Modality.TEXT, Modality.EMBEDDING})

ENGINES: Mapping[str, EngineFacts] = {
    "llama.cpp": EngineFacts(
        formats=frozenset({"gguf"}),
        modalities=_TEXT,
        args={
            "batch": _SIZE, "cache_ram_mib": _from(0, 1 << 20), "cache_type_k": _KV, "cache_type_v": _KV,
            "chat_template": _WORD, "check_tensors": _SWITCH, "embeddings": _SWITCH,
            "flash_attn": _of("on", "off", "auto", "true", "false"), "gpu_layers": _from(-1, 100_000),
            "jinja": _SWITCH, "main_gpu": _from(0, 63), "pooling": _of("none", "mean", "cls", "last", "rank"),
            "reasoning_format": _WORD, "split_mode": _of("none", "layer", "row"),
            "tensor_split": Values(form=r"\d{1,6}(\.\d{1,6})?(,\d{1,6}(\.\d{1,6})?){0,63}"),
            "threads": _from(1, 4096), "threads_batch": _from(1, 4096), "ubatch": _SIZE, "warmup": _SWITCH,
        },
        variables=("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    ),
    "comfyui": EngineFacts(
        formats=frozenset({"workflow"}),
        modalities=frozenset({Modality.IMAGE, Modality.VIDEO}),
        lanes=1,
        shards=None,
        one_file="the workflow's manifest",
    ),
    "ollama": EngineFacts(
        formats=frozenset({"ollama"}),
        modalities=_TEXT,
        lanes=1,
        shards=None,
        one_file="the registry's digest of the model",
        source=r"ollama://[a-z0-9][a-z0-9._/-]{0,127}:[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
        source_says="ollama://NAME:TAG",
    ),
    "sglang": EngineFacts(
        formats=frozenset({"safetensors"}),
        modalities=_TEXT,
        args={
            "attention_backend": _WORD, "chunked_prefill": _from(-1, 1 << 20), "cuda_graph": _SWITCH, "dtype": _DTYPE,
            "embeddings": _SWITCH, "kv_cache_dtype": _of("auto", "bfloat16", "fp8_e4m3", "fp8_e5m2"),
            "quantization": _WORD, "reasoning_parser": _WORD, "tool_call_parser": _WORD,
        },
        shards=frozenset({"tensor", "pipeline"}),
        cuts_cpus=False,
        needs="config.json",
        variables=_SERVED,
    ),
    "vllm": EngineFacts(
        formats=frozenset({"safetensors"}),
        modalities=_TEXT | {Modality.SPEECH},
        args={
            "auto_tool_choice": _SWITCH, "block_size": _from(1, 1024), "cpu_cores": Values(form=r"\d{1,4}(-\d{1,4})?"),
            "cpu_kv_gib": _from(1, 4096), "dtype": _DTYPE, "enforce_eager": _SWITCH,
            "kv_cache_dtype": _of("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"),
            "max_batched_tokens": _from(1, 1 << 24), "prefix_caching": _SWITCH, "quantization": _WORD,
            "reasoning_parser": _WORD, "runner": _of("generate", "pooling"), "tool_call_parser": _WORD,
        },
        shards=frozenset({"tensor", "pipeline"}),
        cuts_cpus=False,
        needs="config.json",
        variables=tuple(sorted((*_SERVED, *_VLLM))),
    ),
}  # fmt: skip
