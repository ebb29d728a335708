"""Opens this host's artifacts for the shell: settings, secrets, what is spoken for, and the mirror if there is one."""

from __future__ import annotations

from collections.abc import Callable

from gridops.base.errors import BadSetup, Refusal
from gridops.model.action import Load, Warm
from gridops.protocol.messages import Transfer
from gridops_agent.artifacts.find import name_of
from gridops_agent.artifacts.mirror import Mirror
from gridops_agent.artifacts.room import Claims
from gridops_agent.artifacts.settings import Secrets
from gridops_agent.artifacts.shelf import Artifacts, Ways
from gridops_agent.config import Config
from gridops_agent.core.state import Host
from gridops_agent.front import tls_context
from gridops_agent.ledger import Ledger


def open_artifacts(config: Config, ledger: Ledger, host: Callable[[], Host]) -> Artifacts:
    """The shelf of this host. `host` gives its memory as it is now, from any thread."""
    ways = Ways(config.artifacts, Secrets(config.secrets_folder), lambda: claims(host()))
    made = Artifacts(config.artifact_folders, config.cache, ledger.proofs(), ledger.keep_proof, ways)
    made.tidy()
    return made


async def open_mirror(config: Config, artifacts: Artifacts) -> Mirror | None:
    """The listener for peers; None where agent.toml wants none. Raises BadSetup."""
    settings = config.artifacts
    if settings.mirror is None or settings.peer_credential is None:
        return None
    try:
        key = Secrets(config.secrets_folder).get(settings.peer_credential)
    except Refusal as refusal:
        raise BadSetup(f"the mirror has no key: {refusal.message}", hints=refusal.hints) from refusal
    mirror = Mirror(artifacts.finder, key, artifacts.pace)
    await mirror.open(settings.mirror, tls_context(config.front_cert, config.front_key))
    return mirror


def claims(host: Host) -> Claims:
    """What of the downloads here is in use, or was a guess."""
    used = [held.warm.launch.artifact for held in host.held.values()]
    for command in host.commands.values():
        action = command.body.action
        if isinstance(action, Load | Warm):
            used.append(action.artifact if isinstance(action, Load) else action.launch.artifact)
    names = frozenset(digest.removeprefix("sha256:") for digest in host.guesses)
    return Claims(busy=frozenset(name_of(artifact) for artifact in used), guesses=names)


def transfers(artifacts: Artifacts) -> tuple[Transfer, ...]:
    """What is being fetched now, for the heartbeat."""
    return tuple(
        Transfer(artifact=p.artifact, source=p.source, done_bytes=p.done_bytes, size_bytes=p.size_bytes)
        for p in artifacts.transfers()
    )
