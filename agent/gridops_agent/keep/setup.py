"""Which keepers this host has, from its `agent.toml`. Called by the agent and by its commands; starts nothing."""

from __future__ import annotations

from gridops.base.errors import BadSetup
from gridops_agent.config import Config
from gridops_agent.doors import Doors
from gridops_agent.engines import services
from gridops_agent.keep.base import Keeper
from gridops_agent.keep.child import ChildKeeper
from gridops_agent.keep.keepers import Keepers
from gridops_agent.keep.service import ServiceKeeper
from gridops_agent.keep.unit import Setup as UnitSetup
from gridops_agent.keep.unit import UnitKeeper
from gridops_agent.keep.unit_files import DropIns, user_folder
from gridops_agent.platform import here


def keepers_of(config: Config) -> Keepers:
    """The keepers of one agent. Raises BadSetup when a way needs something that is not installed."""
    platform = here()
    keepers = Keepers(ChildKeeper(platform, config.state))
    if config.ways.images:
        keepers.add(_containers(config), config.ways.images)
    if config.ways.services:
        known = services(config.ways.services)
        unknown = sorted(config.ways.services.keys() - known.keys())
        if unknown:
            raise BadSetup(f"{config.file}: `{unknown[0]}` is no engine that this agent knows as a service")
        keepers.add(ServiceKeeper(platform, known, keepers.launch_of), config.ways.services)
    if config.ways.units:
        units = config.ways.units
        drop_ins = DropIns(user_folder(), str(config.state.resolve()), units)
        keepers.add(UnitKeeper(platform, UnitSetup(units, drop_ins)), ())
    return keepers


def _containers(config: Config) -> Keeper:
    try:
        from gridops_agent.keep.container import ContainerKeeper, Setup
        from gridops_agent.keep.container_api import Containers
        from gridops_agent.keep.container_spec import Owner
    except ImportError as error:
        raise BadSetup(
            f"{config.file} runs engines as containers, and the library for that is not installed: {error.name}",
            hints=("pip install 'gridops[containers]'",),
        ) from error
    owner = Owner(config.fleet, config.host)
    setup = Setup(owner, config.ways.images, Doors(config.engines).folder)
    return ContainerKeeper(Containers(config.ways.socket), setup)
