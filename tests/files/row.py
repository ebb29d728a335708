"""One row of the table of broken files: what is written, and the code, place and suggestion that must come back.

Each row breaks one thing of a good repository. `fix` is text that the file holds after `--fix`; None means that the
problem cannot be fixed by a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.codes import Code
from tests.files.repo import GOOD, PROFILE

Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Row:
    files: Files
    code: Code
    at: str
    """`file:line:column`."""
    says: str = ""
    """Part of message, hint or notes."""
    fix: str | None = None
    severity: str = "error"
    alone: bool = True
    """It is the only finding."""


def raw(file: str, content: bytes) -> Files:
    return {**GOOD, file: content}


HEAD = "apiVersion: gridops/v1\n"
TOP_MODE = HEAD + "kind: Mode\n"
SECOND_PROFILE = GOOD[PROFILE].replace("name: coder", "name: chat")
EXTERNAL = """\
  cloud:
    class: external
    endpoint: https://inference.example/v1
    models: [gpt-oss-120b]
"""
