"""Seeds that nobody has run yet: other ones with each commit, the same ones again for the same commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SPAN = 1_000_000


def seeds(count: int, part: int = 0) -> range:
    """`count` seeds of this commit; each part gives others. Without git: always the same."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    first = int(asked.stdout[:12] or "1", 16) % SPAN * 1_000
    return range(first + part * count, first + (part + 1) * count)
