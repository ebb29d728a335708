"""The kill switch has no lock on it: freezes, tightening in broken commits, and what happens to commands under way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.errors import Failed, Refusal
from gridops.base.ids import ProfileName, ReplicaId
from gridops.controller import views
from gridops.controller.core import rows as r
from gridops.controller.core.modes import drains, permitted
from gridops.controller.core.rights import still_right
from gridops.files.git import Checkout
from gridops.model.plan import Cause, CauseKind, DecisionKind
from gridops.model.policy import Mode
from gridops.protocol import outbox as ob
from gridops.protocol.messages import AuthorityKind, GrantMode
from tests.controller.fleet import AUTOMATIC, DEFAULT, HOSTS, NOW, OBSERVE, Desk, Fleet, mode, profile

BROKEN = "apiVersion: gridops/v1\nkind: Profile\nname: broken\nreplicas: many\n"


def mode_now(desk: Desk) -> Mode:
    return permitted(desk.state, DEFAULT, desk.now).mode.mode


def automatic(fleet: Fleet) -> Desk:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    return Desk(fleet)


def open_wishes(desk: Desk) -> list[tuple[str, str]]:
    return [(e.body.action.kind, e.wanted.value) for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox)]


def queued_undelivered(fleet: Fleet) -> Desk:
    """Automatic mode has queued a load that no host has been told of."""
    desk = automatic(fleet)
    desk.beat()
    desk.beat()
    desk.pass_()
    assert open_wishes(desk) == [("load", "execute")]
    return desk


def test_leaving_automatic_voids_undelivered_standing_commands(fleet: Fleet) -> None:
    desk = queued_undelivered(fleet)
    desk.commit({"policies/mode.yaml": mode("{mode: recommend}")})
    desk.settle(3)
    assert desk.executed() == []
    assert open_wishes(desk) == []
    desk.controller.close()


def test_a_pass_takes_back_what_the_mode_permits_no_more_also_from_hosts_that_do_not_ask(fleet: Fleet) -> None:
    desk = queued_undelivered(fleet)
    desk.commit({"policies/mode.yaml": mode("{mode: recommend}")})
    desk.controller.reconcile(DEFAULT)
    assert open_wishes(desk) == [("load", "void")]
    desk.controller.close()


def test_the_mode_is_read_again_when_issuing_even_before_the_next_pass(fleet: Fleet) -> None:
    """The commit was judged, no pass ran yet, and the host asks: nothing is granted."""
    desk = queued_undelivered(fleet)
    desk.commit({"policies/mode.yaml": mode("{mode: recommend}")})
    desk.beat()
    assert desk.executed() == []
    assert [w for _, w in open_wishes(desk)] in ([], [GrantMode.VOID.value])
    desk.controller.close()


def test_leaving_automatic_keeps_commands_that_an_approval_covers(desk: Desk) -> None:
    desk.beat()
    desk.beat()
    desk.pass_()
    desk.apply()
    assert open_wishes(desk) == [("load", "execute")]
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    desk.commit({"policies/mode.yaml": mode("{mode: recommend}")})
    desk.settle()
    assert desk.ready() == ["coder/1"]


@pytest.mark.parametrize("by", ["commit", "freeze"])
def test_observe_voids_every_undelivered_command_approved_or_not(desk: Desk, by: str) -> None:
    desk.beat()
    desk.beat()
    desk.pass_()
    desk.apply()
    assert open_wishes(desk) == [("load", "execute")]
    if by == "commit":
        desk.commit({"policies/mode.yaml": OBSERVE})
    else:
        desk.ask("freeze", reason="smoke in the room")
    desk.settle(3)
    assert desk.executed() == []


def test_the_mode_is_read_again_for_a_scope_that_nothing_names_any_more(fleet: Fleet) -> None:
    """Its host went to another scope before it heard of the command: what the old scope may do is still asked."""
    desk = queued_undelivered(fleet)
    lab = {
        "fleet.d/hosts.yaml": HOSTS.replace("kind: Hosts\n", "kind: Hosts\nscope: lab\n"),
        "profiles.d/coder.yaml": profile() + "scope: lab\n",
        "profiles.d/spare.yaml": None,
        "policies/budgets.yaml": None,
        "policies/mode.yaml": "apiVersion: gridops/v1\nkind: Mode\nscopes: {lab: {mode: observe}}\ndefault: observe\n",
    }
    desk.commit(lab)
    assert desk.state.refused is None
    desk.beat()
    assert desk.executed() == []
    desk.controller.close()


def test_narrowing_the_allowed_classes_takes_commands_back(fleet: Fleet) -> None:
    desk = queued_undelivered(fleet)
    desk.commit({"policies/mode.yaml": mode("{mode: automatic, automatic: {allow: [repair]}}")})
    desk.settle(3)
    assert desk.executed() == []
    desk.controller.close()


def test_a_freeze_holds_until_its_end_and_is_shown_until_resolved(desk: Desk) -> None:
    desk.ask("freeze", reason="GA weekend", until_ms=NOW + 60_000, scope=DEFAULT)
    assert mode_now(desk) is Mode.OBSERVE
    desk.clock.pass_by(60_001)
    assert mode_now(desk) is Mode.RECOMMEND
    assert desk.state.freezes, "an ended freeze stays visible until somebody resolves it"
    desk.ask("thaw", scope=DEFAULT)
    assert not desk.state.freezes


def test_a_second_freeze_never_ends_the_first_one_earlier(desk: Desk) -> None:
    desk.ask("freeze", reason="smoke")
    desk.ask("freeze", reason="me too", until_ms=NOW + 60_000)
    desk.clock.pass_by(60_001)
    assert mode_now(desk) is Mode.OBSERVE
    desk.ask("thaw")
    desk.ask("freeze", reason="a short look", until_ms=NOW + 90_000)
    desk.clock.pass_by(30_000)
    assert mode_now(desk) is Mode.RECOMMEND


def test_a_freeze_survives_a_restart(desk: Desk) -> None:
    desk.ask("freeze", reason="smoke")
    desk.restart()
    assert mode_now(desk) is Mode.OBSERVE


def test_a_freeze_without_a_reason_is_refused(desk: Desk) -> None:
    with pytest.raises(Refusal, match="reason"):
        desk.ask("freeze")


def test_a_thaw_loosens_nothing_beyond_the_commit(desk: Desk) -> None:
    desk.commit({"policies/mode.yaml": OBSERVE})
    desk.ask("freeze", reason="smoke")
    desk.ask("thaw")
    assert mode_now(desk) is Mode.OBSERVE
    with pytest.raises(Refusal):
        desk.ask("thaw")


TIPS = {
    "observe in a broken commit": (AUTOMATIC, OBSERVE, Mode.OBSERVE),
    "recommend in a broken commit": (AUTOMATIC, mode("{mode: recommend}"), Mode.RECOMMEND),
    "automatic in a broken commit loosens nothing": (OBSERVE, AUTOMATIC, Mode.OBSERVE),
    "loosening recommend in a broken commit": (mode("{mode: recommend}"), AUTOMATIC, Mode.RECOMMEND),
    "an unreadable mode file in a broken commit": (AUTOMATIC, "kind: [", Mode.RECOMMEND),
    "an unreadable mode file after observe": (OBSERVE, "kind: [", Mode.OBSERVE),
    "no mode file in a broken commit": (AUTOMATIC, None, Mode.RECOMMEND),
}


@pytest.mark.parametrize("name", sorted(TIPS))
def test_a_broken_commit_tightens_and_never_loosens(fleet: Fleet, name: str) -> None:
    before, after, expected = TIPS[name]
    fleet.begin(**{"policies/mode.yaml": before})
    desk = Desk(fleet)
    accepted = desk.state.accepted.commit
    desk.commit({"policies/mode.yaml": after, "profiles.d/broken.yaml": BROKEN})
    assert desk.state.accepted.commit == accepted, "the last good intent stays"
    assert desk.state.refused is not None
    assert mode_now(desk) is expected
    desk.commit({"policies/mode.yaml": AUTOMATIC, "profiles.d/broken.yaml": None})
    assert mode_now(desk) is Mode.AUTOMATIC, "a valid commit loosens"
    desk.controller.close()


def test_a_broken_commit_narrows_the_allowed_classes(fleet: Fleet) -> None:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    wider = mode("{mode: automatic, automatic: {allow: [scale_up, remove]}}")
    desk.commit({"policies/mode.yaml": wider, "profiles.d/broken.yaml": BROKEN})
    allow = permitted(desk.state, DEFAULT, desk.now).mode.automatic.allow
    assert [c.value for c in allow] == ["scale_up"]
    desk.controller.close()


def test_a_missing_mode_file_in_a_valid_commit_is_the_stricter_of_the_last_and_recommend(fleet: Fleet) -> None:
    for before, expected in ((AUTOMATIC, Mode.RECOMMEND), (OBSERVE, Mode.OBSERVE)):
        made = Fleet(fleet.path.parent / expected.value)
        made.begin(**{"policies/mode.yaml": before})
        desk = Desk(made)
        desk.commit({"policies/mode.yaml": None})
        assert desk.state.refused is None
        assert mode_now(desk) is expected
        assert "mode_file" in desk.state.alarms
        desk.commit({"policies/mode.yaml": AUTOMATIC})
        assert mode_now(desk) is Mode.AUTOMATIC
        assert "mode_file" not in desk.state.alarms
        desk.controller.close()


def test_drains_of_a_broken_commit_count_and_it_ends_none(desk: Desk) -> None:
    drain = "apiVersion: gridops/v1\nkind: Drain\nhost: {host}\nreason: fan alarm\n"
    desk.commit({"fleet.d/drains/alpha.yaml": drain.format(host="alpha")})
    desk.commit(
        {
            "fleet.d/drains/alpha.yaml": None,
            "fleet.d/drains/beta.yaml": drain.format(host="beta"),
            "profiles.d/broken.yaml": BROKEN,
        }
    )
    assert [d.host for d in drains(desk.state)] == ["alpha", "beta"]


ENDS = {
    "no end any more": ("until: 2027-01-01T00:00:00Z", "", None),
    "a later end": ("until: 2027-01-01T00:00:00Z", "until: 2027-01-02T00:00:00Z", 1_798_848_000_000),
    "an earlier end": ("until: 2027-01-02T00:00:00Z", "until: 2027-01-01T00:00:00Z", 1_798_848_000_000),
    "an end at last": ("", "until: 2027-01-01T00:00:00Z", None),
}


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_broken_commit_prolongs_a_drain_and_shortens_none(desk: Desk, name: str) -> None:
    before, after, expected = ENDS[name]
    drain = "apiVersion: gridops/v1\nkind: Drain\nhost: alpha\nreason: fan alarm\n"
    desk.commit({"fleet.d/drains/alpha.yaml": drain + before + "\n"})
    desk.commit({"fleet.d/drains/alpha.yaml": drain + after + "\n", "profiles.d/broken.yaml": BROKEN})
    assert [d.until_ms for d in drains(desk.state)] == [expected]


def test_an_invalid_commit_changes_nothing_and_status_names_it(desk: Desk) -> None:
    from gridops.controller import views

    desk.beat()
    desk.pass_()
    plan = desk.proposal()
    bad = desk.commit({"profiles.d/coder.yaml": profile(replicas=2).replace("lanes: 1", "lanes: none")}, "oops")
    desk.pass_()
    assert desk.proposal() == plan
    refused = views.status(desk.controller.view()).intent.refused
    assert refused is not None
    assert refused.commit == bad
    assert refused.count == 1
    assert "profiles.d/coder.yaml:" in refused.problems[0]
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)}, "better")
    assert views.status(desk.controller.view()).intent.refused is None


def test_a_freeze_of_a_scope_that_does_not_exist_is_told(desk: Desk) -> None:
    with pytest.raises(Refusal, match="no scope defualt"):
        desk.ask("freeze", reason="smoke", scope="defualt")


def test_a_last_replica_that_the_mode_protects_again_is_not_taken(fleet: Fleet) -> None:
    """The target was set while the mode allowed it; the host had not heard of the drain when the mode was narrowed."""
    wide = "{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, remove], last_replica: [coder]}}"
    fleet.begin(**{"policies/mode.yaml": mode(wide)})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.commit({"profiles.d/coder.yaml": None})
    desk.pass_()
    assert open_wishes(desk) == [("drain", "execute")]
    desk.commit({"policies/mode.yaml": mode(wide.replace("[coder]", "[]"))})
    desk.settle(4)
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


DISPLACING = "{{mode: automatic, automatic: {{allow: [repair, scale_up], allow_displace: [{who}]}}}}"


def displacing(fleet: Fleet, kind: AuthorityKind) -> Desk:
    """A target that loads coder in the place of something else, not yet carried out."""
    fleet.begin(**{"policies/mode.yaml": mode("{mode: recommend}")})
    desk = Desk(fleet)
    desk.settle(2)
    desk.commit({"policies/mode.yaml": mode(DISPLACING.format(who="coder"))})
    made = desk.proposal()
    (place,) = made.to_do
    gone = replace(
        place,
        n=2,
        kind=DecisionKind.REMOVE,
        replica=ReplicaId("spare/1"),
        profile=ProfileName("spare"),
        cause=Cause(kind=CauseKind.DISPLACED, detail="gives way to coder/1"),
        source=place.target,
        target=None,
    )
    plan = replace(made, decisions=(place, gone))
    row = r.TargetSet(
        plan=plan,
        kind=kind,
        by="somebody",
        until_ms=desk.now + 86_400_000,
        approvals=(fleet.approval(plan, desk.now),) if kind is AuthorityKind.APPROVAL else (),
    )
    desk.controller.commit((row,), desk.now)
    desk.controller.reconcile(DEFAULT)
    assert open_wishes(desk) == [("load", "execute")]
    return desk


@pytest.mark.parametrize("kind", list(AuthorityKind))
def test_the_consent_to_displace_is_asked_again_when_issuing(fleet: Fleet, kind: AuthorityKind) -> None:
    """Taking it out of the mode file takes the undelivered command back; what people approved goes on."""
    desk = displacing(fleet, kind)
    (entry,) = [e for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox)]
    assert still_right(desk.controller.rights(DEFAULT, desk.now), entry) is None
    desk.commit({"policies/mode.yaml": mode(DISPLACING.format(who="spare"))})
    no = still_right(desk.controller.rights(DEFAULT, desk.now), entry)
    if kind is AuthorityKind.APPROVAL:
        assert no is None
    else:
        assert no is not None
        assert "coder displaces others and is not in automatic.allow_displace any more" in no.detail
        desk.settle(3)
        assert desk.executed() == []
        held = "\n".join(views.status(desk.controller.view()).scopes[0].held)
        assert "displace" in held, "nor is it given anew"
    desk.controller.close()


def test_a_displacing_target_goes_on_while_the_consent_stands(fleet: Fleet) -> None:
    desk = displacing(fleet, AuthorityKind.STANDING)
    for _ in range(4):
        desk.clock.pass_by(1_000)
        desk.beat()
        desk.controller.reconcile(DEFAULT)
    assert [k for _, k, _ in desk.executed()] == ["load", "warm"]
    desk.controller.close()


def test_the_alarm_of_a_missing_mode_file_names_the_commit_that_took_it_away(fleet: Fleet) -> None:
    """Whatever was committed before and after, and whether or not this controller saw that commit itself."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    for number in range(5):
        fleet.commit({f"profiles.d/p{number}.yaml": profile(f"p{number}", 0)})
    desk = Desk(fleet)

    def alarm() -> str:
        return str(desk.state.alarms["mode_file"].text)

    broken = desk.commit({"policies/mode.yaml": "kind: ["})
    assert f"since {broken[:8]}" in alarm()
    taken = fleet.commit({"policies/mode.yaml": None})
    for number in range(6):
        fleet.commit({f"profiles.d/q{number}.yaml": profile(f"q{number}", 0)})
    desk.look()
    assert f"since {taken[:8]}" in alarm()
    rows = desk.controller.view().rows
    desk.commit({"profiles.d/last.yaml": profile("last", 0)})
    assert f"since {taken[:8]}" in alarm()
    assert desk.controller.view().rows == rows + 1, "the same fault is said once"
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    assert "mode_file" not in desk.state.alarms
    desk.controller.close()


def test_a_repository_that_never_had_a_mode_file_names_its_first_commit(fleet: Fleet) -> None:
    fleet.begin()
    fleet.git("rm", "-q", "policies/mode.yaml")
    fleet.git("commit", "-q", "--amend", "-m", "begin")
    first = fleet.git("rev-parse", "HEAD")
    fleet.commit({"profiles.d/more.yaml": profile("more", 0)})
    desk = Desk(fleet)
    assert f"since {first[:8]}" in desk.state.alarms["mode_file"].text
    desk.controller.close()


def test_a_commit_without_a_mode_file_counts_although_nobody_can_say_who_took_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that cannot be read keeps nothing from getting tighter."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)

    def broken(self: Checkout, older: str, newer: str) -> tuple[str, ...]:
        raise Failed("bad object")

    monkeypatch.setattr(Checkout, "changed", broken)
    taken = desk.commit({"policies/mode.yaml": None})
    assert mode_now(desk) is Mode.RECOMMEND
    assert f"since {taken[:8]}" in desk.state.alarms["mode_file"].text
    desk.controller.close()
