"""Problems as people see them. Each golden shows one story; `GRIDOPS_BLESS=1` rewrites them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gridops.files.draw import COLOR, draw, draw_all, summary
from tests.files.repo import DIGEST, GOOD, HOSTS, MODE, PROFILE, problems

GOLDEN = Path(__file__).parent / "golden"
BLESS = bool(os.environ.get("GRIDOPS_BLESS")) and not os.environ.get("CI")

# The story of the design: three mistakes in two files, one of them pointing from one file into the other.
EU1 = """\
apiVersion: gridops/v1
kind: Hosts
scope: prod-eu
hosts:
  eu1-gpu-01:
    devices:
      gpu0: {kind: gpu, memory: 80GiB}
    runtimes: {vllm: {backend: cuda}}
    tags: [h100]
    max_replicas: 8
    max_replicas: 4
"""
WITH = f"{{path: config.json, sha256: {DIGEST}, size: 1KiB}}"
LLAMA = f"""\
apiVersion: gridops/v1
kind: Profile
name: llama-70b
scope: prod-ue
replicas: 5
placement:
  require_tags: [h100]
  dney_hosts: []
configs:
  awq:
    engine: vllm
    backends: [cuda]
    artifact: {{format: safetensors, files: [{{path: a.safetensors, sha256: {DIGEST}, size: 40GiB}}, {WITH}]}}
    context: 8192
    footprint: {{source: declared, device: 76}}
"""

STORIES: Mapping[str, Mapping[str, str]] = {
    "story": {"fleet.d/eu1.yaml": EU1, "profiles.d/llama-70b.yaml": LLAMA},
    "far-apart": {
        HOSTS: GOOD[HOSTS] + "  forge:\n    devices: {cpu0: {kind: cpu, memory: 1GiB}}\n",
    },
    "syntax": {MODE: "apiVersion: gridops/v1\nkind: Mode\nscopes: [default,\n  lab\ndefault: recommend\n"},
    "wide-characters": {
        PROFILE: GOOD[PROFILE].replace(
            "name: coder", 'name: coder\nserves: ["日本語 モデル", e\u0301t\u00e9, zu\u2009viel]'
        )
    },
    "warnings": {
        **GOOD,
        PROFILE: GOOD[PROFILE].replace("{min: 1, max: 2}", "5") + "spread: {by: rack, min: 3}\n",
    },
}


@pytest.mark.parametrize("name", STORIES)
def test_a_drawing_is_as_it_was_agreed(name: str) -> None:
    files = STORIES[name]
    found = problems(files)
    drawn = "\n".join([draw_all(found), *summary(found, len(files), 0.14), ""])
    golden = GOLDEN / f"{name}.txt"
    if BLESS:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(drawn, encoding="utf-8")
    assert drawn == golden.read_text(encoding="utf-8")
    assert len(drawn.splitlines()) < 120


@pytest.mark.parametrize("name", STORIES)
def test_no_drawn_line_of_ours_is_wider_than_the_terminal(name: str) -> None:
    for width in (60, 80, 120):
        for problem in problems(STORIES[name]):
            for line in draw(problem, width=width).splitlines():
                quotes = " | " in line and "^" not in line and "---" not in line
                assert quotes or line.startswith(("error", "warning")) or " = " in line or len(line) <= width


def test_the_caret_stands_under_the_word_also_behind_wide_characters() -> None:
    text = GOOD[PROFILE].replace("name: coder", "name: coder\nserves: [日本, ok]")
    drawn = draw(problems({**GOOD, PROFILE: text})[0])
    line = next(line for line in drawn.splitlines() if line.startswith(" 4 |"))
    carets = next(line for line in drawn.splitlines() if "^" in line)
    assert carets.index("^") == line.index("日")
    assert carets.count("^") == 4, "two characters of two columns each"


def test_nothing_of_a_file_reaches_the_terminal_as_a_command() -> None:
    text = GOOD[MODE] + "# \x1b[2J\x1b]0;owned\x07\n"
    drawn = draw_all(problems({**GOOD, MODE: text}))
    assert "\x1b" not in drawn
    assert "\x07" not in drawn


def test_a_line_without_end_is_cut_around_the_caret() -> None:
    long = GOOD[PROFILE].replace(
        "replicas: {min: 1, max: 2}", f"serves: [{', '.join(f'id-{n}' for n in range(3_000))}, BAD ID]"
    )
    drawn = draw(problems({**GOOD, PROFILE: long})[0])
    assert max(len(line) for line in drawn.splitlines()) < 200
    line, carets = next((a, b) for a, b in zip(drawn.splitlines(), drawn.splitlines()[1:], strict=False) if "^" in b)
    assert line[carets.index("^") :].startswith("BAD ID")


def test_colour_wraps_words_and_adds_nothing_else() -> None:
    problem = problems(STORIES["story"])[0]
    coloured, plain = draw(problem, paint=COLOR), draw(problem)
    for code in (COLOR.error, COLOR.warning, COLOR.frame, COLOR.bold, COLOR.end):
        coloured = coloured.replace(code, "")
    assert coloured == plain
    assert "\x1b" not in plain


def test_past_the_bound_only_a_count_is_shown() -> None:
    serves = "".join(f"  - A B{n}\n" for n in range(300))
    found = problems({**GOOD, PROFILE: GOOD[PROFILE] + "serves:\n" + serves})
    assert len(found) == 300
    assert draw_all(found).endswith("... and 100 more\n")


def test_the_summary_counts_in_words_that_agree() -> None:
    assert summary((), 1, 0.5) == ["Checked 1 file in 0.50 s: 0 errors, 0 warnings."]
    lines = summary(problems({**GOOD, MODE: "kind: Mod\n"}), 3)
    assert lines[0] == "Checked 3 files: 2 errors, 0 warnings."
    assert lines[1] == "[*] 2 can be fixed with --fix.   More on a code: gridops rule GO201"
