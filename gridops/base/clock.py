"""What a clock is. Deciding rooms never hold one: the shell reads it and passes `now_ms` on."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two readings of time, both in milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, as this machine believes. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary moment. Never goes back."""
        ...
