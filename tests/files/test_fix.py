"""Repairs: only where the meaning is certain, by position, and everything else of the file stays as it is."""

from __future__ import annotations

import pytest

from gridops.files.diagnose import Edit, Fix
from gridops.files.fix import apply, repair
from gridops.files.tree import MemoryTree
from tests.files.repo import GOOD, HOSTS, MODE, PROFILE


def test_comments_and_layout_survive_a_repair() -> None:
    text = (
        "# top\napiVersion: gridops/v1\nkind:   Mode  # kept\n"
        "scopes:\n      default:\n         mode:  recomend   # why not\n"
    )
    fixed = repair(MemoryTree({**GOOD, MODE: text}))
    assert fixed.changed[MODE].decode() == text.replace("recomend", "recommend")
    assert fixed.repaired == 1
    assert fixed.checked.problems == ()


def test_several_repairs_of_one_line_are_made_together() -> None:
    text = GOOD[PROFILE] + "timing: {laod: 30sec, warm: 5secs, drian: 2min}\n"
    fixed = repair(MemoryTree({**GOOD, PROFILE: text}))
    assert fixed.changed[PROFILE].decode().endswith("timing: {load: 30s, warm: 5s, drain: 2m}\n")
    assert fixed.repaired == 5


def test_a_repair_that_uncovers_another_is_followed_up() -> None:
    """The value of a misspelt field is read only once the field is known."""
    text = GOOD[PROFILE].replace("max_per_host: 2", "max_per_hots: unlimitd")
    fixed = repair(MemoryTree({**GOOD, PROFILE: text}))
    assert "max_per_host: unlimited" in fixed.changed[PROFILE].decode()
    assert fixed.repaired == 2


def test_a_change_of_meaning_needs_another_word() -> None:
    tree = MemoryTree({**GOOD, HOSTS: GOOD[HOSTS].replace("256GiB", "256GB")})
    assert repair(tree).changed == {}
    assert b"256GiB" in repair(tree, unsafe=True).changed[HOSTS]


def test_only_the_named_files_are_repaired() -> None:
    files = {
        **GOOD,
        MODE: GOOD[MODE].replace("recommend", "recomend"),
        PROFILE: GOOD[PROFILE].replace("kind: P", "kind: p"),
    }
    assert list(repair(MemoryTree(files), only=frozenset({MODE})).changed) == [MODE]


def test_the_name_that_is_taken_is_not_given_twice() -> None:
    text = GOOD[PROFILE].replace("max_per_host: 2", "max_per_host: 2\nmax_per_hots: 3")
    assert repair(MemoryTree({**GOOD, PROFILE: text})).changed == {}


def test_line_ends_of_windows_stay() -> None:
    raw = GOOD[MODE].replace("recommend", "recomend").replace("\n", "\r\n").encode()
    fixed = repair(MemoryTree({**GOOD, MODE: raw}))
    assert fixed.changed[MODE] == raw.replace(b"recomend", b"recommend")


def test_a_byte_order_mark_goes_and_nothing_else() -> None:
    fixed = repair(MemoryTree({**GOOD, MODE: b"\xef\xbb\xbf" + GOOD[MODE].encode()}))
    assert fixed.changed[MODE] == GOOD[MODE].encode()


def test_edits_that_touch_each_other_wait_for_the_next_round() -> None:
    fixes = [
        Fix("a", (Edit(1, 1, 1, 3, "xx"),)),
        Fix("b", (Edit(1, 3, 1, 5, "yy"),)),
        Fix("c", (Edit(2, 1, 2, 2, ""),)),
    ]
    assert apply("abcdef\nz\n", fixes) == ("xxcdef\n\n", 2)


@pytest.mark.parametrize("edit", [Edit(9, 1, 9, 2, "x"), Edit(1, 99, 2, 99, "x")])
def test_an_edit_past_the_end_writes_at_the_end(edit: Edit) -> None:
    assert apply("ab\n", [Fix("t", (edit,))])[0] == "ab\nx"
