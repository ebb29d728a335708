"""What engines, tools, drivers and registries say may be anything: no reader raises, and none makes up a number.

Recorded or documented answers are bent in one place, or are bytes of no meaning at all. A number that is read stands
in the text, whole; what is unknown is None. What is shown to the controller of it can always be signed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gridops.base.record import to_bytes
from gridops.base.units import INT_MAX
from gridops_agent.artifacts.oci import _layers
from gridops_agent.artifacts.wire import Hopeless
from gridops_agent.engines.asking import Said, gauge
from gridops_agent.hearsay import count, document, measure
from gridops_agent.keep.container_api import pids_of
from gridops_agent.keep.external import External
from gridops_agent.keep.systemctl import Seen
from gridops_agent.platform import macos_read
from gridops_agent.platform.linux import Linux
from gridops_agent.qualify import brought
from gridops_agent.sensors.amd import names_amd_smi, names_rocm_smi
from gridops_agent.sensors.idle import session_idle
from tests.agent.test_amd import Tree
from tests.agent.test_macos import APPLE, INTEL, IOREG, SYSCTL_APPLE, THERM
from tests.attacks.test_wire_fuzz import ODD, bent

NUMBERS = st.sampled_from(
    [
        "0",
        "7",
        "-1",
        "1.5",
        "1e3",
        "1e400",
        "NaN",
        "+Inf",
        "12abc",
        "0x10",
        "²",
        "٣",
        "9" * 30,
        "9" * 5_000,
        "",
        " ",
        "3 kB",
    ]
)
TEXTS = st.one_of(st.text(max_size=30), NUMBERS)


def numbers_in(text: str) -> set[int]:
    return {int(found) for found in re.findall(r"(?<![0-9.])[0-9]{1,16}", text)}


@given(TEXTS)
@example("18446744073709551615")
def test_a_count_is_exactly_what_is_written_or_nothing(text: str) -> None:
    found = count(text)
    assert found is None or (str(found) == (text.lstrip("0") or "0") and found <= INT_MAX)


@given(st.one_of(TEXTS, st.floats().map(str), st.floats().map(repr)))
def test_a_measure_is_what_python_reads_of_the_same_text_or_nothing(text: str) -> None:
    found = measure(text)
    assert found is None or (found == float(text) and 0 <= found < float("inf"))


@given(st.one_of(st.binary(max_size=40), st.text(max_size=40), ODD.map(json.dumps)))
@example('{"a":"\\ud800"}')
@example("[" * 100_000)
@example("9" * 5_000)
@example("NaN")
def test_a_document_can_be_written_again_or_is_none(text: str | bytes) -> None:
    found = document(text)
    json.dumps(found, ensure_ascii=False, allow_nan=True).encode("utf-8")
    assert Said(200, text if isinstance(text, str) else text.decode("utf-8", "replace")).json == found or isinstance(
        text, bytes
    )


VALUES = {
    "0": 0,
    "7": 7,
    "3.0": 3,
    "1e3": 1_000,
    "2.": 2,
    "-1": None,
    "NaN": None,
    "12abc": None,
    "9" * 70: None,
    "": None,
}
"""As it is written, and what that is a count of."""


@given(
    st.lists(st.tuples(st.sampled_from(["", "{}", '{a="b"}', '{a="}"}', '{a=" 9"}']), st.sampled_from(sorted(VALUES)))),
    st.sampled_from(["", " 1796000000000", "\r"]),
    st.sampled_from(["", "# HELP x:waiting 5\n", "x:waiting_total 9\n", "y 3\n", "zx:waiting 3\n"]),
)
def test_a_gauge_is_the_sum_of_whole_counts_or_unknown(rows: list[tuple[str, str]], end: str, noise: str) -> None:
    page = noise + "".join(f"x:waiting{labels} {value}{end if value else ''}\n" for labels, value in rows)
    counts = [VALUES[value] for _, value in rows]
    known = [c for c in counts if c is not None]
    assert gauge(page, "x:waiting") == (sum(known) if known and len(known) == len(counts) else None)


@pytest.mark.parametrize(
    "value", ["", "NaN", "+Inf", "-1", "12abc", "0x10", "1e400", "1,5", "²", "1" * 65, "1e9", '"1"', "nil"]
)
def test_a_gauge_that_is_no_count_is_unknown(value: str) -> None:
    assert gauge(f"x:waiting {value}\n", "x:waiting") is None
    assert gauge(f'x:waiting 2\nx:waiting{{a="b"}} {value}\n', "x:waiting") is None
    assert gauge('x:waiting 2\nx:waiting{a="b"} 3.0 1796000000000\n', "x:waiting") == 5


TOP = {"Titles": ["USER", "PID", "COMMAND"], "Processes": [["root", "17", "llama-server"], ["root", "18", "sh"]]}


@given(st.data())
def test_processes_of_a_container_are_numbers_that_its_runtime_named(data: st.DataObject) -> None:
    table = document(bent(TOP, data))
    assert {str(pid) for pid in pids_of(table, "PID")} <= set(re.findall(r"[0-9]+", json.dumps(table)))
    assert pids_of(TOP, "PID") == (17, 18)


def spoilt(text: str, data: st.DataObject) -> str:
    """A recorded text with one piece of it lost, doubled or replaced."""
    at = data.draw(st.integers(0, len(text)))
    return text[:at] + data.draw(TEXTS) + text[at + data.draw(st.integers(0, 12)) :]


BATTERY = "Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t87%; charging; 1:02 remaining"


@given(st.sampled_from([APPLE, INTEL, IOREG, SYSCTL_APPLE, THERM, BATTERY]), st.data())
def test_a_mac_whose_tools_say_anything_has_readings_that_can_be_or_none(text: str, data: st.DataObject) -> None:
    said = spoilt(text, data)
    used, idle = macos_read.used_bytes(said), macos_read.idle_ms(said)
    assert used is None or used >= 0
    assert idle is None or idle * 1_000_000 <= max(int(n) for n in re.findall("[0-9]{1,20}", said))
    values = macos_read.sysctl(said)
    assert set(values.values()) <= numbers_in(said)
    limit = macos_read.gpu_limit_bytes(values)
    assert limit is None or 0 <= limit <= values["hw.memsize"]
    power = macos_read.power(said)
    assert power is None or power.charge_ppm is None or 0 <= power.charge_ppm <= 1_000_000
    assert macos_read.throttled(said) in (None, True, False)


AMD_SMI = {"gpu_data": [{"gpu": 0, "bus": {"bdf": "0000:03:00.0"}, "asic": {"market_name": "Radeon"}}]}
ROCM_SMI = {"card0": {"PCI Bus": "0000:03:00.0", "Card Series": "Radeon"}}


@given(st.data())
def test_names_of_cards_are_texts_that_can_be_signed(data: st.DataObject) -> None:
    for read, true in ((names_amd_smi, AMD_SMI), (names_rocm_smi, ROCM_SMI)):
        for address, name in read(bent(true, data).decode("utf-8", "replace")).items():
            assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address)
            name.encode("utf-8")


FILES = (
    *("mem_info_vram_total", "mem_info_vram_used", "gpu_busy_percent", "hwmon/hwmon7/temp1_input"),
    *("hwmon/hwmon7/power1_average", "hwmon/hwmon7/power1_cap", "ras/umc_err_count", "vendor", "unique_id"),
)


def test_a_card_whose_files_hold_anything_is_silent_or_tells_what_stands_there(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    folder = tree.card(0, "0000:03:00.0")
    tree.holds(42, 5, "0000:03:00.0", 1024)
    node = tree.sys / "class/kfd/kfd/topology/nodes/1"
    tree.write(node / "properties", "location_id 768\ndomain 0")
    tree.write(node / "gpu_id", "7")
    tree.write(tree.sys / "class/kfd/kfd/proc/42/vram_7", 4096)
    pieces = [folder / name for name in FILES] + [
        tree.proc / "42/fdinfo/5", node / "properties", node / "gpu_id", tree.sys / "class/kfd/kfd/proc/42/vram_7",
    ]  # fmt: skip
    odd = [
        "",
        "²",
        "-5",
        "9" * 30,
        "9" * 5_000,
        "1 2 3",
        "drm-memory-vram: 7 GiB",
        "ue: ²",
        "\x00",
        "18446744073709551615",
    ]
    for file in pieces:
        before = file.read_text()
        for text in odd:
            file.write_text(text)
            for card in tree.amd().read().cards:
                told = (card.total_bytes, card.used_bytes, card.temperature_c, card.power_mw, card.ecc_uncorrected)
                assert all(value is None or 0 <= value <= INT_MAX for value in told)
        file.write_text(before)
    (card,) = tree.amd().read().cards
    assert (card.total_bytes, card.by_pid) == (16 << 30, {42: 1 << 20})


@given(st.sampled_from(["meminfo", "memory.max", "memory.current", "memory.stat"]), TEXTS)
def test_memory_that_is_not_told_is_never_free(tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    root = tmp_path_factory.mktemp("machine")
    files = {
        root / "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n",
        root / "proc/self/cgroup": "0::/a\n",
        root / "cgroup/a/memory.max": "512000",
        root / "cgroup/a/memory.current": "500000",
        root / "cgroup/a/memory.stat": "inactive_file 1000",
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if path.name == name else content)
    found = Linux(proc=root / "proc", cgroup=root / "cgroup").memory()
    assert found.used_bytes >= 0
    if name in ("memory.max", "memory.current") and not text.strip().split("\n")[0].strip().isdecimal():
        assert found.used_bytes in (614_400, 511_000)
    if name == "meminfo":
        assert found.total_bytes in {0, 512_000} | {n << 10 for n in numbers_in(text)}


@given(st.dictionaries(st.sampled_from(["MainPID", "ActiveState", "ExecStart", "Result"]), TEXTS))
def test_a_unit_of_which_systemd_says_anything_lives_unless_it_is_proved_to_rest(said: dict[str, str]) -> None:
    seen = Seen(said)
    assert str(seen.pid) in (said.get("MainPID", "0").lstrip("0"), "0")
    assert seen.lives == (said.get("ActiveState") not in ("inactive", "failed"))
    assert isinstance(seen.ending, str)
    assert isinstance(seen.words, tuple)


@given(st.dictionaries(st.sampled_from(["Class", "State", "Type", "IdleHint", "IdleSinceHintMonotonic"]), TEXTS))
def test_a_session_of_which_logind_says_anything_is_idle_no_longer_than_the_machine_runs(said: dict[str, str]) -> None:
    found = session_idle(said, 1_000, False)
    assert found is None or 0 <= found <= 1_000


MANIFEST = {"schemaVersion": 2, "layers": [{"digest": "sha256:" + "ab" * 32, "size": 9}], "config": {"size": 1}}


@given(st.one_of(st.binary(max_size=60), st.data()))
@example(b"[" * 100_000)
def test_a_manifest_that_says_anything_is_refused_in_words_or_lists_what_it_lists(given_: Any) -> None:
    raw = given_ if isinstance(given_, bytes) else bent(MANIFEST, given_)
    try:
        found = _layers(raw, "https://registry.example/v2/a/manifests/x")
    except Hopeless:
        return
    rows = [(row.get("digest"), row.get("size")) for row in json.loads(raw)["layers"] if isinstance(row, dict)]
    assert all(row in rows for row in found.items())


@pytest.mark.parametrize("name", ["\ud800", "a" * 5_000, "\x00\x1b[2J", "../../etc", ""])
def test_an_engine_of_somebody_else_cannot_keep_its_host_from_being_heard(name: str) -> None:
    """One process on the machine that lists a model by half a character, and no heartbeat could be signed."""
    text = json.dumps({"data": [{"id": name}]})
    rows = (Said(200, text).json or {}).get("data", ())
    lists = tuple(row["id"] for row in rows if row["id"])
    seen = External("ollama", 7, "boot:1", None, ("ollama", "serve"), 11_434, lists)
    for residency in seen.residencies(" (not ours)"):
        to_bytes(residency)


@given(st.one_of(st.data(), ODD), st.booleans())
def test_what_a_qualification_says_was_brought_is_what_the_engine_counted(given_: Any, embeds: bool) -> None:
    true = {"data": [{"embedding": [0.5, 0.25]}]} if embeds else {
        "usage": {"completion_tokens": 8}, "choices": [{"message": {"content": "once"}}],
    }  # fmt: skip
    said = document(bent(true, given_)) if hasattr(given_, "draw") else given_
    found = brought(said, embeds)
    assert found is None or found.startswith("an answer") or int(found.split()[0]) in (
        [len(said["data"][0]["embedding"])] if embeds else [said["usage"]["completion_tokens"]]
    )  # fmt: skip
    assert brought(true, embeds) == ("2 numbers" if embeds else "8 tokens")
    assert brought({"choices": [{"text": "x" * 99}]}, False) == "an answer, and it does not say of how many tokens"
