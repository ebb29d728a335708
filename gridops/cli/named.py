"""Files that a person named on the command line: read with a bound, and named in what is refused because of them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.trust.envelope import kind_of


def text_at(path: Path) -> str:
    """What a key or a signed document holds. Raises OSError, also for a file that is larger than any of these or never
    ends; UnicodeDecodeError where it is no text."""
    with path.open("rb") as file:
        content = file.read(limits.ENVELOPE_BYTES + 1)
    if len(content) > limits.ENVELOPE_BYTES:
        most = f"larger than {limits.ENVELOPE_BYTES >> 10} KiB, as no key and no signed document is"
        raise OSError(errno.EFBIG, most, str(path))
    return content.decode()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What is refused meanwhile is refused because of this file, and names it."""
    try:
        yield
    except Refusal as error:
        raise Refusal(error.code, f"{path}: {error.message}", evidence=error.evidence, hints=error.hints) from error


def kind_at(path: Path, text: str) -> str:
    """Which kind of signed document a file says that it is. Raises Refusal."""
    with naming(path):
        return kind_of(text)
