"""What one replica of a config needs, from the best footprint there is. Called by the planner; never guesses zero.

The arithmetic, per device of the seat (every part is per device, as the file says it):

    device_bytes + kv_per_1k * context / 1000 (rounded up) + fixed_per_sequence * lanes + spike_per_lane * lanes

`context` is the total context of the server, shared by its lanes, so KV is not multiplied by lanes. A declared,
measured or published footprint that leaves parts out says that `device` holds everything. A derived footprint with
no number of its own is estimated from the artifact and stated as such, and is unknown when the KV part cannot be bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gridops.base.ids import Digest
from gridops.base.record import known_digest
from gridops.base.units import INT_MAX, PPM
from gridops.model.policy import PlanningPolicy
from gridops.model.profile import Config, Footprint, FootprintSource

# `gridops validate` asks for needs and has no plan: the records of one take 20 ms to make.
if TYPE_CHECKING:
    from gridops.model.plan import Launch

DERIVED_MARGIN_PPM = 100_000
"""Compute buffers beside the weights. llama.cpp's graph and scratch stay below 10 % of the weights on the models
measured; doubling it refuses models that run, halving it starts engines that die at the first long prompt."""

DERIVED_HOST_BYTES = 512 << 20
"""Anonymous memory of an engine process that holds its weights on devices (the file mapping is reclaimable)."""

KV_BOUND_DIVISOR = 96
"""KV bytes of one cell <= weights * kv_heads / (96 * attention_heads^2): a dense transformer has at least 12 d^2
weights a layer, at least 4 bits each, and d >= 64 * attention_heads. An upper bound: real ones need less."""


class Need(NamedTuple):
    """Memory of one replica: on each device of its seat, and on the host's RAM on top."""

    device_bytes: int
    host_bytes: int
    source: FootprintSource


@dataclass(frozen=True, slots=True)
class UnknownNeed:
    """Nobody knows; `reason` says what to declare. Never to be read as zero."""

    reason: str


def need(config: Config, planning: PlanningPolicy) -> Need | UnknownNeed:
    """Memory that one replica of `config` needs. `planning` is read by later sources (minima per source).

    Files refuse numbers that mean nothing; whoever hands them over without a file gets no sum made of them.
    """
    if config.devices.count < 1:
        return UnknownNeed(f"it asks for {config.devices.count} devices: `devices.count` is 1 or more")
    found = _need(config)
    if isinstance(found, Need) and not (0 <= found.device_bytes <= INT_MAX and 0 <= found.host_bytes <= INT_MAX):
        return UnknownNeed(f"its footprint comes to {found.device_bytes} bytes and {found.host_bytes} of host memory")
    return found


def _need(config: Config) -> Need | UnknownNeed:
    known = config.footprint
    if known.source is FootprintSource.UNKNOWN:
        return UnknownNeed("its footprint is unknown: declare `footprint.device`")
    if known.device_bytes is not None:
        device = known.device_bytes + _context_bytes(known, config) + _lane_bytes(known, config)
        return Need(device, known.host_bytes or 0, known.source)
    if known.source is FootprintSource.DERIVED:
        return _derived(config)
    return UnknownNeed(f"its {known.source.value} footprint has no `device`")


def identity(launch: Launch) -> Digest:
    """Restart identity: equal launches are the same process."""
    return known_digest(launch)


def _context_bytes(footprint: Footprint, config: Config) -> int:
    return -(-(footprint.kv_per_1k_bytes or 0) * config.context // 1000)


def _lane_bytes(footprint: Footprint, config: Config) -> int:
    return ((footprint.fixed_per_sequence_bytes or 0) + (footprint.spike_per_lane_bytes or 0)) * config.lanes


def _derived(config: Config) -> Need | UnknownNeed:
    """Weights from the files with a margin, and a bound of the KV part; both split over a sharded config's devices."""
    footprint = config.footprint
    weights = sum(f.size_bytes for f in config.artifact.files)
    if weights <= 0:
        return UnknownNeed("its footprint is derived and the artifact's size is not known")
    context = _context_bytes(footprint, config)
    if footprint.kv_per_1k_bytes is None:
        bound = _kv_bound(weights, config)
        if bound is None:
            return UnknownNeed(
                "its footprint is derived and the context's memory cannot be bound without `heads` or `kv_per_1k`"
            )
        context = -(-bound // config.devices.count)
    loaded = -(-weights * (PPM + DERIVED_MARGIN_PPM) // PPM)
    device = -(-loaded // config.devices.count) + context + _lane_bytes(footprint, config)
    host = DERIVED_HOST_BYTES if footprint.host_bytes is None else footprint.host_bytes
    return Need(device, host, FootprintSource.DERIVED)


def _kv_bound(weights: int, config: Config) -> int | None:
    attention = config.heads.attention
    kv = config.heads.kv if config.heads.kv is not None else attention
    if not attention or not kv:
        return None
    return -(-weights * kv * config.context // (KV_BOUND_DIVISOR * attention * attention))
