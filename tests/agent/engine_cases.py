"""Every engine that can be put under contract on this machine: the real llama.cpp builds, and doubles of the rest."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gridops.base.ids import ConfigName, Digest, EngineName, ProfileName
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, ArtifactFile, EngineArg
from gridops_agent.engines import xll_server
from gridops_agent.engines.base import Engine, Start
from gridops_agent.engines.llama_cpp import LlamaCpp
from gridops_agent.engines.sglang import Sglang
from gridops_agent.engines.vllm import Vllm
from tests.agent import engine_doubles as doubles
from tests.agent.engine_contract import KEY, Case, as_child, key_file
from tests.agent.site import free_ports
from tests.builders.tiny_gguf import Shape, write_tiny_gguf

Build = Callable[[Path], Start]


def _once(make: Build) -> Build:
    made: dict[Path, Start] = {}

    def start(folder: Path) -> Start:
        if folder not in made:
            made[folder] = make(folder)
        return made[folder]

    return start


def gguf(folder: Path, engine: str = "llama.cpp") -> Start:
    """The tiny model, as a launch of an engine that reads GGUF."""
    model = write_tiny_gguf(folder / "tiny.gguf", shape=Shape(context=65_536))
    file = ArtifactFile(path="tiny.gguf", sha256=Digest(model.digest), size_bytes=model.size)
    launch = Launch(
        profile=ProfileName("tiny"),
        config=ConfigName("cpu"),
        engine=EngineName(engine),
        backend="cpu",
        artifact=Artifact(format="gguf", files=(file,)),
        context=32_768,
        lanes=2,
        args=(EngineArg(name="threads", value="1"),) if engine == "llama.cpp" else (),
    )
    return Start(launch=launch, model=model.path, port=free_ports(1)[0], key_file=key_file(folder))


def folder_of_files(folder: Path, engine: str) -> Start:
    """A model's folder for an engine whose double does not read it."""
    files = []
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text("{}")
        files.append(ArtifactFile(path=name, sha256=Digest("sha256:" + "0" * 64), size_bytes=2))
    launch = Launch(
        profile=ProfileName("tiny"),
        config=ConfigName("cpu"),
        engine=EngineName(engine),
        backend="cpu",
        artifact=Artifact(format="safetensors", files=tuple(files)),
        context=1024,
        lanes=2,
    )
    return Start(launch=launch, model=folder / "config.json", port=free_ports(1)[0], key_file=key_file(folder))


@contextlib.asynccontextmanager
async def _vllm(engine: Engine, start: Start, folder: Path) -> AsyncIterator[None]:
    async with doubles.listening(doubles.Vllm(KEY).app(), start.port):
        yield


@contextlib.asynccontextmanager
async def _sglang(engine: Engine, start: Start, folder: Path) -> AsyncIterator[None]:
    async with doubles.listening(doubles.Sglang(KEY, "tiny", start.launch.context).app(), start.port):
        yield


LLAMA_ARGS = (("threads", "2"), ("cache_type_k", "q8_0"), ("flash_attn", "on"), ("tensor_split", "1,2"))
LONG = {"max_tokens": 20_000, "ignore_eos": True, "stream": True}
"""As a stream: a server notices at once when the client of one goes."""
WRAPPER = (sys.executable, "-P", str(Path(xll_server.__file__)))
CASES = [
    Case("llama.cpp (our child)", LlamaCpp(WRAPPER), _once(gguf), as_child, LLAMA_ARGS, LONG),
    Case(
        "vllm (recorded)",
        Vllm((sys.executable, "-P")),
        _once(lambda f: folder_of_files(f, "vllm")),
        _vllm,
        (("dtype", "bfloat16"), ("kv_cache_dtype", "fp8"), ("cpu_kv_gib", "2"), ("cpu_cores", "0-3")),
        LONG,
    ),
    Case(
        "sglang (documented)",
        Sglang((sys.executable, "-P")),
        _once(lambda f: folder_of_files(f, "sglang")),
        _sglang,
        (("dtype", "bfloat16"), ("attention_backend", "triton"), ("chunked_prefill", "4096")),
        LONG,
    ),
]
_SERVER = shutil.which("llama-server")
if _SERVER is not None:  # the real program, where this machine has it
    CASES.append(Case("llama-server (real)", LlamaCpp((_SERVER,)), _once(gguf), as_child, LLAMA_ARGS, LONG))
