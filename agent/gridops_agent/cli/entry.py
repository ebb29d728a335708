"""The door of the program. It answers `--version` by itself, so that this costs no more than starting Python."""

from __future__ import annotations

import sys

UNSUPPORTED = 78
"""The exit code of a setup that cannot work, as `base.errors.BadSetup` has it."""


def main(argv: list[str] | None = None) -> int:
    """Run one call; returns its exit code."""
    args = sys.argv[1:] if argv is None else argv
    if args[:1] == ["--version"]:
        from gridops import __version__

        print(f"gridops-agent {__version__}")
        return 0
    if sys.platform in ("win32", "cygwin"):
        # Said here, since half of the agent's imports do not exist there.
        print(
            "gridops-agent does not run on Windows: it runs on Linux and macOS.\n"
            "  hint: run it on another machine, or in a Linux virtual machine that has the card",
            file=sys.stderr,
        )
        return UNSUPPORTED
    from gridops_agent.cli.main import run

    return run(args)
