"""Shapes that several kinds share or that one kind needs in a form of its own: digests, paths, times of the week."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gridops.base.codes import files as codes
from gridops.base.codes import sense as sense_codes
from gridops.base.windows import WeeklyTimes, parse_weekly
from gridops.disk.zones import has_database, zone_rules
from gridops.files.diagnose import brief
from gridops.files.nodes import Map, Node, Scalar
from gridops.files.reader import BAD, Reader, wrong_shape
from gridops.files.scalars import FREE_TEXT, Int, Pattern, Share, Text, scalar
from gridops.files.shape import Block, Shape

LABEL = Pattern("a label", r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "r1", free=True)
MODEL_ID = Pattern("a model id", r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}", "gpt-oss-120b")
RELATIVE = Pattern("a relative path", r"(?!\.\.?(?:/|$))[^/\\\s][^/\\]*(?:/(?!\.\.?(?:/|$))[^/\\]+)*", "model.gguf")
SOURCE = Pattern(
    "an immutable source",
    r"hf://[\w.-]+/[\w.-]+@[\w.-]+(?:/[^\s@?#]*)?|(?:https|oci|file)://[^\s@]+(?:@[^\s@]+)?"
    r"|ollama://[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9][A-Za-z0-9._-]*",
    "hf://owner/repo@revision, https://, oci://, file:// or ollama://name:tag",
)
CREDENTIAL = Pattern("the name of a secret", r"secret:[a-z0-9][a-z0-9._-]{0,62}", "secret:hub")
URL = Pattern("a URL", r"https?://[^\s/@]+(?:/\S*)?", "https://inference.example/v1")
HTTPS = Pattern("an https URL", r"https://[^\s/@]+(?:/\S*)?", "https://gridops.example:7443")
BRANCH = Pattern("a branch", r"(?!.*(?:\.\.|//|\.lock$))[A-Za-z0-9][A-Za-z0-9._/-]{0,199}", "main")
HOST_KEY = Pattern("a host key", r"ed25519:[0-9a-f]{64}", "ed25519:<64 hex digits>")


class Header(Shape):
    """A field that was judged before the kind was known; read here so that it is not unknown."""

    def __init__(self, value: str) -> None:
        self.value = value

    def read(self, node: Node, reader: Reader) -> Any:
        return self.value

    def export(self) -> dict[str, Any]:
        return {"type": "string", "enum": [self.value]}


class Sha256(Shape):
    """A SHA-256; the model holds it as `sha256:<hex>`. Upper case is accepted and folded."""

    word = "a SHA-256, 64 hex digits"

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        digits = found.value.removeprefix("sha256:").lower()
        if re.fullmatch(r"[0-9a-f]{64}", digits) is None:
            what = f"{len(digits)} characters" if len(digits) != 64 else "a character that is not a hex digit"
            reader.error(codes.BAD_FORM, node, f"not a SHA-256: {what}", f"expected {self.word}")
            return BAD
        return f"sha256:{digits}"

    def export(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^(?:sha256:)?[0-9a-fA-F]{64}$"}


class Weekly(Text):
    """A weekly window, kept as text; `base.windows` gives it a meaning."""

    def __init__(self) -> None:
        super().__init__("a window, such as Mon-Fri 08:00-18:00 Europe/Paris")

    def read(self, node: Node, reader: Reader) -> Any:
        text = super().read(node, reader)
        if text is BAD:
            return BAD
        try:
            times = parse_weekly(text)
        except ValueError as refusal:
            reader.error(sense_codes.WINDOW, node, _why(text, refusal), f"expected {self.word}")
            return BAD
        if not _zone_exists(times):
            message = f"time zone `{times.zone}` is not known"
            reader.error(sense_codes.WINDOW, node, message, "such as Europe/Paris or UTC")
            return BAD
        return text


def _why(text: str, refusal: ValueError) -> str:
    return str(refusal).partition(": expected")[0].replace(text, brief(text))


def _zone_exists(times: WeeklyTimes) -> bool:
    # A machine without any time zone database cannot judge, and must not refuse a good file.
    return zone_rules(times.zone) is not None or not has_database()


class CountOrShare(Shape):
    """`2` or `10%`; spreads over `max_count` and `max_ppm`."""

    word = "a count or a share, such as 2 or 10%"

    def read(self, node: Node, reader: Reader) -> Any:
        found = scalar(node, reader, self.word)
        if found is None:
            return BAD
        shape, name = (Share(high=1_000_000), "max_ppm") if "%" in found.value else (Int(), "max_count")
        value = shape.read(node, reader)
        return BAD if value is BAD else {name: value}

    def export(self) -> dict[str, Any]:
        return {"anyOf": [Int().export(), {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$"}]}


class Arg(Text):
    """One engine argument: a single value, kept as it was written."""

    def __init__(self) -> None:
        super().__init__("one value")

    def export(self) -> dict[str, Any]:
        return {"type": FREE_TEXT}


class NumberOrBlock(Shape):
    """One number, or a map with bounds. `short` turns the number into attributes."""

    def __init__(self, number: Int, block: Block, short: Callable[[int], dict[str, Any]]) -> None:
        self.number = number
        self.block = block
        self.short = short
        self.word = f"{number.word}, or {block.word}"

    def read(self, node: Node, reader: Reader) -> Any:
        if isinstance(node, Map):
            return self.block.read(node, reader)
        if isinstance(node, Scalar):
            value = self.number.read(node, reader)
            return BAD if value is BAD else self.short(value)
        return wrong_shape(node, reader, f"expected {self.word}")

    def build(self, value: Any, reader: Reader) -> Any:
        return value if isinstance(value, dict) else self.block.build(value, reader)

    def export(self) -> dict[str, Any]:
        return {"anyOf": [self.number.export(), self.block.export()]}
