"""llama.cpp: `llama-server` where it is on PATH, else our own child around `xllamacpp` with the same command line.

Arguments have portable names; one table maps them to flags. Flags differ between builds, so the binary is asked once
(`--help`) which ones it knows. What would let the engine choose for itself (fitting its context to free memory, a
prompt cache in host RAM that no footprint counts) is switched off: a plan leaves no choice to execution but the port.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gridops.base.codes import refusals
from gridops.base.errors import Refusal
from gridops.base.ids import EngineName
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.engines.base import Door, Start
from gridops_agent.supervise import ask

_WRAPPER = Path(__file__).with_name("xll_server.py")
_PROBE = aiohttp.ClientTimeout(total=2)


@dataclass(frozen=True, slots=True)
class _Flag:
    """One engine argument: its flag, and how its value reads; an empty form means that nothing is passed."""

    name: str
    form: Callable[[str], tuple[str, ...] | None]
    """Words after the flag (none: a bare flag); None when the value is not allowed. `OMIT` leaves the flag out."""


OMIT = ("\0",)


def _number(low: int, high: int) -> Callable[[str], tuple[str, ...] | None]:
    def form(value: str) -> tuple[str, ...] | None:
        fits = re.fullmatch(r"-?\d{1,9}", value) is not None and low <= int(value) <= high
        return (value,) if fits else None

    return form


def _choice(**words: str) -> Callable[[str], tuple[str, ...] | None]:
    return lambda value: (words[value],) if value in words else None


def _switch(value: str) -> tuple[str, ...] | None:
    return () if value == "true" else OMIT if value == "false" else None


def _switch_off(value: str) -> tuple[str, ...] | None:
    return () if value == "false" else OMIT if value == "true" else None


def _ratios(value: str) -> tuple[str, ...] | None:
    return (value,) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?(,\d{1,6}(\.\d{1,6})?){0,63}", value) else None


def _word(value: str) -> tuple[str, ...] | None:
    return (value,) if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", value) else None


_KV = _choice(**{w: w for w in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")})
FLAGS: Mapping[str, _Flag] = {
    "batch": _Flag("--batch-size", _number(1, 1 << 20)),
    "cache_ram_mib": _Flag("--cache-ram", _number(0, 1 << 20)),
    "cache_type_k": _Flag("--cache-type-k", _KV),
    "cache_type_v": _Flag("--cache-type-v", _KV),
    "chat_template": _Flag("--chat-template", _word),
    "check_tensors": _Flag("--check-tensors", _switch),
    "embeddings": _Flag("--embeddings", _switch),
    "flash_attn": _Flag("--flash-attn", _choice(true="on", false="off", on="on", off="off", auto="auto")),
    "gpu_layers": _Flag("--n-gpu-layers", _number(-1, 100_000)),
    "jinja": _Flag("--jinja", _switch),
    "main_gpu": _Flag("--main-gpu", _number(0, 63)),
    "pooling": _Flag("--pooling", _choice(none="none", mean="mean", cls="cls", last="last", rank="rank")),
    "reasoning_format": _Flag("--reasoning-format", _word),
    "split_mode": _Flag("--split-mode", _choice(none="none", layer="layer", row="row")),
    "tensor_split": _Flag("--tensor-split", _ratios),
    "threads": _Flag("--threads", _number(1, 4096)),
    "threads_batch": _Flag("--threads-batch", _number(1, 4096)),
    "ubatch": _Flag("--ubatch-size", _number(1, 1 << 20)),
    "warmup": _Flag("--no-warmup", _switch_off),
}
"""Portable names to flags. A name that is not here is refused, never passed on."""

_NEEDED = (
    *("--model", "--alias", "--host", "--port", "--ctx-size", "--parallel"),
    *("--api-key-file", "--slots", "--metrics"),
)
_WISHED = (("--sse-ping-interval", "1"), ("--no-webui",), ("--fit", "off"), ("--cache-ram", "0"))


class LlamaCpp:
    """The llama.cpp adapter."""

    def __init__(self, command: tuple[str, ...] = ()) -> None:
        self._override = command
        self._known: dict[tuple[str, ...], frozenset[str]] = {}

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
        return None

    def runtimes(self) -> tuple[Runtime, ...]:
        if self._program() is None:
            return ()
        return (Runtime(engine=self.name, backend="cpu"),)

    def problem(self) -> str | None:
        if self._program() is None or not sys.platform.startswith("linux"):
            return None
        try:
            ctypes.CDLL("libgomp.so.1")
        except OSError:
            return "the llama.cpp runtime needs libgomp.so.1, which is missing: install the package libgomp1"
        return None

    def objection(self, launch: Launch) -> str | None:
        if launch.artifact.format != "gguf":
            return f"llama.cpp reads gguf files, not {launch.artifact.format}"
        for arg in launch.args:
            flag = FLAGS.get(arg.name)
            if flag is None:
                return f"llama.cpp has no argument `{arg.name}`; known are {', '.join(sorted(FLAGS))}"
            if flag.form(arg.value) is None:
                return f"llama.cpp cannot use `{arg.value}` for the argument `{arg.name}`"
        return None

    def command(self, start: Start) -> tuple[str, ...]:
        program = self._program()
        if program is None:
            raise Refusal(refusals.NO_RUNTIME.code, "neither llama-server nor xllamacpp is installed on this host")
        known = self._flags(program)
        missing = [flag for flag in _NEEDED if flag not in known]
        if missing:
            raise Refusal(
                refusals.NO_RUNTIME.code, f"{program[-1]} does not know {', '.join(missing)}: it is too old for gridops"
            )
        words = [
            *program,
            *("--model", str(start.model), "--alias", start.alias),
            *("--host", "127.0.0.1", "--port", str(start.port)),
            *("--ctx-size", str(start.launch.context), "--parallel", str(start.launch.lanes)),
            *("--api-key-file", str(start.key_file), "--slots", "--metrics"),
        ]
        given = {FLAGS[arg.name].name for arg in start.launch.args}
        for wish in _WISHED:
            if wish[0] in known and wish[0] not in given:
                words += wish
        for arg in sorted(start.launch.args, key=lambda a: a.name):
            words += self._argument(arg.name, arg.value, known)
        return tuple(words)

    def _argument(self, name: str, value: str, known: frozenset[str]) -> tuple[str, ...]:
        flag = FLAGS[name]
        form = flag.form(value)
        if form is None or flag.name not in known:
            raise Refusal(refusals.BAD_ARGUMENT.code, f"this build of llama.cpp cannot honour `{name}: {value}`")
        return () if form == OMIT else (flag.name, *form)

    def _flags(self, program: tuple[str, ...]) -> frozenset[str]:
        """The long flags that a program names in its help; asked once per program file."""
        stamp = tuple(f"{word}@{os.stat(word).st_mtime_ns}" if os.path.exists(word) else word for word in program)
        known = self._known.get(stamp)
        if known is None:
            text = ask((*program, "--help"))
            known = self._known[stamp] = frozenset(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))
        return known

    def environment(self, start: Start) -> Mapping[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(start.gpus)}

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        try:
            async with http.get(f"{door.url}/health", timeout=_PROBE) as answer:
                if answer.status != 200:
                    return False
            async with http.get(f"{door.url}/v1/models", headers=door.headers, timeout=_PROBE) as answer:
                if answer.status != 200:
                    return False
                models = await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
            return False
        rows = models.get("data", ()) if isinstance(models, dict) else ()
        return any(isinstance(row, dict) and row.get("id") == door.alias for row in rows)

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        try:
            async with http.get(f"{door.url}/slots", headers=door.headers, timeout=_PROBE) as answer:
                if answer.status != 200:
                    return None
                slots = await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
            return None
        if not isinstance(slots, list):
            return None
        return sum(1 for slot in slots if isinstance(slot, dict) and slot.get("is_processing"))
