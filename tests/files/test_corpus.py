"""Every broken file of the corpus is refused with the right code, at the right place, with the right suggestion."""

from __future__ import annotations

import pytest

from gridops.base.codes import Code
from gridops.base.codes import files as file_codes
from gridops.base.codes import sense as sense_codes
from gridops.files.fix import repair
from gridops.files.tree import MemoryTree
from tests.files.corpus_engines import ENGINES, GOOD_ONES
from tests.files.corpus_schema import SCHEMA
from tests.files.corpus_sense import SENSE
from tests.files.corpus_text import TEXT
from tests.files.repo import GOOD, HOSTS, PROFILE, changed, checked, problems
from tests.files.row import Files, Row

ROWS: dict[str, Row] = {**TEXT, **SCHEMA, **SENSE, **ENGINES}

NEEDS_A_DISK = {file_codes.UNREADABLE.code}
NEEDS_A_ROOT = {sense_codes.UNKNOWN_PERSON.code}


def test_the_good_repository_has_no_finding() -> None:
    found = checked(GOOD)
    assert found.problems == ()
    assert found.intent is not None
    assert found.files == len(GOOD)


@pytest.mark.parametrize("files", GOOD_ONES.values(), ids=list(GOOD_ONES))
def test_what_an_engine_can_do_is_no_finding(files: Files) -> None:
    assert [p for p in problems(files) if p.code == sense_codes.ENGINE_CANNOT.code] == []


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_broken_file_is_named_with_code_place_and_suggestion(row: Row) -> None:
    found = problems(row.files)
    match = [p for p in found if p.code == row.code.code and str(p.place) == row.at]
    assert match, "\n".join(str(p) for p in found)
    problem = match[0]
    assert problem.severity == row.severity
    assert row.says in "\n".join((problem.message, problem.hint, *problem.notes))
    if row.alone:
        assert len(found) == 1, "\n".join(str(p) for p in found)


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_finding_is_repaired_only_where_the_meaning_is_certain(row: Row) -> None:
    fixed = repair(MemoryTree(row.files))
    file = row.at.split(":", 1)[0]
    if row.fix is None:
        assert file not in fixed.changed
        return
    assert row.fix in fixed.changed[file].decode()
    assert fixed.repaired == 1
    assert row.code.code not in {p.code for p in fixed.checked.problems}


def test_every_code_of_files_has_a_row() -> None:
    known = {v.code for m in (file_codes, sense_codes) for v in vars(m).values() if isinstance(v, Code)}
    covered = {row.code.code for row in ROWS.values()}
    assert known - covered == NEEDS_A_DISK | NEEDS_A_ROOT


def test_all_problems_of_all_files_come_in_one_run() -> None:
    chosen = ("field misspelt", "choice misspelt", "drain of an unknown host", "name with a slash", "role of nobody")
    merged: dict[str, str | bytes] = dict(GOOD)
    for name in chosen:
        row = ROWS[name]
        merged.update({k: v for k, v in row.files.items() if GOOD.get(k) != v})
    found = {(p.code, str(p.place)) for p in problems(merged)}
    assert {(ROWS[n].code.code, ROWS[n].at) for n in chosen} <= found


def test_a_field_misspelt_twice_is_suggested_once_and_never_lacking() -> None:
    found = problems(changed(HOSTS, "memory: 256GiB", "memmory: 256GiB, memoryy: 1GiB"))
    assert [p.hint for p in found] == ["did you mean `memory`?", "`memory` is given too"]


def test_what_is_wrong_inside_a_misspelt_field_is_found_in_the_same_run() -> None:
    found = problems(changed(PROFILE, "replicas: {min: 1, max: 2}", "replcas: {min: one, max: 2}"))
    assert [(p.code, p.column) for p in found] == [
        (file_codes.UNKNOWN_FIELD.code, 1),
        (file_codes.NUMBER.code, 16),
    ]


def test_an_engine_misspelt_in_the_defaults_of_many_hosts_is_one_finding_with_one_repair() -> None:
    moved = GOOD[HOSTS].replace("    runtimes: {llama.cpp: {backend: cuda}}\n", "")
    text = moved.replace("hosts:\n", "defaults:\n  runtimes: {lama.cpp: {backend: cuda}}\nhosts:\n", 1)
    files = {**GOOD, HOSTS: text}
    found = [p for p in problems(files) if p.code == sense_codes.UNKNOWN_ENGINE.code]
    assert [str(p.place) for p in found] == [f"{HOSTS}:4:14"]
    assert repair(MemoryTree(files)).repaired == 1
