"""AMD cards through sysfs (amdgpu) and the names that `amd-smi` or `rocm-smi` give them where one is installed.

Memory and heat are files; which process holds how much stands in the fdinfo of its open card (graphics, Vulkan) and in
the tables of KFD (ROCm). Roots are arguments so that tests can prepare trees. Cards are `amd0`, `amd1` by PCI address,
so that a card of another maker never changes a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gridops.base.ids import DeviceId
from gridops_agent.hearsay import count, document
from gridops_agent.sensors.cards import Card, Cards, Condition
from gridops_agent.sensors.said import Ask, ask, words

VENDOR = "0x1002"
SMALLEST_BYTES = 2 << 30
"""A processor's own graphics carve less than this out of RAM: that is no card to plan on."""
_CARD = re.compile(r"card\d+")
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Amd:
    """The amdgpu driver of this machine."""

    def __init__(self, sys_root: Path = Path("/sys"), proc: Path = Path("/proc"), asking: Ask = ask) -> None:
        self._sys = sys_root
        self._proc = proc
        self._ask = asking
        self._names: Mapping[str, str] | None = None
        self._seen: dict[str, DeviceId] = {}

    def read(self) -> Cards:
        """Every card now. One that was there and whose folder has gone was lost."""
        found = {folder.resolve().name: folder for folder in self._folders()}
        for address in sorted(found):
            self._seen.setdefault(address, DeviceId(f"amd{len(self._seen)}"))
        if not self._seen:
            return Cards()
        held = self._held()
        cards = [
            self._card(name, address, found[address], held.get(address, {}))
            if address in found
            else Card(id=name, condition=Condition.LOST, why=("the card has left the bus",))
            for address, name in self._seen.items()
        ]
        return Cards(cards=tuple(cards))

    def _folders(self) -> list[Path]:
        drm = self._sys / "class/drm"
        try:
            names = sorted(name for name in os.listdir(drm) if _CARD.fullmatch(name))
        except OSError:
            return []
        devices = [drm / name / "device" for name in names]
        mine = [d for d in devices if _text(d / "vendor") == VENDOR]
        return [d for d in mine if (_number(d / "mem_info_vram_total") or SMALLEST_BYTES) >= SMALLEST_BYTES]

    def _card(self, name: DeviceId, address: str, folder: Path, by_pid: Mapping[int, int]) -> Card:
        total, used = _number(folder / "mem_info_vram_total"), _number(folder / "mem_info_vram_used")
        if total is None or used is None:
            return Card(id=name, condition=Condition.SILENT, why=("amdgpu does not tell its memory",))
        chips = sorted((folder / "hwmon").glob("hwmon*"))
        heat = [n for chip in chips for n in (_number(path) for path in sorted(chip.glob("temp*_input"))) if n]
        power = next((n for chip in chips for n in [_power(chip)] if n is not None), None)
        limit = next((n for chip in chips for n in [_number(chip / "power1_cap")] if n is not None), None)
        busy = _number(folder / "gpu_busy_percent")
        return Card(
            id=name,
            uuid=_text(folder / "unique_id") or address,
            model=_text(folder / "product_name") or self._name(address) or "AMD graphics",
            total_bytes=total,
            used_bytes=used,
            by_pid=by_pid,
            temperature_c=max(heat) // 1_000 if heat else None,
            power_mw=power // 1_000 if power is not None else None,
            power_limit_mw=limit // 1_000 if limit is not None else None,
            busy_ppm=busy * 10_000 if busy is not None else None,
            ecc_uncorrected=_uncorrected(folder / "ras"),
            why=() if heat else ("temperature: amdgpu tells none",),
        )

    def _name(self, address: str) -> str | None:
        """A card's name on the market: asked once, since it costs a program of half a second."""
        if self._names is None:
            self._names = _market_names(self._ask)
        return self._names.get(address)

    def _held(self) -> dict[str, dict[int, int]]:
        """By PCI address and process: bytes of card memory. A process that may not be looked at is not seen."""
        found: dict[str, dict[int, int]] = {}
        try:
            pids = sorted(pid for pid in map(count, os.listdir(self._proc)) if pid is not None)
        except OSError:
            return {}
        for pid in pids:
            for address, used in self._of_process(pid).items():
                found.setdefault(address, {})[pid] = used
        for address, pid, used in self._by_kfd():
            mine = found.setdefault(address, {})
            mine[pid] = max(used, mine.get(pid, 0))
        return found

    def _by_kfd(self) -> list[tuple[str, int, int]]:
        """What compute processes hold by KFD's own tables: address, pid, bytes."""
        root, addresses = self._sys / "class/kfd/kfd", {}
        for node in sorted((root / "topology/nodes").glob("*")):
            lines = [line.split() for line in (_text(node / "properties") or "").splitlines()]
            said = {line[0]: line[1] for line in lines if len(line) == 2}
            bus, domain = count(said.get("location_id", "")), count(said.get("domain", "0"))
            if bus is not None and domain is not None:
                shown = f"{domain:04x}:{bus >> 8 & 0xFF:02x}:{bus >> 3 & 0x1F:02x}.{bus & 7}"
                addresses[_text(node / "gpu_id") or ""] = shown
        found = []
        for path in sorted((root / "proc").glob("[0-9]*/vram_*")):
            address, used = addresses.get(path.name.removeprefix("vram_")), _number(path)
            pid = count(path.parent.name)
            if address is not None and used and pid is not None:
                found.append((address, pid, used))
        return found

    def _of_process(self, pid: int) -> dict[str, int]:
        """What one process holds; its open files are copies of one client as a rule, so each client counts once."""
        clients: dict[tuple[str, str], int] = {}
        folder = self._proc / str(pid)
        try:
            numbers = [n for n in os.listdir(folder / "fd") if _is_card(folder / "fd" / n)]
        except OSError:
            return {}
        for number in sorted(numbers):
            entry = _pairs(folder / "fdinfo" / number)
            address, client = entry.get("drm-pdev", ""), entry.get("drm-client-id", number)
            used = entry.get("drm-memory-vram", entry.get("drm-total-vram", ""))
            if entry.get("drm-driver") == "amdgpu" and _ADDRESS.fullmatch(address):
                clients[address, client] = _kib(used) or 0
        found: dict[str, int] = {}
        for (address, _), used_bytes in sorted(clients.items()):
            found[address] = found.get(address, 0) + used_bytes
        return found


def _market_names(asking: Ask) -> Mapping[str, str]:
    for argv, parse in ((("amd-smi", "static", "--asic", "--bus", "--json"), names_amd_smi), (ROCM, names_rocm_smi)):
        text, _ = words(asking, argv)
        if text is not None and (found := parse(text)):
            return found
    return {}


ROCM = ("rocm-smi", "--showproductname", "--showbus", "--json")


def names_amd_smi(text: str) -> dict[str, str]:
    """`amd-smi static --asic --bus --json`: market name by PCI address, in the old form (a list) and the new."""
    raw = _json(text)
    rows = raw.get("gpu_data", []) if isinstance(raw, dict) else raw
    found: dict[str, str] = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            address = _word(row, "bus", "bdf").lower()
            name = _word(row, "asic", "market_name")
            if _ADDRESS.fullmatch(address) and name:
                found[address] = name
    return found


def names_rocm_smi(text: str) -> dict[str, str]:
    """`rocm-smi --showproductname --showbus --json`: card series by PCI address."""
    raw = _json(text)
    found: dict[str, str] = {}
    for row in raw.values() if isinstance(raw, dict) else []:
        if isinstance(row, dict):
            address = str(row.get("PCI Bus", "")).lower()
            name = str(row.get("Card Series") or row.get("Card series") or "")
            if _ADDRESS.fullmatch(address) and name:
                found[address] = name
    return found


def _json(text: str) -> Any:
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    return document(text[start:]) if start >= 0 else None


def _word(row: Mapping[str, Any], *path: str) -> str:
    value: Any = row
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _is_card(link: Path) -> bool:
    try:
        return os.readlink(link).startswith(("/dev/dri/", "/dev/kfd"))
    except OSError:
        return False


def _pairs(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _kib(text: str) -> int | None:
    """Bytes; None for what is said in a unit that the kernel does not write."""
    amount, _, unit = text.partition(" ")
    number, shift = count(amount), {"": 0, "KiB": 10, "MiB": 20}.get(unit.strip())
    return number << shift if number is not None and shift is not None else None


def _power(chip: Path) -> int | None:
    average = _number(chip / "power1_average")
    return average if average is not None else _number(chip / "power1_input")


def _uncorrected(folder: Path) -> int | None:
    """RAS counters, `ue: N`; None on a card without them."""
    told = [count(_pairs(path).get("ue", "")) for path in sorted(folder.glob("*_err_count"))]
    known = [number for number in told if number is not None]
    return sum(known) if known else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return count(text) if text is not None else None
