"""The heart on files fetched on a guess: what makes one, what ends one, and what may not go while others need it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest, ProfileName, nobody
from gridops.model.action import Evict, Load
from gridops.model.profile import Artifact, ArtifactFile
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import Began, Ended, Resumed
from gridops_agent.core.report import Readings, inventory
from tests.agent.story import Story
from tests.protocol import build as b

LATER = ProfileName("later")


def artifact(*names: str) -> Artifact:
    files = tuple(ArtifactFile(path=n, sha256=digest_bytes(n.encode()), size_bytes=10) for n in names)
    return Artifact(format="gguf", files=files, source="https://models.example/m")


def guess(of: Artifact) -> Load:
    return Load(host=b.HOST, replica=nobody(LATER), profile=LATER, artifact=of, guess=True)


def evict(of: Artifact) -> Evict:
    files = tuple(sorted(f.sha256 for f in of.files))
    return Evict(host=b.HOST, replica=nobody(LATER), profile=LATER, files=files)


MINE = artifact("m")


def fetched(story: Story, of: Artifact = MINE, brought: int | None = 10) -> None:
    body = story.begun(guess(of))
    story.tell(Ended(body, Outcome.SUCCEEDED, fetched_bytes=brought))


def refused(story: Story, action: Evict) -> str | None:
    body = story.issue(action)
    story.tell(Began(body))
    outcome, code = story.said(body)
    assert outcome is Outcome.REFUSED
    return code


def shown(story: Story, *cached: Digest) -> list[tuple[Digest, ...]]:
    return [p.files for p in inventory(story.host, Readings(cached=cached)).prefetched or ()]


def test_a_guess_is_shown_while_its_files_are_here_and_may_go() -> None:
    story = Story()
    fetched(story)
    file = MINE.files[0].sha256
    assert shown(story, file) == [(file,)]
    assert shown(story) == []
    body = story.begun(evict(MINE))
    story.tell(Ended(body, Outcome.SUCCEEDED))
    assert story.host.guesses == {}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.VOIDED, Outcome.UNKNOWN])
def test_a_fetch_that_did_not_succeed_leaves_no_guess(outcome: Outcome) -> None:
    story = Story()
    story.tell(Ended(story.begun(guess(MINE)), outcome, "fetch_failed"))
    assert story.host.guesses == {}


def test_a_fetch_that_the_agent_died_in_leaves_files_like_any_other() -> None:
    story = Story()
    story.begun(guess(MINE))
    story.tell(Resumed({}))
    assert story.host.guesses == {}
    assert refused(story, evict(MINE)) == "not_a_guess"


def test_what_a_service_keeps_in_its_own_store_is_never_ours_to_delete() -> None:
    story = Story()
    fetched(story, replace(MINE, source="ollama://tiny:1b"))
    assert story.host.guesses == {}


def test_a_part_of_what_was_fetched_or_more_than_it_may_not_go() -> None:
    story = Story()
    fetched(story, artifact("a", "b"), 20)
    for others in (artifact("a"), artifact("a", "b", "c")):
        assert refused(story, evict(others)) == "not_a_guess"


def test_files_stay_that_a_command_is_about_to_use() -> None:
    story = Story()
    fetched(story)
    story.issue(replace(guess(MINE), guess=None, replica="coder/1", profile="coder"))
    assert refused(story, evict(MINE)) == "not_a_guess"


def test_a_start_does_not_begin_from_files_that_are_being_deleted() -> None:
    story = Story()
    warm = b.warm()
    fetched(story, warm.launch.artifact)
    deleting = story.begun(evict(warm.launch.artifact))
    starting = story.issue(warm)
    story.tell(Began(starting))
    assert story.said(starting) == (Outcome.REFUSED, "precondition")
    assert story.host.held == {}
    story.tell(Ended(deleting, Outcome.SUCCEEDED))


def test_a_start_from_other_files_of_a_guess_ends_it_too() -> None:
    """One shared file is enough: what something is made of is no guess."""
    story = Story()
    warm = b.warm()
    shared = replace(MINE, files=(*warm.launch.artifact.files, *MINE.files))
    fetched(story, shared, 20)
    story.begun(warm)
    assert story.host.guesses == {}


def test_guesses_are_bounded_and_the_oldest_becomes_a_file_like_any_other() -> None:
    story = Story()
    for n in range(limits.PREFETCHED_PER_HOST + 1):
        story.now += 1
        fetched(story, artifact(f"m{n}"))
    assert len(story.host.guesses) == limits.PREFETCHED_PER_HOST
    assert refused(story, evict(artifact("m0"))) == "not_a_guess"


def test_a_heartbeat_shows_no_more_files_than_it_holds() -> None:
    story = Story()
    many = artifact(*(f"part-{n}" for n in range(limits.PREFETCHED_FILES)))
    fetched(story, many, 10)
    fetched(story, MINE)
    cached = tuple(f.sha256 for f in (*many.files, *MINE.files))
    assert [len(files) for files in shown(story, *cached)] == [limits.PREFETCHED_FILES]


def test_a_host_without_guesses_and_transfers_says_nothing_of_them() -> None:
    said = inventory(Story().host, Readings())
    assert (said.prefetched, said.transfers, said.abilities) == (None, None, ("binding", "catalog", "evict", "proof"))
