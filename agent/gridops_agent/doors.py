"""Private ways to engines: the key file of each residency and the door that a request or a question goes through."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from gridops.base.errors import BadSetup
from gridops.base.ids import Digest, short
from gridops.disk.keyring import create_secret, read_secret
from gridops_agent.core.state import Held
from gridops_agent.engines.base import Door

OLD_FOLDERS = 20


def key_of(path: str | Path) -> str:
    """The key that a key file holds: its first line that is not empty, since people's files end in a newline, and
    llama-server takes one key from each line. Raises BadSetup for what is no key, and what `read_secret` raises."""
    raw = read_secret(path)
    if not raw.isascii():
        raise BadSetup(f"{path} holds no key: it is not ASCII text", hints=("one key on one line",))
    return next((line.strip() for line in raw.decode("ascii").splitlines() if line.strip()), "")


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
            key = self._keys[path] = key_of(path)
        return Door(port=held.handle.port, key=key, alias=held.warm.launch.profile, launch=held.warm.launch)

    def close(self, body: Digest) -> None:
        """The residency is gone: its key is of no use any more. The log stays for a while."""
        path = self.folder(body) / "engine.key"
        self._keys.pop(str(path), None)
        path.unlink(missing_ok=True)

    def tidy(self, held: Iterable[Digest]) -> None:
        """Logs of engines that are gone are kept for a while, not for ever."""
        kept = {self.folder(body) for body in held}
        with contextlib.suppress(OSError):
            old = [f for f in self._engines.iterdir() if f not in kept]
            old.sort(key=lambda f: f.stat().st_mtime)
            for folder in old[:-OLD_FOLDERS]:
                shutil.rmtree(folder, ignore_errors=True)
