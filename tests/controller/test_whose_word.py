"""Several approvers: a no blocks until who said it says yes, the root's number counts, and no yes waits too long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gridops.base.errors import GridopsError
from gridops.base.ids import PersonName, PlanId
from gridops.controller import views
from gridops.trust import amend
from gridops.trust.keys import PersonSigner
from gridops.trust.root import RoleName, Root, RootChain, seal_root
from tests.controller.fleet import NOW, Desk, mode

JON = PersonSigner.from_seed(b"j" * 32)
BY_JON = {"by": "jon", "signer": JON}
APPROVALS = "policies/approvals.yaml"


@pytest.fixture
def desk(desk: Desk) -> Desk:
    """mira and jon approve, each alone; one plan waits."""
    amended(desk, lambda chain: amend.added(chain, PersonName("jon"), JON.public, (RoleName.APPROVER,), NOW))
    roster = (desk.fleet.path / APPROVALS).read_text().replace("[mira]", "[mira, jon]")
    desk.commit({APPROVALS: roster})
    desk.beat()
    desk.beat()
    desk.pass_()
    return desk


def amended(desk: Desk, change: Callable[[RootChain], Root]) -> None:
    root = change(desk.controller.soft.chain)
    desk.commit({f"policies/trust/root/{root.version}.json": seal_root(root, desk.fleet.root_signer)})


def refused(act: Callable[[], object]) -> GridopsError:
    with pytest.raises(GridopsError) as no:
        act()
    return no.value


def jons_yes(desk: Desk) -> str:
    return desk.fleet.approval(desk.proposal(), desk.now, **BY_JON)


def test_a_no_blocks_until_whoever_said_it_applies(desk: Desk) -> None:
    plan, earlier = desk.proposal(), jons_yes(desk)
    desk.ask("reject", plan=plan.id, **BY_JON)
    assert views.plan(desk.controller.view(), plan, desk.controller.signer).state == "rejected"
    mine = desk.fleet.approval(plan, desk.now)
    for approvals in ((mine,), (mine, earlier)):
        no = refused(lambda given=approvals: desk.apply(plan, approvals=given))  # type: ignore[misc]
        assert (getattr(no, "code", ""), no.subject) == ("GO421", "jon")
        assert no.message == "jon rejected these decisions"
        assert no.hints == (f"talk to jon, who alone takes it back: gridops apply {plan.id[-8:]} --as jon",)
    assert desk.book().target is None
    assert desk.ask("apply", plan=PlanId(plan.id), approvals=(mine,), **BY_JON)["applied"]


def test_a_no_outlives_a_restart_and_ends_with_the_key_of_who_said_it(desk: Desk) -> None:
    plan = desk.proposal()
    desk.ask("reject", plan=plan.id, **BY_JON)
    desk.restart()
    desk.beat()
    desk.beat()
    assert "GO421" in str(getattr(refused(lambda: desk.apply(plan)), "code", ""))
    amended(desk, lambda chain: amend.revoked(chain, PersonName("jon"), (RoleName.APPROVER,), NOW))
    desk.pass_()
    assert desk.proposal().decisions_digest == plan.decisions_digest, "jon has left: it is asked again"
    assert views.plan(desk.controller.view(), desk.proposal(), desk.controller.signer).state == "waits"
    assert desk.apply(plan)["applied"], "and jon approves and rejects nothing any more"


def test_a_no_stops_nothing_that_needs_no_yes_and_says_so(desk: Desk) -> None:
    """Naming a class is the consent for it. What stops that is a freeze."""
    desk.commit({"policies/mode.yaml": mode("{mode: automatic, automatic: {allow: [repair]}}")})
    desk.pass_()
    said = desk.ask("reject", plan=desk.proposal().id, **BY_JON)
    assert said["automatic"] == ["repair"]


def test_where_nothing_goes_by_itself_a_no_says_nothing_of_it(desk: Desk) -> None:
    desk.commit({"policies/mode.yaml": mode("{mode: recommend, automatic: {allow: [repair]}}")})
    desk.pass_()
    assert desk.ask("reject", plan=desk.proposal().id, **BY_JON)["automatic"] == []


def test_a_stolen_key_is_revoked_also_where_the_roster_then_falls_short(desk: Desk) -> None:
    roster = (desk.fleet.path / APPROVALS).read_text()
    desk.commit({APPROVALS: roster.replace("routine: {need: 1,", "routine: {need: 2,")})
    amended(desk, lambda chain: amend.revoked(chain, PersonName("jon"), (RoleName.APPROVER,), NOW))
    assert desk.controller.soft.chain.root.version == 3
    assert desk.state.refused is None
    document = views.plan(desk.controller.view(), desk.proposal(), desk.controller.signer)
    assert [(n.need, n.people) for n in document.needs] == [(2, ("mira",))]


def test_what_the_root_wants_of_approvers_is_what_is_shown(desk: Desk) -> None:
    plan = desk.proposal()
    document = views.plan(desk.controller.view(), plan, desk.controller.signer)
    assert [(n.need, n.people) for n in document.needs] == [(1, ("jon", "mira"))]
    amended(desk, lambda chain: amend.demanding(chain, RoleName.APPROVER, 2, NOW))
    document = views.plan(desk.controller.view(), plan, desk.controller.signer)
    assert [(n.need, n.people) for n in document.needs] == [(2, ("jon", "mira"))]
    assert getattr(refused(lambda: desk.apply(plan)), "code", "") == "GO413"
    both = (desk.fleet.approval(plan, desk.now), jons_yes(desk))
    assert desk.apply(plan, approvals=both)["approved_by"] == ["jon", "mira"]


def test_who_has_no_key_is_not_named_as_somebody_who_could_approve(desk: Desk) -> None:
    roster = (desk.fleet.path / APPROVALS).read_text().replace("[mira, jon]", "[mira, jon, eve]")
    desk.commit({APPROVALS: roster})
    document = views.plan(desk.controller.view(), desk.proposal(), desk.controller.signer)
    assert [n.people for n in document.needs] == [("jon", "mira")]


def test_a_yes_waits_no_longer_than_the_policy_says(desk: Desk) -> None:
    text = (desk.fleet.path / APPROVALS).read_text()
    desk.commit({APPROVALS: text.replace("expire: 30m", "expire: 1m")})
    plan, now = desk.proposal(), desk.now
    assert views.plan(desk.controller.view(), plan, desk.controller.signer).approval_ms == 60_000
    old = desk.fleet.approval(plan, now - 61_000, not_after_ms=now + 600_000)
    no = refused(lambda: desk.apply(plan, approvals=(old,)))
    assert "lets one wait for 60 s" in no.evidence[0]
    young = desk.fleet.approval(plan, now - 59_000, not_after_ms=now + 600_000)
    assert desk.apply(plan, approvals=(young,))["applied"]
