"""What `gridops status` says of the documents of trust: what they ask for, and when they end.

A fleet at the basic level whose root document is young gets no line, since nothing of it is news. Decides nothing: the
controller says what is in force.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Doc = dict[str, Any]


def words(trust: Doc | None) -> str | None:
    """One line on the levels that are on; None at the basic level, and of a controller that does not say."""
    if trust is None:
        return None
    levels = ["commits are signed"] if trust["signed_commits"] else []
    if trust.get("catalog") is not None:
        levels.append(f"nothing runs that catalog {trust['catalog']} does not name")
    return f"trust: {'; '.join(levels)}" if levels else None


def attention(trust: Doc | None) -> Iterator[str]:
    """What a person should do about it."""
    if trust is None:
        return
    if trust["expired"]:
        yield f"root {trust['root']} expired at {trust['expires']}: nothing may change (gridops trust renew)"
    elif trust["soon"]:
        yield f"root {trust['root']} expires at {trust['expires']} (gridops trust renew)"
