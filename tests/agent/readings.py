"""Readings that are bad or just not, a row for each threshold, and which reading tells of which sensor."""

from __future__ import annotations

from typing import Any

from gridops.model.policy import Sensor
from gridops.model.snapshot import HostState
from gridops_agent.core.protection import GpuFault, GpuTrouble

ACCEPTING, THROTTLED, DRAINING, PAUSED, UNHEALTHY, QUARANTINED = HostState
HERE = {"idle_ms": 0}
LOST = GpuFault(GpuTrouble.LOST, "gpu0")

# reading, the state it leads to, after how many seconds, the first code of its reasons
BAD: list[tuple[dict[str, Any], HostState, int, str]] = [
    (HERE, PAUSED, 10, "owner_active"),
    ({"idle_ms": 59_999}, PAUSED, 10, "owner_active"),
    ({"on_battery": True, "battery_ppm": 300_000}, THROTTLED, 5, "on_battery"),
    ({"on_battery": True, "battery_ppm": 120_000}, PAUSED, 5, "on_battery"),
    ({"temperature_c": 80}, THROTTLED, 5, "too_hot"),
    ({"temperature_c": 95}, PAUSED, 5, "too_hot"),
    ({"gpu_temperature_c": 87}, THROTTLED, 5, "gpu_too_hot"),
    ({"gpu_temperature_c": 95}, PAUSED, 5, "gpu_too_hot"),
    ({"thermal_throttling": True}, THROTTLED, 5, "slowed_by_heat"),
    ({"ram_ppm": 850_000}, THROTTLED, 5, "memory_pressure"),
    ({"ram_ppm": 950_000}, PAUSED, 5, "memory_pressure"),
    ({"gpu_memory_ppm": 920_000}, THROTTLED, 5, "gpu_memory_pressure"),
    ({"gpu_memory_ppm": 980_000}, PAUSED, 5, "gpu_memory_pressure"),
    ({"cpu_ppm": 900_000}, THROTTLED, 5, "cpu_busy"),
    ({"load_ppm": 1_250_000}, THROTTLED, 5, "load_high"),
    ({"disk_free_bytes": (1 << 30) - 1}, THROTTLED, 5, "disk_low"),
    ({"network_up": False}, UNHEALTHY, 5, "network_down"),
    ({"gpu_faults": (LOST,)}, UNHEALTHY, 5, "gpu_fault"),
    ({"gpu_faults": (LOST,), "gpus": 2}, THROTTLED, 5, "gpu_fault"),
    ({"gpu_faults": (GpuFault(GpuTrouble.MISMATCH),), "gpus": 2}, UNHEALTHY, 5, "gpu_fault"),
]
FINE: list[dict[str, Any]] = [
    {"idle_ms": 60_000},
    {"on_battery": True, "battery_ppm": 300_001},
    {"on_battery": True, "charging": True, "battery_ppm": 10_000},
    {"on_battery": False, "battery_ppm": 10_000},
    {"temperature_c": 79},
    {"gpu_temperature_c": 86},
    {"ram_ppm": 849_999},
    {"gpu_memory_ppm": 919_999},
    {"cpu_ppm": 899_999},
    {"load_ppm": 1_249_999},
    {"disk_free_bytes": 1 << 30},
]
READINGS = {
    Sensor.ACTIVITY: "idle_ms",
    Sensor.BATTERY: "on_battery",
    Sensor.TEMPERATURE: "temperature_c",
    Sensor.GPU_TEMPERATURE: "gpu_temperature_c",
    Sensor.MEMORY: "ram_ppm",
    Sensor.GPU_MEMORY: "gpu_memory_ppm",
    Sensor.CPU: "cpu_ppm",
    Sensor.LOAD: "load_ppm",
    Sensor.DISK: "disk_free_bytes",
    Sensor.NETWORK: "network_up",
    Sensor.GPU_HEALTH: "gpu_faults",
}
