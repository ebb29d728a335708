"""AMD cards from prepared sysfs and procfs trees: memory by process, heat, health, names, and a card that leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gridops.base.errors import Failed
from gridops_agent.sensors.amd import Amd, names_amd_smi, names_rocm_smi
from gridops_agent.sensors.cards import Condition

GIB = 1 << 30


class Tree:
    """A machine with amdgpu cards and processes that hold some of them."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        self.proc.mkdir(parents=True)

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def card(self, number: int, address: str, used: int = GIB, vendor: str = "0x1002", total: int = 16 * GIB) -> Path:
        folder = self.sys / "devices/pci" / address
        for name, value in {
            "vendor": vendor,
            "mem_info_vram_total": total,
            "mem_info_vram_used": used,
            "gpu_busy_percent": 42,
            "unique_id": f"id{number}",
            "hwmon/hwmon7/temp1_input": 51_000,
            "hwmon/hwmon7/temp2_input": 64_000,
            "hwmon/hwmon7/power1_average": 123_000_000,
            "hwmon/hwmon7/power1_cap": 300_000_000,
            "ras/umc_err_count": "ue: 2\nce: 9",
            "ras/gfx_err_count": "ue: 1\nce: 0",
        }.items():
            self.write(folder / name, value)
        link = self.sys / f"class/drm/card{number}/device"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
        (self.sys / f"class/drm/card{number}-DP-1").mkdir()
        return folder

    def holds(self, pid: int, number: int, address: str, kib: int, client: int = 1) -> None:
        (self.proc / f"{pid}/fd").mkdir(parents=True, exist_ok=True)
        (self.proc / f"{pid}/fd/{number}").symlink_to("/dev/dri/renderD128")
        text = (
            f"pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t{address}\ndrm-client-id:\t{client}\ndrm-memory-vram:\t{kib} KiB"
        )
        self.write(self.proc / f"{pid}/fdinfo/{number}", text)

    def amd(self, said: dict[str, str] | None = None) -> Amd:
        def asking(argv: tuple[str, ...]) -> str:
            if said and argv[0] in said:
                return said[argv[0]]
            raise Failed(f"{argv[0]} is not here")

        return Amd(self.sys, self.proc, asking)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_card_is_read_whole_and_a_client_counts_once(tree: Tree) -> None:
    tree.card(1, "0000:03:00.0", used=5 * GIB)
    tree.holds(10, 4, "0000:03:00.0", 1 << 20)
    tree.holds(10, 5, "0000:03:00.0", 1 << 20)
    tree.holds(10, 6, "0000:03:00.0", 2 << 20, client=2)
    (tree.proc / "10/fd/7").symlink_to("/etc/passwd")
    (tree.proc / "self").mkdir()
    (card,) = tree.amd().read().cards
    assert (card.id, card.uuid, card.total_bytes, card.used_bytes) == ("amd0", "id1", 16 * GIB, 5 * GIB)
    assert card.by_pid == {10: 3 * GIB}
    assert (card.temperature_c, card.power_mw, card.power_limit_mw, card.busy_ppm) == (64, 123_000, 300_000, 420_000)
    assert (card.ecc_uncorrected, card.model, card.condition) == (3, "AMD graphics", Condition.WELL)


def test_what_compute_processes_hold_stands_in_the_tables_of_kfd(tree: Tree) -> None:
    tree.card(0, "0000:c9:00.0")
    tree.holds(11, 3, "0000:c9:00.0", 1 << 10)
    nodes = tree.sys / "class/kfd/kfd/topology/nodes"
    tree.write(nodes / "0/gpu_id", 0)
    tree.write(nodes / "1/gpu_id", 4_321)
    tree.write(nodes / "1/properties", f"cpu_cores_count 0\nlocation_id {0xC9 << 8}\ndomain 0")
    tree.write(tree.sys / "class/kfd/kfd/proc/11/vram_4321", 7 * GIB)
    tree.write(tree.sys / "class/kfd/kfd/proc/12/vram_4321", GIB)
    tree.write(tree.sys / "class/kfd/kfd/proc/12/vram_999", GIB)
    assert tree.amd().read().cards[0].by_pid == {11: 7 * GIB, 12: GIB}


def test_other_makers_and_graphics_carved_out_of_ram_are_no_cards_and_no_card_is_no_failure(tree: Tree) -> None:
    assert tree.amd().read().cards == ()
    tree.card(0, "0000:01:00.0", vendor="0x10de")
    tree.card(1, "0000:02:00.0", total=GIB // 2)
    seen = tree.amd().read()
    assert (seen.cards, seen.known, seen.why) == ((), True, ())


def test_a_card_that_leaves_the_bus_is_lost_and_the_next_keeps_its_name(tree: Tree) -> None:
    tree.card(0, "0000:03:00.0")
    tree.card(1, "0000:04:00.0")
    amd = tree.amd()
    assert [c.id for c in amd.read().cards] == ["amd0", "amd1"]
    shutil.rmtree(tree.sys / "class/drm/card0")
    assert [(c.id, c.condition) for c in amd.read().cards] == [("amd0", Condition.LOST), ("amd1", Condition.WELL)]


def test_a_card_whose_memory_cannot_be_read_is_silent(tree: Tree) -> None:
    folder = tree.card(0, "0000:03:00.0")
    (folder / "mem_info_vram_used").write_text("hm")
    (card,) = tree.amd().read().cards
    assert (card.condition, card.used_bytes) == (Condition.SILENT, None)


AMD_SMI = (
    """{"gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Radeon RX 7800 XT"}, "bus": {"bdf": "0000:03:00.0"}}]}"""
)
ROCM_SMI = """WARNING: AMD GPU device(s) is/are in a low-power state.
{"card0": {"PCI Bus": "0000:C9:00.0", "Card series": "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"},
 "card1": {"PCI Bus": "0000:0C:00.0", "Card Series": "Radeon RX 7900 XT"}, "system": {"Driver version": "6.2"}}"""


def test_names_come_from_whichever_tool_is_installed(tree: Tree) -> None:
    assert names_amd_smi(AMD_SMI) == {"0000:03:00.0": "AMD Radeon RX 7800 XT"}
    assert names_amd_smi(AMD_SMI.removeprefix('{"gpu_data": ').removesuffix("}")) == names_amd_smi(AMD_SMI)
    assert names_rocm_smi(ROCM_SMI) == {
        "0000:c9:00.0": "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2",
        "0000:0c:00.0": "Radeon RX 7900 XT",
    }
    for rubbish in ("", "{", "[1]", "null", '{"card0": 3}'):
        assert names_amd_smi(rubbish) == names_rocm_smi(rubbish) == {}
    tree.card(0, "0000:0c:00.0")
    assert tree.amd({"rocm-smi": ROCM_SMI}).read().cards[0].model == "Radeon RX 7900 XT"
