"""Which keepers this host has, from its `agent.toml`. Called by the agent and by its commands; starts nothing."""

from __future__ import annotations

from gridops_agent.config import Config
from gridops_agent.keep.child import ChildKeeper
from gridops_agent.keep.keepers import Keepers
from gridops_agent.platform import here


def keepers_of(config: Config) -> Keepers:
    """The keepers of one agent."""
    return Keepers(ChildKeeper(here(), config.state))
