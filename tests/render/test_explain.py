"""Explanations: the chain backwards, the term that decided, equal reasons together; and two plans side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.model.plan import Choice, HostLine, Report, Seat, Term
from gridops.planner.render_compare import Likeness, compare, compare_lines, same
from gridops.planner.render_explain import explain_document, explain_lines
from gridops.planner.render_layout import cells
from gridops.planner.render_text import Style
from gridops.planner.render_words import Context
from tests.render.plans import NOW, story

CONTEXT = Context(now_ms=NOW)


def explained(plan, replica, *, every=False, width=80):
    return explain_lines(plan, replica, replace(CONTEXT, show_all=every), Style(width))


def with_terms(*terms: Term):
    choice = Choice(replica="llama-70b/5", host="eu1-gpu-09", runner_up="eu1-gpu-10", terms=terms, fits=4)
    return replace(story(), report=Report(choices=(choice,)))


def test_the_chain_leads_from_the_seat_to_the_commit() -> None:
    lines = explained(story(), "llama-70b/5")
    assert lines is not None
    assert lines[0].startswith("llama-70b/5 => eu1-gpu-09")
    assert lines[0].endswith("plan 7f3a2c19, decision 1")
    text = "\n".join(lines)
    assert "because  replicas 4 => 5   profiles.d/llama-70b.yaml:8" in text
    assert 'commit   4d1c0aa "Fifth llama-70b, drop bge-m3"' in text
    assert "state    09:01Z, 6 min old" in text


def test_the_first_unequal_term_is_the_one_that_decided() -> None:
    plan = with_terms(
        Term(name="same_domain", winner=0, runner_up=0),
        Term(name="harm", winner=5_000, runner_up=36_000),
        Term(name="left_mib", winner=9, runner_up=1),
        Term(name="harm_starting", winner=5_000, runner_up=35_000),
        Term(name="harm_slower", winner=0, runner_up=1_000),
        Term(name="harm_failing", winner=0, runner_up=0),
    )
    text = " ".join(" ".join(explained(plan, "llama-70b/5") or ()).split())
    assert "equal in the term that comes first (-v names what)" in text
    assert "decided harm to requests: 5000 request-ms against 36000 request-ms" in text
    assert "starting: 5000 request-ms against 35000 request-ms slower than the fastest: 0 request-ms" in text
    assert "failed" not in text, "equal parts are no reason"
    assert "MiB left" not in text
    assert "failure domain that should hold one only: 0" in "\n".join(explained(plan, "llama-70b/5", every=True) or ())


def test_equal_hosts_are_decided_by_name() -> None:
    text = "\n".join(explained(with_terms(Term(name="config", winner=0, runner_up=0)), "llama-70b/5") or ())
    assert "decided  by name" in text


def test_equal_reasons_stand_together_with_need_and_best() -> None:
    lines = explained(story(), "mixtral/2") or []
    at = next(n for n, line in enumerate(lines) if line.startswith("  8 hosts"))
    assert "needs 47 GiB, best has 37.3 GiB, 9.7 GiB short" in " ".join(line.strip() for line in lines[at : at + 2])
    names = " ".join(lines[at + 1 : at + 3])
    assert "eu1-gpu-01" in names
    assert "eu1-gpu-12" in names
    assert "9 do not" in lines


def test_many_hosts_of_one_reason_are_counted() -> None:
    hosts = tuple(HostLine(host=f"host-{n:03}", code="GO521", detail="too little") for n in range(40))
    plan = story()
    wide = replace(plan, report=Report(unplaced=(replace(plan.report.unplaced[0], hosts=hosts),)))
    text = "\n".join(explained(wide, "mixtral/2") or ())
    assert "and 28 more" in text
    assert "insufficient device memory" in text


def rejected_by(*lines: HostLine) -> list[str]:
    choice = Choice(replica="llama-70b/5", host="eu1-gpu-09", fits=1, terms=(), rejected=lines)
    return explained(replace(story(), report=Report(choices=(choice,))), "llama-70b/5")


def test_a_host_that_drains_is_not_called_full_and_drains_once() -> None:
    drained = HostLine(host="alpha", code="GO541", detail="draining: driver upgrade")
    lines = rejected_by(drained)
    assert "1 cannot take it" in lines
    assert "  1 host   draining: driver upgrade" in lines
    text = "\n".join(rejected_by(drained, replace(drained, host="beta", detail="draining: fan alarm")))
    assert "  2 hosts  host draining\n" in text
    assert "alpha  driver upgrade" in text


def test_only_those_that_are_full_are_said_to_have_no_room_in_the_grammar_of_their_number() -> None:
    full = HostLine(host="alpha", code="GO521", detail="too little")
    stranger = HostLine(host="beta", code="GO545", detail="no key of it is committed")
    assert "1 has no room" in rejected_by(full)
    assert "2 have no room" in rejected_by(full, replace(full, host="gamma"))
    assert "2 cannot take it" in rejected_by(full, stranger)


@pytest.mark.parametrize("replica", ["llama-70b/5", "mixtral/2", "qwen-32b/1", "bge-m3/1"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_of_an_explanation_is_wider_than_asked(replica, width) -> None:
    for line in explained(story(), replica, every=True, width=width) or ():
        assert cells(line) <= width


def test_a_stranger_is_not_explained() -> None:
    assert explained(story(), "nobody/1") is None
    assert explain_document(story(), "nobody/1") is None
    document = explain_document(story(), "mixtral/2")
    assert document is not None
    assert document["assignment"] is None
    assert document["unplaced"]["nearest"] == "eu1-gpu-12"


def changed():
    """The story a minute later: one other host, one other device, one other value, one gone."""
    plan = story()
    a, b, c, d, _, f = plan.decisions
    return replace(
        plan,
        decisions_digest="sha256:c08e11d4" + "00" * 28,
        decisions=(
            replace(a, target=Seat(host="eu1-gpu-09", devices=("gpu2", "gpu3"))),
            replace(b, target=Seat(host="eu1-gpu-08", devices=("gpu6",))),
            replace(c, changes=(replace(c.changes[0], new="32"),)),
            d,
            f,
        ),
    )


def test_plans_are_compared_by_what_they_do() -> None:
    likeness = {c.replica: c.likeness for c in compare(story(), changed())}
    assert likeness == {
        "llama-70b/5": Likeness.OTHER_DEVICES,
        "qwen-32b/2": Likeness.OTHER_HOST,
        "whisper/1": Likeness.OTHER_VALUE,
        "whisper/2": Likeness.SAME,
        "bge-m3/1": Likeness.ONLY_FIRST,
        "mixtral/2": Likeness.SAME,
    }
    cheaper = replace(story(), decisions=(replace(story().decisions[0], cost=story().decisions[4].cost),))
    assert compare(cheaper, replace(story(), decisions=story().decisions[:1]))[0].likeness is Likeness.SAME


def test_a_comparison_marks_what_differs_and_says_what_it_was() -> None:
    lines = compare_lines(story(), changed())
    assert lines[-1] == "4 of 6 decisions differ."
    text = " ".join(" ".join(lines).split())
    assert (
        "* > qwen-32b/2 eu1-gpu-03 [4] => eu1-gpu-08 [6] other host was move eu1-gpu-03 [4] => eu1-gpu-11 [2]" in text
    )
    assert all(cells(line) <= 80 for line in lines)
    assert same(story(), story())
    assert compare_lines(story(), story())[-1] == "The decisions are the same."
