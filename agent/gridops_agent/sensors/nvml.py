"""NVIDIA cards through NVML (nvidia-ml-py): memory, processes, health. Called by `senses` behind a bounded wait.

Each question is asked by itself: what a card or a driver does not know is None with its reason, and one card that is
lost hides no other. The library is kept open, since opening it can take seconds; it is opened anew when it says that it
must be, and at most every `REOPEN_S` while a card is lost or no driver is there. A library of another version than the
kernel module can only be cured by a new library, so that one is unloaded first.
"""

from __future__ import annotations

import _ctypes
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from gridops.base.ids import DeviceId
from gridops.base.units import INT_MAX
from gridops_agent.sensors.cards import Card, Cards, Condition

REOPEN_S = 30.0
NOT_SUPPORTED, NO_DRIVER, NO_LIBRARY, LOST, RESET, MISMATCH = 3, 9, 12, 15, 16, 18
GARBLED = -1
"""Not NVML's: pynvml could not make a Python value of the answer, as of a name that is no UTF-8."""
WORDS = {
    GARBLED: "the answer is no text",
    1: "the library was closed",
    NOT_SUPPORTED: "this card does not tell",
    4: "not permitted",
    NO_DRIVER: "the library is there and no driver is loaded",
    10: "the driver timed out",
    NO_LIBRARY: "no NVIDIA library",
    13: "the driver is too old to tell",
    LOST: "the card is lost: it fell off the bus or cannot be reached",
    RESET: "the card must be reset before it can be used",
    MISMATCH: "the library is of another version than the loaded driver: restart the machine or reload the driver",
}
THROTTLE = (
    (0x004, "power cap"),
    (0x008, "hardware slowdown"),
    (0x020, "thermal slowdown by software"),
    (0x040, "thermal slowdown by hardware"),
    (0x080, "power brake"),
)
"""What holds clocks down against the owner's wish; idling and settings do not count."""


class Nvml:
    """The NVIDIA driver of this machine. For one thread at a time."""

    def __init__(self, reopen_s: float = REOPEN_S) -> None:
        self._reopen_s = reopen_s
        self._open = False
        self._tried_s: float | None = None
        self._failed: int | None = None
        """Why it could not be opened the last time."""
        self._anew = False
        self._names: tuple[DeviceId, ...] = ()
        """The cards of the last look that counted them: what is lost when the whole driver cannot be used."""

    def read(self) -> Cards:
        """Every card as it is now. No card and no reason where there is no NVIDIA library: that is no failure."""
        import pynvml

        failed = self._opened(pynvml)
        if failed is not None:
            return self._closed(failed)
        look = _Look(pynvml)
        count = look.ask("count", pynvml.nvmlDeviceGetCount)
        cards = tuple(card for index in range(int(count or 0)) for card in look.card(index))
        self._anew = not look.seen.isdisjoint((LOST, RESET))
        if not look.seen.isdisjoint((1, MISMATCH)):
            self._close(pynvml)
        if count is None:
            return self._closed(MISMATCH) if MISMATCH in look.seen else Cards(known=False, why=tuple(look.why))
        self._names = tuple(card.id for card in cards)
        return Cards(cards=cards, why=tuple(look.why))

    def _opened(self, nvml: Any) -> int | None:
        """None when the library is open, else the code of what it lacks."""
        now_s = time.monotonic()
        due = self._tried_s is None or now_s - self._tried_s >= self._reopen_s
        if self._open and self._anew and due:
            self._close(nvml)
            self._tried_s = None
        if self._open:
            return None
        if self._tried_s is not None and self._failed is not None and not due:
            return self._failed
        self._tried_s = now_s
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._failed = int(error.value)
            if self._failed == MISMATCH:
                _unload(nvml)
            return self._failed
        self._open, self._failed = True, None
        return None

    def _close(self, nvml: Any) -> None:
        self._open = False
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    def _closed(self, code: int) -> Cards:
        """A driver that could not be opened. Without library or driver there is no card; otherwise nobody knows."""
        words = WORDS.get(code, f"NVML error {code}")
        if code == MISMATCH:
            lost = tuple(Card(id=name, condition=Condition.LOST, why=(words,)) for name in self._names)
            return Cards(cards=lost, absent=words, why=(f"nvml: {words}",))
        quiet = code == NO_LIBRARY
        return Cards(known=code in (NO_LIBRARY, NO_DRIVER), why=() if quiet else (f"nvml: {words}",))


def _unload(nvml: Any) -> None:
    """Let go of a library that was replaced on disk: by its name the loader would hand out the old one for ever."""
    library = nvml.nvmlLib
    if library is not None:
        nvml._nvmlGetFunctionPointer_cache.clear()
        nvml.nvmlLib = None
        with contextlib.suppress(OSError):
            _ctypes.dlclose(library._handle)


class _Look:
    """One pass over the cards: remembers which errors were seen, and what could not be read."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self.seen: set[int] = set()
        self.why: list[str] = []

    def ask(self, what: str, question: Callable[..., Any], *of: Any) -> Any:
        """An answer, or None with the reason noted."""
        answer, code = self._answer(question, *of)
        if code is not None:
            self.why.append(f"{what}: {WORDS.get(code, f'NVML error {code}')}")
        return answer

    def _answer(self, question: Callable[..., Any], *of: Any) -> tuple[Any, int | None]:
        try:
            return question(*of), None
        except self._nvml.NVMLError as error:
            code = int(error.value)
        except self._nvml.NVMLLibraryMismatchError:  # pynvml's word for a function that this driver does not have
            code = 13
        except ValueError:
            code = GARBLED
        self.seen.add(code)
        return None, code

    def card(self, index: int) -> Iterator[Card]:
        """A card, or its instances where it is cut; a lost one with nothing but its name."""
        name = DeviceId(f"gpu{index}")
        handle, code = self._answer(self._nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            yield _unwell(name, code)
            return
        if not self._is_cut(handle):
            yield self._device(handle, name, None)
            return
        # Nothing starts on a card in this mode but on its instances, so a card without any is no device.
        for number in range(int(self.ask(f"{name} instances", self._nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)):
            part, _ = self._answer(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if part is not None:
                yield self._device(part, DeviceId(f"{name}.{number}"), name, handle)

    def _is_cut(self, handle: Any) -> bool:
        """Whether the card is in MIG mode now; one that has no such mode is not."""
        modes, _ = self._answer(self._nvml.nvmlDeviceGetMigMode, handle)
        return modes is not None and bool(modes[0] == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _device(self, handle: Any, name: DeviceId, parent: DeviceId | None, whole: Any = None) -> Card:
        """A card, or an instance of `whole`: only the whole card is asked how hot it is."""
        nvml, look = self._nvml, _Look(self._nvml)
        memory, code = self._answer(nvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            return _unwell(name, code, parent)
        if not 0 < memory.total <= INT_MAX or not 0 <= memory.used <= INT_MAX:  # 2^64-1 is a driver's word for none
            return Card(id=name, parent=parent, condition=Condition.SILENT, why=("it tells no memory that can be",))
        busy = look.ask("busy", nvml.nvmlDeviceGetUtilizationRates, handle)
        card = Card(
            id=name,
            parent=parent,
            uuid=_word(look.ask("uuid", nvml.nvmlDeviceGetUUID, handle)),
            model=_word(look.ask("name", nvml.nvmlDeviceGetName, handle)),
            total_bytes=int(memory.total),
            used_bytes=int(memory.used),
            by_pid=look.processes(handle),
            temperature_c=look.ask(
                "temperature", nvml.nvmlDeviceGetTemperature, whole or handle, nvml.NVML_TEMPERATURE_GPU
            ),
            power_mw=look.ask("power", nvml.nvmlDeviceGetPowerUsage, handle),
            power_limit_mw=look.ask("power limit", nvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            busy_ppm=int(busy.gpu) * 10_000 if busy is not None else None,
            throttle=look.throttle(handle),
            ecc_uncorrected=look.ask(
                "ecc",
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            why=tuple(look.why),
        )
        self.seen |= look.seen
        # It may fall off the bus between two questions.
        return _unwell(name, LOST, parent) if LOST in look.seen else card

    def processes(self, handle: Any) -> dict[int, int | None] | None:
        """What each process holds, compute and graphics together; None when neither list can be had."""
        found: dict[int, int | None] = {}
        heard = False
        for kind in ("Compute", "Graphics"):
            listed = self._listed(kind, handle)
            heard = heard or listed is not None
            for process in listed or ():
                used = None if process.usedGpuMemory is None else int(process.usedGpuMemory)
                # A process that draws and computes stands in both lists with what it holds in all.
                found[int(process.pid)] = _more(found.get(int(process.pid), 0), used)
        return found if heard else None

    def _listed(self, kind: str, handle: Any) -> Any:
        newer = getattr(self._nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")
        listed, code = self._answer(newer, handle)
        if code != 13:
            if code is not None:
                self.why.append(f"{kind.lower()} processes: {WORDS.get(code, f'NVML error {code}')}")
            return listed
        self.seen.discard(13)
        return self.ask(
            f"{kind.lower()} processes", getattr(self._nvml, f"nvmlDeviceGet{kind}RunningProcesses_v2"), handle
        )

    def throttle(self, handle: Any) -> tuple[str, ...] | None:
        """Why clocks are held down; drivers before 535 know the question by another name."""
        bits, code = self._answer(self._nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if code == 13:
            bits, code = self._answer(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        if code is not None:
            self.why.append(f"throttle: {WORDS.get(code, f'NVML error {code}')}")
            return None
        return tuple(words for bit, words in THROTTLE if int(bits) & bit)


def _unwell(name: DeviceId, code: int | None, parent: DeviceId | None = None) -> Card:
    condition = Condition.LOST if code in (LOST, RESET) else Condition.SILENT
    return Card(id=name, parent=parent, condition=condition, why=(WORDS.get(code or 0, f"NVML error {code}"),))


def _more(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _word(value: object) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
