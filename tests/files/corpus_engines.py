"""Broken files of one kind: a config asks of its engine what no host could make it do."""

from __future__ import annotations

from gridops.base.codes import files as c
from gridops.base.codes import sense as s
from tests.files.repo import GOOD, HOSTS, PROFILE, changed
from tests.files.row import Files, Row

SHA = "6f0c1e" + "0" * 58


def asked(config: str, modality: str = "text") -> Files:
    """The good repository with its one config replaced, on hosts that have every engine."""
    head = GOOD[PROFILE].partition("configs:")[0]
    runtimes = ", ".join(f"{name}: {{backend: cuda}}" for name in ("comfyui", "llama.cpp", "ollama", "sglang", "vllm"))
    hosts = changed(HOSTS, "{llama.cpp: {backend: cuda}}", f"{{{runtimes}}}")
    text = f"{head}modality: {modality}\nconfigs:\n  one:\n{config}    footprint: {{source: declared, device: 20GiB}}\n"
    return {**hosts, PROFILE: text}


def config(engine: str, form: str, *paths: str, more: str = "", source: str = "") -> str:
    files = ", ".join(f"{{path: {path}, sha256: {SHA}, size: 1MiB}}" for path in paths)
    lines = [
        f"    engine: {engine}",
        "    backends: [cuda]",
        "    context: 1024",
        "    artifact:",
        f"      format: {form}",
        f"      files: [{files}]",
        *([f"      source: {source}"] if source else ()),
        *([f"    {more}"] if more else ()),
    ]
    return "".join(f"{line}\n" for line in lines)


WHOLE = ("config.json", "model.safetensors")
TAG = "ollama://llama3.2:3b"
ENGINES: dict[str, Row] = {
    "vllm without config.json": Row(
        asked(config("vllm", "safetensors", "model.safetensors")), s.ENGINE_CANNOT, f"{PROFILE}:16:14", "config.json"
    ),
    "sglang without config.json": Row(
        asked(config("sglang", "safetensors", "a/model.safetensors")),
        s.ENGINE_CANNOT,
        f"{PROFILE}:16:14",
        "config.json",
    ),
    "lanes of comfyui": Row(
        asked(config("comfyui", "workflow", "w.json", more="lanes: 4"), "image"),
        s.ENGINE_CANNOT,
        f"{PROFILE}:17:12",
        "write `lanes: 1`",
    ),
    "lanes of ollama": Row(
        asked(config("ollama", "ollama", "m", more="lanes: 2", source=TAG)),
        s.ENGINE_CANNOT,
        f"{PROFILE}:18:12",
        "cannot be held to 2 lanes",
    ),
    "ollama from elsewhere": Row(
        asked(config("ollama", "ollama", "m", source="https://models.example/m")),
        s.ENGINE_CANNOT,
        f"{PROFILE}:17:15",
        "ollama://NAME:TAG",
    ),
    "ollama without a source": Row(
        asked(config("ollama", "ollama", "m")), s.ENGINE_CANNOT, f"{PROFILE}:14:5", "ollama://NAME:TAG"
    ),
    "two manifests for comfyui": Row(
        asked(config("comfyui", "workflow", "a.json", "b.json"), "image"),
        s.ENGINE_CANNOT,
        f"{PROFILE}:16:14",
        "one file",
    ),
    "ollama over two devices": Row(
        asked(config("ollama", "ollama", "m", more="devices: {count: 2}", source=TAG)),
        s.ENGINE_CANNOT,
        f"{PROFILE}:18:22",
        "write `count: 1`",
    ),
    "vllm cut by layers": Row(
        asked(config("vllm", "safetensors", *WHOLE, more="devices: {count: 2, shard: layer}")),
        s.ENGINE_CANNOT,
        f"{PROFILE}:17:32",
        "pipeline, tensor",
    ),
    "speech by llama.cpp": Row(
        asked(config("llama.cpp", "gguf", "m.gguf"), "speech"), s.ENGINE_CANNOT, f"{PROFILE}:11:13", "embedding, text"
    ),
    "video by vllm": Row(
        asked(config("vllm", "safetensors", *WHOLE), "video"), s.ENGINE_CANNOT, f"{PROFILE}:11:13", "speech"
    ),
    "value of an argument misspelt": Row(
        asked(config("vllm", "safetensors", *WHOLE, more="args: {dtype: bfloat61}")),
        c.ARGUMENT_VALUE,
        f"{PROFILE}:17:19",
        "did you mean `bfloat16`?",
        fix="dtype: bfloat16",
    ),
    "value that no adapter passes on": Row(
        asked(config("llama.cpp", "gguf", "m.gguf", more="args: {threads: many}")),
        c.ARGUMENT_VALUE,
        f"{PROFILE}:17:21",
        "a number from 1 to 4096",
        severity="warning",
    ),
}
GOOD_ONES = {
    "transcriptions by vllm": asked(config("vllm", "safetensors", *WHOLE, more="lanes: 8"), "speech"),
    "vllm cut in two": asked(config("vllm", "safetensors", *WHOLE, more="devices: {count: 2, shard: tensor}")),
    "ollama by its tag": asked(config("ollama", "ollama", "m", source=TAG)),
    "one workflow": asked(config("comfyui", "workflow", "w.json"), "video"),
    "a stranger is not judged": asked(config("mindie", "onnx", "a", "b", more="lanes: 9"), "speech"),
}
