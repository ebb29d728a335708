"""The llama.cpp adapter: portable names to flags, nothing passed on unseen, and a wrapper that is never left open."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gridops.base.errors import Refusal
from gridops.model.plan import Launch
from gridops.model.profile import EngineArg
from gridops_agent.engines import engines, xll_server
from gridops_agent.engines.base import Door, EngineSilent, Start
from gridops_agent.engines.llama_cpp import _WRAPPER, FLAGS, LlamaCpp
from tests.agent import engine_doubles as doubles
from tests.agent.site import free_ports
from tests.protocol.build import warm

LAUNCH = replace(warm().launch, context=4096, lanes=2)
ALL = " ".join(
    ["--model --alias --host --port --ctx-size --parallel --api-key-file --slots --metrics --sse-ping-interval --fit"]
    + ["--cache-ram --no-webui --device"]
    + [flag.name for flag in FLAGS.values()]
)


def start(launch: Launch = LAUNCH, **changes: object) -> Start:
    made = Start(launch=launch, model=Path("/m/a.gguf"), port=18_300, key_file=Path("/k"))
    return replace(made, **changes)  # type: ignore[arg-type]


def knowing(flags: str) -> LlamaCpp:
    """The adapter on a binary whose help names these flags."""
    return LlamaCpp(("/bin/sh", "-c", f"echo '{flags}'"))


def words(launch: Launch = LAUNCH, flags: str = ALL) -> list[str]:
    return list(knowing(flags).command(start(launch)))[3:]


def given(**args: str) -> Launch:
    return replace(LAUNCH, args=tuple(EngineArg(name=n, value=v) for n, v in args.items()))


def test_the_command_line_leaves_no_choice_to_the_engine_and_holds_no_secret() -> None:
    assert words() == [
        *("--model", "/m/a.gguf", "--alias", "coder", "--host", "127.0.0.1", "--port", "18300"),
        *("--ctx-size", "4096", "--parallel", "2", "--api-key-file", "/k", "--slots", "--metrics"),
        *("--sse-ping-interval", "1", "--no-webui", "--fit", "off", "--cache-ram", "0"),
        *("--check-tensors", "--device", "none"),
    ]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"threads": "4"}, ["--threads", "4"]),
        ({"flash_attn": "true"}, ["--flash-attn", "on"]),
        ({"flash_attn": "false"}, ["--flash-attn", "off"]),
        ({"embeddings": "true", "pooling": "mean"}, ["--embeddings", "--pooling", "mean"]),
        ({"embeddings": "false"}, []),
        ({"warmup": "false"}, ["--no-warmup"]),
        ({"warmup": "true"}, []),
        ({"gpu_layers": "-1", "batch": "512"}, ["--batch-size", "512", "--n-gpu-layers", "-1"]),
        ({"tensor_split": "3,1.5"}, ["--tensor-split", "3,1.5"]),
    ],
)
def test_portable_arguments_become_flags_in_a_stable_order(args: dict[str, str], expected: list[str]) -> None:
    assert words(given(**args))[26:] == expected


def test_an_argument_of_the_config_outranks_our_own_choice() -> None:
    line = words(given(cache_ram_mib="256"))
    assert line[-2:] == ["--cache-ram", "256"]
    assert line.count("--cache-ram") == 1


def test_a_build_that_cannot_honour_an_argument_refuses_it_instead_of_leaving_it_out() -> None:
    assert "--no-webui" not in words(flags=ALL.replace("--no-webui", ""))
    with pytest.raises(Refusal) as caught:
        words(given(flash_attn="true"), ALL.replace("--flash-attn", ""))
    assert caught.value.code == "bad_argument"


@pytest.mark.parametrize("name", sorted(FLAGS))
@pytest.mark.parametrize("value", ["", " ", "-x", "--api-key", "a b", "1;2", "../x", "ON", "x" * 99])
def test_no_argument_carries_words_of_its_own(name: str, value: str) -> None:
    assert LlamaCpp().objection(given(**{name: value})) is not None


def test_only_gguf_is_read() -> None:
    other = replace(LAUNCH, artifact=replace(LAUNCH.artifact, format="safetensors"))
    assert "gguf" in (LlamaCpp().objection(other) or "")


def test_the_help_is_asked_once_and_again_only_when_the_binary_changes(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/count\necho '{ALL}'\n")
    program.chmod(0o700)
    adapter = LlamaCpp((str(program),))
    adapter.command(start())
    adapter.command(start())
    assert (tmp_path / "count").read_text().split() == ["asked"]
    program.write_text(program.read_text() + "\n")
    adapter.command(start())
    assert len((tmp_path / "count").read_text().split()) == 2


def test_a_build_is_known_by_its_program_or_by_the_version_of_its_wheel(tmp_path: Path) -> None:
    assert re.fullmatch(r"xllamacpp \d[\w.]*", LlamaCpp((sys.executable, "-P", str(_WRAPPER))).build())
    program = tmp_path / "llama-server"
    program.write_text("one")
    program.chmod(0o755)
    engine = LlamaCpp((str(program),))
    one = engine.build()
    assert re.fullmatch(r"llama-server [0-9a-f]{12}", one)
    program.write_text("other")
    os.utime(program, ns=(1, 1))
    assert engine.build() != one, "asked anew when the file changes"
    assert LlamaCpp((str(tmp_path / "nowhere"),)).build() == ""


def test_our_wrapper_knows_every_flag_that_it_is_given() -> None:
    adapter = LlamaCpp((sys.executable, "-P", str(Path(xll_server.__file__))))
    line = adapter.command(start())
    xll_server.parser().parse_args(line[3:])
    known = adapter._flags(adapter._override)
    missing = {f.name for f in FLAGS.values()} - known
    assert missing == {"--reasoning-format", "--split-mode", "--tensor-split"}, "these need a GPU or llama-server"


def test_the_wrapper_never_opens_a_server_without_a_key(tmp_path: Path) -> None:
    for content in ("", "\n", "  \r\n"):
        (tmp_path / "key").write_text(content)
        with pytest.raises(ValueError, match="holds no key"):
            xll_server.keys(tmp_path / "key")
    (tmp_path / "key").write_text("abc\r\n")
    assert xll_server.keys(tmp_path / "key") == ["abc"]
    line = [sys.executable, "-P", str(Path(xll_server.__file__)), "-m", "/nothing", "-a", "a", "--port", "1"]
    ended = subprocess.run([*line, "--api-key-file", str(tmp_path / "key")], capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"cannot read the model /nothing" in ended.stderr


def test_the_registry_names_what_configs_name() -> None:
    assert sorted(engines({})) == ["llama.cpp", "sglang", "vllm"]
    assert LlamaCpp().runtimes()[0].engine == "llama.cpp"


def test_a_router_is_never_started_since_it_loads_and_evicts_by_itself() -> None:
    for words in (("llama-server", "--models-dir", "/m"), ("llama-server", "--models-preset=/x.ini")):
        assert "router" in (LlamaCpp(words).objection(LAUNCH) or "")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Available devices:\n", ["cpu"]),
        ("Available devices:\n  CUDA0: NVIDIA H200 (143771 MiB, 141000 MiB free)\n", ["cpu", "cuda"]),
        (
            "Available devices:\n  Vulkan0: AMD\n  ROCm0: AMD Instinct\n  MTL0: Apple M4\n",
            ["cpu", "metal", "rocm", "vulkan"],
        ),
        ("a line CUDA0: not at its beginning\n  RPC0: 10.0.0.1\n", ["cpu"]),
    ],
)
def test_the_backends_of_a_build_are_those_whose_devices_it_finds(
    said: str, expected: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "llama-server"
    program.write_text(
        f"#!/bin/sh\nif [ $1 = --help ]; then echo '{ALL} --list-devices'; else printf '%s' '{said}'; fi\n"
    )
    program.chmod(0o700)
    assert [r.backend for r in LlamaCpp((str(program),)).runtimes()] == expected


def test_a_card_is_used_only_by_its_uuid_and_then_wholly() -> None:
    cuda = replace(LAUNCH, backend="cuda")
    with pytest.raises(Refusal, match="UUID"):
        words(cuda)
    started = start(cuda, gpus=("GPU-1",))
    line = knowing(ALL).command(started)
    assert line[line.index("--n-gpu-layers") + 1] == "999"
    assert "--device" not in line
    assert knowing(ALL).environment(started)["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert knowing(ALL).environment(start())["CUDA_VISIBLE_DEVICES"] == ""


async def answers(slots: object, **more: object) -> str | None:
    """What the adapter says of a server with these slots."""

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "coder", **more}]})

    async def said(request: web.Request) -> web.Response:
        return web.json_response(slots) if slots is not None else web.Response(status=501)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_get("/slots", said)
    port = free_ports(1)[0]
    async with doubles.listening(app, port), aiohttp.ClientSession() as http:
        return await LlamaCpp().contradiction(http, Door(port=port, key="k", alias="coder", launch=LAUNCH))


async def test_a_server_with_other_lanes_or_context_contradicts_its_launch() -> None:
    slot = {"n_ctx": 2048, "is_processing": False}
    assert await answers([slot, slot]) is None
    assert "1 lane instead of 2" in (await answers([slot]) or "")
    assert "4096 tokens of context instead of 2048" in (await answers([{"n_ctx": 4096}, {"n_ctx": 4096}]) or "")
    assert "router" in (await answers([slot, slot], status={"value": "loaded"}) or "")
    with pytest.raises(EngineSilent):
        await answers(None)
