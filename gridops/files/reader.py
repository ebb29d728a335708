"""What every shape needs while it reads one file: where problems go, and the complaints that all shapes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Unpack

from gridops.base.codes import Code
from gridops.base.codes import files as codes
from gridops.base.limits import PROBLEMS_PER_FILE
from gridops.files.diagnose import Edit, Fix, More, Problem, error, warning
from gridops.files.nodes import Hole, Map, Node, Scalar, Seq, Source
from gridops.files.secrets import looks_secret

SECRET_CHARS: Final = 16
"""Anything shorter is no secret worth the name."""
_FORMS: Final = {Map: "a map", Seq: "a list", Scalar: "one value"}
BAD: Final = object()
"""Answer of a shape for a node that it has reported."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Where problems of one file go."""

    source: Source
    problems: list[Problem]
    start: int = 0
    """Problems of other files, found before."""

    @property
    def full(self) -> bool:
        """So much is wrong with this file that more would help nobody."""
        return len(self.problems) - self.start > PROBLEMS_PER_FILE

    def error(self, code: Code, node: Node, message: str, hint: str = "", **more: Unpack[More]) -> None:
        self.problems.append(error(code, self.source.place(node), message, hint, **more))

    def warn(self, code: Code, node: Node, message: str, hint: str = "", **more: Unpack[More]) -> None:
        self.problems.append(warning(code, self.source.place(node), message, hint, **more))


def replace(node: Scalar, text: str) -> Edit:
    """The edit that writes `text` in place of a scalar."""
    return Edit(node.line, node.column, node.end_line, node.end_column, text)


def is_secret(node: Scalar, reader: Reader) -> bool:
    """True after reporting a value that had better not be in git."""
    reason = looks_secret(node.value) if len(node.value) >= SECRET_CHARS else None
    if reason is not None:
        reader.error(codes.SECRET, node, f"this looks like {reason}", "secrets do not belong in git")
    return reason is not None


def expose(node: Node, reader: Reader) -> None:
    """Report secrets in what is not read any further, such as an `env:` that does not exist here."""
    if isinstance(node, Scalar):
        is_secret(node, reader)
    elif isinstance(node, Map):
        for entry in node.entries.values():
            expose(entry.value, reader)
    elif isinstance(node, Seq):
        for item in node.items:
            expose(item, reader)


def wrong_shape(node: Node, reader: Reader, message: str, fix: Fix | None = None) -> Any:
    """Report a node of another form than expected; a hole has its problem already."""
    if isinstance(node, Scalar) and node.is_null:
        reader.error(codes.NO_VALUE, node, "the field has no value", message)
    elif not isinstance(node, Hole):
        reader.error(codes.WRONG_SHAPE, node, message, f"{_FORMS[type(node)]} stands here", fix=fix)
    return BAD
