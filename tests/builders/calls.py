"""The command line in this process: one call, its exit code and what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gridops.cli.main import run


@dataclass(frozen=True)
class Answer:
    """What a call wrote and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Answer]


def caller(capsys: pytest.CaptureFixture[str]) -> Call:
    """A function that calls `gridops` with its arguments. A room's fixture `call` returns it."""

    def call(*args: object) -> Answer:
        capsys.readouterr()
        code = run([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call
