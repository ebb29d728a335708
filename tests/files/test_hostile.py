"""Files made to hurt: each ends in a problem, soon, and never in another exception."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base import limits
from gridops.files.draw import draw_all
from gridops.files.fix import repair
from gridops.files.fmt import format_text
from gridops.files.tree import MemoryTree
from gridops.files.yamlish import parse
from tests.files.repo import GOOD, HOSTS, MODE, PROFILE, checked

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
HEAD = "apiVersion: gridops/v1\nkind: Hosts\nhosts:\n"

HOSTILE: dict[str, str] = {
    "billion laughs": LAUGHS,
    "a thousand brackets": "a: " + "[" * 3_000,
    "a thousand braces": "{a: " * 3_000,
    "deep block": "".join(" " * n + "a:\n" for n in range(2_000)),
    "deep dashes": "- " * 3_000 + "a",
    "endless flow": "[" + "a, " * 300_000 + "]",
    "endless keys": "{" + "".join(f"k{n}: 1, " for n in range(90_000)) + "}",
    "one long key": "a" * 500_000 + ": 1",
    "one long line": "a: " + "b" * 900_000,
    "question marks": "? " * 5_000,
    "anchors without end": "".join(f"a{n}: &a{n} 1\n" for n in range(20_000)),
    "nothing but colons": ":" * 100_000,
    "nothing but quotes": "'" * 100_000,
    "half a quote": "a: '" + "x\n" * 100_000,
    "a digit too many": "a: " + "9" * 200_000,
    "block scalar": "a: |\n" + "  x\n" * 200_000,
    "comments": "#" * 500_000,
    "commas": "[" + "," * 200_000,
    "tags": "a: " + "!" * 100_000,
    "half a token": "reason: " + "eyJ-" * 200_000,
    "many half tokens": "a:\n" + ("  - " + "eyJ-" * 1_000 + "\n") * 200,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_file_ends_in_a_problem_and_soon(text: str) -> None:
    began = time.process_time()
    found = checked({**GOOD, MODE: text})
    assert time.process_time() - began < 5
    assert found.intent is None
    assert any(p.file == MODE for p in found.problems)
    assert len(draw_all(found.problems)) < 2_000_000


def test_sixty_four_kibibytes_are_judged_in_a_blink() -> None:
    """Good or broken in its last line, a file of that size must not hold up anybody."""
    host = "  h{}:\n    devices: {{gpu0: {{kind: gpu, memory: 48GiB}}}}\n"
    body = HEAD + "".join(host.format(n) for n in range(1_300))
    assert len(body) > 64 << 10
    for text in (body, body + "  broken: [\n"):
        best = min(_seconds(text) for _ in range(3))
        assert best < 0.5  # 30 ms on an idle machine


def _seconds(text: str) -> float:
    began = time.process_time()
    checked({HOSTS: text})
    return time.process_time() - began


def test_more_files_than_the_bound_are_not_read() -> None:
    files = {f"profiles.d/p{n:05d}.yaml": "" for n in range(limits.FILES + 1)}
    found = checked(files)
    assert found.files == limits.FILES
    assert any("files" in p.message and p.code == "GO110" for p in found.problems)


def test_a_thousand_misspelt_names_in_a_large_fleet_stay_affordable() -> None:
    hosts = "".join(f"  host-{n:05d}: {{devices: {{cpu0: {{kind: cpu, memory: 1GiB}}}}}}\n" for n in range(5_000))
    pins = ", ".join(f"hots-{n:05d}" for n in range(1_000))
    profile = GOOD[PROFILE].replace("placement:\n", f"placement:\n  allow_hosts: [{pins}]\n")
    began = time.process_time()
    found = checked({HOSTS: HEAD + hosts, PROFILE: profile})
    assert time.process_time() - began < 8
    assert sum(p.code == "GO311" for p in found.problems) == 1_000


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    parsed = parse("x.yaml", raw)
    assert parsed.root is not None or parsed.problems
    assert draw_all(parsed.problems) or not parsed.problems
    again = format_text("x.yaml", raw)
    assert again.problems or format_text("x.yaml", again.text.encode()).text == again.text


_PIECES = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            ",",
            ": ",
            "- ",
            "\n",
            "  ",
            "a",
            "no",
            "48GiB",
            "48",
            "&x",
            "*x",
            "!!str",
            "|",
            "#",
            '"',
        ),
        *("'", "\t", "null", "hosts", "devices", "gpu0", "min", "never", "\u202e", "-1", "9" * 20, "<<", "? ", "---\n"),
    ]
)


@settings(max_examples=150)
@given(st.sampled_from(sorted(GOOD)), st.data())
def test_a_good_file_with_damage_is_judged_without_another_exception(file: str, data: st.DataObject) -> None:
    text = GOOD[file]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 12)))
        text = text[:at] + "".join(data.draw(st.lists(_PIECES, max_size=4))) + text[end:]
    files = {**GOOD, file: text}
    found = checked(files)
    assert (found.intent is None) == (found.errors > 0)
    for problem in found.problems:
        assert problem.line >= 1
        assert problem.column >= 1
        assert problem.length >= 1
    draw_all(found.problems)
    fixed = repair(MemoryTree(files))
    # A file whose kind nobody knew is read on once it has one, and more may be found in it.
    unread = any(p.code == "GO202" for p in found.problems)
    assert unread or fixed.checked.errors <= found.errors


@settings(max_examples=60)
@given(st.sampled_from(sorted(GOOD)), st.data())
def test_a_good_file_with_lines_moved_about_is_judged_without_another_exception(file: str, data: st.DataObject) -> None:
    lines = GOOD[file].splitlines(keepends=True)
    order = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=len(lines) + 3))
    found = checked({**GOOD, file: "".join(lines[n] for n in order)})
    assert (found.intent is None) == (found.errors > 0)
