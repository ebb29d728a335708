"""Private ways to engines: the key file of each residency and the door that a request or a question goes through."""

from __future__ import annotations

import secrets
from pathlib import Path

from gridops.base.ids import Digest, short
from gridops.disk.keyring import create_secret, read_secret
from gridops_agent.core.state import Held
from gridops_agent.engines.base import Door


class Doors:
    """Keys of engines by residency, read once each. A key never stands in argv, environment, log or status."""

    def __init__(self, engines: Path) -> None:
        self._engines = engines
        self._keys: dict[str, str] = {}

    def folder(self, body: Digest) -> Path:
        """The folder of one residency: key file and log."""
        return self._engines / short(body, 16)

    def key_file(self, body: Digest) -> Path:
        """The key file, made if it is missing: one key, no whitespace, never empty (an empty one opens the server)."""
        path = self.folder(body) / "engine.key"
        if not path.exists():
            create_secret(path, secrets.token_hex(32).encode())
        return path

    def door(self, held: Held) -> Door | None:
        """How to reach the process of a residency; None while there is none."""
        if held.handle is None:
            return None
        path = held.handle.key_file
        key = self._keys.get(path) if path else ""
        if key is None:
            key = self._keys[path] = read_secret(path).decode("ascii")
        return Door(port=held.handle.port, key=key, alias=held.warm.launch.profile, launch=held.warm.launch)

    def close(self, body: Digest) -> None:
        """The residency is gone: its key is of no use any more. The log stays for a while."""
        path = self.folder(body) / "engine.key"
        self._keys.pop(str(path), None)
        path.unlink(missing_ok=True)
