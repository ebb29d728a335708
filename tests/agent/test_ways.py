"""`agent.toml` says how each engine is run; what could name something else than it seems to is refused at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.errors import BadSetup
from gridops.base.ids import HostId
from gridops_agent.config import Config, read_config, write_config
from gridops_agent.keep.ways import Image, Unit, Ways, check_unit

REFERENCE = "vllm/vllm-openai@sha256:" + "ab" * 32
HEAD = f'controller = "https://c.example:7443"\nhost = "forge"\nfleet = "{digest_bytes(b"f")}"\n'


def read(folder: Path, text: str) -> Config:
    (folder / "agent.toml").write_text(HEAD + text)
    return read_config(folder)


def test_every_way_is_read_and_written_again(tmp_path: Path) -> None:
    config = Config(
        state=tmp_path,
        controller="https://c.example:7443",
        host=HostId("forge"),
        fleet=digest_bytes(b"f"),
        engine_command={"llama.cpp": ("/opt/llama-server", "--x")},
        ways=Ways(
            images={"vllm": Image(REFERENCE, "cuda", ("python3", "-m", "x"), 8_001, 2_048)},
            services={"ollama": "http://127.0.0.1:11434"},
            units=(Unit("llama@70b.service", "llama.cpp", "llama-70b", "cuda", 8_080, ("gpu0",), "/etc/key"),),
            socket="unix:///run/docker.sock",
        ),
    )
    write_config(config)
    assert read_config(tmp_path) == config
    plain = replace(config, ways=Ways(), engine_command={})
    write_config(plain)
    assert read_config(tmp_path) == plain


def test_the_older_form_of_a_command_is_still_read(tmp_path: Path) -> None:
    config = read(tmp_path, '[engine_command]\n"llama.cpp" = ["/opt/llama-server"]\n')
    assert config.engine_command == {"llama.cpp": ("/opt/llama-server",)}
    new = read(tmp_path, '[engines."llama.cpp"]\ncommand = ["/opt/llama-server"]\n')
    assert new == config


REFUSED = {
    "a moving tag": ('[engines.vllm]\ncontainer = "vllm/vllm-openai:latest"', "by its digest"),
    "a short digest": ('[engines.vllm]\ncontainer = "vllm/vllm-openai@sha256:abcd"', "by its digest"),
    "a tag and no digest": ('[engines.vllm]\ncontainer = "vllm"', "by its digest"),
    "two ways at once": (f'[engines.vllm]\ncontainer = "{REFERENCE}"\ncommand = ["x"]', "one of command"),
    "no way at all": ("[engines.vllm]\nbackend = 'cuda'", "one of command"),
    "an unknown key": (f'[engines.vllm]\ncontainer = "{REFERENCE}"\ngpus = "all"', "no key `gpus`"),
    "a service elsewhere": ('[engines.ollama]\nservice = "http://10.0.0.7:11434"', "on this machine"),
    "a service with a path": ('[engines.ollama]\nservice = "http://127.0.0.1:11434/x"', "on this machine"),
    "a service by a name that only begins so": ('[engines.o]\nservice = "http://127.0.0.1.evil:80"', "on this machine"),
    "a unit by its path": ('[units."../x.service"]\nprofile="a"\nengine="b"\nport=1', "not the name of a unit"),
    "a unit that is an option": ('[units."--now.service"]\nprofile="a"\nengine="b"\nport=1', "not the name of a unit"),
    "a unit on two lines": ('[units."a\\n.service"]\nprofile="a"\nengine="b"\nport=1', "not the name of a unit"),
    "a unit without a port": ('[units."a.service"]\nprofile="a"\nengine="b"', "profile, engine and port"),
    "a key file somewhere": ('[units."a.service"]\nprofile="a"\nengine="b"\nport=1\nkey_file="k"', "absolute path"),
    "two units on a port": (
        '[units."a.service"]\nprofile="a"\nengine="b"\nport=1\n[units."c.service"]\nprofile="d"\nengine="b"\nport=1',
        "the same port",
    ),
    "a socket elsewhere": ('container_socket = "tcp://10.0.0.7:2375"', "a socket of this machine"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_could_be_something_else_is_refused_when_it_is_read(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadSetup, match=says):
        read(tmp_path, text + "\n")


@pytest.mark.parametrize(
    "name", ["/etc/x.service", "a/b.service", "..service", "a\n.service", "x.socket", "", "a b.service"]
)
def test_a_name_that_is_no_unit_is_refused_again_before_each_call(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a unit"):
        check_unit(name)


def test_instances_of_templates_are_units() -> None:
    assert check_unit("llama@70b.service") == "llama@70b.service"
