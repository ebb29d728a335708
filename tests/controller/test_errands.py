"""Files ahead of demand, and their way back: where the mode allows it, looked at again before they are told to go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import ConfigName, Digest, HostId, ProfileName
from gridops.controller import views
from gridops.model.advice import Advice, Evict, EvictCause, Prefetch, Prefetched
from gridops.protocol import outbox as ob
from gridops.protocol.messages import GrantMode
from tests.controller.fleet import AUTOMATIC, DEFAULT, POLICIES, RECOMMEND, Desk, Fleet, mode, profile, run
from tests.controller.scripted_agent import ScriptedAgent

BOTH = mode("{mode: automatic, automatic: {allow: [repair, scale_up, scale_down]}}")
LATER, FILE = ProfileName("later"), Digest("sha256:" + "cd" * 32)
ALPHA = HostId("alpha")
SOURCE = 'artifact: {format: gguf, source: "https://models.example/m.gguf", files:'


def later() -> str:
    return profile("later", 0, sha=FILE).replace("artifact: {format: gguf, files:", SOURCE)


def begun(fleet: Fleet, how: str = BOTH) -> Desk:
    fleet.begin(**{"policies/mode.yaml": how, "profiles.d/later.yaml": later()})
    desk = Desk(fleet)
    if how == RECOMMEND:
        desk.settle(3)
        desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    return desk


def alpha(desk: Desk) -> ScriptedAgent:
    return desk.fleet.agents["alpha"]


def prefetch() -> Advice:
    one = Prefetch(
        host=ALPHA,
        profile=LATER,
        config=ConfigName("q4"),
        files=(FILE,),
        size_bytes=1 << 20,
        detail="demand for later is expected",
        fetch_ms=1_000,
    )
    return Advice(prefetch=(one,))


def evict() -> Advice:
    one = Evict(host=ALPHA, profile=LATER, files=(FILE,), size_bytes=1 << 20, cause=EvictCause.EXPIRED, detail="unused")
    return Advice(evict=(one,))


def advised(desk: Desk, advice: Advice | None) -> None:
    """What the newest plan advises, as a plan with a forecast would."""
    soft = desk.controller.soft.scope(DEFAULT)
    assert soft.candidate is not None
    soft.candidate = replace(soft.candidate, report=replace(soft.candidate.report, advice=advice))
    desk.controller.reconcile(DEFAULT)


def holds(desk: Desk, **changes: object) -> None:
    """alpha fetched the files on a guess, and has said so."""
    row = Prefetched(host=ALPHA, profile=LATER, files=(FILE,), size_bytes=1 << 20, since_ms=desk.now)
    alpha(desk).room.guesses = [replace(row, **changes)]  # type: ignore[arg-type]
    alpha(desk).room.cached.add(FILE)
    desk.beat()


def done(desk: Desk) -> list[str]:
    return [kind for kind, replica in alpha(desk).executed if replica == "later/0"]


def waiting(desk: Desk) -> list[tuple[str, GrantMode]]:
    found = [e for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox)]
    return [(e.body.action.kind, e.wanted) for e in found if e.body.action.replica == "later/0"]


def held(desk: Desk) -> str:
    return "\n".join(views.status(desk.controller.view()).scopes[0].held)


def test_a_guess_is_fetched_by_itself_and_is_no_replica(fleet: Fleet) -> None:
    desk = begun(fleet)
    advised(desk, prefetch())
    desk.beat()
    desk.beat()
    assert done(desk) == ["load"]
    report = desk.controller.soft.hosts[ALPHA].report
    assert [(p.profile, p.files) for p in report.prefetched or ()] == [(LATER, (FILE,))]
    assert FILE in report.cached
    assert desk.ready() == ["coder/1"]
    advised(desk, prefetch())
    assert waiting(desk) == [], "what is there is not asked for again"
    words = [e.text for e in desk.controller.events.after(0)]
    assert any("prefetch later on alpha" in text for text in words)


@pytest.mark.parametrize("how", [RECOMMEND, mode("{mode: automatic, automatic: {allow: [repair]}}")])
def test_nothing_is_fetched_ahead_where_the_mode_does_not_scale_up_by_itself(fleet: Fleet, how: str) -> None:
    desk = begun(fleet, RECOMMEND)
    desk.commit({"policies/mode.yaml": how})
    desk.settle(3)
    advised(desk, prefetch())
    desk.beat()
    assert done(desk) == []
    assert waiting(desk) == []


def test_deleting_needs_scale_down_to_be_allowed(fleet: Fleet) -> None:
    desk = begun(fleet, AUTOMATIC)
    holds(desk)
    advised(desk, evict())
    desk.beat()
    assert done(desk) == []
    assert "scale_down is not in automatic.allow" in held(desk)


def test_an_expired_guess_is_deleted(fleet: Fleet) -> None:
    desk = begun(fleet)
    holds(desk)
    advised(desk, evict())
    desk.beat()
    desk.beat()
    assert done(desk) == ["evict"]
    assert FILE not in alpha(desk).room.cached
    assert desk.controller.soft.hosts[ALPHA].report.prefetched is None


def test_an_agent_without_the_ability_is_told_nothing(fleet: Fleet) -> None:
    desk = begun(fleet)
    holds(desk)
    alpha(desk).room.abilities = None
    desk.beat()
    advised(desk, Advice(prefetch=prefetch().prefetch, evict=evict().evict))
    assert waiting(desk) == []


CHANGED = {
    "it was used": lambda room: setattr(room, "guesses", []),
    "a file of it is gone": lambda room: room.cached.discard(FILE),
    "the agent is an older one again": lambda room: setattr(room, "abilities", None),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_queued_evict_is_looked_at_again_right_before_it_is_delivered(fleet: Fleet, name: str) -> None:
    desk = begun(fleet)
    holds(desk)
    advised(desk, evict())
    assert waiting(desk) == [("evict", GrantMode.EXECUTE)]
    CHANGED[name](alpha(desk).room)
    desk.beat()
    desk.beat()
    assert done(desk) == [], "the very heartbeat that would have fetched it takes it back"
    assert waiting(desk) == []


def test_a_host_that_was_silent_is_told_to_delete_nothing_on_what_it_said_before(fleet: Fleet) -> None:
    desk = begun(fleet)
    holds(desk)
    advised(desk, evict())
    desk.clock.pass_by(60_000)
    desk.beat()
    desk.beat()
    assert done(desk) == []


def test_a_guess_under_way_gives_way_to_what_is_needed(fleet: Fleet) -> None:
    desk = begun(fleet)
    alpha(desk).room.slow = {"load"}
    advised(desk, prefetch())
    desk.beat()
    assert [b.action.guess for b, _ in alpha(desk).open.values()] == [True]  # type: ignore[union-attr]
    desk.commit({"profiles.d/spare.yaml": profile("spare", 2, sha="sha256:" + "ef" * 32)})
    desk.clock.pass_by(1_000)
    desk.beat()
    while run(desk.planning.consider(DEFAULT)):
        pass
    advised(desk, prefetch())
    assert waiting(desk) == [("load", GrantMode.VOID)], "it is still advised, and goes all the same"
    desk.settle(4)
    kinds = [(b.action.kind, b.action.replica) for b, _ in alpha(desk).open.values()]
    assert [replica for _, replica in kinds if replica == "later/0"] == []
    assert [replica.split("/")[0] for _, replica in kinds] == ["spare"]


def test_a_guess_that_cannot_be_fetched_holds_back_nothing_that_is_needed(fleet: Fleet) -> None:
    desk = begun(fleet)
    alpha(desk).room.fails = {"load": "fetch_failed"}
    advised(desk, prefetch())
    desk.beat()
    desk.beat()
    book = desk.state.hosts[ALPHA]
    assert list(book.attempts) == [("prefetch", LATER)]
    advised(desk, prefetch())
    assert "it failed 1 time (fetch_failed)" in held(desk)
    assert waiting(desk) == []


def test_what_was_fetched_for_a_profile_that_is_gone_goes_after_its_time(fleet: Fleet) -> None:
    """The planner's own advice, from the hosts' reports to the deleted file."""
    planning = POLICIES["policies/planning.yaml"] + "prefetch: {ttl: 10m}\n"
    fleet.begin(**{"policies/mode.yaml": BOTH, "policies/planning.yaml": planning})
    desk = Desk(fleet)
    desk.settle()
    holds(desk)
    desk.settle(3)
    assert done(desk) == []
    for _ in range(70):
        desk.clock.pass_by(10_000)
        desk.beat()
        desk.pass_()
    assert done(desk) == ["evict"]
    assert alpha(desk).room.guesses == []


def test_a_host_may_not_speak_of_guesses_on_another(fleet: Fleet) -> None:
    desk = begun(fleet)
    row = Prefetched(host=HostId("beta"), profile=LATER, files=(FILE,), size_bytes=1, since_ms=1)
    alpha(desk).room.guesses = [row]
    with pytest.raises(Refusal, match="another host"):
        desk.beat("alpha")
