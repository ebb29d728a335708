"""An agent that its root lets nobody drive: it says so unasked, goes on, and is driven again after an upgrade."""

from __future__ import annotations

from gridops.trust import amend
from gridops.trust.root import seal_root
from gridops_agent.core.events import RootsCame
from gridops_agent.shell import Agent
from gridops_agent.status import status
from tests.agent.site import PERSON, Site


def said(site: Site, agent: Agent) -> list[str]:
    agent._write_status()
    return [alarm for alarm in status(site.config, running=True)["alarms"] if alarm.startswith("agent_too_old: ")]


async def test_an_agent_that_is_too_old_says_so_unasked_and_an_upgrade_ends_it(site: Site) -> None:
    following = seal_root(amend.driving(site.chain, "0.10.0", site.chain.root.issued_ms + 1_000), PERSON)
    async with Agent(site.config, "0.9.0", site.sense) as agent:
        assert said(site, agent) == []
        await agent.effects.tell(RootsCame((following,)))
        (alarm,) = said(site, agent)
        assert "agent 0.9.0, and root 2 demands 0.10.0 or later: upgrade it; serving goes on, change waits" in alarm
        assert agent.memory.host.version == "0.9.0"
    async with Agent(site.config, "0.9.0", site.sense) as again:
        assert len(said(site, again)) == 1, "the root is remembered"
    async with Agent(site.config, "0.10.0", site.sense) as newer:
        assert said(site, newer) == []
