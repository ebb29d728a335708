"""Plans as text: golden pages, and rules that hold for any plan at any width."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base.ids import split_replica
from gridops.model.plan import Cause, CauseKind, Cost, DecisionKind, HostLine, IntentRef, Report, Seat
from gridops.model.policy import Mode, ScopeBudgets, ScopeMode
from gridops.model.snapshot import SnapshotSource
from gridops.planner.render_layout import cells, coloured, wrap
from gridops.planner.render_text import Style, closing, render_text
from gridops.planner.render_words import ASCII, UTF8, Context
from tests.render.plans import NOW, decision, many, quiet, story

BLESS = bool(os.environ.get("GRIDOPS_BLESS")) and not os.environ.get("CI")
GOLDEN = Path(__file__).parent / "golden"
CONTEXT = Context(
    now_ms=NOW,
    mode=ScopeMode(scope="prod-eu", mode=Mode.RECOMMEND),
    mode_at="policies/mode.yaml:6",
    budgets=ScopeBudgets(scope="prod-eu"),
    hosts=12,
    branch="main",
    next_steps=(("look at it", "gridops plans show 7f3a2c19"), ("carry it out", "gridops apply 7f3a2c19")),
)


def hypothetical():
    plan = story()
    return replace(
        plan,
        snapshot=replace(plan.snapshot, source=SnapshotSource.DECLARED),
        intent=IntentRef(digest=plan.intent.digest, dirty=True),
    )


def held_back():
    plan = story()
    return replace(
        quiet(),
        report=Report(
            unchanged=3,
            waiting=(
                HostLine(
                    host="ana-mac", code="GO640", detail="asleep; llama/2 waits up to 10 min before it is replaced"
                ),
            ),
            notes=("the planner's version changed since the parent plan",),
            unplaced=plan.report.unplaced,
        ),
    )


PAGES = {
    "story-80-ascii": (story(), Style(80, ASCII), CONTEXT),
    "story-120-utf8": (story(), Style(120, UTF8), CONTEXT),
    "story-120-ascii-all": (story(), Style(120, ASCII), replace(CONTEXT, show_all=True)),
    "quiet-80": (quiet(), Style(80, ASCII), CONTEXT),
    "quiet-unseen-80": (quiet(), Style(80, ASCII), replace(CONTEXT, unseen=("coder/1", "embed/2"))),
    "hypothetical-80": (hypothetical(), Style(80, ASCII), CONTEXT),
    "held-back-80": (held_back(), Style(80, ASCII), CONTEXT),
}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_the_golden_page(name) -> None:
    plan, style, context = PAGES[name]
    text = "\n".join([*render_text(plan, context, style), "--- stderr", *closing(plan, context, style.width)]) + "\n"
    file = GOLDEN / f"{name}.txt"
    if BLESS:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 100, 109, 110, 120, 200])
@pytest.mark.parametrize("plan", [story(), quiet(), many(40), hypothetical(), held_back()])
def test_no_line_is_wider_than_asked(plan, width) -> None:
    for symbols in (ASCII, UTF8):
        for line in render_text(plan, replace(CONTEXT, show_all=True), Style(width, symbols)):
            assert cells(line) <= width, line
            assert line == line.rstrip()
        for line in closing(plan, CONTEXT, width):
            assert cells(line) <= width, line


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_id_stands_whole(width) -> None:
    long = "h" * 63
    name = "p" * 63
    made = decision(
        1,
        DecisionKind.PLACE,
        f"{name}/12",
        Cause(kind=CauseKind.INTENT, detail="new", at=f"profiles.d/{name}.yaml:8:1"),
        target=Seat(host=long, devices=tuple(f"gpu{n}" for n in range(8))),
        cost=Cost(start_ms=9_000),
    )
    lines = render_text(replace(story(), decisions=(made,), report=Report()), CONTEXT, Style(width))
    for wanted in (long, f"{name}/12", f"{name}.yaml:8"):
        assert any(wanted in line for line in lines), wanted
    text = "\n".join(render_text(story(), CONTEXT, Style(width)))
    for made in story().decisions:
        assert made.replica in text
        assert split_replica(made.replica)
        for seat in (made.source, made.target):
            assert seat is None or seat.host in text


def test_the_legend_names_only_signs_that_are_used() -> None:
    legend = render_text(many(2), CONTEXT, Style(80))[1]
    assert legend == "+ place"
    removed = replace(story(), decisions=story().decisions[4:5], report=Report())
    assert render_text(removed, CONTEXT, Style(80))[1] == "- remove"


def test_an_unplaced_replica_is_shown_even_without_a_decision() -> None:
    text = "\n".join(render_text(held_back(), CONTEXT, Style(80)))
    assert "! mixtral/2" in text
    assert "1 not placed" in text


@pytest.mark.parametrize("style", [Style(80, ASCII, coloured), Style(120, UTF8, coloured)])
def test_colour_adds_only_escape_codes(style) -> None:
    import re

    painted = render_text(story(), CONTEXT, style)
    assert any("\x1b[" in line for line in painted)
    stripped = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in painted]
    assert stripped == render_text(story(), CONTEXT, replace(style, paint=Style().paint))
    assert not any("\x1b" in line for line in stripped)


def test_a_name_from_a_file_cannot_steer_the_terminal() -> None:
    nasty = "\x1b[2J\x07evil\u202etxt\nfake line"
    made = replace(story().decisions[0], cause=Cause(kind=CauseKind.INTENT, detail=nasty, at=f"{nasty}.yaml:1:1"))
    plan = replace(story(), decisions=(made,), intent=replace(story().intent, subject=nasty))
    for width in (80, 120):
        for line in render_text(plan, CONTEXT, Style(width)):
            assert "\x1b" not in line
            assert "\x07" not in line
            assert "\u202e" not in line
            assert "\n" not in line


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=200), st.integers(20, 90))
def test_wrapping_keeps_every_word_and_the_width(text, width) -> None:
    lines = wrap(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    for line in lines:
        assert cells(line) <= width or " " not in line.strip()


@pytest.mark.parametrize("width", [80, 140])
def test_nobody_is_said_to_stop_what_runs_on_a_host_out_of_reach(width) -> None:
    plan, style = story(), Style(width)
    move = next(d for d in plan.decisions if d.kind is DecisionKind.MOVE)
    lost = replace(move, cause=Cause(kind=CauseKind.HOST_LOST, detail="eu1-gpu-03: no heartbeat for 5 min"))
    gone = replace(plan, decisions=tuple(lost if d is move else d for d in plan.decisions))
    silent = replace(CONTEXT, unheard=frozenset({move.source.host}))
    for text in (render_text(gone, CONTEXT, style), render_text(plan, silent, style)):
        words = " ".join(" ".join(text).split())
        assert "out of reach" in words
        assert "before the old one stops" not in words
    assert "out of reach" not in "\n".join(render_text(plan, CONTEXT, style))
