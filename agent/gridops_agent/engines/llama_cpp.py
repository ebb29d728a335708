"""llama.cpp: `llama-server` where it is on PATH, else our own child around `xllamacpp` with the same command line.

Arguments have portable names; one table maps them to flags. Flags differ between builds, so the binary is asked once
(`--help`, `--list-devices`) which ones it knows and which devices it was built for. What would let the engine choose
for itself (fitting its context to free memory, a prompt cache in host RAM that no footprint counts) is switched off,
and once it lists its model it is asked whether it runs with the lanes and the context of the plan: a plan leaves no
choice to execution but the port. A server in router mode loads and evicts by itself, so it is never started.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from gridops.base.codes import host as codes
from gridops.base.errors import Failed, Refusal
from gridops.base.ids import EngineName
from gridops.base.units import counted
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.engines import flags
from gridops_agent.engines.asking import gauge, good, models, question
from gridops_agent.engines.base import Abilities, Door, EngineSilent, Start
from gridops_agent.engines.build import build_of
from gridops_agent.engines.llama_flags import FLAGS, NEEDED, ROUTER, WISHED
from gridops_agent.supervise import ask

_WRAPPER = Path(__file__).with_name("xll_server.py")
_IN_IMAGE = ("/app/llama-server",)
_EMBED_PATIENCE = aiohttp.ClientTimeout(total=20)
_PAD = 256
"""llama.cpp rounds each lane's context up to a multiple of this."""
_BACKENDS = {"CUDA": "cuda", "HIP": "rocm", "MTL": "metal", "METAL": "metal", "ROCM": "rocm", "VULKAN": "vulkan"}
"""How `--list-devices` names a device, without its number, to the word of fleet files."""
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}
T = TypeVar("T")


class LlamaCpp:
    """The llama.cpp adapter."""

    abilities = Abilities(
        formats=frozenset({"gguf"}),
        modalities=frozenset({"text", "embedding"}),
        keyed=True,
        counts_work=True,
        takes_share=False,
        shards=True,
        drains_on_term=False,
    )

    def __init__(self, command: tuple[str, ...] = (), runtime: Path | None = None) -> None:
        self._override = command
        self._runtime = runtime
        """Where `join` has put the pinned wheel."""
        self._told: dict[tuple[str, tuple[str, ...]], Any] = {}

    @property
    def name(self) -> EngineName:
        return EngineName("llama.cpp")

    def _program(self) -> tuple[str, ...] | None:
        if self._override:
            return self._override
        found = shutil.which("llama-server")
        if found is not None:
            return (found,)
        if importlib.util.find_spec("xllamacpp") is not None:
            return (sys.executable, "-P", str(_WRAPPER))
        if self._runtime is not None and (self._runtime / "xllamacpp").is_dir():
            return (sys.executable, "-P", str(_WRAPPER), "--runtime", str(self._runtime))
        return None

    def runtimes(self) -> tuple[Runtime, ...]:
        program = self._program()
        if program is None:
            return ()
        built = {"cpu", *self._asked("devices", program, self._devices)}
        return tuple(Runtime(engine=self.name, backend=backend) for backend in sorted(built))

    def problem(self) -> str | None:
        if self._program() is None or not sys.platform.startswith("linux"):
            return None
        try:
            ctypes.CDLL("libgomp.so.1")
        except OSError:
            return "the llama.cpp runtime needs libgomp.so.1, which is missing: install the package libgomp1"
        return None

    def objection(self, launch: Launch) -> str | None:
        if launch.artifact.format not in self.abilities.formats:
            return f"llama.cpp reads gguf files, not {launch.artifact.format}"
        router = sorted(word for word in self._override if word.partition("=")[0] in ROUTER)
        if router:
            return (
                f"the command of llama.cpp in agent.toml starts a router ({router[0]}), which loads and evicts "
                "models by itself; take that out, or run it as an external engine"
            )
        return flags.objection("llama.cpp", FLAGS, launch)

    # --- the command line -----------------------------------------------------------------------------------------

    def command(self, start: Start) -> tuple[str, ...]:
        program = _IN_IMAGE if start.image else self._program()
        if program is None:
            raise Refusal(codes.NO_RUNTIME.code, "neither llama-server nor xllamacpp is installed on this host")
        # What an image knows is not asked: a build that lacks a flag ends at once and says which one.
        known = None if start.image else self._asked("flags", program, self._flags)
        if start.launch.backend in _VISIBLE and not start.gpus:
            raise Refusal(
                codes.NO_RUNTIME.code,
                f"none of the plan's devices is known by a UUID here, so {start.launch.backend} cannot be held to them",
            )
        missing = [flag for flag in NEEDED if known is not None and flag not in known]
        if missing:
            raise Refusal(
                codes.NO_RUNTIME.code, f"{program[-1]} does not know {', '.join(missing)}: it is too old for gridops"
            )
        words = [
            *program,
            *("--model", str(start.model), "--alias", start.alias),
            *("--host", start.host, "--port", str(start.port)),
            *("--ctx-size", str(start.launch.context), "--parallel", str(start.launch.lanes)),
            *("--api-key-file", str(start.key_file), "--slots", "--metrics"),
        ]
        given = {FLAGS[arg.name].name for arg in start.launch.args}
        for wish in (*WISHED, *_placement(start)):
            if (known is None or wish[0] in known) and wish[0] not in given:
                words += wish
        for arg in sorted(start.launch.args, key=lambda a: a.name):
            words += self._argument(arg.name, arg.value, known)
        return tuple(words)

    def _argument(self, name: str, value: str, known: frozenset[str] | None) -> tuple[str, ...]:
        flag = FLAGS[name]
        form = flag.form(value)
        if form is None or (known is not None and flag.name not in known):
            raise Refusal(codes.BAD_ARGUMENT.code, f"this build of llama.cpp cannot honour `{name}: {value}`")
        return () if form == flags.OMIT else (flag.name, *form)

    def _asked(self, what: str, program: tuple[str, ...], find: Callable[[tuple[str, ...]], T]) -> T:
        """What a program says about itself; asked once per program file."""
        stamp = tuple(f"{word}@{os.stat(word).st_mtime_ns}" if os.path.exists(word) else word for word in program)
        if (what, stamp) not in self._told:
            self._told[what, stamp] = find(program)
        found: T = self._told[what, stamp]
        return found

    def _flags(self, program: tuple[str, ...]) -> frozenset[str]:
        """The long flags that a program names in its help."""
        return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", ask((*program, "--help"))))

    def _devices(self, program: tuple[str, ...]) -> frozenset[str]:
        """The backends of the devices that a program finds: lines such as `CUDA0: NVIDIA H200 (143771 MiB, ...)`."""
        try:
            if "--list-devices" not in self._asked("flags", program, self._flags):
                return frozenset()
            text = ask((*program, "--list-devices"))
        except Failed:  # it cannot be run at all; its start will say so
            return frozenset()
        names = re.findall(r"^\s*([A-Za-z]+)\d+:\s", text, re.MULTILINE)
        return frozenset(_BACKENDS[name.upper()] for name in names if name.upper() in _BACKENDS)

    def environment(self, start: Start) -> Mapping[str, str]:
        seen = _VISIBLE.get(start.launch.backend)
        nothing = dict.fromkeys(_VISIBLE.values(), "")
        return nothing | ({seen: ",".join(start.gpus)} if seen is not None else {})

    def build(self) -> str:
        program = self._program()
        if program is None:
            return ""
        if _WRAPPER.name not in {Path(word).name for word in program}:
            return self._asked("build", program, build_of)
        folders = [str(self._runtime)] if "--runtime" in program else sys.path
        found = next(iter(importlib.metadata.distributions(name="xllamacpp", path=folders)), None)
        return f"xllamacpp {found.version}" if found is not None else ""

    def companions(self) -> tuple[Path, ...]:
        return ()

    # --- questions ------------------------------------------------------------------------------------------------

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        health = await question(http, f"{door.url}/health")
        if health is None or health.status != 200:
            return False
        return any(row.get("id") == door.alias for row in await models(http, door.url, door.headers))

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        slots = await self._slots(http, door)
        if slots is None:
            return None
        states = [slot.get("is_processing") for slot in slots]
        if not all(isinstance(state, bool) for state in states):
            return None  # a server that says it otherwise is not one that is idle
        working = states.count(True)
        page = await question(http, f"{door.url}/metrics", door.headers)
        waiting = gauge(page.text, "llamacpp:requests_deferred") if page is not None and page.status == 200 else None
        return working + waiting if waiting is not None else None

    async def _slots(self, http: aiohttp.ClientSession, door: Door) -> list[dict[str, Any]] | None:
        rows = await good(http, f"{door.url}/slots", door.headers)
        return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None

    async def contradiction(self, http: aiohttp.ClientSession, door: Door) -> str | None:
        launch = door.launch
        if launch is None:
            return None
        if any("status" in row for row in await models(http, door.url, door.headers)):
            return "it is a router, which loads and evicts models by itself"
        slots = await self._slots(http, door)
        if slots is None:
            raise EngineSilent
        if len(slots) != launch.lanes:
            return f"it runs with {counted(len(slots), 'lane')} instead of {launch.lanes}"
        sizes = [slot.get("n_ctx") for slot in slots]
        least = launch.context // launch.lanes
        if not all(isinstance(size, int) and least <= size < least + _PAD for size in sizes):
            return f"its lanes hold {sizes[0]} tokens of context instead of {least} each"
        args = {arg.name: arg.value for arg in launch.args}
        if args.get("embeddings") == "true" and args.get("pooling") not in ("none", "rank"):
            return await _embeds(http, door)
        return None


def _placement(start: Start) -> tuple[tuple[str, ...], ...]:
    """Everything on the devices of the plan, and nothing on any other, unless the config says how much."""
    if start.launch.backend == "cpu":
        return (("--device", "none"),)
    return (("--n-gpu-layers", "999"),)


async def _embeds(http: aiohttp.ClientSession, door: Door) -> str | None:
    """A server that lists a model and does not make vectors of it is not ready for embeddings."""
    asked = {"model": door.alias, "input": "ready"}
    said = await question(http, f"{door.url}/v1/embeddings", door.headers, asked, _EMBED_PATIENCE)
    if said is None:
        raise EngineSilent
    rows = said.json.get("data") if said.status == 200 and isinstance(said.json, dict) else None
    vector = rows[0].get("embedding") if isinstance(rows, list) and rows and isinstance(rows[0], dict) else None
    return None if isinstance(vector, list) and vector else f"it makes no embeddings (HTTP {said.status})"
