"""Codes of a host's protection of itself: why it takes less work, none, or gives memory back. The host decides alone.

Each stands at the beginning of a reason in `gridops-agent status`, in heartbeats and in `gridops status`.
"""

from __future__ import annotations

from gridops.base.codes import Code

OWNER_ACTIVE = Code(
    "owner_active",
    "somebody uses this computer",
    "Keyboard, mouse or a terminal of the host was touched within the idle time of its class, so it yields to its "
    "owner.",
    "Nothing: it comes back by itself once the computer is quiet. `policies/protection.yaml` says how long that is.",
)
ON_BATTERY = Code(
    "on_battery",
    "the battery is low",
    "The host runs from its battery, and the charge is below the threshold of its class.",
    "Plug it in; it comes back by itself.",
)
TOO_HOT = Code(
    "too_hot",
    "CPU or board is too hot",
    "The hottest sensor is at or beyond the threshold of the host's class.",
    "Look at fans and dust. It comes back by itself below the recovery temperature.",
)
GPU_TOO_HOT = Code(
    "gpu_too_hot",
    "a GPU is too hot",
    "The hottest GPU is at or beyond the threshold of the host's class.",
    "Look at fans and dust. It comes back by itself below the recovery temperature.",
)
SLOWED_BY_HEAT = Code(
    "slowed_by_heat",
    "the hardware slows itself down",
    "Firmware or driver report that the clock is held down because of heat.",
    "Look at fans and dust. It comes back by itself.",
)
MEMORY_PRESSURE = Code(
    "memory_pressure",
    "other programs need the host's memory",
    "Other programs use more of what the planned models leave of the RAM than the class allows. What is planned counts "
    "whether it is loaded or not, so that giving it back and taking it again cannot go to and fro.",
    "Close what uses the memory, or raise the host's `reserve`, so that less is planned there.",
)
GPU_MEMORY_PRESSURE = Code(
    "gpu_memory_pressure",
    "other programs need a GPU's memory",
    "Other programs use more of what the planned models leave of a GPU than the class allows.",
    "Close what uses the GPU, or raise the `reserve` of the device, so that less is planned there.",
)
CPU_BUSY = Code(
    "cpu_busy",
    "the CPUs are busy with other work",
    "What is not ours keeps the CPUs busier than the class allows.",
    "Nothing: it comes back by itself. Ignore `cpu` in `policies/protection.yaml` where this is meant to be.",
)
LOAD_HIGH = Code(
    "load_high",
    "too much waits for the CPUs",
    "The load for each CPU is beyond the threshold of the class.",
    "Nothing: it comes back by itself. Ignore `load` in `policies/protection.yaml` where this is meant to be.",
)
DISK_LOW = Code(
    "disk_low",
    "little disk is left",
    "Less than the threshold is free where artifacts are put.",
    "Free some space there; the host comes back by itself.",
)
NETWORK_DOWN = Code(
    "network_down",
    "no network",
    "No interface beside loopback is up, so nobody can reach the models of this host.",
    "Look at cable, wireless and routes; the host comes back by itself.",
)
GPU_FAULT = Code(
    "gpu_fault",
    "a GPU is in trouble",
    "A card was lost, counted errors in its memory that it could not correct, or its driver does not fit its library.",
    "Reset the card or reboot the host; after a driver update only a reboot helps.",
)
SENSOR_UNKNOWN = Code(
    "sensor_unknown",
    "a sensor cannot be read",
    "What cannot be read is unknown, not well: a host whose class says so takes less work meanwhile.",
    "See which one in the reason. `ignore` or `unknown_sensor` in `policies/protection.yaml` say what it means.",
)
LOCAL_OVERRIDE = Code(
    "local_override",
    "a person at the host said so",
    "Somebody drained, paused or quarantined this host with `gridops-agent`; that outranks the controller. Safety may "
    "make it stricter, nothing makes it looser.",
    "On the host: `gridops-agent resume`.",
)
OVERRIDE_DAMAGED = Code(
    "override_damaged",
    "the local override cannot be read",
    "The file in which a person's word is kept is damaged, so the strictest is assumed.",
    "On the host: `gridops-agent resume`, then say it again.",
)
