"""Talks to the controller: TLS pinned to the certificates of the trust root, answers bounded, errors as our own.

Used by every command that asks or acts. Reading needs no key; acting sends a request that a person signed. Nothing a
server says is believed beyond what TLS pinned to the root allows: signed things are verified by the caller.
"""

from __future__ import annotations

import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gridops.base import limits
from gridops.base.errors import BadSetup, Busy, Failed, Refusal, Unreachable
from gridops.cli.output import Context, Usage
from gridops.cli.person import chain_of
from gridops.cli.standing import holds_fleet, no_fleet
from gridops.files.gather import gather
from gridops.files.tree import WorkingTree
from gridops.model.fleet import FleetSettings
from gridops.trust.tls import pinned_client_context

READ_TIMEOUT_S = 10.0
ANSWER_BYTES = 4 * limits.PLAN_BYTES


@dataclass(frozen=True, slots=True)
class Client:
    """One controller, as this checkout knows it."""

    url: str
    pins: tuple[str, ...]
    """PEM certificates; any of them is accepted, and nothing else."""
    timeout_s: float = READ_TIMEOUT_S

    def get(self, path: str, **params: str | int) -> Any:
        """The JSON document of a read-only endpoint. Raises Unreachable, Refusal, Busy or Failed."""
        return self._ask("GET", path, {"params": {name: str(value) for name, value in params.items()}})

    def operator(self, request: str) -> Any:
        """Send a request that a person signed (`trust.operator.seal_operator`); the controller's answer."""
        return self._ask("POST", "/v1/operator", {"json": {"request": request}})

    def _ask(self, method: str, path: str, more: dict[str, Any]) -> Any:
        import httpx

        try:
            with (
                httpx.Client(base_url=self.url, verify=self._tls(), timeout=self.timeout_s, trust_env=False) as http,
                http.stream(method, path, **more) as answer,
            ):
                return self._read(answer.status_code, _bounded(answer.iter_bytes(), self.url), path)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return Unreachable(
                f"controller {self.url}: its certificate is not the one that the trust root pins",
                hints=("compare: gridops trust show", "somebody may stand between you and the controller"),
            )
        return Unreachable(f"controller {self.url}: no answer ({reason})", hints=("is it running? gridops watch",))

    def _read(self, status: int, raw: bytes, path: str) -> Any:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise Unreachable(f"controller {self.url}{path}: answered {status}, but not in JSON") from None
        if status < 400:
            return body
        raise _error(body, f"controller {self.url}{path}: answered {status}")

    def _tls(self) -> ssl.SSLContext:
        # The pin is the identity: a certificate of the root counts under whatever address it is reached by.
        try:
            return pinned_client_context(self.pins)
        except (ssl.SSLError, ValueError) as error:
            raise BadSetup(f"controller_tls of the trust root is no certificate: {error}") from error


def connect(context: Context, controller: str | None = None, *, timeout_s: float | None = None) -> Client:
    """The controller of this checkout: `--controller`, else GRIDOPS_CONTROLLER, else `policies/fleet.yaml`.

    Raises Failed when none is named or no root pins it, Usage for an address that is none.
    """
    directory = root_of(context.directory)
    url = controller or os.environ.get("GRIDOPS_CONTROLLER") or fleet_settings(directory).controller
    if not holds_fleet(directory):
        raise no_fleet(context.directory)
    if not url:
        raise Failed(
            f"{directory / 'policies/fleet.yaml'}: names no controller",
            hints=("add `controller: https://HOST:PORT`, or pass --controller URL",),
        )
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise Usage(f"controller `{url}`: expected https://HOST:PORT")
    pins = chain_of(directory).root.controller_tls
    if not pins:
        raise Failed("the trust root pins no certificate of a controller", hints=("see: gridops trust show",))
    given = context.timeout_ms / 1000 if context.timeout_ms is not None else None
    return Client(url.rstrip("/"), pins, given or timeout_s or READ_TIMEOUT_S)


def root_of(directory: Path) -> Path:
    """The folder that holds the fleet: `directory`, or the nearest one above it that does."""
    start = directory.resolve()
    found = next((p for p in (start, *start.parents) if (p / "policies").is_dir() or (p / "fleet.d").is_dir()), None)
    return directory if found is None or found == start else found


def fleet_settings(directory: Path) -> FleetSettings:
    """`policies/fleet.yaml` of a work tree by itself, so that it counts even while other files are being edited."""
    found = gather(WorkingTree(directory), ["policies/fleet.yaml"]).policies.get("Fleet")
    return found.value if found is not None and isinstance(found.value, FleetSettings) else FleetSettings()


def _bounded(parts: Any, url: str) -> bytes:
    raw = bytearray()
    for part in parts:
        raw += part
        if len(raw) > ANSWER_BYTES:
            raise Unreachable(f"controller {url}: answered more than {ANSWER_BYTES} bytes")
    return bytes(raw)


def _error(body: Any, otherwise: str) -> Exception:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return Unreachable(otherwise)
    message, hints = error["message"], _texts(error.get("hints"))
    match error.get("exit_code"):
        case 75:
            return Busy(message, hints=hints)
        case 69:
            return Unreachable(message, hints=hints)
        case 1:
            return Failed(message, hints=hints)
        case _:
            code, evidence = str(error.get("code", "bad_request")), _texts(error.get("evidence"))
            return Refusal(code, message, subject=str(error.get("subject", "")), evidence=evidence, hints=hints)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
