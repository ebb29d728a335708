"""Arguments of engines: a portable name, its flag, and which values it may carry. Used by every adapter with flags.

A value is matched as a whole against what the flag may carry, so that no argument of a profile brings words of its own
into a command line. A name that stands in no table is refused, never passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gridops.model.plan import Launch

Form = Callable[[str], tuple[str, ...] | None]
OMIT = ("\0",)
"""A form's answer for "leave the flag out"."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One engine argument: its flag, and how its value reads."""

    name: str
    form: Form
    """Words after the flag (none: a bare flag); None when the value is not allowed. `OMIT` leaves the flag out."""


def number(low: int, high: int) -> Form:
    def form(value: str) -> tuple[str, ...] | None:
        fits = re.fullmatch(r"-?\d{1,9}", value) is not None and low <= int(value) <= high
        return (value,) if fits else None

    return form


def choice(*plain: str, **words: str) -> Form:
    known = {word: word for word in plain} | words
    return lambda value: (known[value],) if value in known else None


def switch(value: str) -> tuple[str, ...] | None:
    return () if value == "true" else OMIT if value == "false" else None


def switch_off(value: str) -> tuple[str, ...] | None:
    return () if value == "false" else OMIT if value == "true" else None


def word(value: str) -> tuple[str, ...] | None:
    return (value,) if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", value) else None


def ratios(value: str) -> tuple[str, ...] | None:
    return (value,) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?(,\d{1,6}(\.\d{1,6})?){0,63}", value) else None


def objection(engine: str, known: Mapping[str, Flag], launch: Launch) -> str | None:
    """What in a launch's arguments the table does not allow, in words."""
    for arg in launch.args:
        flag = known.get(arg.name)
        if flag is None:
            there = f"; known are {', '.join(sorted(known))}" if known else ": it takes none"
            return f"{engine} has no argument `{arg.name}`{there}"
        if flag.form(arg.value) is None:
            return f"{engine} cannot use `{arg.value}` for the argument `{arg.name}`"
    return None


def words_of(known: Mapping[str, Flag], launch: Launch) -> tuple[str, ...]:
    """The flags of those arguments that the table holds, in a stable order. For a launch without an objection."""
    said: list[str] = []
    for arg in sorted(launch.args, key=lambda a: a.name):
        flag = known.get(arg.name)
        form = flag.form(arg.value) if flag is not None else OMIT
        if flag is not None and form is not None and form != OMIT:
            said += (flag.name, *form)
    return tuple(said)
