"""From a start to a container: labels, name, mounts, and why it must not be created. Asks nobody, starts nothing.

Ownership stands in the labels alone. The name is for people: it is cut and cleaned, and nobody reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops_agent.engines.base import Start
from gridops_agent.keep.base import Spawn
from gridops_agent.keep.container_api import Request
from gridops_agent.keep.ways import Image

LABEL = "dev.gridops."
MANAGED, FLEET, HOST = LABEL + "managed", LABEL + "fleet", LABEL + "host"
BODY, MODEL, BACKEND = LABEL + "body", LABEL + "model-id", LABEL + "backend"
NAME_CHARS = 60
MODELS, KEY = "/gridops/models", "/gridops/engine.key"
SPLITS = ("--tensor-parallel-size", "-tp", "--tp-size", "--tp")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose containers these are: one agent of one fleet."""

    fleet: str
    host: str

    def labels(self, body: Digest | None = None) -> Mapping[str, str]:
        """What every container of this agent carries, and the one of a body."""
        marks = {MANAGED: "true", FLEET: self.fleet, HOST: self.host}
        return marks | ({BODY: body} if body is not None else {})


def owns(labels: Mapping[str, str] | None, owner: Owner, body: Digest) -> bool:
    """Whether these labels are ours and of this body, exactly."""
    return labels is not None and owner.labels(body).items() <= labels.items()


def inside(start: Start, image: Image) -> Start:
    """The same start as the engine sees it: all addresses of its own network, and the places of our mounts."""
    return replace(
        start,
        model=Path(MODELS) / start.model.relative_to(start.folder),
        key_file=Path(KEY),
        port=image.port,
        host="0.0.0.0",
        image=True,
    )


def name_of(model: str, token: str) -> str:
    """A name for people. Two models may have the same one but for the token: nothing depends on it."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", f"gridops-{model}")[: NAME_CHARS - len(token) - 1] + f"-{token}"


def request(spawn: Spawn, image: Image, owner: Owner, token: str) -> Request:
    """The container of a start. Raises Refusal for weights that are not there and devices that nobody named."""
    start = spawn.begin
    if start is None:
        raise Refusal(codes.START_FAILED.code, "a container is started for a launch only")
    _check_devices(spawn, start)
    launch = start.launch
    argv = (*image.entrypoint, *spawn.argv[1:]) if image.entrypoint else spawn.argv
    return Request(
        name=name_of(launch.profile, token),
        image=image.reference,
        argv=argv,
        environment=spawn.environment,
        labels={**owner.labels(spawn.body), MODEL: launch.profile, BACKEND: launch.engine},
        mounts=(*_weights(start), (str(start.key_file), KEY), *((str(p), str(p)) for p in spawn.companions)),
        port=spawn.port,
        inner_port=image.port,
        gpus=start.gpus,
        shm_mib=image.shm_mib,
    )


def _weights(start: Start) -> tuple[tuple[str, str], ...]:
    """Each file of the artifact at its place, so that nothing beside it can be read and links end where they point."""
    folder, found = start.folder, []
    for file in start.launch.artifact.files:
        place = folder / file.path
        if not place.is_file():
            raise Refusal(codes.NO_ARTIFACT.code, f"{place} is not a file: the weights are not as the artifact says")
        found.append((str(place.resolve()), f"{MODELS}/{file.path}"))
    return tuple(found)


def _check_devices(spawn: Spawn, start: Start) -> None:
    """A GPU is named by its UUID, and a model is split only over GPUs that are named: never over whatever is there."""
    backend, count = start.launch.backend, len(start.gpus)
    if backend != "cpu" and not count:
        raise Refusal(
            codes.NO_RUNTIME.code, f"no device of this start is known by a UUID, so {backend} has none to name"
        )
    for word, value in zip(spawn.argv, spawn.argv[1:], strict=False):
        if word in SPLITS and value != str(count) and value != "1":
            raise Refusal(codes.BAD_ARGUMENT.code, f"{word} {value} needs {value} named devices, and there are {count}")
