"""`[artifacts]` in agent.toml: what is written is read back, and what cannot be meant is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gridops.base.errors import BadSetup
from gridops_agent.artifacts.settings import HUB, Peer, Settings, parse_settings
from gridops_agent.config import Config, read_config, write_config

EVERYTHING = Settings(
    keep_free_bytes=50 << 30,
    limit_bytes=500 << 30,
    rate_bps=400_000_000,
    stall_ms=30_000,
    retries=3,
    backoff_ms=500,
    hub="https://hub.example",
    plain_loopback=True,
    peers=(Peer("https://10.0.0.8:18400", "ab" * 32), Peer("https://10.0.0.9:18400", "cd" * 32)),
    peer_credential="secret:lan",
    mirror="10.0.0.7:18400",
)


@pytest.mark.parametrize("settings", [Settings(), EVERYTHING])
def test_what_is_written_is_read_back(tmp_path: Path, settings: Settings) -> None:
    config = Config(
        state=tmp_path,
        controller="https://c:7443",
        host="forge",  # type: ignore[arg-type]
        fleet="sha256:" + "0" * 64,  # type: ignore[arg-type]
        artifacts=settings,
    )
    write_config(config)
    assert read_config(tmp_path).artifacts == settings
    assert ("[artifacts]" in config.file.read_text()) == (settings != Settings())


def test_nothing_written_is_what_suits_most() -> None:
    made = parse_settings({})
    assert made == Settings()
    assert (made.hub, made.limit_bytes, made.rate_bps, made.mirror) == (HUB, None, None, None)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("all", "must be a table"),
        ({"secrets_folder": "/etc"}, "`secrets_folder` is no key of `artifacts`: it stands above every table"),
        ({"bandwith": "1Mbit/s"}, "unknown key `artifacts.bandwith`; known are"),
        ({"bandwidth": "fast"}, "`artifacts.bandwidth`: `fast` is not a rate"),
        ({"bandwidth": "1kbit/s"}, "below 8 kbit/s"),
        ({"keep_free": 10}, "expected a text"),
        ({"keep_free": "10"}, "needs a unit"),
        ({"stall": "0s"}, "more than nothing"),
        ({"retries": -1}, "from 0 to 1000"),
        ({"retries": True}, "from 0 to 1000"),
        ({"plain_loopback": "yes"}, "true or false"),
        ({"hub": "http://hub.example"}, "not an https:// address"),
        ({"mirror": "10.0.0.7", "peer_credential": "secret:lan"}, "not an address"),
        ({"mirror": "10.0.0.7:18400"}, "`artifacts.peer_credential` is missing"),
        ({"peer_credential": "hunter2"}, "expected secret:NAME"),
        ({"peers": {"url": "x"}}, "expected a list"),
        ({"peers": [{"url": "https://10.0.0.8:18400"}]}, "a url and a cert"),
        ({"peers": [{"url": "http://10.0.0.8", "cert": "ab" * 32}]}, "not the address of a mirror"),
        ({"peers": [{"url": "https://10.0.0.8", "cert": "ab"}]}, "64 hex digits"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(raw: object, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        parse_settings(raw)
    assert "hunter2" not in str(caught.value), "what may be a secret is not repeated"


def test_a_bad_table_names_its_file(tmp_path: Path) -> None:
    lines = [
        'controller = "https://c:7443"',
        'host = "forge"',
        f'fleet = "sha256:{"0" * 64}"',
        "[artifacts]",
        "limit = 5",
    ]
    (tmp_path / "agent.toml").write_text("\n".join(lines))
    with pytest.raises(BadSetup, match=r"agent\.toml: `artifacts\.limit`"):
        read_config(tmp_path)
