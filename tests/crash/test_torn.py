"""Files that are cut off or have a changed bit: their readers have the same content, an earlier one, or say no by name.

A fixed sample of a few hundred; `soak_torn.py` has every cut and every bit of the measure.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridops_agent.config import read_config
from gridops_agent.statefolder import keep_roots, spare_roots
from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.durable import AGENT, ELSEWHERE, KEPT, WRITERS, kept_of, matches
from tests.crash.material import CUT_EVERY, FLIP_EVERY, Damage, Lived, copied, damages, judged, lived, read
from tests.crash.zygote import Nursery
from tests.tidy.source import product

SAMPLE = 400
NAMES = {"write_atomic", "write_checked", "create_secret"}
METHODS = {"write_text", "write_bytes", "mkstemp"}
DAEMONS = ("gridops.controller", "gridops.store", "gridops_agent")
DOORS = ("gridops_agent.cli",)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    root = tmp_path_factory.mktemp("torn")
    (root / "models").mkdir()
    model = write_tiny_gguf(root / "models" / "tiny.gguf")
    with Nursery() as nursery:
        yield lived(root, model, nursery)


def test_the_table_knows_every_file_that_was_found(found: Lived) -> None:
    unknown = [(owner, name) for owner, name, _ in found.files() if kept_of(owner, name) is None]
    assert unknown == [], "who reads it, and what does damage to it lead to? (durable.py)"


def test_every_file_of_the_table_that_is_read_was_found(found: Lived) -> None:
    files = [(owner, name) for owner, name, _ in found.files()]
    missing = [
        row.name
        for row in KEPT
        if row.read is not None and not any(o == row.owner and matches(row.name, n) for o, n in files)
    ]
    assert missing == []


def test_the_table_knows_every_module_that_writes() -> None:
    """A new one has to say what it writes, and what damage to that leads to."""
    writing = set()
    for source in product():
        if not source.name.startswith(DAEMONS) or source.name.startswith(DOORS):
            continue
        for call in ast.walk(source.tree):
            if isinstance(call, ast.Call) and _writes(call):
                writing.add(source.name)
    assert writing - WRITERS.keys() - ELSEWHERE.keys() == set(), "who reads it back? (WRITERS in durable.py)"
    written = {name.strip() for words in WRITERS.values() for name in words.split(",")}
    rows = [row.name for row in KEPT]
    assert [name for name in sorted(written) if not any(row == name or matches(name, row) for row in rows)] == []


def _writes(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in NAMES
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in ("rename", "replace"):  # that of a text or of a record is none of a file
        return isinstance(call.func.value, ast.Name) and call.func.value.id in ("os", "path")
    return call.func.attr in METHODS


def test_a_row_without_a_sum_says_what_a_changed_bit_leads_to() -> None:
    assert [row.name for row in KEPT if (row.read is None or not row.summed) and not row.why] == []


def test_damaged_files_are_told_from_whole_ones(found: Lived, tmp_path: Path) -> None:
    every = list(damages(found, CUT_EVERY, FLIP_EVERY))
    assert len(every) > SAMPLE
    chosen = sampled(every)
    seen = Counter[str]()
    whole: dict[tuple[str, str], object] = {}
    for number, damage in enumerate(chosen):
        key = (damage.owner, damage.name)
        if key not in whole:
            whole[key] = read(copied(found, *key, tmp_path / f"whole-{number}"), *key)
        seen[judged(found, damage, whole[key], tmp_path / str(number))] += 1
    assert {damage.name for damage in every} == {damage.name for damage in chosen}
    assert seen["set aside, and known to be"] > 25, seen
    assert seen["refused, naming the file"] > 50, seen
    assert seen["an earlier state"] > 25, seen


def test_a_rotten_copy_of_a_root_document_is_written_again(found: Lived, tmp_path: Path) -> None:
    """It is needed on the day on which the ledger is lost, and nobody looks at it before."""
    config = read_config(copied(found, AGENT, "roots/1.json", tmp_path / "agent"))
    roots = spare_roots(config)
    (config.roots / "1.json").write_bytes(b"rotten")
    keep_roots(config, roots)
    assert spare_roots(config) == roots


def sampled(every: list[Damage]) -> list[Damage]:
    """Of each file some, by the same stride each time: small ones whole, and of large ones equally many."""
    by_file: dict[tuple[str, str, bool], list[Damage]] = {}
    for damage in every:
        by_file.setdefault((damage.owner, damage.name, damage.flip), []).append(damage)
    chosen: list[Damage] = []
    waiting = sorted(by_file.values(), key=len)
    for number, each in enumerate(waiting):
        count = min(len(each), (SAMPLE - len(chosen)) // (len(waiting) - number))
        chosen += [each[i * len(each) // count] for i in range(count)]
    return chosen
