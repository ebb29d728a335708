"""Words between sensors: how a tool of the system is asked, and what a source says of one question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gridops.base.errors import Failed
from gridops_agent.supervise import ask as ask_tool

T = TypeVar("T")
PATIENCE_S = 1.5

Ask = Callable[[tuple[str, ...]], str]


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """One answer. None with `absent`: this machine has no such thing. None without: it could not be read, and why."""

    value: T | None = None
    why: str = ""
    absent: bool = False


def ask(argv: tuple[str, ...]) -> str:
    """What a tool of the system says, soon. Raises Failed when it is not there or does not answer."""
    return ask_tool(argv, PATIENCE_S)


def words(asking: Ask, argv: tuple[str, ...]) -> tuple[str | None, str]:
    """What a tool says, or None and why."""
    try:
        return asking(argv), ""
    except Failed as error:
        return None, error.message
