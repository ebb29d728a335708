"""Plans as Markdown, JSON and GitHub output: limits of forges, nothing that pings or injects, stable documents."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.record import from_data, to_data
from gridops.model.plan import Cause, CauseKind, Plan, Report
from gridops.planner.render_github import annotation_lines, step_outputs
from gridops.planner.render_json import plan_document, plan_lines, plans_document
from gridops.planner.render_markdown import code, render_markdown
from gridops.planner.render_words import headline
from tests.render.plans import many, quiet, story
from tests.render.test_text import CONTEXT


def test_the_comment_begins_with_its_marker_and_says_everything_once() -> None:
    text = render_markdown(story(), CONTEXT)
    assert text.startswith("<!-- gridops:plan scope=prod-eu head=4d1c0aa decisions=7f3a2c19 -->\n")
    assert "1 place · 1 move · 2 change · 1 remove · **1 not placed**" in text
    for decision in story().decisions:
        assert text.count(f"| `{decision.replica}` |") == 1
    assert "**last replica**" in text
    assert "**Blocked** (exit 5): `mixtral/2`" in text


def test_eight_hundred_decisions_stay_below_the_limit_as_whole_rows() -> None:
    text = render_markdown(many(800), CONTEXT)
    assert len(text) < limits.MARKDOWN_CHARS
    rows = [line for line in text.splitlines() if line.startswith("| ➕")]
    assert all(line.count(" | ") >= 5 and line.endswith(" |") for line in rows)
    left = re.search(r"\*\*(\d+) more decisions\*\*", text)
    assert left is not None
    assert int(left.group(1)) + len(rows) == 800
    assert text.rstrip().endswith("`gridops plans show 7f3a2c19`"), "the foot is never dropped"


def test_a_plan_that_fits_nowhere_a_thousand_times_stays_below_the_limit() -> None:
    unplaced = tuple(replace(story().report.unplaced[0], replica=f"m{n}/1") for n in range(1000))
    text = render_markdown(replace(many(800), report=Report(unplaced=unplaced)), CONTEXT)
    assert len(text) < limits.MARKDOWN_CHARS
    assert "and 960 more replicas" in text


NASTY = [
    "`tick`",
    "``two``",
    "@everyone",
    "a|b",
    "</details><script>",
    "x\n### fake",
    "` lead",
    "[a](http://x)",
    "<!-- x -->",
]


@pytest.mark.parametrize("text", NASTY)
def test_values_cannot_leave_their_code_span(text) -> None:
    span = code(text)
    fence = re.match(r"`+", span)
    assert fence is not None
    assert span.endswith(fence.group())
    inner = span[len(fence.group()) : -len(fence.group())]
    assert all(len(run) != len(fence.group()) for run in re.findall("`+", inner))
    assert "\n" not in span
    assert not re.search(r"(?<!\\)\|", span)
    made = replace(story().decisions[0], cause=Cause(kind=CauseKind.INTENT, detail=text))
    page = render_markdown(replace(story(), decisions=(made,)), CONTEXT)
    outside = re.sub(
        r"(`+).*?[^`]\1(?!`)", "", "\n".join(line for line in page.splitlines() if line.startswith("| ➕"))
    )
    for sign in ("@everyone", "<script>", "<!--", "](http"):
        assert sign not in outside


def test_a_quiet_comment_is_short() -> None:
    text = render_markdown(quiet(), CONTEXT)
    assert "no changes" in text
    assert "|" not in text


def test_the_json_document_holds_the_signed_record_field_for_field() -> None:
    document = json.loads(json.dumps(plan_document(story(), CONTEXT)))
    assert document["schema"] == "gridops.plan/1"
    assert document["summary"] == {"place": 1, "move": 1, "change": 2, "remove": 1, "unplaced": 1, "unchanged": 36}
    assert document["times"] == {
        "created": "2026-11-29T09:07:00Z",
        "observed": "2026-11-29T09:01:00Z",
        "state_age_seconds": 360,
    }
    record = {name: document[name] for name in to_data(story())}
    assert from_data(Plan, record) == story()


def test_several_scopes_are_one_document() -> None:
    other = replace(quiet(), scope="lab")
    assert plans_document([(story(), CONTEXT)], 5)["exit_code"] == 5
    both = plans_document([(story(), CONTEXT), (other, CONTEXT)], 5)
    assert both["schema"] == "gridops.plan-set/1"
    assert [p["scope"] for p in both["plans"]] == ["prod-eu", "lab"]


def test_a_stream_begins_with_hello_and_ends_with_result() -> None:
    lines = plan_lines([(story(), CONTEXT)], 5, "unplaced")
    kinds = [line["type"] for line in lines]
    assert kinds == ["hello", "plan", *["planned_change"] * 6, "unplaced", "shortfall", "result"]
    assert lines[-1] == {"type": "result", "exit_code": 5, "reason": "unplaced", "has_changes": True}
    assert plan_lines([(quiet(), CONTEXT)], 0, "ok")[-1]["has_changes"] is False


def test_annotations_are_at_most_ten_and_the_rest_is_counted() -> None:
    unplaced = tuple(replace(story().report.unplaced[0], replica=f"m{n}/1") for n in range(30))
    lines = annotation_lines(replace(story(), report=Report(unplaced=unplaced)), CONTEXT)
    assert len(lines) == limits.ANNOTATIONS + 1
    assert all(line.startswith("::error ") for line in lines[:-1])
    assert lines[-1].startswith("::notice title=gridops plan prod-eu::")
    assert "21 more findings" in lines[-1]


def test_annotations_point_at_the_cause_and_escape_what_would_end_them() -> None:
    lines = annotation_lines(story(), CONTEXT)
    assert lines[0].startswith("::error file=profiles.d/mixtral.yaml,line=6,col=11,title=GO601::mixtral/2: ")
    assert lines[1].startswith("::warning title=last replica::bge-m3/1 is the last replica")
    made = replace(
        story().decisions[4], cause=Cause(kind=CauseKind.INTENT, detail="50% gone\n::error::x", at="a,b:c.yaml:1:1")
    )
    escaped = annotation_lines(replace(story(), decisions=(made,), report=Report()), CONTEXT)[0]
    assert escaped.startswith("::warning file=a%2Cb%3Ac.yaml,line=1,col=1,title=last replica::")
    assert "50%25 gone?::error::x" in escaped


def test_step_outputs_are_what_scripts_need() -> None:
    assert step_outputs(story(), 5) == {
        "has_changes": "true",
        "exit_code": "5",
        "plan_id": story().id,
        "decisions_digest": story().decisions_digest,
    }
    assert step_outputs(quiet(), 0)["has_changes"] == "false"


def test_the_headline_leaves_out_what_does_not_happen() -> None:
    assert headline(story()) == "1 place, 1 move, 2 change, 1 remove, 1 not placed"
    assert headline(many(3)) == "3 place"
    assert headline(quiet()) == "no changes"
