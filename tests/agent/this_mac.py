"""What this very Mac answers to the agent's own questions: run by the macOS job, where there is a Mac to ask."""

from __future__ import annotations

import sys

from gridops_agent.platform import here
from gridops_agent.platform.table import mechanisms
from gridops_agent.sensors.said import ask


def main() -> int:
    """Print each reading; fails where memory makes no sense."""
    row, memory = mechanisms(), here().memory()
    print(row.system, memory, row.idle_ms(ask, 0), row.battery(ask), row.throttling(ask)(), sep="\n")
    return 0 if 0 < memory.used_bytes <= memory.total_bytes else 1


if __name__ == "__main__":
    sys.exit(main())
