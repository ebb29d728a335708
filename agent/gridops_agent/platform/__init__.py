"""One table of mechanisms per operating system: processes, their proof of identity, and memory truth.

Everything that is true of one system only stands behind `base.Platform`; the rest of the agent asks `here()`.
"""

from __future__ import annotations

import sys

from gridops_agent.platform.base import Platform


def here() -> Platform:
    """The mechanisms of the machine this agent runs on."""
    system: str = sys.platform
    if system.startswith("linux"):
        from gridops_agent.platform.linux import Linux

        return Linux()
    from gridops_agent.platform.portable import Portable

    return Portable()
