"""Every durable step of a short story fails once: a sample of them here, all of them in `make soak` (C5, level 1)."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from gridops.controller.service import Controller
from gridops.lab.options import written
from gridops.lab.run import run
from gridops.lab.strikes import How, every, short_story

STORIES = (3, 2)
"""In the second one every commit is signed."""
SAMPLED = 23
"""One run of so many; it shares no divisor with the ways in which a step fails."""


@pytest.mark.parametrize("seed", STORIES)
def test_a_step_that_fails_breaks_nothing(seed: int) -> None:
    story = short_story(seed)
    whole = run(story)
    assert whole.broken is None
    assert whole.writes > 100
    for options in islice(every(story, whole.writes), seed, None, SAMPLED):
        ran = run(options)
        assert ran.broken is None, f"{ran.broken}\n{written(options)}"


def test_each_way_to_fail_happens_as_it_says() -> None:
    story = short_story(STORIES[0])
    nothing = run(story).lines
    for how, word in ((How.BEFORE, "not written"), (How.AFTER, "written"), (How.ERROR, "no space is left")):
        lines = run(replace(story, strike=60, strike_how=int(how))).lines
        assert any(word in line for line in lines if line not in nothing), how


def test_a_note_of_what_is_in_force_that_is_written_only_with_the_news_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever dies between the journal and the note leaves the note behind: a lost journal would begin before it."""
    take_in = Controller.found

    def found(self: Controller, commit: Any) -> int:
        known = self.state.accepted
        return 0 if known is not None and known.commit == commit.commit else take_in(self, commit)

    monkeypatch.setattr(Controller, "found", found)
    story = short_story(STORIES[0])
    struck = [replace(story, strike=n, strike_how=int(How.AFTER)) for n in range(90, 150)]
    assert any((run(options).broken or "").startswith("S12") for options in struck)


@pytest.mark.parametrize("seed", STORIES)
def test_the_story_changes_models_and_ends_them(seed: int) -> None:
    lines = "\n".join(run(short_story(seed)).lines)
    for word in ("begins load", "begins warm", "begins drain", "begins unload"):
        assert word in lines, word
