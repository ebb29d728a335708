"""Every durable file of a controller and of an agent, in one table: who reads it, and what damage to it leads to.

`KEPT` is held against the state folders of two processes that have lived, and `WRITERS` against the code: a file or a
module that writes and is not here fails `test_torn.py`. docs/explanation/durability.md says the same to people.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridops.base.errors import BadSetup, Failed, GridopsError
from gridops.controller.core.pack import pack
from gridops.controller.lineage import known_roots
from gridops.controller.service import state_dir
from gridops.controller.statedir import StateDir
from gridops.controller.writer import Writer
from gridops.disk.keyring import read_secret
from gridops.store.errors import Damaged
from gridops.store.journal import Journal
from gridops.trust.keys import MachineSigner, parse_key
from gridops.trust.root import genesis, walk
from gridops.trust.tls import fingerprint
from gridops_agent import evidence, rekeying
from gridops_agent.clock import SystemClock
from gridops_agent.config import read_config
from gridops_agent.core.protection import Override, OverrideKind
from gridops_agent.front import tls_context
from gridops_agent.keep import taken
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity
from gridops_agent.life.left import has_left
from gridops_agent.overrides import stands
from gridops_agent.statefolder import spare_roots
from tests.builders.reading import Reading

CONTROLLER, AGENT = "controller", "agent"
REFUSED = "refused, naming the file"
SET_ASIDE = "set aside, and known to be"
STRICTEST = "taken as the strictest word"
NOT_USED = "not used, and said"
PREVIOUS = "an earlier state, whole"


@dataclass(frozen=True, slots=True)
class Kept:
    """One durable file. `read`: its content as its reader takes it, from a state folder; or how it says no."""

    owner: str
    name: str
    """A pattern for its path in the state folder."""
    read: Callable[[Path, Path], Any] | None
    """None: nobody reads it back, or what reads it proves the content by other means; `why` says which."""
    why: str = ""
    summed: bool = True
    """A changed bit is found. Else only a file that is cut off is, and `why` says what a changed bit leads to."""


class No(Exception):
    """The reader said no, in a way that is allowed."""


def named(path: Path, error: GridopsError) -> No:
    """A refusal that names the file, or it is none."""
    said = " ".join((error.message, *error.hints))
    assert path.name in said, f"{path.name} is not named: {said}"
    return No(REFUSED)


# -- the controller's -------------------------------------------------------------------------------------------------


def is_moved(folder: Path, damaged: Damaged) -> bool:
    return damaged.kept.exists() and not (folder / "journal.sqlite").exists()


def _journal(folder: Path, path: Path) -> Any:
    try:
        journal = Journal.open(folder / "journal.sqlite")
    except Damaged as damaged:
        raise (No(SET_ASIDE) if is_moved(folder, damaged) else damaged) from damaged
    except (BadSetup, Failed) as error:
        raise named(folder / "journal.sqlite", error) from error
    try:
        writer = Writer(Reading(journal))
        return writer.replay(), pack(writer.state), [(row.n, row.digest) for row in journal.replay()]
    finally:
        journal.close()


def _controller_key(folder: Path, path: Path) -> Any:
    try:
        return StateDir(folder).signer().public
    except GridopsError as error:
        raise named(path, error) from error


def _accepted(folder: Path, path: Path) -> Any:
    try:
        return known_roots(state_dir(folder), ()), StateDir(folder).accepted()
    except GridopsError as error:
        raise named(path, error) from error


def _controller_tls(folder: Path, path: Path) -> Any:
    dir_ = StateDir(folder)
    try:
        dir_.check_tls()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(dir_.tls_cert, dir_.tls_key)
    except GridopsError as error:
        raise named(path, error) from error
    except (OSError, ssl.SSLError) as error:  # http.listener says the same with the name of the file
        raise No(REFUSED) from error
    return fingerprint(dir_.tls_cert.read_text("ascii"))


def _secret(folder: Path, path: Path) -> Any:
    try:
        return read_secret(path)
    except GridopsError as error:
        raise named(path, error) from error


# -- the agent's ------------------------------------------------------------------------------------------------------


def _identity(folder: Path) -> Identity:
    config = read_config(folder)
    signer = MachineSigner.from_seed(read_secret(config.seed))
    return Identity(fleet=config.fleet, host=config.host, host_key=signer.public.text)


def _ledger(folder: Path, path: Path) -> Any:
    try:
        ledger = Ledger.open(folder / "ledger.sqlite", _identity(folder), spare_roots(read_config(folder)), 1)
    except (BadSetup, Failed, ValueError) as error:
        raise named(path, error) if isinstance(error, GridopsError) else error from error
    try:
        host = ledger.load("a boot")
        if ledger.damage is not None:
            assert Path(ledger.damage.aside).exists()
            assert host.commands == {}
            raise No(SET_ASIDE)
        return host.fence, host.receipts, dict(host.held), dict(host.commands), dict(host.counts), host.roots
    finally:
        ledger.close()


def _host_key(folder: Path, path: Path) -> Any:
    try:
        signer = MachineSigner.from_seed(read_secret(path))
    except GridopsError as error:
        raise named(path, error) from error
    except ValueError as error:
        raise No(REFUSED) from error
    before = (folder / "ledger.sqlite").read_bytes()
    config = read_config(folder)
    identity = Identity(fleet=config.fleet, host=config.host, host_key=signer.public.text)
    try:
        Ledger.open(config.ledger, identity, (), 1).close()
    except GridopsError as error:
        assert (folder / "ledger.sqlite").read_bytes() == before, "what is whole is not set aside"
        raise named(path, error) from error
    return signer.public


def _front(folder: Path, path: Path) -> Any:
    config = read_config(folder)
    try:
        read_secret(config.front_key)
        tls_context(config.front_cert, config.front_key)
    except GridopsError as error:
        raise named(path, error) from error
    return fingerprint(config.front_cert.read_text("ascii"))


def _settings(folder: Path, path: Path) -> Any:
    try:
        return read_config(folder)
    except GridopsError as error:
        raise named(path, error) from error


def _roots(folder: Path, path: Path) -> Any:
    config = read_config(folder)
    roots = spare_roots(config)
    try:
        if not roots:
            raise No(NOT_USED)
        return walk(genesis(roots[0], config.fleet), roots[1:]).root
    except GridopsError as error:
        raise No(REFUSED) from error


def _override(folder: Path, path: Path) -> Any:
    found = stands(path, None, SystemClock())
    assert found is not None
    if found.kind is OverrideKind.QUARANTINE:
        raise No(STRICTEST)
    return Override(found.kind, found.reason)


def _hands(folder: Path, path: Path) -> Any:
    try:
        return taken.read(path)
    except GridopsError as error:
        raise named(path, error) from error


def _left(folder: Path, path: Path) -> Any:
    found = has_left(read_config(folder))
    assert found is not None, "a host that has left comes back by no accident"
    if found == 0:
        raise No(STRICTEST)
    return True


def _next_key(folder: Path, path: Path) -> Any:
    try:
        return rekeying.next_signer(read_config(folder))
    except GridopsError as error:
        raise named(folder / "keys/host.next.seed", error) from error


def _former(folder: Path, path: Path) -> Any:
    found, doubt = rekeying.former_keys(read_config(folder))
    if doubt is not None:
        assert path.name in doubt
        raise No(NOT_USED)
    return found


def _qualified(folder: Path, path: Path) -> Any:
    signer = MachineSigner.from_seed(read_secret(folder / "keys/host.seed"))
    made, doubts = evidence.used(path.parent, parse_key(signer.public.text))
    if doubts:
        assert path.name in doubts[0]
        raise No(NOT_USED)
    return made


SECRET = "it is a secret of 256 bits that nobody else knows: a changed one opens nothing, and is replaced by its owner"
KEPT = (
    Kept(CONTROLLER, "journal.sqlite", _journal),
    Kept(CONTROLLER, "journal.sqlite-wal", _journal),
    Kept(CONTROLLER, "keys/controller.seed", _controller_key, "a root document names the key, and a start that has "
         "another one is refused (service.py)", summed=False),
    Kept(CONTROLLER, "keys/controller.tls.pem", _controller_tls, "hosts pin the certificate of the root document and "
         "refuse another one", summed=False),
    Kept(CONTROLLER, "keys/controller.tls.key", _controller_tls),
    Kept(CONTROLLER, "keys/gateway.key", _secret, SECRET, summed=False),
    Kept(CONTROLLER, "keys/invites/*.key", _secret, SECRET, summed=False),
    Kept(CONTROLLER, "accepted.json", _accepted),
    Kept(CONTROLLER, "controller.lock", None, "only its lock counts; the number in it is shown"),
    Kept(CONTROLLER, "journal.sqlite-shm", None, "SQLite makes it anew"),
    Kept(CONTROLLER, "reports/*", None, "for people"),
    Kept(AGENT, "ledger.sqlite", _ledger),
    Kept(AGENT, "ledger.sqlite-wal", _ledger),
    Kept(AGENT, "keys/host.seed", _host_key),
    Kept(AGENT, "keys/host.next.seed", _next_key),
    Kept(AGENT, "keys/host.next.pub", _next_key),
    Kept(AGENT, "former-keys.json", _former),
    Kept(AGENT, "keys/front.pem", _front, "clients pin the certificate that the host signed in its heartbeat",
         summed=False),
    Kept(AGENT, "keys/front.key", _front),
    Kept(AGENT, "agent.toml", _settings, "people may change it, so a changed word is what it says", summed=False),
    Kept(AGENT, "roots/*.json", _roots),
    Kept(AGENT, "override.json", _override),
    Kept(AGENT, "hands.json", _hands),
    Kept(AGENT, "left.json", _left, "that it is there is what counts", summed=False),
    Kept(AGENT, "qualified/*.json", _qualified),
    Kept(AGENT, "engines/*/engine.key", _secret, "its engine answers nobody who has another one, and is started anew",
         summed=False),
    Kept(AGENT, "engines/*/model", None, "the files that it names are proved by their digests (artifacts)"),
    Kept(AGENT, "engines/*/log", None, "for people"),
    Kept(AGENT, "artifacts/**", None, "proved by SHA-256 before each start; tests/agent/test_artifacts.py damages it"),
    Kept(AGENT, "status.json", None, "removed at each start; for people"),
    Kept(AGENT, "agent.lock", None, "only its lock counts"),
    Kept(AGENT, "ledger.sqlite-shm", None, "SQLite makes it anew"),
    Kept(AGENT, "log/*", None, "for people"),
    Kept(AGENT, "runtime/**", None, "installed by digest; the stamp in it is compared with the lock"),
)  # fmt: skip
WRITERS = {
    "gridops.controller.faults": "reports/*",
    "gridops.controller.statedir": "keys/*, accepted.json",
    "gridops.store.authority": "controller.lock",
    "gridops.store.database": "journal.sqlite",
    "gridops_agent.artifacts.room": "artifacts/**",
    "gridops_agent.artifacts.shelf": "artifacts/**",
    "gridops_agent.artifacts.transfer": "artifacts/**",
    "gridops_agent.config": "agent.toml",
    "gridops_agent.doors": "engines/*/engine.key",
    "gridops_agent.evidence": "qualified/*.json",
    "gridops_agent.joining": "keys/*",
    "gridops_agent.keep.container": "engines/*/log",
    "gridops_agent.keep.taken": "hands.json",
    "gridops_agent.ledger": "ledger.sqlite",
    "gridops_agent.life.left": "left.json",
    "gridops_agent.life.runtime": "runtime/**",
    "gridops_agent.live_note": "status.json",
    "gridops_agent.overrides": "override.json",
    "gridops_agent.rekeying": "keys/*, former-keys.json",
    "gridops_agent.starts": "engines/*/model",
    "gridops_agent.statefolder": "roots/*.json, agent.lock",
}
"""Modules of the two daemons that write into a state folder, and what."""
ELSEWHERE = {
    "gridops_agent.account": "the account that the system's service runs as",
    "gridops_agent.keep.unit_files": "drop-ins of systemd, renewed at each start",
    "gridops_agent.life.install": "the agent's own service file",
    "gridops_agent.platform.groups": "control groups, no files",
}
"""Modules of the two daemons that write elsewhere."""


def kept_of(owner: str, name: str) -> Kept | None:
    """The row of a file; None when the table does not know it."""
    return next((row for row in KEPT if row.owner == owner and matches(row.name, name)), None)


def matches(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern.replace(".", r"\.").replace("**", ".+").replace("*", "[^/]+"), name) is not None
