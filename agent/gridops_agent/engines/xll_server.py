"""llama.cpp's own HTTP server from the `xllamacpp` wheel as a process, with the command line of `llama-server`.

Run as a file by the supervisor; imports nothing of ours, so that it starts fast and stands alone. Unlike
`llama-server` it drains by itself: after TERM it waits for work in flight before it leaves.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def parser() -> argparse.ArgumentParser:
    """The subset of llama-server's flags that gridops uses."""
    flags = argparse.ArgumentParser(prog="xll-server", allow_abbrev=False, description=__doc__)
    flags.add_argument("-m", "--model", required=True)
    flags.add_argument("-a", "--alias", required=True)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("-c", "--ctx-size", type=int, default=0)
    flags.add_argument("-np", "--parallel", type=int, default=1)
    flags.add_argument("-t", "--threads", type=int)
    flags.add_argument("-tb", "--threads-batch", type=int)
    flags.add_argument("-b", "--batch-size", type=int)
    flags.add_argument("-ub", "--ubatch-size", type=int)
    flags.add_argument("-ngl", "--n-gpu-layers", type=int)
    flags.add_argument("-mg", "--main-gpu", type=int)
    flags.add_argument("-fa", "--flash-attn", choices=("on", "off", "auto"))
    flags.add_argument("-ctk", "--cache-type-k")
    flags.add_argument("-ctv", "--cache-type-v")
    flags.add_argument("--cache-ram", type=int)
    flags.add_argument("--fit", choices=("on", "off"), default="on")
    flags.add_argument("--api-key-file", required=True)
    flags.add_argument("--metrics", action="store_true")
    flags.add_argument("--slots", action="store_true")
    flags.add_argument("--embeddings", action="store_true")
    flags.add_argument("--pooling", choices=("none", "mean", "cls", "last", "rank"))
    flags.add_argument("--no-warmup", action="store_true")
    flags.add_argument("--no-webui", action="store_true")
    flags.add_argument("--jinja", action="store_true")
    flags.add_argument("--chat-template")
    flags.add_argument("--check-tensors", action="store_true")
    flags.add_argument("--sse-ping-interval", type=int, default=1)
    flags.add_argument("--drain-seconds", type=float, default=30.0)
    return flags


def params(given: argparse.Namespace, engine: Any) -> Any:
    """xllamacpp's parameters for a command line."""
    made = engine.CommonParams()
    made.model.path = given.model
    made.model_alias = {given.alias}
    made.hostnames = [given.host]
    made.port = given.port
    made.api_keys = keys(Path(given.api_key_file))
    made.n_ctx = given.ctx_size
    made.n_parallel = given.parallel
    made.endpoint_metrics, made.endpoint_slots = given.metrics, given.slots
    made.embedding = given.embeddings
    made.warmup = not given.no_warmup
    made.ui = not given.no_webui
    made.fit_params = given.fit == "on"
    made.check_tensors = given.check_tensors
    made.sse_ping_interval = given.sse_ping_interval
    _set_numbers(made, given)
    _set_names(made, given, engine)
    return made


def _set_numbers(made: Any, given: argparse.Namespace) -> None:
    for name, value in (
        ("n_batch", given.batch_size),
        ("n_ubatch", given.ubatch_size),
        ("n_gpu_layers", given.n_gpu_layers),
        ("main_gpu", given.main_gpu),
        ("cache_ram_mib", given.cache_ram),
    ):
        if value is not None:
            setattr(made, name, value)
    if given.threads is not None:
        made.cpuparams.n_threads = given.threads
        made.cpuparams_batch.n_threads = given.threads_batch or given.threads


def _set_names(made: Any, given: argparse.Namespace, engine: Any) -> None:
    if given.flash_attn:
        word = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[given.flash_attn]
        made.flash_attn_type = getattr(engine.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{word}")
    if given.pooling:
        made.pooling_type = getattr(engine.llama_pooling_type, f"LLAMA_POOLING_TYPE_{given.pooling.upper()}")
    for field, value in (("cache_type_k", given.cache_type_k), ("cache_type_v", given.cache_type_v)):
        if value:
            setattr(made, field, getattr(engine.ggml_type, f"GGML_TYPE_{value.upper()}"))
    if given.chat_template:
        made.chat_template = given.chat_template


def keys(path: Path) -> list[str]:
    """The keys of a key file, one a line. An empty file would start an open server, so it is an error here."""
    found = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    if not found:
        raise ValueError(f"{path} holds no key")
    return found


def main(argv: list[str] | None = None) -> int:
    """Serve until TERM. While the model loads, TERM keeps its default action: the process just ends."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["--runtime"]:  # where the wheel lies when it is not installed beside this interpreter
        sys.path.insert(0, words[1])
        words = words[2:]
    given = parser().parse_args(words)
    try:
        import xllamacpp

        if not os.access(given.model, os.R_OK):
            raise ValueError(f"cannot read the model {given.model}")
        server = xllamacpp.Server(params(given, xllamacpp))
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends this process with a line that says so
        # The engine raises RuntimeError for anything; the supervisor shows these last lines as evidence.
        _say(f"error: {type(error).__name__}: {error}")
        return 1
    stop = threading.Event()

    def leave(*_: object) -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    _say(f"listening on {server.listening_address}")
    while not stop.wait(1):
        pass
    end = time.monotonic() + given.drain_seconds
    while given.metrics and time.monotonic() < end and not _idle(server):
        time.sleep(0.1)
    _say("stopping")
    os._exit(0)  # deleting the server object would wait for open connections, 30 s and more


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _idle(server: Any) -> bool:
    try:
        return "requests_processing 0" in str(server.handle_metrics())
    except Exception:  # noqa: BLE001
        # A server that cannot be asked any more has nothing left to finish.
        return True


if __name__ == "__main__":
    sys.exit(main())
