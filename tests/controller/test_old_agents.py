"""A root that demands newer agents: what the controller sends an older one, what it shows, and the way back."""

from __future__ import annotations

from gridops.base.codes.placement import AGENT_TOO_OLD as NOT_PLACED
from gridops.base.codes.trust import AGENT_TOO_OLD
from gridops.controller import views
from gridops.controller.documents import HostDoc
from gridops.protocol.messages import GrantMode
from gridops.protocol.outbox import open_entries
from gridops.trust import amend
from gridops.trust.root import seal_root
from tests.controller.fleet import Desk, profile

ROOT_2 = "policies/trust/root/2.json"


def demand(desk: Desk, version: str = "0.10.0", **files: str) -> None:
    chain = desk.controller.soft.chain
    made = seal_root(amend.driving(chain, version, desk.now), desk.fleet.root_signer)
    desk.commit({f"policies/trust/root/{chain.root.version + 1}.json": made, **files})
    assert desk.state.refused is None


def shown(desk: Desk) -> dict[str, HostDoc]:
    return {h.host: h for h in views.status(desk.controller.view()).hosts}


def upgraded(desk: Desk, version: str = "0.10.0") -> None:
    for agent in desk.fleet.agents.values():
        agent.room.version = version


def test_an_old_host_serves_on_takes_nothing_new_and_the_plan_and_the_screen_say_why(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    demand(desk, **{"profiles.d/coder.yaml": profile(replicas=2)})
    before = desk.executed()
    desk.settle()
    assert (desk.ready(), desk.executed()) == (["coder/1"], before)
    candidate = desk.controller.soft.scope("default").candidate  # type: ignore[arg-type]
    assert candidate is not None
    codes = {line.code for u in candidate.report.unplaced for line in u.hosts}
    assert NOT_PLACED.code in codes
    words = "agent 0.1.0, and root 2 demands 0.10.0 or later: upgrade it"
    assert {h.outdated for h in shown(desk).values()} == {words}
    assert all(h.state == "accepting" for h in shown(desk).values()), "it is well, and its models count"
    upgraded(desk)
    desk.settle(3)
    assert {h.outdated for h in shown(desk).values()} == {None}
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]


def test_what_waits_for_an_old_host_is_taken_back_and_nothing_of_it_is_carried_out(desk: Desk) -> None:
    """Also by an agent of before, which asks for no version and would obey."""
    for agent in desk.fleet.agents.values():
        agent.room.heeds = False
    desk.settle(2)
    desk.apply()  # the first step is queued and not yet sent
    waiting = [e for book in desk.state.hosts.values() for e in open_entries(book.outbox)]
    assert [e.wanted for e in waiting] == [GrantMode.EXECUTE]
    demand(desk)
    desk.settle()
    assert desk.ready() == []
    assert all(agent.executed == [] for agent in desk.fleet.agents.values())
    assert "upgrade it" in "\n".join(views.status(desk.controller.view()).scopes[0].held)
    upgraded(desk)
    desk.settle()
    assert desk.ready() == ["coder/1"]


def test_nothing_that_was_decided_before_is_begun_on_a_host_that_is_too_old(desk: Desk) -> None:
    """The target was set, and of its next steps no command was made yet."""
    for agent in desk.fleet.agents.values():
        agent.room.heeds = False
    desk.settle(2)
    desk.apply()
    desk.beat()  # brings the files; the start comes next
    begun = desk.executed()
    assert [kind for _, kind, _ in begun] == ["load"]
    demand(desk)
    desk.settle()
    assert (desk.ready(), desk.executed()) == ([], begun)
    assert "upgrade it" in "\n".join(views.status(desk.controller.view()).scopes[0].held)


def test_a_host_of_a_version_that_nobody_can_read_is_too_old_where_one_is_demanded(desk: Desk) -> None:
    upgraded(desk, "newest")
    desk.settle(2)
    assert {h.outdated for h in shown(desk).values()} == {None}
    demand(desk, "0.2.0")
    desk.settle(2)
    assert all("no readable version ('newest')" in (h.outdated or "") for h in shown(desk).values())


def test_an_agent_that_knows_the_rule_refuses_by_itself_and_spends_no_number(desk: Desk) -> None:
    """It saw the root before the controller's newest word of it was news here: a grant that was on its way."""
    desk.settle(2)
    desk.apply()
    agent = next(a for n, a in desk.fleet.agents.items() if open_entries(desk.state.hosts[n].outbox))
    second = seal_root(amend.driving(desk.fleet.chain, "0.10.0", desk.now), desk.fleet.root_signer)
    agent.chain = agent.chain.advance(second)
    desk.beat()
    assert agent.rejects == [AGENT_TOO_OLD.code]
    assert (agent.executed, agent.fence.head.seq) == ([], 0)


def test_a_demand_that_is_taken_back_lets_everybody_be_driven_again(desk: Desk) -> None:
    desk.settle(2)
    demand(desk)
    desk.settle(2)
    demand(desk, "0.1.0")
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
