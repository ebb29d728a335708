"""What `--until` means: a moment, or a duration from now; never one that has passed.

Called by the commands that make something end by itself (`drain`, `freeze`).
"""

from __future__ import annotations

from gridops.base.units import parse_instant, parse_ms, render_instant
from gridops.cli.output import Usage

EXPECTED = "expected a time such as 2026-11-30T08:00:00Z, or a duration such as 8h"


def until_ms(text: str | None, now_ms: int) -> int | None:
    """The end in milliseconds, on a whole second; None where none was given. Raises Usage."""
    if text is None:
        return None
    try:
        end_ms = parse_instant(text) if "-" in text else now_ms // 1000 * 1000 + parse_ms(text)
    except ValueError as error:
        raise Usage(f"--until {text}: {EXPECTED}") from error
    if end_ms <= now_ms:
        raise Usage(f"--until {text}: that has passed, now is {render_instant(now_ms // 1000 * 1000)}")
    return end_ms
