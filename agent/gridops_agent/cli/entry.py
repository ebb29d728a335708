"""The door of the program. It answers `--version` by itself, so that this costs no more than starting Python."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run one call; returns its exit code."""
    args = sys.argv[1:] if argv is None else argv
    if args[:1] == ["--version"]:
        from gridops import __version__

        print(f"gridops-agent {__version__}")
        return 0
    from gridops_agent.cli.main import run

    return run(args)
