"""The note that a host has left its fleet: written last by `leave`, and read by whoever would start an agent."""

from __future__ import annotations

import json

from gridops.disk.atomic import write_atomic
from gridops_agent.config import Config


def has_left(config: Config) -> int | None:
    """When this host left its fleet, by its own wall clock; None while it is a host. Zero: nobody knows when."""
    try:
        at_ms = json.loads(config.left.read_bytes())["at_ms"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return at_ms if isinstance(at_ms, int) else 0


def note_left(config: Config, at_ms: int) -> None:
    """It has. Raises Failed."""
    write_atomic(config.left, json.dumps({"at_ms": at_ms}).encode(), mode=0o600)
