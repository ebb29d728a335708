"""How a controller comes to be: which checkout, which state folder, which address, before any loop runs.

Shared by `gridops watch` and `gridops controller rebuild`. What cannot work is a BadSetup (exit 78), so that a service
is not restarted in vain.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gridops.base.clock import Clock
from gridops.base.errors import BadSetup, ConfigError, GridopsError
from gridops.controller import intake
from gridops.controller.clock import MachineClock
from gridops.controller.core.intend import Found, chain_of, judge_commit
from gridops.controller.core.rows import IntentRefused
from gridops.controller.core.state import State
from gridops.controller.http import Listen
from gridops.controller.lineage import Base, known_roots
from gridops.controller.service import Opening, state_dir
from gridops.controller.statedir import StateDir, default_state
from gridops.files.gather import gather
from gridops.files.git import Checkout
from gridops.files.trusted import root_texts
from gridops.model.fleet import FleetSettings

COMMITS_TRIED = 200
"""How far back a rebuild looks for a commit that validates."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The checkout and what its newest commit says about itself."""

    checkout: Checkout
    source: intake.Source
    roots: tuple[str, ...]
    settings: FleetSettings


def ground(directory: Path) -> Ground:
    """Open the checkout. A remote that does not answer is no obstacle: what was fetched before is enough to begin."""
    checkout = Checkout(directory)
    local = intake.source_of(checkout, None)
    settings = _settings(checkout, local)
    source = intake.source_of(checkout, settings)
    try:
        tip = intake.tip(checkout, source, source.remote is not None)
    except GridopsError:
        tip = checkout.fetched(source.branch) or checkout.head(local.branch)
    return Ground(checkout, source, root_texts(checkout.tree(tip)), settings)


def opening(found: Ground, state: Path | None, clock: Clock | None = None) -> Opening:
    """The state folder of this fleet, by its root document unless somebody names another."""
    if not found.roots and (state is None or StateDir(state).accepted() is None):
        raise BadSetup(
            f"branch {found.source.branch} holds no root document, so nobody may say anything",
            hints=("make one: gridops trust init, then commit policies/trust/root/1.json",),
        )
    folder = state_dir(state if state is not None else default_state(chain_of(found.roots).fleet))
    return Opening(folder, known_roots(folder, found.roots), clock or MachineClock())


def listen_on(given: str | None, settings: FleetSettings) -> Listen:
    """`--listen`, else the port of `controller:` in policies/fleet.yaml."""
    if given is not None:
        host, colon, port = given.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65_535:
            raise BadSetup(f"--listen {given}: expected HOST:PORT, such as 127.0.0.1:7443")
        return Listen(host.strip("[]") or "127.0.0.1", int(port))
    url = urlsplit(settings.controller or "")
    if not url.hostname:
        raise BadSetup(
            "policies/fleet.yaml names no `controller:`, so there is no address to listen on",
            hints=("add `controller: https://HOST:7443`, or pass --listen HOST:PORT",),
        )
    return Listen(_bindable(url.hostname), url.port or 7443)


def newest_valid(found: Ground, base: Base) -> Found:
    """The newest commit that a controller which knows what was in force would accept, looking back from the tip.

    Raises ConfigError if there is none.
    """
    branch = found.checkout.resolve(f"refs/heads/{found.source.branch}") or found.checkout.fetched(found.source.branch)
    first: str | None = None
    for back in range(COMMITS_TRIED):
        commit = found.checkout.resolve(f"{branch}~{back}") if branch is not None else None
        if commit is None:
            break
        read = intake.read(found.checkout, commit, base)
        why = _refused(read, base)
        if why is None:
            return read
        first = first or why
    problem = first or "there is no commit"
    raise ConfigError(f"no commit of branch {found.source.branch} validates: {problem}", hints=("gridops validate",))


def _refused(read: Found, base: Base) -> str | None:
    """Why it would not be accepted now; None: it would be."""
    judged = judge_commit(State(roots=list(base.roots)), base.chain, read)
    if judged.chain is not None:
        return None
    return next((p for row in judged.rows if isinstance(row, IntentRefused) for p in row.problems), read.subject)


def _settings(checkout: Checkout, local: intake.Source) -> FleetSettings:
    tree = checkout.tree(checkout.head(local.branch))
    found = gather(tree, [p for p in tree.paths() if p == "policies/fleet.yaml"]).policies.get("Fleet")
    return found.value if found is not None and isinstance(found.value, FleetSettings) else FleetSettings()


def _bindable(host: str) -> str:
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        # A name is how others reach this machine; which of its addresses that is, this machine need not know.
        return "0.0.0.0"
