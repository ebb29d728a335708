"""Which build of an engine a command line starts: by the content of its program, where no version is known.

Used by adapters for `Engine.build`, which goes into the evidence of a qualification and is held against what is
installed when somebody asks whether that evidence still says anything. Starts nothing.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from gridops.base.ids import Digest, short


def build_of(program: Iterable[str]) -> str:
    """The program and the scripts that a command line names, by digest; empty when a file of it cannot be read."""
    said: list[str] = []
    for word in program:
        found = shutil.which(word) if not said else word
        path = Path(found) if found is not None else None
        if path is not None and path.is_file():
            try:
                with path.open("rb") as source:
                    digest = Digest("sha256:" + hashlib.file_digest(source, "sha256").hexdigest())
            except OSError:
                return ""
            said.append(f"{path.name} {short(digest, 12)}")
    return ", ".join(said)
