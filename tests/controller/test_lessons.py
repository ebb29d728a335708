"""What receipts teach: durable, bounded, aged by controller time, and the same after every replay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import ConfigName, Digest, HostId, ProfileName, ReplicaId
from gridops.base.limits import LESSONS_PER_HOST
from gridops.controller import views
from gridops.controller.core.lessons import NEWEST, SAMPLES, learn, learned
from gridops.controller.core.propose import inputs
from gridops.controller.core.state import Attempt, HostBook, Lesson
from gridops.model.action import Action, Drain, Load
from gridops.model.learned import FailedStarts, LearnedTime, TimeKind
from gridops.model.profile import Artifact, ArtifactFile, Profile
from gridops.planner.constants import LEARN_CAP_MS, LEARN_VALID_MS
from gridops.planner.learned import revision_of
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Outcome, Receipt, Term
from tests.controller.fleet import AUTOMATIC, DEFAULT, NOW, SHA, Desk, Fleet
from tests.controller.replayed import same
from tests.controller.test_reconcile import warm
from tests.planner.fleet import config as one

NOTHING = Digest("sha256:" + "0" * 64)
MIB = 1 << 20


def started(fleet: Fleet, **takes: int) -> Desk:
    for agent in fleet.agents.values():
        agent.room.takes |= takes
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    return Desk(fleet)


def taught(desk: Desk) -> tuple[tuple[LearnedTime, ...], tuple[FailedStarts, ...]]:
    """What a plan would be made from now."""
    asked = inputs(desk.state, desk.controller.soft, desk.controller.roster, DEFAULT, desk.now, "test")
    assert asked is not None
    found = asked.learned
    assert views.snapshot(desk.controller.view()).learned == found, "whoever plans elsewhere is told the same"
    return (found.times, found.failures) if found is not None else ((), ())


def plain(times: tuple[LearnedTime, ...]) -> list[tuple[str, str, str, int, int]]:
    return [(t.host, t.profile, t.kind.value, t.count, t.ewma_ms) for t in times]


def test_fetches_and_starts_are_learned_from_receipts_and_survive_a_replay(fleet: Fleet) -> None:
    """The fetch is of files, so the other profile with the same files knows it too; the start is the profile's own."""
    desk = started(fleet, load=40_000, warm=7_000)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    (host,) = {h for h, b in desk.state.hosts.items() if b.lessons}
    times, failures = taught(desk)
    assert plain(times) == [
        (host, "coder", "fetch", 1, 40_000),
        (host, "coder", "warm", 1, 7_000),
        (host, "spare", "fetch", 1, 40_000),
    ]
    assert failures == ()
    assert all(NOW < t.last_ms <= desk.now for t in times)
    same(desk)
    desk.restart()
    desk.settle(2)
    assert taught(desk)[0] == times
    desk.controller.close()


def test_files_that_were_there_teach_nothing_about_a_fetch(fleet: Fleet) -> None:
    for agent in fleet.agents.values():
        agent.room.there.add(Digest(SHA))
    desk = started(fleet, load=9, warm=7_000)
    desk.settle()
    assert [k for _, _, k, _, _ in plain(taught(desk)[0])] == ["warm"]
    desk.controller.close()


@pytest.mark.parametrize("took", [-1, LEARN_CAP_MS + 1])
def test_an_impossible_duration_teaches_nothing_and_harms_nothing(fleet: Fleet, took: int) -> None:
    desk = started(fleet, load=took, warm=took)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert taught(desk) == ((), ())
    assert all(a.wait_until_ms == 0 for b in desk.state.hosts.values() for a in b.attempts.values())
    desk.controller.close()


def test_a_lesson_is_no_reason_to_plan(fleet: Fleet) -> None:
    desk = started(fleet, load=1_000, warm=1_000)
    desk.settle()
    plans = desk.controller.soft.scope(DEFAULT).plans
    book = next(b for b in desk.state.hosts.values() if b.lessons)
    book.lessons = {k: replace(v, mean_ms=3_000_000, count=8) for k, v in book.lessons.items()}
    desk.settle(3)
    assert desk.controller.soft.scope(DEFAULT).plans == plans
    desk.controller.close()


def test_a_new_replica_goes_where_fetches_were_learned_to_be_quick(fleet: Fleet) -> None:
    desk = started(fleet)
    desk.beat()
    desk.beat()
    assert sorted(desk.state.hosts) == ["alpha", "beta"]
    key = ("fetch", "", "", revision_of(_artifact("ab" * 32)))
    desk.state.hosts[HostId("alpha")].lessons[key] = Lesson(4, 600_000, desk.now)
    desk.settle()
    assert "coder/1" in fleet.agents[HostId("beta")].replicas()
    desk.controller.close()


def test_failures_count_until_a_success_and_only_those_that_are(fleet: Fleet) -> None:
    desk = started(fleet)
    for agent in fleet.agents.values():
        agent.room.fails["load"] = "wrong_digest"
    desk.settle(4)
    (failed,) = [f for f in taught(desk)[1] if f.profile == "coder"]
    assert (failed.count, failed.revision) == (1, revision_of(_artifact("ab" * 32)))
    same(desk)
    for agent in fleet.agents.values():
        agent.room.fails.clear()
    desk.clock.pass_by(60_000)
    desk.settle(8)
    assert desk.ready() == ["coder/1"]
    assert taught(desk)[1] == ()
    desk.controller.close()


# -- one book ---------------------------------------------------------------------------------------------------------


def book() -> HostBook:
    return HostBook(ob.new_outbox(NOTHING, HostId("alpha"), "ed25519:" + "0" * 64), 0)


def _artifact(sha: str = "ab" * 32) -> Artifact:
    return Artifact(format="gguf", files=(ArtifactFile(path="m.gguf", sha256=Digest(f"sha256:{sha}"), size_bytes=MIB),))


def load(sha: str = "ab" * 32) -> Load:
    return Load(host=HostId("alpha"), replica=ReplicaId("c/1"), profile=ProfileName("c"), artifact=_artifact(sha))


def told(
    took: int, outcome: Outcome = Outcome.SUCCEEDED, fetched: int | None = MIB, code: str | None = None
) -> Receipt:
    return Receipt(
        fleet=NOTHING,
        host=HostId("alpha"),
        boot="b",
        rseq=1,
        prev=NOTHING,
        body=NOTHING,
        seq=1,
        term=Term(epoch=0, counter=1),
        outcome=outcome,
        final=True,
        code=code,
        began_ms=0,
        ended_ms=took,
        fetched_bytes=fetched,
    )


def after(*took: int, action: Action | None = None, every_ms: int = 1_000) -> HostBook:
    made = book()
    for n, ms in enumerate(took):
        learn(made, action or load(), told(ms), None, NOW + n * every_ms)
    return made


def test_the_mean_follows_the_newest_and_counts_so_many() -> None:
    (lesson,) = after(8_000, 4_000).lessons.values()
    assert (lesson.count, lesson.mean_ms, lesson.last_ms) == (2, 8_000 - 4_000 // NEWEST, NOW + 1_000)
    (lesson,) = after(*[5_000] * 30).lessons.values()
    assert (lesson.count, lesson.mean_ms) == (SAMPLES, 5_000)


def test_what_is_too_old_is_begun_anew() -> None:
    (lesson,) = after(8_000, 4_000, every_ms=LEARN_VALID_MS).lessons.values()
    assert (lesson.count, lesson.mean_ms) == (1, 4_000)
    (lesson,) = after(8_000, 4_000, every_ms=LEARN_VALID_MS - 1).lessons.values()
    assert lesson.count == 2


def test_part_of_the_files_is_no_fetch_of_them() -> None:
    made = book()
    learn(made, load(), told(9, fetched=MIB - 1), None, NOW)
    assert made.lessons == {}


def test_other_weights_begin_with_nothing_learned() -> None:
    made = after(8_000)
    learn(made, load("cd" * 32), told(1_000), None, NOW)
    assert sorted(x.mean_ms for x in made.lessons.values()) == [1_000, 8_000]


def test_a_step_taken_back_and_one_of_another_kind_teach_nothing() -> None:
    made = book()
    learn(made, load(), told(5, Outcome.VOIDED), None, NOW)
    drain = Drain(
        host=HostId("alpha"), replica=ReplicaId("c/1"), profile=ProfileName("c"), incarnation=NOTHING, grace_ms=1
    )
    learn(made, drain, told(5), None, NOW)
    assert made.lessons == {}


def test_a_refusal_that_says_not_now_is_no_failure_until_it_is_repeated() -> None:
    made, refused = book(), told(0, Outcome.REFUSED, None, "precondition")
    learn(made, load(), refused, Attempt(2, NOW, "precondition"), NOW)
    assert made.lessons == {}
    learn(made, load(), refused, Attempt(3, NOW, "precondition"), NOW)
    assert [x.failures for x in made.lessons.values()] == [1]


def test_lessons_are_bounded_and_the_oldest_go_first() -> None:
    made = book()
    for n in range(LESSONS_PER_HOST + 9):
        learn(made, load(f"{n:064x}"), told(n), None, NOW + n)
    assert [x.mean_ms for x in made.lessons.values()] == list(range(9, LESSONS_PER_HOST + 9))
    learn(made, load("ff" * 32), told(7), None, NOW + LEARN_VALID_MS + 100)
    assert len(made.lessons) == LESSONS_PER_HOST + 9 - 101 + 1, "what is too old is forgotten first"


def test_a_renamed_profile_keeps_what_its_starts_taught() -> None:
    made = after(7_000, action=warm("coder"))
    artifact = warm("coder").launch.artifact
    new = Profile(
        name=ProfileName("writer"),
        scope=DEFAULT,
        renamed_from=ProfileName("coder"),
        configs=(replace(one("q4"), artifact=artifact),),
    )
    found = learned({HostId("alpha"): made}, (new,), NOW)
    assert found is not None
    assert [(t.profile, t.config, t.kind) for t in found.times] == [("writer", ConfigName("q4"), TimeKind.WARM)]
    both = (new, replace(new, name=ProfileName("coder"), renamed_from=None))
    found = learned({HostId("alpha"): made}, both, NOW)
    assert found is not None
    assert [t.profile for t in found.times] == ["coder"], "one that still stands keeps its own"
    assert learned({HostId("alpha"): made}, both, NOW + LEARN_VALID_MS) is None


def test_fetches_and_starts_that_failed_count_together() -> None:
    made, bad = book(), told(0, Outcome.FAILED, None, "start_failed")
    action = warm("coder")
    fetch = Load(host=action.host, replica=action.replica, profile=action.profile, artifact=action.launch.artifact)
    for n, step in enumerate((action, action, fetch)):
        learn(made, step, bad, Attempt(1, NOW, "start_failed"), NOW + n)
    new = Profile(
        name=ProfileName("coder"), scope=DEFAULT, configs=(replace(one("q4"), artifact=action.launch.artifact),)
    )
    found = learned({HostId("alpha"): made}, (new,), NOW)
    assert found is not None
    assert [(f.count, f.last_ms) for f in found.failures] == [(3, NOW + 2)]
    assert found.times == ()
