"""vLLM and SGLang: the share is the plan's, devices are named, and the key is seen by nobody but the server itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId
from gridops.model.action import DeviceShare
from gridops.model.profile import DeviceNeed
from gridops_agent.engines import keyed_server
from gridops_agent.engines.base import Start
from gridops_agent.engines.served import Served
from gridops_agent.engines.sglang import Sglang
from gridops_agent.engines.vllm import Vllm
from tests.agent.engine_cases import folder_of_files
from tests.agent.engine_contract import KEY

BOTH = [
    pytest.param(Vllm(("/py",)), "--gpu-memory-utilization", "--tensor-parallel-size", id="vllm"),
    pytest.param(Sglang(("/py",)), "--mem-fraction-static", "--tp-size", id="sglang"),
]


def on_cards(engine: Served, folder: Path, *ppm: int, shard: str | None = None) -> Start:
    start = folder_of_files(folder, engine.name)
    shares = tuple(DeviceShare(device=DeviceId(f"gpu{n}"), ppm=p) for n, p in enumerate(ppm))
    launch = replace(start.launch, backend="cuda", devices=DeviceNeed(count=len(ppm), shard=shard))
    return replace(start, launch=launch, shares=shares, gpus=tuple(f"GPU-{n}" for n in range(len(ppm))))


def after(words: tuple[str, ...], flag: str) -> str | None:
    return words[words.index(flag) + 1] if flag in words else None


@pytest.mark.parametrize(("engine", "share", "split"), BOTH)
@pytest.mark.parametrize(
    ("ppm", "said"), [(1, "0.000001"), (512_345, "0.512345"), (999_999, "0.999999"), (10**6, "1.0")]
)
def test_the_share_is_the_plans_to_the_part(
    engine: Served, share: str, split: str, ppm: int, said: str, tmp_path: Path
) -> None:
    words = engine.command(on_cards(engine, tmp_path, ppm))
    assert after(words, share) == said
    assert split not in words, "one card is not cut"


@pytest.mark.parametrize(("engine", "share", "split"), BOTH)
def test_several_cards_are_cut_by_their_number_and_take_the_least_share(
    engine: Served, share: str, split: str, tmp_path: Path
) -> None:
    start = on_cards(engine, tmp_path, 800_000, 700_000)
    words = engine.command(start)
    assert after(words, split) == "2"
    assert after(words, share) == "0.700000"
    assert engine.environment(start)["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    by_layer = on_cards(engine, tmp_path, 800_000, 700_000, shard="layer")
    for refused in (by_layer, replace(start, gpus=("GPU-0",)), replace(start, shares=()), replace(start, gpus=())):
        with pytest.raises(Refusal):
            engine.command(refused)
    with pytest.raises(Refusal):
        engine.command(replace(start, launch=replace(start.launch, backend="cpu")))


def test_an_artifact_without_its_config_is_refused(tmp_path: Path) -> None:
    launch = folder_of_files(tmp_path, "vllm").launch
    bare = replace(launch, artifact=replace(launch.artifact, files=launch.artifact.files[1:]))
    assert "no config.json" in (Vllm().objection(bare) or "")


@pytest.mark.parametrize("content", ["", "\n", "  \r\n", " key", "key\n", "one two"])
def test_an_empty_or_padded_key_starts_no_server(content: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(ValueError, match="key"):
        keyed_server.key_of(tmp_path / "key")
    line = [
        sys.executable,
        "-P",
        keyed_server.__file__,
        "vllm",
        "--key-file",
        str(tmp_path / "key"),
        "--",
        "--model",
        "x",
    ]
    ended = subprocess.run(line, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"error: ValueError" in ended.stderr


FAKE = {
    "vllm": {
        "vllm/__init__.py": "",
        "vllm/envs.py": "environment_variables = {'VLLM_API_KEY': lambda: None}\n"
        "def __getattr__(name):\n    return environment_variables[name]()\n",
        "vllm/entrypoints/__init__.py": "",
        "vllm/entrypoints/openai/__init__.py": "",
        "vllm/entrypoints/openai/api_server.py": "import json, os, sys\nfrom vllm import envs\n"
        "print(json.dumps({'key': envs.VLLM_API_KEY, 'argv': sys.argv[1:], 'env': dict(os.environ)}))\n",
    },
    "sglang": {
        "sglang/__init__.py": "",
        "sglang/srt/__init__.py": "",
        "sglang/srt/server_args.py": "class A:\n    api_key = None\n"
        "def prepare_server_args(argv):\n    a = A()\n    a.argv = argv\n    return a\n",
        "sglang/srt/entrypoints/__init__.py": "",
        "sglang/srt/entrypoints/http_server.py": "import json, os, pickle, sys\n"
        "def launch_server(a):\n    print(f'args={a.api_key!r}', file=sys.stderr)\n"
        "    there = pickle.loads(pickle.dumps(a.api_key))\n"
        "    print(json.dumps({'key': there, 'argv': a.argv, 'env': dict(os.environ)}))\n",
    },
}


@pytest.mark.parametrize("engine", sorted(FAKE))
def test_the_key_reaches_the_server_and_nothing_that_others_can_read(engine: str, tmp_path: Path) -> None:
    for name, text in FAKE[engine].items():
        file = tmp_path / "lib" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "key").write_text(KEY)
    line = [sys.executable, "-P", keyed_server.__file__, engine, "--key-file", str(tmp_path / "key"), "--", "--x", "1"]
    ended = subprocess.run(line, capture_output=True, check=True, env={"PYTHONPATH": str(tmp_path / "lib")})
    said = json.loads(ended.stdout)
    assert said["key"] == KEY
    assert said["argv"] == ["--x", "1"]
    assert KEY not in json.dumps(said["env"])
    assert KEY.encode() not in ended.stderr, "a server that logs its arguments logs stars"
