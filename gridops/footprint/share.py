"""Which engines take a share of a card instead of what they need, and how large that share may be: need / total.

Such an engine fills its share whatever the model, so the share is written from the plan into the command that starts it
(`planner.actions`), never by people (`files` refuses the arguments named here) and never a fixed part of the card. The
engine's adapter passes the least of its devices' shares, for an engine takes one value for all of them. In parts per
million, rounded down: what is taken is never more than what is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gridops.base.ids import EngineName
from gridops.base.units import PPM

SHARE_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {"mindie": "npu_memory_fraction", "sglang": "mem_fraction_static", "vllm": "gpu_memory_utilization"}
)
"""Engine to the argument by which it is told its share of each card."""


def takes_share(engine: EngineName, backend: str) -> bool:
    """Whether a process of this engine takes the share of the card that it is told."""
    return engine in SHARE_ARGUMENTS and backend != "cpu"


def share_ppm(need_bytes: int, total_bytes: int) -> int:
    """The part of a device that holds the need and not a byte more; all of it at most."""
    return min(PPM, max(0, need_bytes) * PPM // total_bytes) if total_bytes > 0 else 0
