"""Shapes of single values: words, names, numbers and quantities with units.

Whether a scalar was quoted matters only where JSON readers would see another type: numbers and flags take no quotes.
Each class reports its own misuse with what was expected and, where the meaning is certain, the edit that repairs it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Any

from gridops.base import ids, units
from gridops.base.codes import Code
from gridops.base.codes import files as codes
from gridops.files import near
from gridops.files.diagnose import Fix, brief
from gridops.files.nodes import Hole, Node, Scalar
from gridops.files.reader import BAD, Reader, is_secret, replace, wrong_shape
from gridops.files.shape import Shape

TEXT_MAX = 2_000
_QUOTES = "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb"
"""Quotes of word processors: to YAML they are letters."""
FREE_TEXT = ["string", "number", "boolean"]
"""JSON types of a value that we read as text: editors see `zone: 7` as a number and it is welcome."""


def scalar(node: Node, reader: Reader, word: str) -> Scalar | None:
    """The node as one value, or None after reporting what it is instead."""
    if isinstance(node, Scalar):
        if node.is_null:
            reader.error(codes.NO_VALUE, node, "the field has no value", f"expected {word}, or leave the field out")
            return None
        return node
    if not isinstance(node, Hole):
        wrong_shape(node, reader, f"expected {word}")
    return None


class Text(Shape):
    """Free text. What looks like a secret is refused wherever it stands."""

    def __init__(self, word: str = "text") -> None:
        self.word = word

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        value = found.value
        if len(value) > TEXT_MAX:
            reader.error(codes.RANGE, node, f"text of {len(value)} characters; at most {TEXT_MAX} are allowed")
            return BAD
        return BAD if is_secret(found, reader) else value

    def export(self) -> dict[str, Any]:
        return {"type": FREE_TEXT, "maxLength": TEXT_MAX}


class Name(Shape):
    """A name of the house alphabet."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.word = f"the name of {units.article(what)}"

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        if ids.NAME.fullmatch(found.value) is None:
            self._refuse(found, reader)
            return BAD
        return found.value

    def _refuse(self, node: Scalar, reader: Reader) -> None:
        lower = node.value.strip(_QUOTES).lower().replace(" ", "-")
        odd = next((c for c in lower if not c.isascii()), None)
        hint = "lower-case letters, digits, `-`, `.`, `_`; a letter or digit first; at most 63"
        if ids.is_name(lower):
            hint = f"did you mean `{lower}`?"
        elif odd is not None:
            # It may look like a letter that is allowed.
            hint = f"U+{ord(odd):04X} is none of: lower-case letters a-z, digits, `-`, `.`, `_`"
        said = f"`{brief(node.value)}`" if node.value else "an empty text"
        reader.error(codes.BAD_NAME, node, f"{said} cannot name {units.article(self.what)}", hint)

    def export(self) -> dict[str, Any]:
        return {"type": ["string", "number"], "pattern": f"^{ids.NAME.pattern}$"}


class Pattern(Shape):
    """Text of one fixed form."""

    def __init__(self, word: str, pattern: str, example: str, *, free: bool = False) -> None:
        self.word = f"{word}, such as {example}"
        self._pattern = re.compile(pattern)
        self._types: str | list[str] = FREE_TEXT if free else "string"

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        if is_secret(found, reader):
            return BAD
        if self._pattern.fullmatch(found.value) is None:
            reader.error(codes.BAD_FORM, node, f"`{brief(found.value)}` has the wrong form", f"expected {self.word}")
            return BAD
        return found.value

    def export(self) -> dict[str, Any]:
        return {"type": self._types, "pattern": f"^(?:{self._pattern.pattern})$"}


class Choice(Shape):
    """One of a few words. With an enum the value is its member."""

    def __init__(self, choices: type[StrEnum] | tuple[str, ...]) -> None:
        members = tuple(choices)
        self.words: dict[str, Any] = {str(m): m for m in members}
        self.word = " or ".join(self.words) if len(self.words) < 3 else "one of " + ", ".join(self.words)

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        if found.value in self.words:
            return self.words[found.value]
        close = near.nearest(found.value, self.words.keys())
        fix = Fix(f"change to `{close}`", (replace(found, close),)) if close is not None else None
        hint = f"did you mean `{close}`?" if close is not None else f"expected {self.word}"
        notes = (f"choices: {', '.join(self.words)}",) if close is not None else ()
        reader.error(
            codes.CHOICE, node, f"`{brief(found.value)}` is not one of the choices", hint, fix=fix, notes=notes
        )
        return BAD

    def export(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}

    def show(self, value: Any) -> Any:
        return str(value)


class Flag(Shape):
    """true or false, and nothing that resembles them."""

    word = "true or false"

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        if not found.style and found.value in ("true", "false"):
            return found.value == "true"
        meant = {"yes": "true", "on": "true", "no": "false", "off": "false", "true": "true", "false": "false"}
        plain = meant.get(found.value.lower())
        fix = Fix(f"write `{plain}`", (replace(found, plain),)) if plain is not None else None
        hint = f"write {plain}, without quotes" if plain is not None else "expected true or false"
        reader.error(codes.FLAG, node, f"`{brief(found.value)}` is not true or false", hint, fix=fix)
        return BAD

    def export(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Int(Shape):
    """A whole number within bounds."""

    def __init__(self, low: int = 0, high: int = 1_000_000) -> None:
        self.low = low
        self.high = high
        self.word = f"a whole number from {low} to {high:,}".replace(",", " ")

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        text = found.value
        if re.fullmatch(r"-?(?:0|[1-9][0-9]*)", text) is None or found.style:
            plain = text if re.fullmatch(r"0|[1-9][0-9]{0,15}", text) else text.replace("_", "").replace(",", "")
            certain = re.fullmatch(r"0|[1-9][0-9]{0,15}", plain) is not None
            fix = Fix(f"write `{plain}`", (replace(found, plain),)) if certain else None
            reader.error(codes.NUMBER, node, f"`{brief(text)}` is not a whole number", f"expected {self.word}", fix=fix)
            return BAD
        if len(text) > 16 or not self.low <= int(text) <= self.high:
            reader.error(codes.RANGE, node, f"{brief(text)} is out of range", f"expected {self.word}")
            return BAD
        return int(text)

    def export(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


class Quantity(Shape):
    """A number with a unit, kept as an integer."""

    code: Code = codes.UNIT
    slips: dict[str, str] = {}  # noqa: RUF012 - constant tables of subclasses
    pattern = ""
    json_types: str | list[str] = "string"

    def __init__(self, low: int = 0, high: int = units.INT_MAX) -> None:
        self.low = low
        self.high = high

    @abstractmethod
    def parse(self, text: str) -> int:
        """The value of a text. Raises ValueError with the sentence that says why there is none."""

    @abstractmethod
    def spell(self, value: int) -> str:
        """A value as people would write it."""

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        value = _cached(self.parse, found.value)
        if isinstance(value, str):
            self._refuse(found, value, reader)
            return BAD
        if not self.low <= value <= self.high:
            bounds = f"at least {self.spell(self.low)}"
            if self.high < units.INT_MAX:
                bounds = f"from {self.spell(self.low)} to {self.spell(self.high)}"
            reader.error(codes.RANGE, node, f"`{brief(found.value)}` is out of range", f"expected {bounds}")
            return BAD
        return value

    def _refuse(self, node: Scalar, why: str, reader: Reader) -> None:
        match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z/]+)\s*", node.value)
        unit = self.slips.get(match.group(2).lower()) if match else None
        text = match.group(1) + unit.removeprefix("?") if match is not None and unit is not None else ""
        if unit is None or isinstance(_cached(self.parse, text), str):
            hint = f"expected {self.word}" if "expected" not in why and "needs" not in why else ""
            reader.error(self.code, node, why.replace(node.value, brief(node.value)) if node.value else why, hint)
            return
        safe = not unit.startswith("?")
        title = f"write `{text}`" if safe else f"write `{text}`, if that is what you mean"
        fix = Fix(title, (replace(node, text),), safe=safe)
        reader.error(self.code, node, f"unknown unit in `{brief(node.value)}`", f"did you mean `{text}`?", fix=fix)

    def export(self) -> dict[str, Any]:
        return {"type": self.json_types, "pattern": self.pattern}

    def show(self, value: Any) -> Any:
        return self.spell(value) if isinstance(value, int) else None


@lru_cache(maxsize=4_096)
def _cached(parse: Callable[[str], int], text: str) -> int | str:
    """Value, or the sentence that says why there is none. Fleets repeat a few quantities thousands of times."""
    try:
        return parse(text)
    except ValueError as refusal:
        return str(refusal)


class Size(Quantity):
    word = "a size, such as 48GiB"
    pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*(B|KiB|MiB|GiB|TiB)\s*$"
    # Kubernetes writes Gi; GB and G are 7 % smaller than GiB, so that rewriting them changes what was said.
    slips = {  # noqa: RUF012
        **{f"{p}i": f"{p.upper()}iB" for p in "kmgt"}, **{f"{p}ib": f"{p.upper()}iB" for p in "kmgt"},
        **{f"{p}b": f"?{p.upper()}iB" for p in "kmgt"}, **{p: f"?{p.upper()}iB" for p in "kmgt"}, "bytes": "B",
    }  # fmt: skip

    def parse(self, text: str) -> int:
        return units.parse_bytes(text)

    def spell(self, value: int) -> str:
        return units.exact_bytes(value)


class Span(Quantity):
    word = "a duration, such as 30s"
    pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*$"
    slips = {  # noqa: RUF012
        "sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
        "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "day": "d", "days": "d", "msec": "ms", "millis": "ms",
    }  # fmt: skip

    def parse(self, text: str) -> int:
        return units.parse_ms(text)

    def spell(self, value: int) -> str:
        return units.exact_ms(value)


class Rate(Quantity):
    word = "a rate, such as 1000Mbit/s"
    pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*([kMG]?bit/s|[MG]B/s)\s*$"
    slips = {  # noqa: RUF012
        "mbps": "Mbit/s", "gbps": "Gbit/s", "kbps": "kbit/s", "mbit": "Mbit/s", "gbit": "Gbit/s", "mbit/s": "Mbit/s",
        "gbit/s": "Gbit/s", "kbit/s": "kbit/s",
    }  # fmt: skip

    def parse(self, text: str) -> int:
        return units.parse_bps(text)

    def spell(self, value: int) -> str:
        return f"{value // 10**6}Mbit/s" if value % 10**6 == 0 else f"{value}bit/s"


class Share(Quantity):
    word = "a share, such as 75% or 0.75"
    pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*%?\s*$"
    json_types = ["string", "number"]  # noqa: RUF012

    def parse(self, text: str) -> int:
        return units.parse_ppm(text)

    def spell(self, value: int) -> str:
        return f"{value / (units.PPM // 100):g}%"


class Price(Quantity):
    word = "a price, such as 0.80"
    pattern = r"^[0-9]+(\.[0-9]+)?$"
    json_types = ["string", "number"]  # noqa: RUF012

    def parse(self, text: str) -> int:
        return units.parse_micro(text)

    def spell(self, value: int) -> str:
        return f"{value / units.PPM:g}"


class Instant(Quantity):
    word = "a time, such as 2026-11-30T08:00:00Z"
    code = codes.INSTANT

    def parse(self, text: str) -> int:
        return units.parse_instant(text)

    def spell(self, value: int) -> str:
        return units.render_instant(value)

    def export(self) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


class Or(Shape):
    """One word with a meaning of its own, or else another shape."""

    def __init__(self, word: str, value: Any, shape: Shape) -> None:
        self.literal = word
        self.value = value
        self.shape = shape
        self.word = f"`{word}` or {shape.word}"

    def read(self, node: Node, reader: Reader) -> Any:
        if isinstance(node, Scalar) and node.value == self.literal:
            return self
        if isinstance(node, Scalar) and near.nearest(node.value, (self.literal,)) is not None:
            fix = Fix(f"change to `{self.literal}`", (replace(node, self.literal),))
            hint = f"did you mean `{self.literal}`?"
            reader.error(codes.CHOICE, node, f"`{brief(node.value)}` is not one of the choices", hint, fix=fix)
            return BAD
        return self.shape.read(node, reader)

    def build(self, value: Any, reader: Reader) -> Any:
        return self.value if value is self else self.shape.build(value, reader)

    def export(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "enum": [self.literal]}, self.shape.export()]}

    def show(self, value: Any) -> Any:
        return self.literal if value == self.value else self.shape.show(value)
