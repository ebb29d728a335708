"""Facts: devices and their memory as measured on this machine, never as wished.

A logical host (a share below one) reports its share of the machine's memory, and the same share of what others use.
External use is what is used minus what our own engines are measured to use themselves: on host RAM their anonymous
and shared memory, on a GPU what the driver says of their processes. Called every few seconds; decides nothing.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from gridops.base.ids import DeviceId
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops_agent.platform.base import Platform

CPU = DeviceId("cpu0")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver sees it, or one instance of a card that is cut into some (MIG), and then not the card.

    `by_pid` holds what each process uses, where the driver says.
    """

    id: DeviceId
    """By the driver's number, which stays when another card is lost: `gpu1`; `gpu1.0` for its first instance."""
    parent: DeviceId | None
    uuid: str
    model: str
    total_bytes: int
    used_bytes: int
    by_pid: dict[int, int]


def devices(platform: Platform, share: Fraction, ours: tuple[int, ...]) -> tuple[DeviceReport, ...]:
    """Every device of this (logical) host. `ours` are the processes proved to belong to our engines."""
    memory = platform.memory()
    own = sum(platform.own_memory_bytes(pid) for pid in ours)
    found = [
        DeviceReport(
            id=CPU,
            kind=DeviceKind.CPU,
            total_bytes=_part(memory.total_bytes, share),
            external_bytes=_part(max(0, memory.used_bytes - own), share),
        )
    ]
    for gpu in gpus():
        mine = sum(used for pid, used in gpu.by_pid.items() if pid in ours)
        found.append(
            DeviceReport(
                id=gpu.id,
                kind=DeviceKind.GPU,
                total_bytes=_part(gpu.total_bytes, share),
                external_bytes=_part(max(0, gpu.used_bytes - mine), share),
                uuid=gpu.uuid,
                model=gpu.model,
                parent=gpu.parent,
            )
        )
    return tuple(found)


def disk_free_bytes(folder: Path) -> int | None:
    """Free bytes where artifacts would be put."""
    with contextlib.suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free
    return None


def gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs by the driver's order; none, quietly, where there is no library, no driver or no card."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_gpus(pynvml))
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpus(nvml: Any) -> Iterator[Gpu]:
    for index in range(int(_asked(nvml, nvml.nvmlDeviceGetCount) or 0)):
        # A card that fell off the bus answers nothing: it is left out, which the planner sees as a device that went.
        handle = _asked(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue
        name = DeviceId(f"gpu{index}")
        if not _is_cut(nvml, handle):
            yield from _gpu(nvml, handle, name, None)
            continue
        # Nothing starts on a card in this mode but on its instances, so a card without any is no device.
        for number in range(int(_asked(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)):
            part = _asked(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if part is not None:
                yield from _gpu(nvml, part, DeviceId(f"{name}.{number}"), name)


def _is_cut(nvml: Any, handle: Any) -> bool:
    """Whether the card is in MIG mode now; one that has no such mode is not."""
    modes = _asked(nvml, nvml.nvmlDeviceGetMigMode, handle)
    return modes is not None and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE


def _gpu(nvml: Any, handle: Any, name: DeviceId, parent: DeviceId | None) -> Iterator[Gpu]:
    memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is None:
        return
    processes = _asked(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    yield Gpu(
        id=name,
        parent=parent,
        uuid=_word(_asked(nvml, nvml.nvmlDeviceGetUUID, handle)),
        model=_word(_asked(nvml, nvml.nvmlDeviceGetName, handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        by_pid={int(p.pid): int(p.usedGpuMemory or 0) for p in processes},
    )


def _asked(nvml: Any, question: Callable[..., Any], *of: Any) -> Any:
    try:
        return question(*of)
    except nvml.NVMLError:
        return None


def _word(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _part(value: int, share: Fraction) -> int:
    return value * share.numerator // share.denominator
