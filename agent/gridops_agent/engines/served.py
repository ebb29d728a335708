"""What vLLM and SGLang have in common: a Python server that takes a share of each card and is given its key unseen.

The two adapters give a `Shape`: their arguments and how they name things. The share comes from the plan and from
nowhere else, and devices are named by UUID; without either the launch is refused, because such a server would take
nearly all of whatever card it finds. Starts nothing: `command` is carried out by a keeper.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from gridops.base.codes import host as codes
from gridops.base.errors import Failed, Refusal
from gridops.base.ids import EngineName
from gridops.base.units import PPM
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.engines import flags
from gridops_agent.engines.asking import gauge, models, question
from gridops_agent.engines.base import Abilities, Door, EngineSilent, Start
from gridops_agent.supervise import ask

LAUNCHER = Path(__file__).with_name("keyed_server.py")
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
_OFFLINE = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""Nothing is fetched by an engine: what it may read has been proved by the agent."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One server of this kind."""

    name: str
    module: str
    args: Mapping[str, flags.Flag]
    variables: Mapping[str, flags.Flag]
    """Arguments that the server takes from its environment: the name is the variable's."""
    fixed: Callable[[Start], tuple[str, ...]]
    """What is always said: the model, the alias, the context, the lanes, where it listens."""
    share: str
    """The flag of its share of a card."""
    split: Mapping[str, str]
    """How a model is cut to the flag that says into how many parts."""
    running: tuple[str, ...]
    """The metrics that add up to the work in it."""
    environment: Mapping[str, str]
    modalities: frozenset[str] = frozenset({"text", "embedding"})


class Served:
    """An adapter of this kind; `vllm` and `sglang` bring the shape and what is theirs alone."""

    def __init__(self, shape: Shape, command: tuple[str, ...] = ()) -> None:
        self._shape = shape
        self._override = command
        self._told: dict[tuple[str, ...], Mapping[str, Any]] = {}

    @property
    def name(self) -> EngineName:
        return EngineName(self._shape.name)

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            formats=frozenset({"safetensors"}),
            modalities=self._shape.modalities,
            keyed=True,
            counts_work=True,
            takes_share=True,
            shards=True,
            drains_on_term=True,
        )

    # --- what is installed ----------------------------------------------------------------------------------------

    def _interpreter(self) -> tuple[str, ...] | None:
        """The Python that has the server: what agent.toml names, else our own where it is installed beside us."""
        if self._override:
            return self._override
        return (sys.executable, "-P") if importlib.util.find_spec(self._shape.module) is not None else None

    def about(self) -> Mapping[str, Any]:
        """Version, backend and known flags of what is installed; empty when nothing is. Asked once per interpreter."""
        python = self._interpreter()
        if python is None:
            return {}
        stamp = tuple(f"{w}@{os.stat(w).st_mtime_ns}" if os.path.exists(w) else w for w in python)
        if stamp not in self._told:
            self._told[stamp] = self._ask(python)
        return self._told[stamp]

    def _ask(self, python: tuple[str, ...]) -> Mapping[str, Any]:
        try:
            said = json.loads(ask((*python, str(LAUNCHER), self._shape.name, "--about")).strip().rpartition("\n")[2])
        except (Failed, ValueError):
            return {}
        return said if isinstance(said, dict) else {}

    def runtimes(self) -> tuple[Runtime, ...]:
        backend = self.about().get("backend")
        return (Runtime(engine=self.name, backend=backend),) if isinstance(backend, str) else ()

    def problem(self) -> str | None:
        return None

    def objection(self, launch: Launch) -> str | None:
        if launch.artifact.format not in self.abilities.formats:
            return f"{self.name} reads safetensors files, not {launch.artifact.format}"
        if not any(file.path.rpartition("/")[2] == "config.json" for file in launch.artifact.files):
            return (
                f"{self.name} reads a model's folder, and this artifact has no config.json: list every file of it "
                "(config.json, the tokenizer's, the weights), so that none is used unproved"
            )
        cut = self._uncut(launch)
        return cut or flags.objection(self.name, {**self._shape.args, **self._shape.variables}, launch)

    def _uncut(self, launch: Launch) -> str | None:
        """Why one replica cannot be cut over the devices that it asks for."""
        count, shard = launch.devices.count, launch.devices.shard or "tensor"
        if count > 1 and launch.backend == "cpu":
            return f"{self.name} on a CPU is not cut over {count} devices"
        return f"{self.name} cannot be cut by {shard}" if count > 1 and shard not in self._shape.split else None

    # --- the command line -----------------------------------------------------------------------------------------

    def command(self, start: Start) -> tuple[str, ...]:
        program = ("python3",) if start.image else self._interpreter()
        if program is None:
            raise Refusal(codes.NO_RUNTIME.code, f"{self.name} is not installed on this host")
        words = [*program, str(LAUNCHER), self._shape.name, "--key-file", str(start.key_file), "--"]
        words += self._shape.fixed(start)
        words += self._placement(start)
        return (*words, *flags.words_of(self._shape.args, start.launch))

    def _placement(self, start: Start) -> tuple[str, ...]:
        """The share and the number of parts, for devices that the plan names."""
        launch, count = start.launch, start.launch.devices.count
        uncut = self._uncut(launch)
        if uncut is not None:
            raise Refusal(codes.BAD_ARGUMENT.code, uncut)
        if launch.backend == "cpu":
            return ()
        ppm = start.share_ppm()
        if ppm is None or not 0 < ppm <= PPM:
            raise Refusal(codes.BAD_ARGUMENT.code, f"the plan does not say which share of a card {self.name} takes")
        if len(start.gpus) != count:
            raise Refusal(
                codes.NO_RUNTIME.code,
                f"{self.name} was planned on {count} devices, of which this host can name {len(start.gpus)} by UUID",
            )
        share = (self._shape.share, "1.0" if ppm == PPM else f"0.{ppm:06d}")
        if count == 1:
            return share
        return (*share, self._shape.split[launch.devices.shard or "tensor"], str(count))

    def environment(self, start: Start) -> Mapping[str, str]:
        seen = _VISIBLE.get(start.launch.backend)
        said = dict.fromkeys(_VISIBLE.values(), "") | _OFFLINE | dict(self._shape.environment)
        if seen is not None:
            said[seen] = ",".join(start.gpus)
        for arg in start.launch.args:
            flag = self._shape.variables.get(arg.name)
            form = flag.form(arg.value) if flag is not None else None
            if flag is not None and form:
                said[flag.name] = form[0]
        return said

    def build(self) -> str:
        version = self.about().get("version")
        return version if isinstance(version, str) else ""

    def companions(self) -> tuple[Path, ...]:
        return (LAUNCHER,)

    # --- questions ------------------------------------------------------------------------------------------------

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        health = await question(http, f"{door.url}/health")
        if health is None or health.status != 200:
            return False
        return any(row.get("id") == door.alias for row in await models(http, door.url, door.headers))

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        page = await question(http, f"{door.url}/metrics", door.headers)
        if page is None or page.status != 200:
            return None
        counts = [gauge(page.text, name) for name in self._shape.running]
        return sum(c for c in counts if c is not None) if all(c is not None for c in counts) else None

    async def contradiction(self, http: aiohttp.ClientSession, door: Door) -> str | None:
        bare = await question(http, f"{door.url}/v1/models")
        rows = [row for row in await models(http, door.url, door.headers) if row.get("id") == door.alias]
        if bare is None or not rows:
            raise EngineSilent
        if bare.status not in (401, 403):
            return f"it answers callers without its key (HTTP {bare.status})"
        launch, most = door.launch, rows[0].get("max_model_len")
        if launch is not None and isinstance(most, int) and most != launch.context:
            return f"it holds {most} tokens of context instead of {launch.context}"
        return None
