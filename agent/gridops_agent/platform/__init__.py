"""One table of mechanisms per operating system: processes, their proof of identity, memory truth, idle time, battery.

Everything that is true of one system only stands behind `base.Platform` and `table`; the rest of the agent asks
`here()`.
"""

from __future__ import annotations

from gridops_agent.platform.base import Platform


def here() -> Platform:
    """The mechanisms of the machine this agent runs on. Raises BadSetup on a system that is not supported."""
    from gridops_agent.platform.table import mechanisms

    return mechanisms().platform()
