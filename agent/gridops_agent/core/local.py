"""The host's own checks when an effect is about to start: state, preconditions, ceilings. Each has one code.

Made after the fence has accepted a command, at the moment of its effect, because much may have changed while it waited
for its lanes. A host's own protection outranks the controller, so nothing here can be overruled by a grant.
"""

from __future__ import annotations

from collections.abc import Iterable

from gridops.base import limits
from gridops.base.codes import host as host_codes
from gridops.base.codes import protocol as codes
from gridops.base.ids import DeviceId, Digest
from gridops.base.units import PPM, render_bytes, render_ms
from gridops.model.action import Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.fleet import DeviceKind
from gridops.model.profile import Artifact
from gridops.model.snapshot import DeviceReport, ResidencyState
from gridops.protocol.fence import uncatalogued
from gridops_agent.core import guesses
from gridops_agent.core.state import Command, Held, Host

_NOT_SERVING = (ResidencyState.DRAINING, ResidencyState.FAILED, ResidencyState.OFFLOADED)
ON_GRAPHICS = frozenset({"metal", "mps"})
"""Backends whose engines put their model where graphics reach it."""
No = tuple[str, str]
"""A code and one sentence."""


def objection(host: Host, command: Command, now_ms: int) -> No | None:
    """Why this command's effect may not start now; None when it may. Ceilings and brake first, then what the world has
    to be like (checks 12 and 13)."""
    return _ceilings(host, command, now_ms) or _moved_on(host, command)


def _moved_on(host: Host, command: Command) -> No | None:
    """A device is not as it was when the command was planned."""
    for wanted in command.body.precondition:
        have = host.generation(wanted.device)
        if have != wanted.generation:
            return (
                codes.PRECONDITION.code,
                f"{wanted.device} is at generation {have}, the command was planned for {wanted.generation}",
            )
    return None


def _ceilings(host: Host, command: Command, now_ms: int) -> No | None:
    action = command.body.action
    match action:
        case Load():
            return _catalogued(host, action) or _inside(action.artifact) or _accepts(host)
        case Evict():
            return guesses.objection(host, action)
        case Warm():
            return (
                _catalogued(host, action)
                or _inside(action.launch.artifact)
                or _counted(action)
                or _accepts(host)
                or guesses.objection(host, action)
                or _countable(host)
                or _open(host, action)
                or room(host, action)
                or _shares(host, action)
            )
        case Drain():
            return _present(host, action.incarnation) or _braked(host, command, action, now_ms)
        case Operate():
            return _present(host, action.incarnation) or _braked(host, command, action, now_ms)
        case Unload():
            return _may_unload(host, action)


def _inside(artifact: Artifact) -> No | None:
    """Whatever was signed, files stay in the folder of their artifact."""
    for file in artifact.files:
        parts = file.path.split("/")
        if not parts[0] or ".." in parts or "\0" in file.path:
            return codes.OVER_CEILING.code, f"`{file.path}` is not a relative path inside the artifact's folder"
    return None


def _counted(warm: Warm) -> No | None:
    """Less than nothing would make room for others that is not there."""
    if warm.device_bytes >= 0 and warm.host_bytes >= 0 and len(set(warm.devices)) == len(warm.devices) > 0:
        return None
    sizes = f"{warm.device_bytes} bytes on each of {list(warm.devices)} and {warm.host_bytes} of RAM"
    return codes.OVER_CEILING.code, f"{sizes} are no sizes of an engine"


def _accepts(host: Host) -> No | None:
    if host.verdict.admits:
        return None
    reasons = f": {'; '.join(host.reasons)}" if host.reasons else ""
    return host_codes.HOST_STATE.code, f"this host is {host.state}{reasons}"


def _catalogued(host: Host, action: Load | Warm) -> No | None:
    """A newer catalog may have come while the command waited for its lanes."""
    no = uncatalogued(host.known, host.chain, action)
    return None if no is None else (no[0].code, no[1])


def _countable(host: Host) -> No | None:
    """A residency that no heartbeat could show would look as if it were gone: it is not begun."""
    if len(host.held) < limits.RESIDENCIES_PER_HOST:
        return None
    return codes.OVER_CEILING.code, (
        f"{len(host.held)} residencies are on this host, and {limits.RESIDENCIES_PER_HOST} are the most that one host "
        "may hold; unload one first"
    )


def closed(host: Host, devices: Iterable[DeviceId]) -> tuple[DeviceId, str] | None:
    """The first of these devices on which nothing may start, since memory that a stop must give back has not come."""
    wanted = frozenset(devices)
    for body in sorted(host.held):
        held = host.held[body]
        if held.code == host_codes.RELEASE_STUCK.code:
            for owed in held.owed:
                if owed.device in wanted:
                    return owed.device, f"{owed.device} is closed for starts since {held.replica} ended: {held.detail}"
    return None


def _open(host: Host, warm: Warm) -> No | None:
    shut = closed(host, warm.devices)
    return None if shut is None else (host_codes.RELEASE_STUCK.code, shut[1])


def room(host: Host, warm: Warm) -> No | None:
    """The sum of what is planned and what others use must not exceed a device. Free memory is never asked."""
    devices = {d.id: d for d in host.measured}
    ram = next((d.id for d in host.measured if d.kind in (DeviceKind.CPU, DeviceKind.UNIFIED)), None)
    need: dict[DeviceId, int] = {}
    for device in warm.devices:
        need[device] = need.get(device, 0) + warm.device_bytes
    if ram is not None and warm.host_bytes:
        need[ram] = need.get(ram, 0) + warm.host_bytes
    for device, bytes_needed in sorted(need.items()):
        if device not in devices:
            return codes.OVER_CEILING.code, f"this host has no device {device}"
        report = devices[device]
        planned = planned_bytes(host, device, ram)
        wired = _graphics(host, warm, report, bytes_needed)
        if wired is not None:
            return wired
        if planned + report.external_bytes + bytes_needed > report.total_bytes:
            return codes.OVER_CEILING.code, (
                f"{device} has {render_bytes(report.total_bytes)}: {render_bytes(planned)} are planned here, "
                f"{render_bytes(report.external_bytes)} used by others, {render_bytes(bytes_needed)} more do not fit"
            )
    return None


def _graphics(host: Host, warm: Warm, report: DeviceReport, bytes_needed: int) -> No | None:
    """On unified memory the system itself bounds what graphics may wire: beyond it an engine dies when it loads."""
    if report.graphics_bytes is None or warm.launch.backend not in ON_GRAPHICS:
        return None
    others = (h.warm for h in host.held.values() if h.warm.launch.backend in ON_GRAPHICS)
    planned = sum(other.device_bytes * other.devices.count(report.id) for other in others)
    if planned + bytes_needed <= report.graphics_bytes:
        return None
    return codes.OVER_CEILING.code, (
        f"graphics may take {render_bytes(report.graphics_bytes)} of {report.id} (iogpu.wired_limit_mb): "
        f"{render_bytes(planned)} are planned here, {render_bytes(bytes_needed)} more do not fit"
    )


def _shares(host: Host, warm: Warm) -> No | None:
    """A share that this host's own measure makes more than what is planned would take what is somebody else's."""
    totals = {d.id: d.total_bytes for d in host.measured}
    if warm.shares is not None and {s.device for s in warm.shares} != set(warm.devices):
        return codes.OVER_CEILING.code, "the command gives shares of other devices than it starts on"
    for share in warm.shares or ():
        if not 0 < share.ppm <= PPM or share.ppm * totals[share.device] > warm.device_bytes * PPM:
            return codes.OVER_CEILING.code, (
                f"{share.ppm} millionths of {share.device} ({render_bytes(totals[share.device])}) are not what is "
                f"planned there, {render_bytes(warm.device_bytes)}"
            )
    return None


def planned_bytes(host: Host, device: DeviceId, ram: DeviceId | None) -> int:
    """What the residencies of this host hold of a device, by their plans. A failed one counts: it may hold memory."""
    total = 0
    for held in host.held.values():
        total += held.warm.device_bytes * held.warm.devices.count(device)
        if device == ram:
            total += held.warm.host_bytes
    return total


def _present(host: Host, incarnation: Digest) -> No | None:
    if incarnation in host.held:
        return None
    return host_codes.NO_RESIDENCY.code, f"no residency {incarnation} is on this host"


def takes_away(held: Held, action: Drain | Operate) -> bool:
    """It takes something out of service: the model, an id that callers know it by, or the name by which people did."""
    if isinstance(action, Drain):
        return held.state is not ResidencyState.DRAINING
    return action.replica != held.replica or not set(held.serves) <= set(action.serves)


def _braked(host: Host, command: Command, action: Drain | Operate, now_ms: int) -> No | None:
    """What no person approved is bounded here, by the host, because the controller may be the one to fear."""
    counted = host.brake.within(now_ms)
    if not command.standing or not takes_away(host.held[action.incarnation], action):
        return None
    if len(counted) < limits.STANDING_STOPS:
        return None
    free_ms = counted[0] + limits.STANDING_STOPS_WINDOW_MS - now_ms
    return codes.BRAKE.code, (
        f"{len(counted)} models were taken out of service here by standing permission within "
        f"{render_ms(limits.STANDING_STOPS_WINDOW_MS)}; the next in {render_ms(free_ms)}, or with an approval"
    )


def _may_unload(host: Host, unload: Unload) -> No | None:
    held = host.held.get(unload.incarnation)
    if held is None or unload.force or held.state in _NOT_SERVING:
        return None
    return host_codes.NOT_DRAINED.code, f"{unload.replica} is {held.state}: it has to be drained first"
