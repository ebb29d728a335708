"""How this host fetches: the table `[artifacts]` of agent.toml, and the secrets that sources ask for.

Read once with the rest of agent.toml. Nothing in it is a secret: a credential is a name, and the value lies 0600 in the
host's secrets folder, is read at the moment of use and shows itself to nobody but the server it is for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gridops.base.codes import host as codes
from gridops.base.errors import BadSetup, Refusal
from gridops.base.units import exact_bytes, exact_ms, parse_bps, parse_bytes, parse_ms
from gridops.disk.credentials import credential as handed_over
from gridops.disk.credentials import read_credential
from gridops.disk.keyring import read_secret
from gridops.trust.secret import Secret

HUB = "https://huggingface.co"
_PREFIX = "secret:"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Peer:
    """Another agent that serves verified files on the network of this one."""

    url: str
    cert: str
    """SHA-256 of its front's certificate, as 64 hex digits: nobody else is asked."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`[artifacts]` of agent.toml; everything may be left out."""

    keep_free_bytes: int = 1 << 30
    """Disk that no fetch takes."""
    limit_bytes: int | None = None
    """What this agent's own downloads may hold together. None: nothing that was used is ever deleted."""
    rate_bps: int | None = None
    """Bits per second of all transfers together. None: as fast as it goes."""
    stall_ms: int = 60_000
    retries: int = 8
    """Tries in a row that bring nothing new before a fetch has failed."""
    backoff_ms: int = 1_000
    hub: str = HUB
    """Where `hf://` sources are; another address for a mirror."""
    plain_loopback: bool = False
    """Allow http:// to this very machine. For tests and for a proxy that runs here."""
    peers: tuple[Peer, ...] = ()
    peer_credential: str | None = None
    """The key that hosts of one network share for their mirrors."""
    mirror: str | None = None
    """HOST:PORT on which this agent serves its verified files to peers. None: it serves nothing."""

    def allows(self, url: str) -> bool:
        """https anywhere; plain http only to this machine, and only where that was said."""
        parts = urlsplit(url)
        if parts.scheme == "https":
            return bool(parts.hostname)
        return parts.scheme == "http" and self.plain_loopback and parts.hostname in _LOOPBACK


class Secrets:
    """The secrets folder of this host."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, credential: str) -> Secret:
        """The value of `secret:NAME`. Raises Refusal that says what is wrong with the file, never what is in it."""
        name = credential.removeprefix(_PREFIX)
        if not credential.startswith(_PREFIX) or _NAME.fullmatch(name) is None:
            raise Refusal(codes.NO_CREDENTIAL.code, "a credential is written as secret:NAME")
        handed = handed_over(f"gridops.secret.{name}")
        if handed is not None:
            return self._handed(name, handed)
        if self._folder is None:
            raise Refusal(
                codes.NO_CREDENTIAL.code,
                f"the source needs {credential}, and agent.toml names no secrets_folder",
                hints=(
                    'add secrets_folder = "/etc/gridops-agent/secrets", above every table of agent.toml',
                    f"put the value into that folder, as {name}, 0600",
                    f"or let systemd hand it over: LoadCredential=gridops.secret.{name}:PATH",
                ),
            )
        try:
            return Secret(read_secret(self._folder / name).strip())
        except BadSetup as error:
            raise Refusal(codes.NO_CREDENTIAL.code, error.message, hints=error.hints) from error

    def _handed(self, name: str, handed: Path) -> Secret:
        """What the service manager handed over. One of another content in the folder makes both doubtful."""
        try:
            value = read_credential(handed).strip()
            beside = self._folder / name if self._folder is not None else None
            if beside is not None and os.path.lexists(beside) and read_secret(beside).strip() != value:
                hints = (f"rm {beside}", "or take LoadCredential= out of the unit, and restart it")
                raise BadSetup(f"{handed} and {beside} are not the same", hints=hints)
        except BadSetup as error:
            raise Refusal(codes.NO_CREDENTIAL.code, error.message, hints=error.hints) from error
        return Secret(value)


def parse_settings(raw: object) -> Settings:
    """The table `[artifacts]`. Raises ValueError with a sentence for the user."""
    if not isinstance(raw, dict):
        raise ValueError("`artifacts` must be a table")
    unknown = sorted(raw.keys() - _FIELDS.keys())
    if unknown:
        if "secrets_folder" in unknown:  # a line below a table belongs to it, however it is meant
            raise ValueError("`secrets_folder` is no key of `artifacts`: it stands above every table of agent.toml")
        raise ValueError(f"unknown key `artifacts.{unknown[0]}`; known are {', '.join(sorted(_FIELDS))}")
    found: dict[str, Any] = {}
    for key, value in raw.items():
        field, read = _FIELDS[key]
        try:
            found[field] = read(value)
        except ValueError as error:
            raise ValueError(f"`artifacts.{key}`: {error}") from error
    settings = Settings(**found)
    if (settings.peers or settings.mirror) and settings.peer_credential is None:
        raise ValueError("`artifacts.peer_credential` is missing: a mirror and its peers share a key, secret:NAME")
    if settings.hub != HUB and not settings.allows(settings.hub):
        raise ValueError(f"`artifacts.hub`: `{settings.hub}` is not an https:// address")
    return settings


def settings_lines(settings: Settings) -> list[str]:
    """The table as TOML, without what is as it would be anyway."""
    plain = Settings()
    rows: dict[str, object] = {
        "keep_free": exact_bytes(settings.keep_free_bytes),
        "limit": exact_bytes(settings.limit_bytes) if settings.limit_bytes is not None else None,
        "bandwidth": f"{settings.rate_bps}bit/s" if settings.rate_bps is not None else None,
        "stall": exact_ms(settings.stall_ms),
        "retries": settings.retries,
        "backoff": exact_ms(settings.backoff_ms),
        "hub": settings.hub,
        "plain_loopback": settings.plain_loopback,
        "peer_credential": settings.peer_credential,
        "mirror": settings.mirror,
    }
    lines = [
        f"{key} = {json.dumps(value)}"
        for key, value in rows.items()
        if getattr(settings, _FIELDS[key][0]) != getattr(plain, _FIELDS[key][0])
    ]
    if settings.peers:
        peers = (f"{{url = {json.dumps(p.url)}, cert = {json.dumps(p.cert)}}}" for p in settings.peers)
        lines.append(f"peers = [{', '.join(peers)}]")
    return ["[artifacts]", *lines] if lines else []


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= 1_000:
        raise ValueError("expected a number from 0 to 1000")
    return value


def _rate(value: object) -> int:
    rate = parse_bps(_text(value))
    if rate < 8_000:
        raise ValueError("a limit below 8 kbit/s would let every source look dead")
    return rate


def _some_ms(value: object) -> int:
    span = parse_ms(_text(value))
    if span < 1:
        raise ValueError("expected more than nothing")
    return span


def _credential(value: object) -> str:
    text = _text(value)
    if not text.startswith(_PREFIX) or _NAME.fullmatch(text.removeprefix(_PREFIX)) is None:
        raise ValueError("expected secret:NAME; the value itself lies 0600 in the secrets folder")
    return text


def _address(value: object) -> str:
    host, _, port = _text(value).rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"`{value}` is not an address, such as 10.0.0.7:18400")
    return str(value)


def _peers(value: object) -> tuple[Peer, ...]:
    if not isinstance(value, list):
        raise ValueError('expected a list, such as [{url = "https://10.0.0.8:18400", cert = "1f2e..."}]')
    return tuple(_peer(one) for one in value)


def _peer(value: object) -> Peer:
    if not isinstance(value, dict) or set(value) != {"url", "cert"}:
        raise ValueError("a peer has a url and a cert")
    url, cert = _text(value["url"]).rstrip("/"), _text(value["cert"]).lower()
    if re.fullmatch(r"https://[^/\s?#@]+", url) is None:
        raise ValueError(f"`{url}` is not the address of a mirror, such as https://10.0.0.8:18400")
    if re.fullmatch(r"[0-9a-f]{64}", cert) is None:
        raise ValueError("`cert` is the SHA-256 of the peer's front certificate, 64 hex digits")
    return Peer(url, cert)


_FIELDS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "keep_free": ("keep_free_bytes", lambda v: parse_bytes(_text(v))),
    "limit": ("limit_bytes", lambda v: parse_bytes(_text(v))),
    "bandwidth": ("rate_bps", _rate),
    "stall": ("stall_ms", _some_ms),
    "retries": ("retries", _count),
    "backoff": ("backoff_ms", _some_ms),
    "hub": ("hub", lambda v: _text(v).rstrip("/")),
    "plain_loopback": ("plain_loopback", _flag),
    "peers": ("peers", _peers),
    "peer_credential": ("peer_credential", _credential),
    "mirror": ("mirror", _address),
}
