"""Does a model file say sensible things about itself? Asked before anything is started from it, at load and at start.

The digest proves that a file is the one that was approved, not that it is a model: a profile may name a truncated or a
hostile file. Engines read headers in C++ and trust them; here they are read first, with every count, length and offset
bounded before it is used, so that a bad file costs milliseconds and is refused with a code. Formats that nothing is
known of pass. Called by `shelf`; reads, and changes nothing.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.model.profile import Artifact
from gridops_agent.artifacts import gguf, safetensors
from gridops_agent.artifacts.reading import Unsound


def check(artifact: Artifact, first: Path) -> None:
    """Raise Refusal `bad_model_file`, naming the file and what is wrong with it. `first`: where its first file is."""
    names = [PurePosixPath(file.path) for file in artifact.files]
    base = first
    for _ in names[0].parts:
        base = base.parent
    # One file alone may have been found under another name.
    paths = {str(name): base / name for name in names} if len(names) > 1 else {str(names[0]): first}
    for name in sorted(paths):
        try:
            if artifact.format == "gguf" and (len(paths) == 1 or name.endswith(".gguf")):
                gguf.check(paths[name])
            elif artifact.format == "safetensors" and name.endswith(".safetensors"):
                safetensors.check(paths[name])
            elif artifact.format == "safetensors" and name.endswith(".safetensors.index.json"):
                safetensors.check_index(name, paths)
        except Unsound as error:
            raise Refusal(
                codes.BAD_MODEL_FILE.code, f"{paths[name]} is no sound {artifact.format} file: {error}"
            ) from error
        except OSError as error:
            raise Refusal(codes.NO_ARTIFACT.code, f"{paths[name]} cannot be read: {error.strerror}") from error
