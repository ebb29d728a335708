"""Files ahead of demand, and their way back: where the mode allows it, looked at again before they are told to go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import ConfigName, Digest, HostId, PersonName, ProfileName, ScopeName
from gridops.controller import documents as d
from gridops.controller import views
from gridops.controller.core import advised as advised_core
from gridops.controller.core import errands
from gridops.controller.core.rights import still_right
from gridops.controller.core.state import Yes
from gridops.model.advice import Advice, Evict, EvictCause, Prefetch, Prefetched
from gridops.model.policy import RoleMembers
from gridops.protocol import outbox as ob
from gridops.protocol.messages import AuthorityKind, GrantMode
from gridops.trust.operator import open_operator
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


def shown(desk: Desk) -> d.ErrandDoc:
    """The one step that is advised, as people see it."""
    (one,) = views.status(desk.controller.view()).scopes[0].errands
    return one


def recommended(fleet: Fleet, advice: Advice) -> Desk:
    """A scope whose changes wait for people, with something advised for a disk."""
    desk = begun(fleet, RECOMMEND)
    if advice.evict:
        holds(desk)
    advised(desk, advice)
    return desk


def test_in_recommend_a_person_lets_one_advised_step_be_done(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    one = shown(desk)
    assert (one.kind, one.host, one.profile, one.size_bytes) == ("prefetch", ALPHA, LATER, 1 << 20)
    assert (one.by_itself, one.need, one.people, one.approved_by) == (False, 1, ("mira",), ())
    assert "a person can let it be done: gridops advice later alpha" in held(desk)
    assert waiting(desk) == []
    answer = desk.ask("errand", scope=DEFAULT, errand=one.errand)
    assert (answer["what"], answer["approved_by"]) == ("prefetch later on alpha", ["mira"])
    (entry,) = [e for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox)]
    assert (entry.authority.kind, len(entry.authority.approvals)) == (AuthorityKind.APPROVAL, 1)
    assert shown(desk).approved_by == ("mira",)
    desk.beat()
    desk.beat()
    assert done(desk) == ["load"]
    assert desk.book().errands == {}, "a word is for once"
    assert any("mira lets it be done" in text for text in desk.events("errand"))


def test_what_a_person_lets_be_deleted_is_deleted(fleet: Fleet) -> None:
    desk = recommended(fleet, evict())
    desk.ask("errand", errand=shown(desk).errand)
    desk.beat()
    desk.beat()
    assert done(desk) == ["evict"]
    assert FILE not in alpha(desk).room.cached


def test_a_word_holds_for_the_files_that_were_shown_and_while_they_are_advised(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    one = shown(desk).errand
    with pytest.raises(Refusal, match="not advised now, or of other files"):
        desk.ask("errand", errand=Digest("sha256:" + "0" * 64))
    with pytest.raises(Refusal, match="not advised now"):
        desk.ask("errand")
    desk.ask("errand", errand=one)
    advised(desk, None)
    desk.beat()
    desk.beat()
    assert done(desk) == [], "advice that has gone takes the step with it"
    with pytest.raises(Refusal, match="not advised now"):
        desk.ask("errand", errand=one)


def test_a_word_ends_with_its_time_and_a_freeze_stops_it_at_once(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    one = shown(desk).errand
    desk.ask("errand", errand=one)
    (entry,) = [e for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox)]
    rights = desk.controller.rights(DEFAULT, desk.now)
    assert still_right(rights, entry) is None
    no = still_right(replace(rights, now_ms=desk.now + 24 * 3_600_000), entry)
    assert no is not None
    assert "the word of who let it be done has ended" in no.detail
    desk.ask("freeze", reason="smoke")
    assert waiting(desk) == [("load", GrantMode.VOID)]
    with pytest.raises(Refusal, match="mode observe"):
        desk.ask("errand", errand=one)


def test_so_many_people_as_the_risk_needs_say_so_and_nobody_else(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    (step,) = desk.controller.soft.scope(DEFAULT).errands
    state, key = desk.state, errands.key_of(step.action)
    yes = Yes(by=PersonName("mira"), envelope="m", need=2, until_ms=desk.now + 10)
    state.scopes[DEFAULT].errands[key] = (yes,)
    assert errands.spoken(state, DEFAULT, step.action, desk.now) == ()
    state.scopes[DEFAULT].errands[key] = (yes, replace(yes, by=PersonName("jon"), envelope="j"))
    assert errands.spoken(state, DEFAULT, step.action, desk.now) == ("m", "j")
    assert errands.spoken(state, DEFAULT, step.action, desk.now + 10) == ()
    desired = state.accepted.desired
    policy = replace(desired.approvals, roles=(RoleMembers(role="oncall", people=(PersonName("jon"),)),))
    asked = advised_core.Asked(open_operator(fleet.request("errand", desk.now, errand=key), fleet.chain, desk.now), "e")
    with pytest.raises(Refusal, match="mira may not let that be done"):
        advised_core.approve(state, desk.controller.soft, replace(desired, approvals=policy), asked, desk.now)


def test_a_word_counts_once_and_only_in_its_scope(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    one = shown(desk).errand
    with pytest.raises(Refusal, match="not advised now"):
        desk.ask("errand", scope=ScopeName("lab"), errand=one)
    text = fleet.request("errand", desk.now, errand=one)
    run(desk.planning.operator(text))
    desk.beat()
    desk.beat()
    assert done(desk) == ["load"]
    alpha(desk).room.cached.discard(FILE)
    desk.beat()
    with pytest.raises(Refusal, match="was used already"):
        run(desk.planning.operator(text))
    assert desk.book().errands == {}


def test_a_word_outlives_the_controller_that_heard_it(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    alpha(desk).room.slow = {"load"}
    desk.ask("errand", errand=shown(desk).errand)
    said = desk.book().errands
    assert len(said) == 1
    desk.restart()
    assert desk.book().errands == said
    alpha(desk).room.slow = set()
    desk.settle(3)
    advised(desk, prefetch())
    desk.settle(3)
    assert done(desk) == ["load"]
    assert desk.book().errands == {}


def test_who_may_is_as_for_an_approval(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    (step,) = desk.controller.soft.scope(DEFAULT).errands
    desired = desk.state.accepted.desired
    roster = RoleMembers(role="oncall", people=(PersonName("ada"), PersonName("mira")))
    policy = replace(desired.approvals, roles=(roster,))
    assert advised_core.who_may(fleet.chain, policy, step.action) == (1, {"mira"}), "ada holds no approver's key"
    root = fleet.chain.root
    roles = tuple(replace(held, threshold=2) if held.name == "approver" else held for held in root.roles)
    strict = replace(fleet.chain, root=replace(root, roles=roles))
    assert advised_core.who_may(strict, policy, step.action)[0] == 2, "never fewer than the root wants"


def test_a_journal_that_cannot_be_trusted_takes_no_word(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    desk.state.distrust = "its journal is older than the fleet"
    with pytest.raises(Refusal, match="older than the fleet") as caught:
        desk.ask("errand", errand=shown(desk).errand)
    assert caught.value.code == "GO429"


def test_more_words_than_a_grant_may_carry_are_left_out(fleet: Fleet) -> None:
    desk = recommended(fleet, prefetch())
    (step,) = desk.controller.soft.scope(DEFAULT).errands
    said = tuple(Yes(PersonName(f"p{n}"), f"e{n}", 2, desk.now + 10) for n in range(limits.SIGNATURES + 1))
    desk.state.scopes[DEFAULT].errands[errands.key_of(step.action)] = said
    assert len(errands.spoken(desk.state, DEFAULT, step.action, desk.now)) == limits.SIGNATURES


def test_where_the_mode_does_it_nobody_has_to_say_so(fleet: Fleet) -> None:
    desk = begun(fleet)
    alpha(desk).room.slow = {"load"}
    advised(desk, prefetch())
    assert shown(desk).by_itself


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
